"""Requests and replicas' log ends, of a cluster that serves metrics: over HTTP, and as the page draws them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect, sync_playwright
from support.console.browser import CHROMIUM
from support.console.console_process import ask
from support.e2e.transactions import until

pytestmark = pytest.mark.process


def raftwerk(*arguments: str) -> str:
    command = [sys.executable, "-m", "raftwerk", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = str(tmp_path_factory.mktemp("up") / "c")
    options = ("--port", "0", "--metrics-port", "0", "--console-port", "0", "--detach")
    (tmp_path_factory.getbasetemp() / "told").write_text(raftwerk("up", "-n", "3", "-d", path, *options))
    raftwerk("topics", "create", "flights", "-p", "1", "-r", "3", "-d", path)
    raftwerk("topics", "create", "spread", "-p", "3", "-r", "3", "-d", path)  # so that followers fetch from every node
    yield path
    raftwerk("down", "-d", path)


@pytest.fixture(scope="module")
def url(directory: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    found = re.search(r"console: (http://\S+)", (tmp_path_factory.getbasetemp() / "told").read_text())
    assert found is not None
    return found[1]


def test_the_log_ends_of_all_replicas_move(directory: str, url: str) -> None:
    def ends() -> dict[str, int]:
        found = ask(url, "/api/topics/flights/replicas")[1]["log_end_offsets"].get("0", {})
        assert isinstance(found, dict)
        return found

    until(lambda: ends() == {"1": 0, "2": 0, "3": 0})
    raftwerk("produce", "flights", "-m", "UA", "-d", directory)
    until(lambda: ends() == {"1": 1, "2": 1, "3": 1})


def test_rates_and_times_are_there_by_api_and_node(url: str) -> None:
    until(lambda: len(ask(url, "/api/requests")[1]["apis"].get("Fetch", {})) == 3)
    answer = ask(url, "/api/requests")[1]
    at_ms, per_s, mean_ms = answer["apis"]["Fetch"]["1"][0]
    assert at_ms <= answer["at_ms"] and per_s >= 0 and (mean_ms is None or mean_ms > 0)
    assert ask(url, f"/api/requests?since_ms={at_ms + 10**9}")[1]["apis"] == {}
    assert ask(url, "/api/requests?since_ms=soon")[0] == 400


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: the console's pages are NOT tested")
def test_the_page_draws_a_line_for_each_node(url: str) -> None:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(f"{url}/#/requests")
        rates = page.locator("[data-api=Fetch] svg").first
        expect(rates.locator("polyline")).to_have_count(3, timeout=60_000)
        expect(rates).to_have_attribute("aria-label", re.compile("Fetch: requests a second, at most [0-9]"))
        page.goto(f"{url}/#/topics/flights")
        card = page.locator(".card", has_text="Log end of each replica")
        expect(card.locator("b")).to_have_count(1, timeout=30_000)
        expect(card.locator("tbody td")).to_have_count(4)
        assert problems == []
        browser.close()
