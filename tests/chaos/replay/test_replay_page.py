"""The page of a replay in a real browser: what a person sees, steps through and plays."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from support.e2e.transactions import until

from raftwerk.chaos.sim.faults.fault import Fault, FaultKind
from raftwerk.chaos.sim.replay.history import Failure, History, StepKind, state_at
from raftwerk.chaos.sim.replay.page_text import render_replay
from raftwerk.chaos.sim.replay.record_run import record_run
from raftwerk.chaos.sim.scenarios import SCENARIOS

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip("no Chromium: the pages of replays are NOT tested", allow_module_level=True)
SCRIPT = "<img src=x onerror=document.title='owned'></script><script>document.title='owned'</script>"
CURRENT = "#steps li[aria-current]"
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def history() -> History:
    """A run in which the active controller is killed and comes back, and a node is cut off later."""
    faults = [
        Fault(0.5, FaultKind.KILL, "controller", "controller", 0.6),
        Fault(1.5, FaultKind.ISOLATE, "n3", "n3", 0.4),
    ]
    outcome, recorded = record_run(replace(SCENARIOS["kill"], faults_s=2.0), 3, faults)
    assert outcome.failure is None
    return recorded


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Opens the page of a history from a file. It must meet no error, and must ask for nothing else."""
    problems: list[str] = []
    pages: list[Page] = []

    def open_page(history: History, address: str = "", width: int = 1300, scheme: str = "light") -> Page:
        path = tmp_path / "replay.html"
        path.write_text(render_replay(history))
        page = browser.new_page(
            viewport={"width": width, "height": 900}, color_scheme="dark" if scheme == "dark" else "light"
        )
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text))
        page.on("request", lambda one: problems.append(one.url) if not one.url.startswith("file:") else None)
        page.goto(f"file://{path}{address}")
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert problems == []


def number_of(history: History, kind: StepKind, text: str = "", start: int = 0) -> int:
    """The first step of that kind that says so."""
    return next(
        number
        for number, step in enumerate(history.steps)
        if number >= start and step.kind is kind and step.text.startswith(text)
    )


def test_the_page_has_the_state_of_every_step_that_the_recorder_had(history: History, open_page: Open) -> None:
    page = open_page(history)
    every = [*range(-1, len(history.steps), 97), 248, 249, 250, len(history.steps) - 1]
    script = "numbers => numbers.map(number => Object.fromEntries(stateAt(replay.history, number)))"
    shown = page.evaluate(script, every)
    assert shown == [json.loads(json.dumps(state_at(history, number))) for number in every]


def test_the_page_has_every_message_and_step(history: History, open_page: Open) -> None:
    page = open_page(history)
    messages = page.evaluate(
        "replay.history.messages.map(m => [m.sent, m.arrived, m.source, m.target, m.api, m.isResponse])"
    )
    assert messages == [
        [one.sent_us, one.arrived_us, one.source, one.target, one.api, one.is_response] for one in history.messages
    ]
    steps = page.evaluate("replay.history.steps.map(step => [step.at, step.kind, step.where])")
    assert steps == [[step.at_us, step.kind.value, step.where] for step in history.steps]


def test_it_opens_at_the_first_fault_and_arrows_step_through_the_failover(history: History, open_page: Open) -> None:
    page = open_page(history)
    expect(page.locator("#verdict")).to_have_text("held")
    expect(page.locator(CURRENT)).to_contain_text("kill: n")
    page.keyboard.press("ArrowRight")
    expect(page.locator(CURRENT)).to_contain_text("killed")
    victim = page.locator(f"{CURRENT} b").inner_text()
    expect(page.locator("#ring .node.down .name")).to_have_text(victim)
    page.keyboard.press("ArrowLeft")
    expect(page.locator(CURRENT)).to_contain_text("kill: n")
    expect(page.locator("#ring .node.down")).to_have_count(0)
    page.keyboard.press("e")
    expect(page.locator("#now")).to_contain_text("prospective of epoch 1")
    expect(page.locator("#ring .node.prospective")).to_have_count(1)
    expect(page.locator("#ring .badge-text.votes")).to_have_text("1 of 3 pre-votes")
    page.get_by_role("button", name="leader", exact=True).first.click()
    expect(page.locator("#now")).to_contain_text("leader epoch 1")
    page.keyboard.press("Shift+E")
    expect(page.locator("#now")).to_contain_text("leader of epoch 2")
    expect(page.locator("#bars .log h3").first).to_contain_text("epoch 2, voters [1, 2, 3]")


def test_a_request_is_seen_on_its_way(history: History, open_page: Open) -> None:
    number = number_of(history, StepKind.REQUEST, "Vote to", number_of(history, StepKind.PROCESS, "killed"))
    page = open_page(history, f"#step={number}")
    source = history.steps[number].where
    expect(page.locator("#ring .dot.quorum")).not_to_have_count(0)
    expect(page.locator("#ring .flight", has_text="Vote").first).to_be_visible()
    expect(page.locator("#messages li", has_text=f"{source} → ").filter(has_text="Vote").first).to_be_visible()
    page.locator("#groups").get_by_role("button", name="quorum").click()
    expect(page.locator("#ring .dot.quorum")).to_have_count(0)


def test_cut_links_are_crossed_out_until_they_work_again(history: History, open_page: Open) -> None:
    cut = number_of(history, StepKind.LINK)
    page = open_page(history, f"#step={cut}")
    expect(page.locator("#ring .link.cut")).to_have_count(2)
    page.evaluate(f"replay.goTo({number_of(history, StepKind.LINK, start=cut + 1)})")
    expect(page.locator("#ring .link.cut")).to_have_count(0)


def test_the_logs_show_offsets_and_who_is_in_sync(history: History, open_page: Open) -> None:
    number = number_of(history, StepKind.ISR, "ISR [", number_of(history, StepKind.PROCESS, "killed"))
    page = open_page(history, f"#step={number}")
    state = state_at(history, number)
    partition = history.steps[number].where
    log = page.locator("#bars .log", has_text=f"{partition} leader")
    expect(log.locator(".member")).to_have_count(2)
    expect(log.locator(".outside")).to_have_count(1)
    numbers = [
        f"{state[f'{name}.{partition}.log_end_offset']} · HW {state[f'{name}.{partition}.high_watermark']}"
        for name in ("n1", "n2", "n3")
    ]
    assert log.locator(".numbers").all_text_contents() == numbers
    page.locator("#partitions").get_by_role("button", name=partition).click()
    expect(log).to_have_count(0)


def test_it_plays_to_the_end_and_space_stops_it(history: History, open_page: Open) -> None:
    page = open_page(history)
    begun = page.evaluate("replay.step")
    page.keyboard.press(" ")
    expect(page.locator("#play")).to_have_text("Pause")
    until(lambda: page.evaluate("replay.step") > begun)
    page.keyboard.press(" ")
    expect(page.locator("#play")).to_have_text("Play")
    stopped = page.evaluate("replay.step")
    frames = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(replay.step))))"
    assert page.evaluate(frames) == stopped
    page.locator("#pace").select_option("real time")
    page.evaluate("replay.seek(replay.history.to - 900000)")
    page.locator("#play").click()
    expect(page.locator("#play")).to_have_text("Play")
    assert page.evaluate("replay.at") == history.to_us


def test_kinds_choose_what_is_stepped_through(history: History, open_page: Open) -> None:
    page = open_page(history, "#step=0")
    page.locator("#kinds").get_by_role("button").evaluate_all(
        "buttons => buttons.filter(one => one.getAttribute('aria-pressed') === 'true').forEach(one => one.click())"
    )
    page.locator("#kinds").get_by_role("button", name="broker").click()
    page.keyboard.press("ArrowRight")
    expect(page.locator(CURRENT)).to_contain_text("broker is")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("replay.history.steps[replay.step].kind") == "broker"


def test_the_time_line_seeks_and_shows_less_time(history: History, open_page: Open) -> None:
    page = open_page(history)
    box = page.locator("#lanes").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] - 12, box["y"] + 40)
    assert page.evaluate("replay.at") > 0.97 * history.to_us
    page.keyboard.press("Home")
    page.keyboard.press("+")
    assert page.evaluate("replay.timeLine.to - replay.timeLine.from") < 0.5 * history.to_us
    page.keyboard.press("End")
    assert page.evaluate("replay.timeLine.from <= replay.at && replay.at <= replay.timeLine.to")
    page.keyboard.press("0")
    expect(page.locator("#window")).to_have_text("the whole run")


def test_a_failing_run_says_what_broke_and_shows_it(history: History, open_page: Open) -> None:
    failure = Failure("an acked record is committed", "partition 0: acked 5+3", history.to_us)
    page = open_page(
        replace(history, facts=replace(history.facts, failure=failure), left_out=["3 messages are not shown."])
    )
    expect(page.locator("#verdict")).to_have_text("failed")
    expect(page.locator("#failure h2")).to_contain_text("an acked record is committed")
    expect(page.locator("#invariants li.bad")).to_have_text("an acked record is committed")
    expect(page.locator("#left-out")).to_have_text("3 messages are not shown.")
    page.get_by_role("button", name="Go to the failure").click()
    assert page.evaluate("replay.at") == history.steps[-1].at_us


def test_what_nodes_say_is_text_never_a_page(history: History, open_page: Open) -> None:
    steps = [replace(step, text=SCRIPT) if step.kind is StepKind.FAULT else step for step in history.steps]
    page = open_page(replace(history, steps=steps, facts=replace(history.facts, what=SCRIPT)))
    expect(page.locator("#about")).to_contain_text(SCRIPT)
    expect(page.locator(CURRENT)).to_contain_text(SCRIPT)
    assert page.locator("main img").count() == 0
    assert page.title() == "kill, seed 3: held"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_page_does_not_scroll_sideways(history: History, open_page: Open, scheme: str) -> None:
    for width in (360, 420, 1300):
        page = open_page(history, width=width, scheme=scheme)
        widths = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert widths[0] <= widths[1], width
        expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
