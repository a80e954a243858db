"""`raftwerk topics alter`, `offsets` and `delete-records`."""

from __future__ import annotations

import json
import time
from typing import Any

from confluent_kafka import Producer
from support.e2e import helpers
from support.e2e.command import fails, fails_usage, raftwerk
from support.e2e.in_process import ok

HOUR_MS = 3_600_000


def rows(*arguments: str) -> list[Any]:
    return [json.loads(line) for line in ok(*arguments, "--json").splitlines()]


def shows(bootstrap: str, topic: str, wanted: dict[str, str]) -> None:
    """These settings are there as soon as the broker that is asked has heard of them."""
    deadline = time.monotonic() + 10
    while True:
        found = {row["name"]: row["value"] for row in rows("configs", "show", "--topic", topic, "-b", bootstrap)}
        if found == wanted:
            return
        assert time.monotonic() < deadline, found


def fill_hours(bootstrap: str, topic: str) -> None:
    """Ten records in partition 0, an hour apart, the last one now; partition 1 stays empty."""
    helpers.create_topic(bootstrap, topic, 2)
    producer = Producer({"bootstrap.servers": bootstrap})
    now_ms = int(time.time() * 1000)
    for index in range(10):
        producer.produce(topic, b"x", partition=0, timestamp=now_ms - (9 - index) * HOUR_MS)
    assert producer.flush(30) == 0


def test_internal_topics_are_shown_unless_they_are_excluded(bootstrap: str, topic: str) -> None:
    at = ("-b", bootstrap)
    helpers.create_topic(bootstrap, topic, 1)
    ok("produce", topic, "-m", "x", *at)
    ok("consume", topic, "--group", topic, "-n", "1", *at)
    for command in ("list", "describe"):
        for options, internal in (((), {"__consumer_offsets"}), (("--exclude-internal",), set())):
            there = {row["topic"] for row in rows("topics", command, *options, *at)}
            assert topic in there
            assert there & {"__consumer_offsets"} == internal


def test_alter_adds_partitions_and_changes_settings(bootstrap: str, topic: str) -> None:
    at = ("-b", bootstrap)
    helpers.create_topic(bootstrap, topic, 2)
    ok("topics", "alter", topic, "-p", "5", "-c", "retention.ms=60000", *at)
    assert len(helpers.describe(bootstrap, topic).topic(topic).partitions) == 5
    shows(bootstrap, topic, {"retention.ms": "60000"})
    ok("topics", "alter", topic, "--unset", "retention.ms", *at)
    shows(bootstrap, topic, {})


def test_settings_that_are_altered_before_a_refusal_are_told(bootstrap: str, topic: str) -> None:
    helpers.create_topic(bootstrap, topic, 2)
    told = fails(1, "topics", "alter", topic, "-p", "1", "-c", "retention.ms=60000", "-b", bootstrap)
    assert told.endswith(f"; retention.ms of {topic} is altered")
    shows(bootstrap, topic, {"retention.ms": "60000"})


def test_what_is_there_already_or_was_never_there_is_told_so(bootstrap: str, topic: str) -> None:
    at = ("-b", bootstrap)
    assert ok("topics", "create", topic, "-p", "1", *at) == f"Created topic {topic}.\n"
    again = ok("topics", "create", topic, "-p", "7", "--if-not-exists", *at)
    assert again == f"Topic {topic} exists already; it stays as it is.\n"
    assert ok("topics", "delete", topic, "--if-exists", *at) == f"Deleted topic {topic}.\n"
    assert ok("topics", "delete", f"{topic}-no", "--if-exists", *at) == f"There is no topic {topic}-no.\n"


def test_several_topics_at_once(bootstrap: str, topic: str) -> None:
    at, names = ("-b", bootstrap), (f"{topic}-1", f"{topic}-2")
    assert ok("topics", "create", *names, *at) == "".join(f"Created topic {name}.\n" for name in names)
    refused = raftwerk("topics", "create", f"{topic}-3", *names, *at)
    assert (refused.returncode, refused.stdout) == (1, f"Created topic {topic}-3.\n")
    assert names[0] in refused.stderr and names[1] not in refused.stderr
    deleted = (*names, f"{topic}-3")
    assert ok("topics", "delete", *deleted, *at) == "".join(f"Deleted topic {name}.\n" for name in deleted)


def test_what_cannot_be_altered(bootstrap: str, topic: str) -> None:
    at = ("-b", bootstrap)
    helpers.create_topic(bootstrap, topic, 2)
    told = fails(1, "topics", "alter", topic, "-p", "1", *at)
    assert "would not be an increase" in told and "for fewer, create another topic" in told
    assert "topics list" in fails(1, "topics", "alter", f"{topic}-not", "-p", "3", *at)
    assert "say what to alter" in fails_usage("topics", "alter", topic, *at)
    assert "give one of them" in fails_usage("topics", "alter", topic, "-c", "a=b", "--unset", "a", *at)


def test_offsets_and_the_deletion_of_records(bootstrap: str, topic: str) -> None:
    at = ("-b", bootstrap)
    fill_hours(bootstrap, topic)
    empty = {"topic": topic, "partition": 1}
    assert rows("topics", "offsets", topic, *at) == [
        {"topic": topic, "partition": 0, "first": 0, "end": 10},
        {**empty, "first": 0, "end": 0},
    ]
    by_time = rows("topics", "offsets", topic, "--time", "150m", *at)
    assert by_time == [{"topic": topic, "partition": 0, "offset": 7}, {**empty, "offset": None}]
    ok("topics", "delete-records", topic, "-p", "0", "--offset", "3", *at)
    assert rows("topics", "offsets", topic, "-p", "0", *at)[0]["first"] == 3
    ok("topics", "delete-records", topic, "--before", "150m", *at)
    assert rows("topics", "offsets", topic, "-p", "0", *at)[0]["first"] == 7
    assert [row["first"] for row in rows("topics", "delete-records", topic, "--all", *at)] == [10, 0]
    again = ok("topics", "delete-records", topic, "--all", *at)
    assert f"{topic}-0 still begins at offset 10: nothing was deleted." in again


def test_records_that_cannot_be_deleted(bootstrap: str, topic: str) -> None:
    at = ("-b", bootstrap)
    helpers.create_topic(bootstrap, topic, 1)
    assert "topics offsets" in fails(1, "topics", "delete-records", topic, "--offset", "5", *at)
    two = f"{topic}-two"
    fill_hours(bootstrap, two)
    told = fails(1, "topics", "delete-records", two, "--offset", "5", *at)
    assert f"{two}-1 ends at 0. Nothing was deleted" in told and f"{two}-0" not in told
    assert [row["first"] for row in rows("topics", "offsets", two, *at)] == [0, 0]
    assert "has no partition 7: its only partition is 0" in fails(
        1, "topics", "delete-records", topic, "-p", "7", "--all", *at
    )
    assert "give one of" in fails_usage("topics", "delete-records", topic, *at)
