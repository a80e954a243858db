"""The console's process beside a real cluster: the live view, changes, records, faults, and what it refuses."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, Producer
from support.console.console_process import CHANGE, ask, console, events

from raftwerk.testkit.process_cluster import TestCluster, unique_topic

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    settings = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    with TestCluster.start(3, settings=settings) as running:
        yield running


def whole_picture(url: str) -> dict[str, Any]:
    ((_, fields),) = events(url, lambda name, fields: name == "picture")
    assert isinstance(fields, dict)
    return fields


def test_the_first_event_is_the_whole_cluster(cluster: TestCluster, url: str) -> None:
    topic = cluster.create_topic(partitions=3, replicas=3)
    seen = events(url, lambda name, fields: f"{topic}\t2" in fields.get("partitions", {}))
    whole, told = seen[0][1], seen[-1][1]
    assert whole["whole"] and whole["about"]["is_local"] and whole["cluster_id"]
    assert [one["node"] for one in whole["nodes"]] == [1, 2, 3]
    assert {one["state"] for one in whole["nodes"]} == {"up"}
    assert sum(one["controller"] for one in whole["nodes"]) == 1
    assert len(whole["quorum"]["members"]) == 3
    leader, epoch, replicas, isr, end = told["partitions"][f"{topic}\t0"]
    assert (leader in replicas, epoch, sorted(isr), end) == (True, 0, [1, 2, 3], 0)


def test_nothing_is_asked_while_nobody_looks(cluster: TestCluster, url: str) -> None:
    seen = whole_picture(url)
    topic = cluster.create_topic(partitions=1, replicas=1)
    # The watch has ended with the last stream, so the picture is the one of then until a browser comes.
    first = whole_picture(url)
    assert first["at_ms"] >= seen["at_ms"]
    events(url, lambda name, fields: f"{topic}\t0" in fields.get("partitions", {}))


def test_topics_from_their_creation_to_their_end(cluster: TestCluster, url: str) -> None:
    topic = unique_topic("made here")
    topic = topic.replace(" ", ".")
    created = {"name": topic, "partitions": 2, "replication_factor": 3, "configs": {"retention.ms": 60000}}
    assert ask(url, "/api/topics", created) == (200, {"done": f"created topic {topic}"})
    status, told = ask(url, "/api/topics", created)
    assert (status, "already exists" in told["error"]) == (400, True), told
    assert ask(url, f"/api/topics/{topic}/partitions", {"count": 4})[0] == 200
    assert (
        ask(url, f"/api/topics/{topic}/configs", {"set": {"cleanup.policy": "compact"}, "reset": ["retention.ms"]})[0]
        == 200
    )
    _, found = ask(url, f"/api/topics/{topic}")
    assert [one["partition"] for one in found["partitions"]] == [0, 1, 2, 3]
    assert {one["name"]: one["value"] for one in found["configs"] if one["is_own"]} == {"cleanup.policy": "compact"}
    status, told = ask(url, f"/api/topics/{topic}/configs", {"set": {"retention.ms": "soon"}})
    assert (status, "retention.ms" in told["error"]) == (400, True), told
    assert ask(url, f"/api/topics/{topic}/delete", {})[0] == 200
    status, told = ask(url, f"/api/topics/{topic}")
    assert (status, "no such topic" in told["error"]) == (400, True), told


def test_records_are_written_and_found(cluster: TestCluster, url: str) -> None:
    topic = cluster.create_topic(partitions=2, replicas=3)
    for number in range(30):
        fields = {
            "key": f"k{number}",
            "value": json.dumps({"n": number}),
            "headers": {"h": "äöü"},
            "partition": number % 2,
        }
        assert ask(url, f"/api/topics/{topic}/records", fields) == (
            200,
            {"partition": number % 2, "offset": number // 2},
        )
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(topic, b"\xff\x00", None, partition=0)
    assert producer.flush(30) == 0

    def offsets(query: str) -> list[tuple[int, int]]:
        status, found = ask(url, f"/api/topics/{topic}/records?{query}")
        assert status == 200, found
        return sorted((one["partition"], one["offset"]) for one in found["records"])

    assert offsets("from=earliest&limit=500") == [(0, one) for one in range(16)] + [(1, one) for one in range(15)]
    assert offsets("from=latest&limit=3") == [(0, 14), (0, 15), (1, 14)]  # the last ones of all partitions
    assert offsets("from=latest&limit=2&text=k1") == [(0, 9), (1, 9)]
    assert offsets("from=offset:14&partition=0") == [(0, 14), (0, 15)]
    assert offsets("from=earliest&text=K17") == [(1, 8)]
    assert offsets(f"from=earliest&limit=500&text={quote('ÄÖÜ'.lower())}") == [
        (p, o) for p in (0, 1) for o in range(15)
    ]
    assert offsets(f"from=time:{int(time.time() * 1000) + 60_000}") == []
    _, found = ask(url, f"/api/topics/{topic}/records?from=offset:15&partition=0")
    assert found["records"][0]["value"] == {"base64": "/wA=", "size": 2}
    assert found["records"][0]["key"] is None
    for query in ("limit=0", "limit=501", "limit=x", "partition=-1", "from=offset:x", "from=nowhere", "from=offset:99"):
        assert ask(url, f"/api/topics/{topic}/records?{query}")[0] in (400, 503), query
    assert ask(url, f"/api/topics/{topic}/records?partition=7")[0] in (400, 503)


def test_groups_are_shown_and_reset(cluster: TestCluster, url: str) -> None:
    topic = cluster.create_topic(partitions=1, replicas=3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(10):
        producer.produce(topic, str(number))
    assert producer.flush(30) == 0
    group = unique_topic("group")
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, **settings})
    consumer.subscribe([topic])
    read: list[Any] = []
    while len(read) < 4:
        read += consumer.consume(4 - len(read), 1.0)
    consumer.commit(message=read[-1], asynchronous=False)
    _, found = ask(url, f"/api/groups/{group}")
    assert [(one["committed"], one["end"], one["lag"]) for one in found["lags"]] == [(4, 10, 6)]
    assert len(found["members"]) == 1
    status, told = ask(url, f"/api/groups/{group}/reset", {"topic": topic, "to": "earliest", "execute": True})
    assert (status, "member" in told["error"]) == (400, True), told
    consumer.close()
    assert {"group": group, "kind": "classic"}.items() <= next(
        one for one in ask(url, "/api/groups")[1]["groups"] if one["group"] == group
    ).items()
    planned = {"executed": False, "offsets": [{"topic": topic, "partition": 0, "from": 4, "to": 7}]}
    assert ask(url, f"/api/groups/{group}/reset", {"topic": topic, "to": "7"}) == (200, planned)
    assert ask(url, f"/api/groups/{group}")[1]["lags"][0]["committed"] == 4
    assert ask(url, f"/api/groups/{group}/reset", {"topic": topic, "to": "latest", "execute": True})[0] == 200
    assert ask(url, f"/api/groups/{group}")[1]["lags"][0]["lag"] == 0
    assert ask(url, f"/api/groups/{group}/reset", {"topic": topic, "to": "soon"})[0] == 400
    assert ask(url, f"/api/groups/{group}/delete", {})[0] == 200
    assert ask(url, f"/api/groups/{group}")[0] == 400


def test_changes_of_other_pages_are_refused(cluster: TestCluster, url: str) -> None:
    fields = {"name": unique_topic("never")}
    own = url.removeprefix("http://")
    for headers in (
        {"Content_Type": "text/plain"},
        {**CHANGE, "Origin": "http://attacker.example"},
        {**CHANGE, "Origin": "null"},
        {**CHANGE, "Origin": f"http://{own}.attacker.example"},
    ):
        status, told = ask(url, "/api/topics", fields, **headers)
        assert status == 403, (headers, told)
    for path in ("/", "/events", "/api/groups"):
        assert ask(url, path, Host="attacker.example")[0] == 421
    assert ask(url, "/api/about", Host=f"localhost:{own.rpartition(':')[2]}")[0] == 200
    names = {key.partition("\t")[0] for key in whole_picture(url)["partitions"]}
    assert fields["name"] not in names


def test_a_console_for_all_addresses_is_addressed_by_the_names_that_it_is_given(cluster: TestCluster) -> None:
    with console(cluster, "--host", "0.0.0.0", "--allowed-host", "Console.example") as url:
        assert ask(url, "/api/about", Host="console.example:8080")[0] == 200
        assert ask(url, "/api/about", Host="attacker.example")[0] == 421
    with console(cluster, "--host", "0.0.0.0") as url:
        assert ask(url, "/api/about", Host="attacker.example")[0] == 200


def test_hostile_requests_are_refused_and_the_console_goes_on(cluster: TestCluster, url: str) -> None:
    topic = cluster.create_topic(partitions=1, replicas=1)
    refused = [
        ask(url, "/api/topics", b"{"),
        ask(url, "/api/topics", b"[" * 100_000),
        ask(url, "/api/topics", b"[1]"),
        ask(url, "/api/topics", {"name": 7}),
        ask(url, "/api/topics", {"name": "x", "partitions": 2**40}),
        ask(url, "/api/topics", {"name": "x", "partitions": True}),
        ask(url, "/api/topics", {"name": "../etc"}),
        ask(url, "/api/topics", {"name": "x", "configs": [1]}),
        ask(url, f"/api/topics/{topic}/records", {"value": 1}),
        ask(url, f"/api/topics/{topic}/records", {"value": "v", "partition": 9}),
        ask(url, f"/api/topics/{topic}/records", {"value": "v", "partition": "0"}),
        ask(url, f"/api/topics/{topic}/configs", {}),
        ask(url, "/api/nodes/9/kill", {}),
        ask(url, "/api/nodes/1/burn", {}),
        ask(url, "/api/nodes/1/continue/x", {}),
        ask(url, "/api/nothing"),
        ask(url, "/..%2f..%2fetc%2fpasswd"),
        ask(url, f"/api/topics/{'x' * 300}"),
        ask(url, "/api/topics/%00"),
    ]
    assert all(400 <= status < 500 or status == 503 for status, _ in refused), refused
    assert all(told["error"] for _, told in refused)
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    connection.putrequest("POST", "/api/topics")
    for name, value in {**CHANGE, "Content-Length": str(3 << 20)}.items():
        connection.putheader(name, value)
    connection.endheaders()
    connection.send(b" " * (3 << 20))
    assert connection.getresponse().status == 413
    connection.close()
    assert ask(url, "/api/about")[0] == 200


def test_a_node_is_killed_and_started_while_the_probe_writes(cluster: TestCluster, url: str) -> None:
    assert ask(url, "/api/probe/start", {})[0] == 200
    # The probe writes to all of its partitions before the node dies.
    events(url, lambda name, fields: name == "probe" and fields["acked"] > 50)
    with ThreadPoolExecutor(1) as thread:
        story: list[str] = []
        looks = Event()

        def is_back(name: str, fields: Any) -> bool:
            if name == "picture" and not fields.get("whole"):
                looks.set()
            story.extend(text for _, text in fields.get("story", ()))
            return "node 2: down → up" in story

        watching = thread.submit(events, url, is_back)
        assert looks.wait(30)
        assert ask(url, "/api/nodes/2/kill", {}) == (200, {"done": "killed node 2"})
        assert ask(url, "/api/nodes/2/pause", {}) == (409, {"error": "node 2 is not running"})
        events(
            url,
            lambda name, fields: any(one["node"] == 2 and one["state"] == "down" for one in fields.get("nodes", ())),
        )
        assert ask(url, "/api/nodes/2/start", {}) == (200, {"done": "started node 2"})
        assert ask(url, "/api/nodes/2/start", {})[0] == 409
        watching.result()
    assert {"killed node 2, by this console", "node 2: up → down", "started node 2, by this console"} <= set(story)
    seen = events(url, lambda name, fields: name == "probe" and fields["acked"] > 100)
    assert 0 < seen[-1][1]["longest_gap_ms"] < 30_000
    assert ask(url, "/api/nodes/1/pause", {})[0] == 200
    events(url, lambda name, fields: any(one["state"] == "paused" for one in fields.get("nodes", ())))
    assert ask(url, "/api/nodes/1/continue", {})[0] == 200
    assert ask(url, "/api/probe/stop", {})[0] == 200
    assert ask(url, "/api/nodes/2/stop", {}) == (200, {"done": "stopped node 2"})
    cluster.heal()


def states_of(url: str, node_id: int, state: str, faults: list[str]) -> None:
    """Wait until the live view shows the node so."""
    wanted = {"node": node_id, "state": state, "faults": faults}
    events(url, lambda _, fields: any(wanted.items() <= one.items() for one in fields.get("nodes", ())))


def test_a_node_is_cut_off_slowed_and_filled_by_requests(cluster: TestCluster, url: str) -> None:
    assert ask(url, "/api/nodes/2/heal", {})[0] == 409
    told = "node 2 is now: cut off from the others"
    assert ask(url, "/api/nodes/2/cut", {"duration_s": -1}) == (200, {"done": told})
    assert ask(url, "/api/nodes/2/slow", {"delay_ms": 100})[1] == {"done": f"{told}, 100 ms late"}
    states_of(url, 2, "fenced", ["cut off from the others", "100 ms late"])
    assert ask(url, "/api/nodes/2/heal", {})[1] == {"done": f"healed node 2: {told.partition(': ')[2]}, 100 ms late"}
    states_of(url, 2, "up", [])
    assert ask(url, "/api/nodes/3/fill", {"duration_s": 1})[0] == 200
    events(url, lambda _, fields: any("node 3 is healed" in text for _, text in fields.get("story", ())))
    for wrong in ({"delay_ms": 0}, {"delay_ms": 10_001}, {"duration_s": "x"}, {"duration_s": 3601}):
        assert ask(url, "/api/nodes/1/slow", wrong)[0] == 400, wrong
    cluster.heal()


def test_the_end_of_a_console_heals_what_it_has_done(cluster: TestCluster, url: str) -> None:
    with console(cluster) as other:
        assert ask(other, "/api/nodes/3/cut", {})[0] == 200
        assert ask(other, "/api/nodes/2/pause", {"duration_s": 600})[1] == {"done": "paused node 2 for 600 s"}
        states_of(other, 3, "up", ["cut off from the others"])
        states_of(other, 2, "paused", [])
    states_of(url, 2, "up", [])
    cluster.heal()


def test_a_console_that_is_read_only_changes_nothing(cluster: TestCluster) -> None:
    with console(cluster, "--read-only") as url:
        for path in ("/api/topics", "/api/nodes/1/kill", "/api/probe/start"):
            status, told = ask(url, path, {"name": "x"})
            assert (status, "--read-only" in told["error"]) == (403, True)
        assert whole_picture(url)["about"]["is_read_only"]


def test_a_taken_port_is_told(cluster: TestCluster, url: str) -> None:
    port = url.rpartition(":")[2]
    command = [sys.executable, "-m", "raftwerk", "console", "--port", port, "-b", cluster.bootstrap_servers]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr and "Traceback" not in done.stderr
