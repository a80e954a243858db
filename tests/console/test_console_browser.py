"""The console's pages in a real browser: what a person sees, does, and types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from playwright.sync_api import Page, Route, expect, sync_playwright
from support.console.browser import CHROMIUM
from support.console.console_process import ask
from support.e2e.command import ok
from support.e2e.transactions import TIMEOUT_S, open_transaction

from raftwerk.testkit.process_cluster import TestCluster, unique_topic

pytestmark = pytest.mark.process
if CHROMIUM is None:
    pytest.skip("no Chromium: the console's pages are NOT tested", allow_module_level=True)
SCRIPT = "<img src=x onerror=document.title='owned'>"


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    settings = {
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with TestCluster.start(3, settings=settings) as running:
        yield running


@pytest.fixture
def page(url: str) -> Iterator[Page]:
    """A page that must not meet an error, and must ask nobody but the console."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        made = browser.new_page(viewport={"width": 1200, "height": 900}, timezone_id="Asia/Kolkata")
        problems: list[str] = []
        made.on("pageerror", lambda error: problems.append(str(error)))
        made.on("console", lambda message: problems.append(message.text) if "Refused" in message.text else None)
        made.on("request", lambda one: problems.append(one.url) if not one.url.startswith((url, "data:")) else None)
        made.set_default_timeout(30_000)
        yield made
        assert problems == []
        browser.close()


def test_the_overview_is_live(cluster: TestCluster, url: str, page: Page) -> None:
    topic = cluster.create_topic(partitions=5, replicas=3)
    page.goto(url)
    expect(page.get_by_text("3 / 3")).to_be_visible(timeout=30_000)
    row = page.get_by_role("link", name=topic, exact=True).locator("+ .cells")
    expect(row.locator(".cell.in-sync")).to_have_count(5, timeout=30_000)
    cluster.kill(3)
    expect(page.get_by_text("2 / 3")).to_be_visible(timeout=30_000)
    expect(row.locator(".cell.under-replicated")).to_have_count(5, timeout=30_000)
    expect(page.get_by_text("node 3: up → down")).to_be_visible(timeout=30_000)
    cluster.heal()
    expect(row.locator(".cell.in-sync")).to_have_count(5, timeout=60_000)
    cluster.delete_topic(topic)
    expect(row).to_have_count(0, timeout=30_000)


def test_partitions_of_a_topic_that_differ_in_replicas(cluster: TestCluster, url: str, page: Page) -> None:
    topic = cluster.create_topic(partitions=2, replicas=3)
    page.goto(f"{url}/#/topics")
    replicas = page.get_by_role("row", name=topic).locator("td").nth(2)
    expect(replicas).to_have_text("3")
    ok("partitions", "reassign", f"{topic}-1=1", "--wait", "-b", cluster.bootstrap_servers)
    expect(replicas).to_have_text("1 to 3")
    cluster.delete_topic(topic)


def test_a_topic_is_made_read_and_deleted_by_hand(cluster: TestCluster, url: str, page: Page) -> None:
    topic = unique_topic("by-hand")
    page.goto(f"{url}/#/topics")
    page.get_by_text("Create a topic").click()
    page.get_by_label("Name", exact=True).fill(topic)
    page.get_by_label("Settings").fill("retention.ms=60000")
    page.get_by_role("button", name="Create topic").click()
    page.get_by_role("link", name=topic).click()
    page.get_by_text("Produce a record").click()
    page.get_by_label("Key", exact=True).fill("k")
    page.get_by_label("Value", exact=True).fill('{"n": [1, 2]}')
    page.get_by_role("button", name="Produce").click()
    expect(page.get_by_text("committed at offset 0")).to_be_visible()
    page.get_by_role("button", name="Read").click()
    expect(page.get_by_text('"n": [')).to_be_visible()
    expect(page.get_by_text("1 of 1 records looked at")).to_be_visible()
    page.get_by_text("Settings (1 set here)").click()
    expect(page.get_by_label("retention.ms", exact=True)).to_have_value("60000")
    page.get_by_text("Grow or delete").click()
    page.get_by_label("Name of the topic").fill("another")
    page.get_by_role("button", name="Delete topic").click()
    expect(page).to_have_url(f"{url}/#/topics/{topic}")
    page.get_by_label("Name of the topic").fill(topic)
    page.get_by_role("button", name="Delete topic").click()
    expect(page).to_have_url(f"{url}/#/topics")
    expect(page.get_by_role("link", name=topic)).to_have_count(0)


def test_what_records_hold_is_text_never_a_page(cluster: TestCluster, url: str, page: Page) -> None:
    topic = cluster.create_topic(partitions=1, replicas=1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(topic, SCRIPT, SCRIPT, headers={SCRIPT: SCRIPT})
    assert producer.flush(30) == 0
    page.goto(f"{url}/#/topics/{topic}")
    page.get_by_role("button", name="Read").click()
    expect(page.get_by_text(SCRIPT).first).to_be_visible()
    assert page.locator("main img").count() == 0
    assert page.title() == "Raftwerk console"


def test_json_is_indented_and_its_numbers_are_those_of_the_record(cluster: TestCluster, url: str, page: Page) -> None:
    topic = cluster.create_topic(partitions=1, replicas=1)
    value = '{"id":9007199254740993, "price":1.10,"far":12345678901234567890,"a":[],"t":"{\\"\\u00e4, 1 }"}'
    assert ask(url, f"/api/topics/{topic}/records", {"value": value})[0] == 200
    assert ask(url, f"/api/topics/{topic}/records", {"value": "[" * 9000 + "]" * 9000})[0] == 200
    assert ask(url, f"/api/topics/{topic}/records", {"value": "{no JSON}"})[0] == 200
    page.goto(f"{url}/#/topics/{topic}")
    page.get_by_role("button", name="Read").click()
    lines = ['"id": 9007199254740993', '"price": 1.10', '"far": 12345678901234567890', '"a": []', '"t": "{\\"ä, 1 }"']
    shown = page.locator("td pre")
    expect(shown).to_have_count(3)
    assert shown.nth(0).text_content() == "{\n  " + ",\n  ".join(lines) + "\n}"
    assert len(shown.nth(1).text_content() or "") < 3_000_000, "however deep it is, it does not fill the memory"
    assert shown.nth(2).text_content() == "{no JSON}"


def test_times_of_records_are_shown_and_taken_in_utc(url: str, cluster: TestCluster, page: Page) -> None:
    """The browser is in another time zone. A timestamp may be any number, such as one in nanoseconds."""
    topic = cluster.create_topic(partitions=1, replicas=1)
    noon_ms = 1769860800000
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        row: dict[str, Any] = {"partition": 0, "key": None, "value": None, "headers": []}
        times = (noon_ms, noon_ms * 1_000_000, -1)
        records = [{**row, "offset": offset, "timestamp": time} for offset, time in enumerate(times)]
        route.fulfill(json={"records": records, "looked_through": 3, "is_cut": False})

    page.route(f"**/api/topics/{topic}/records?*", answer)
    page.goto(f"{url}/#/topics/{topic}")
    page.get_by_role("button", name="Read").click()
    expect(page.get_by_role("cell", name="2026-01-31 12:00:00.000")).to_be_visible()
    expect(page.get_by_role("cell", name=f"{noon_ms * 1_000_000} ms")).to_be_visible()
    page.locator("label", has_text="Show").get_by_role("combobox").select_option("from time (UTC)")
    page.get_by_label("Offset or time").fill("2026-01-31T12:00")
    page.get_by_role("button", name="Read").click()
    expect(page.get_by_text("3 of 3 records looked at")).to_be_visible()
    assert f"from=time%3A{noon_ms}&" in asked[-1]


def test_what_is_executed_is_what_was_shown(cluster: TestCluster, url: str, page: Page) -> None:
    topic, group = cluster.create_topic(partitions=1, replicas=3), unique_topic("group")
    for _ in range(3):
        assert ask(url, f"/api/topics/{topic}/records", {"value": "v"})[0] == 200
    assert ask(url, f"/api/groups/{group}/reset", {"topic": topic, "to": "3", "execute": True})[0] == 200
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/reset", hold)
    page.goto(f"{url}/#/groups/{group}")
    page.get_by_text("Reset offsets").click()
    to, make = page.get_by_label("To", exact=True), page.get_by_role("button", name="Set the offsets")
    look = page.get_by_role("button", name="Show what would change")
    to.fill("2")
    with page.expect_request("**/reset"):
        look.click()
    to.fill("0")  # before the answer comes
    held.pop().continue_()
    expect(look).to_be_enabled()
    expect(make).to_be_disabled()
    expect(page.get_by_text("This would be:")).to_have_count(0)
    with page.expect_request("**/reset"):
        look.click()
    held.pop().continue_()
    expect(page.get_by_text("This would be:")).to_be_visible()
    to.evaluate("input => { input.value = '1'; }")  # as a script may, without an event
    with page.expect_request("**/reset") as made:
        make.click()
    held.pop().continue_()
    expect(page.get_by_text("It is done:")).to_be_visible()
    expect(make).to_be_disabled()
    assert made.value.post_data_json == {"topic": topic, "to": "0", "execute": True}


def test_an_acl_is_looked_at_added_and_removed_by_hand(url: str, page: Page) -> None:
    name = unique_topic("secret")
    page.goto(f"{url}/#/access")
    page.get_by_text("Add an entry").click()
    page.get_by_label("Principal").fill("alice")
    page.get_by_label("Name", exact=True).fill(name)
    add = page.get_by_role("button", name="Add the entries")
    expect(add).to_be_disabled()
    form = page.locator("details", has_text="Add an entry")
    form.get_by_role("button", name="Show what would change").click()
    expect(form.locator("tbody tr")).to_have_count(3)  # write, describe and create: to produce
    page.get_by_label("Name", exact=True).fill(f"{name}-2")
    expect(add).to_be_disabled()  # what was looked at is no longer what would be done
    form.get_by_role("button", name="Show what would change").click()
    add.click()
    rows = page.locator("main > div > .card.wide").first.locator("tbody tr", has_text=f"topic {name}-2")
    expect(rows).to_have_count(3)
    rows.first.get_by_role("button", name="Remove…").click()
    page.get_by_role("button", name="Remove it").click()
    expect(page.get_by_text("It is done:").first).to_be_visible()
    expect(rows.get_by_role("button", name="Remove…")).to_have_count(2)


def test_a_user_and_a_quota_are_made_by_hand(url: str, page: Page) -> None:
    name = unique_topic("user")
    page.goto(f"{url}/#/access")
    page.get_by_text("Add a user, or change a password").click()
    form = page.locator("details", has_text="Add a user")
    form.get_by_label("User").fill(name)
    form.get_by_label("Password").fill("secret")
    form.get_by_role("button", name="Set the password").click()
    expect(page.locator("tr", has_text=name)).to_have_count(1)
    page.get_by_text("Set a quota").click()
    form = page.locator("details", has_text="Set a quota")
    form.get_by_label("User").fill(name)
    form.get_by_label("Client id").fill("*")
    form.get_by_label("Value").fill("1000")
    form.get_by_role("button", name="Show what would change").click()
    form.get_by_role("button", name="Set the quota").click()
    expect(page.get_by_text(f"default client-id, user {name}")).to_be_visible()


def test_a_partition_is_moved_by_hand(cluster: TestCluster, url: str, page: Page) -> None:
    topic = cluster.create_topic(partitions=1, replicas=1)
    target = cluster.leader_of(topic) % 3 + 1
    page.goto(f"{url}/#/storage")
    page.get_by_text("Move partitions to other brokers").click()
    page.get_by_label("Topic", exact=True).fill(topic)
    moves = page.get_by_label("Moves", exact=True)
    page.get_by_role("button", name="Write down where it is now").click()
    expect(moves).to_have_value(f"{topic}-0={cluster.leader_of(topic)}")
    moves.fill(f"{topic}-0={target}")
    page.get_by_role("button", name="Show what would change").click()
    expect(page.locator("details tr", has_text=f"{topic}-0")).to_contain_text(str(target))
    page.get_by_role("button", name="Move them").click()
    page.goto(f"{url}/#/topics/{topic}")
    expect(page.get_by_text(f"node {target}", exact=True)).to_be_visible(timeout=30_000)


def test_moves_between_directories_are_seen(url: str, page: Page) -> None:
    """What the brokers tell is given here, since nodes of a test cluster have one directory each."""
    sizes = {"copied_bytes": 1024, "total_bytes": 4096}
    move = {"topic": "t", "partition": 7, "broker": 1, "from": "/disk-a", "to": "/disk-b", **sizes}
    answers: dict[str, dict[str, list[Any]]] = {
        "reassignments": {"moves": [], "directory_moves": [move], "missing": []},
        "log-dirs": {"log_dirs": [card("/disk-a", 1, 0), card("/disk-b", 0, 1)], "missing": []},
    }

    def answer(route: Route) -> None:
        route.fulfill(json=answers[route.request.url.rpartition("/")[2]])

    for name in answers:
        page.route(f"**/api/{name}", answer)
    page.goto(f"{url}/#/storage")
    moves = page.locator(".card", has_text="Moves under way")
    expect(moves.get_by_role("row", name="t-7")).to_contain_text("/disk-a/disk-b1.0 KiB of 4.0 KiB")
    expect(page.get_by_text("1 replica, 4.0 KiB; 8.0 KiB of")).to_be_visible()
    expect(page.get_by_text("0 replicas, 4.0 KiB, 1 being moved here; 8.0 KiB of")).to_be_visible()
    expect(page.get_by_role("cell", name="1 being moved here")).to_be_visible()
    answers["reassignments"] = {"moves": [], "directory_moves": [], "missing": []}
    answers["log-dirs"] = {"log_dirs": [card("/disk-a", 0, 0), card("/disk-b", 1, 0)], "missing": []}
    expect(moves).to_contain_text("Nothing is moving.")
    expect(page.get_by_text("being moved here")).to_have_count(0)
    answers["reassignments"]["missing"] = ["broker 2 is silent"]
    expect(moves).to_contain_text("incomplete: broker 2 is silent")
    expect(moves).not_to_contain_text("Nothing is moving.")


def card(path: str, replicas: int, moving_here: int) -> dict[str, Any]:
    """A directory that has one topic."""
    held = {"replicas": replicas, "moving_here": moving_here, "size_bytes": 4096}
    space = {"total_bytes": 16384, "usable_bytes": 8192, "has_failed": False}
    return {"broker": 1, "path": path, **held, **space, "topics": [{"topic": "t", **held}]}


def test_a_transaction_is_ended_by_hand(cluster: TestCluster, url: str, page: Page) -> None:
    topic = cluster.create_topic(partitions=1, replicas=3)
    writer = open_transaction(cluster.bootstrap_servers, topic)
    page.goto(f"{url}/#/transactions")
    page.get_by_role("link", name=f"{topic}-id").click()
    expect(page.get_by_role("link", name=topic, exact=True)).to_be_visible()
    page.get_by_role("button", name="Show what would change").click()
    expect(page.get_by_text("its next request would be refused")).to_be_visible()
    page.get_by_role("button", name="Abort it and fence the producer").click()
    expect(page.get_by_text("It has written to no partition.")).to_be_visible()
    with pytest.raises(KafkaException):
        writer.commit_transaction(TIMEOUT_S)


def test_the_lag_of_a_group_is_drawn_over_time(cluster: TestCluster, url: str, page: Page) -> None:
    topic = cluster.create_topic(partitions=1, replicas=3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for _ in range(7):
        producer.produce(topic, b"x", partition=0)
    assert producer.flush(30) == 0
    group = unique_topic("group")
    assert ask(url, f"/api/groups/{group}/reset", {"topic": topic, "to": "2", "execute": True})[0] == 200
    page.goto(f"{url}/#/groups")
    row = page.locator("tr", has_text=group)
    expect(row.locator("svg")).to_have_attribute("aria-label", f"lag of {group}", timeout=30_000)
    expect(row.locator("td[data-label=lag]")).to_have_text("5")
    row.get_by_role("link").click()
    expect(page.get_by_role("img", name="Records behind: 5 records, at most 5")).to_be_visible()
    page.get_by_text("Reset offsets").click()
    expect(page.get_by_role("button", name="Set the offsets")).to_be_disabled()
    page.get_by_role("button", name="Show what would change").click()
    page.get_by_role("button", name="Set the offsets").click()
    expect(page.get_by_text("It is done:")).to_be_visible()
    expect(page.get_by_role("img", name="Records behind: 7 records, at most 7")).to_be_visible()


def test_the_records_of_an_internal_topic_are_read_in_words(cluster: TestCluster, url: str, page: Page) -> None:
    topic = cluster.create_topic(partitions=1, replicas=3)
    group = unique_topic("group")
    assert ask(url, f"/api/groups/{group}/reset", {"topic": topic, "to": "earliest", "execute": True})[0] == 200
    page.goto(f"{url}/#/topics/__consumer_offsets")
    page.get_by_label("Key, value or header contains").fill(group)
    page.get_by_role("button", name="Read").click()
    row = page.locator("tr", has_text=f'"group": "{group}"').first
    expect(row).to_contain_text('"type": "offset"')
    expect(row.locator(".small", has_text="__consumer_offsets")).to_have_count(2)  # of the key, and of the value


def test_a_failover_is_rehearsed_by_clicks(cluster: TestCluster, url: str, page: Page) -> None:
    page.goto(f"{url}/#/rehearsal")
    page.get_by_role("button", name="Start the probe").click()
    expect(page.get_by_text("records acknowledged")).to_be_visible(timeout=30_000)
    card = page.locator(".card", has_text="Node 2").first
    card.get_by_role("button", name="Pause").click()
    expect(card.locator(".state.paused")).to_be_visible(timeout=30_000)
    card.get_by_role("button", name="Continue").click()
    expect(card.locator(".state.up")).to_be_visible(timeout=30_000)
    page.get_by_role("button", name="End the probe").click()
    expect(page.get_by_role("button", name="Start the probe")).to_be_visible()
    expect(page.get_by_text("paused node 2, by this console")).to_be_visible()
    page.get_by_label("A slow node is late by").select_option("50 ms")
    card.get_by_role("button", name="Slow down").click()
    expect(card.get_by_text("50 ms late", exact=True)).to_be_visible(timeout=30_000)
    card.get_by_role("button", name="Heal").click()
    expect(card.get_by_text("50 ms late", exact=True)).to_have_count(0, timeout=30_000)


def test_a_chaos_run_is_chosen_begun_and_stopped_by_clicks(cluster: TestCluster, url: str, page: Page) -> None:
    page.goto(f"{url}/#/rehearsal")
    faults = page.get_by_role("group", name="Faults")
    expect(faults.get_by_label("power")).to_be_disabled()
    faults.get_by_label("kill", exact=False).first.uncheck()
    faults.get_by_label("pause", exact=False).first.uncheck()
    page.get_by_role("button", name="Start the chaos run").click()
    expect(page.get_by_text("faults is missing, or is not a list of texts")).to_be_visible()
    faults.get_by_label("pause-leader", exact=False).check()
    page.get_by_role("button", name="Start the chaos run").click()
    lines = page.get_by_label("Progress of the chaos run")
    expect(lines).to_contain_text("pause-leader: node", timeout=60_000)
    assert ask(url, "/api/nodes/1/kill", {})[0] == 409
    page.get_by_role("button", name="Stop, heal and judge").click()
    verdict = page.get_by_text("No promise to clients was broken")
    expect(verdict).to_be_visible(timeout=60_000)
    expect(page.get_by_role("link", name="Report of the run")).to_be_visible()
    expect(page.get_by_role("button", name="Start the chaos run")).to_be_visible()


def test_a_narrow_page_does_not_scroll_sideways(cluster: TestCluster, url: str, page: Page) -> None:
    topic = cluster.create_topic(partitions=30, replicas=3)
    page.set_viewport_size({"width": 380, "height": 800})
    for path in ("/", "/topics", f"/topics/{topic}", "/groups", "/transactions", "/access", "/storage", "/rehearsal"):
        page.goto(f"{url}/#{path}")
        page.get_by_text("live").wait_for()
        widths = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert widths[0] <= widths[1], path
