"""`raftwerk produce`: keys, tombstones, headers, partitions, timestamps, and lines that are no records."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.e2e import helpers
from support.e2e.command import fails, fails_usage, ok, raftwerk


@pytest.fixture
def two_partitions(bootstrap: str, topic: str) -> str:
    helpers.create_topic(bootstrap, topic, 2)
    return topic


def rows(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    """What is in the topic, as `consume --json` shows it, without topic and offset."""
    found = [json.loads(line) for line in ok("consume", topic, "-e", "--json", "-b", bootstrap).splitlines()]
    return [{key: row[key] for key in ("partition", "timestamp", "key", "value", "headers")} for row in found]


def test_a_record_with_everything(bootstrap: str, two_partitions: str) -> None:
    time = ("--timestamp", "2013-01-01T05:15")
    headers = ("-H", "source=radar", "-H", "source=b=c")
    ok("produce", two_partitions, "--key", "N1", "-m", "up", "-p", "1", *headers, *time, "-b", bootstrap)
    ok("produce", two_partitions, "--key", "N1", "--tombstone", "-p", "1", "--timestamp", "5", "-b", bootstrap)
    at_ms = 1_357_017_300_000
    wanted = [["source", "radar"], ["source", "b=c"]]
    assert rows(bootstrap, two_partitions) == [
        {"partition": 1, "timestamp": at_ms, "key": "N1", "value": "up", "headers": wanted},
        {"partition": 1, "timestamp": 5, "key": "N1", "value": None, "headers": []},
    ]


def test_nulls_among_lines(bootstrap: str, two_partitions: str) -> None:
    lines = "a:1\na:null\n:empty\n"
    ok("produce", two_partitions, "-k", ":", "--null", "null", "-p", "0", "-b", bootstrap, text=lines)
    found = [(row["key"], row["value"]) for row in rows(bootstrap, two_partitions)]
    assert found == [("a", "1"), ("a", None), ("", "empty")]


def test_a_line_without_a_key_is_named_and_what_came_before_is_sent(bootstrap: str, two_partitions: str) -> None:
    done = raftwerk("produce", two_partitions, "-k", ":", "-b", bootstrap, text="a:1\nb 2\nc:3\n")
    assert done.returncode == 1
    assert "line 2 has no ':' between key and value" in done.stderr
    assert [row["value"] for row in rows(bootstrap, two_partitions)] == ["1"]
    assert "nothing was sent" in raftwerk("produce", two_partitions, "-k", ":", "-m", "x", "-b", bootstrap).stderr


def test_large_records_are_named_and_the_others_are_sent(bootstrap: str, topic: str) -> None:
    helpers.create_topic(bootstrap, topic, 1, max_message_bytes="1000")
    at = (topic, "-b", bootstrap)
    assert raftwerk("produce", *at, text="".join(f"{number}\n" for number in range(500))).returncode == 0
    assert [row["value"] for row in rows(bootstrap, topic)] == [str(number) for number in range(500)]
    done = raftwerk("produce", *at, "--json", text=f"before\n{'large ' * 400}\nafter\n")
    assert (done.returncode, json.loads(done.stdout)["acked"]) == (1, 1)
    assert "record 'large large" in done.stderr and "MESSAGE_TOO_LARGE" in done.stderr
    assert [row["value"] for row in rows(bootstrap, topic)][500:] == ["before"]


def test_arguments_need_not_be_text(bootstrap: str, two_partitions: str) -> None:
    ok("produce", two_partitions, "--key", "\udcff", "-m", "\udcfe", "-H", "h=\udcfd", "-b", bootstrap)
    command = ("consume", two_partitions, "-e", "-s", "hex", "-b", bootstrap)
    assert ok(*command, "-k", ":", "--key", "\udcff") == "ff:fe\n"
    assert ok(*command, "--grep", "fe") == "fe\n"
    assert "is not UTF-8 text" in fails(2, "consume", "\udcff", "-b", bootstrap)
    assert "too large for Kafka's protocol" in fails(2, "topics", "create", "x", "-p", str(2**40), "-b", bootstrap)


def test_options_that_contradict_each_other(bootstrap: str, two_partitions: str) -> None:
    at = (two_partitions, "-b", bootstrap)
    assert "give one" in fails_usage("produce", *at, "-k", ":", "--key", "a")
    assert "--key" in fails_usage("produce", *at, "--tombstone")
    assert "--key" in fails_usage("produce", *at, "--key", "a", "--tombstone", "-m", "x")
    assert "not be empty" in fails_usage("produce", *at, "-k", "")
    assert "key=value" in fails_usage("produce", *at, "-H", "nothing", "-m", "x")
    assert "10m (ago)" in fails_usage("produce", *at, "--timestamp", "noon", "-m", "x")
    done = raftwerk("produce", *at, "-p", "2", "-m", "x")
    assert (done.returncode, "has no partition 2: its partitions are 0 to 1" in done.stderr) == (1, True)
