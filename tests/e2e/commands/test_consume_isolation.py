"""`raftwerk consume --isolation`: committed, aborted and open transactions of the confluent client."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from support.e2e import helpers
from support.e2e.command import fails_usage, ok
from support.e2e.transactions import TIMEOUT_S, producer, until

COMMITTED = ["outside 0", "committed 0", "committed 1", "committed 2", "outside 1"]
"""The values before the open transaction that a reader with read_committed gets."""
ABORTED = ["aborted 0", "aborted 1", "aborted 2"]
BEHIND = ["open 0", "outside 2"]
"""The values from the first record of the open transaction on."""


def send(writer: Producer, topic: str, *values: str) -> None:
    for value in values:
        writer.produce(topic, value, b"key")
    assert writer.flush(TIMEOUT_S) == 0


@pytest.fixture(params=["none", "zstd"])
def written(request: pytest.FixtureRequest, bootstrap: str, topic: str) -> Iterator[Producer]:
    """A topic with a committed, an aborted and an open transaction, among records without one."""
    helpers.create_topic(bootstrap, topic)
    codec = {"compression.type": request.param}
    outside = Producer({"bootstrap.servers": bootstrap, **helpers.PRODUCER, **codec})
    send(outside, topic, "outside 0")
    aborting, committing = (producer(bootstrap, f"{topic}-{one}", **codec) for one in ("a", "c"))
    aborting.begin_transaction()
    committing.begin_transaction()
    send(committing, topic, "committed 0")
    send(aborting, topic, *ABORTED[:2])
    send(committing, topic, "committed 1")
    send(aborting, topic, ABORTED[2])
    aborting.abort_transaction(TIMEOUT_S)
    committing.commit_transaction(TIMEOUT_S)
    aborting.begin_transaction()
    send(aborting, topic, "committed 2")
    aborting.commit_transaction(TIMEOUT_S)
    send(outside, topic, "outside 1")
    committing.begin_transaction()
    send(committing, topic, BEHIND[0])
    send(outside, topic, BEHIND[1])
    until(lambda: len(read(bootstrap, topic, "-e")) == len(COMMITTED))  # markers follow the answer to a commit
    yield committing


def read(bootstrap: str, topic: str, *options: str, isolation: str = "read_committed") -> list[str]:
    return ok("consume", topic, "--isolation", isolation, *options, "-b", bootstrap).splitlines()


@pytest.mark.long
def test_what_is_read(bootstrap: str, topic: str, written: Producer) -> None:
    everything = [*COMMITTED, *ABORTED, *BEHIND]
    assert read(bootstrap, topic, "-e") == COMMITTED
    assert sorted(read(bootstrap, topic, "-e", isolation="read_uncommitted")) == sorted(everything)
    assert sorted(ok("consume", topic, "-e", "-b", bootstrap).splitlines()) == sorted(everything), "the default"
    assert read(bootstrap, topic, "-n", "3", "--isolation-level", "read_committed") == COMMITTED[:3]
    assert read(bootstrap, topic, "-e", "-k", "=", "--grep", "committed") == [
        f"key={value}" for value in COMMITTED if "committed" in value
    ]
    rows = [json.loads(line) for line in read(bootstrap, topic, "-e", "--json")]
    assert [row["value"] for row in rows] == COMMITTED
    assert read(bootstrap, topic, "-e", "--offset", str(rows[1]["offset"])) == COMMITTED[1:]
    since = str(rows[3]["timestamp"])
    assert read(bootstrap, topic, "-e", "--since", since)[-2:] == COMMITTED[3:]
    assert read(bootstrap, topic, "-e", "--since", "0s") == []
    assert read(bootstrap, topic, "--until", "0s") == COMMITTED
    for last in range(1, len(COMMITTED) + 2):  # markers and aborted records take offsets, too
        assert read(bootstrap, topic, "-e", "--last", str(last)) == COMMITTED[-last:]
    assert sorted(read(bootstrap, topic, "-e", "--last", "10", isolation="read_uncommitted")) == sorted(everything)

    written.commit_transaction(TIMEOUT_S)
    until(lambda: read(bootstrap, topic, "-e") == [*COMMITTED, *BEHIND])


def test_a_reader_waits_for_the_end_of_an_open_transaction(bootstrap: str, topic: str, written: Producer) -> None:
    command = [sys.executable, "-m", "raftwerk", "consume", topic, "--isolation", "read_committed", "-b", bootstrap]
    with subprocess.Popen([*command, "-n", "7"], stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert [reader.stdout.readline().strip() for _ in COMMITTED] == COMMITTED
        written.abort_transaction(TIMEOUT_S)
        assert reader.stdout.readline().strip() == BEHIND[1]
        written.begin_transaction()
        send(written, topic, "the last")
        written.commit_transaction(TIMEOUT_S)
        assert reader.stdout.readline().strip() == "the last"
        assert reader.wait(TIMEOUT_S) == 0


@pytest.mark.long
def test_a_group_reads_what_is_committed(bootstrap: str, topic: str, written: Producer) -> None:
    at = ("consume", topic, "--group", topic, "-b", bootstrap)
    committed = (*at, "--isolation", "read_committed")
    assert ok(*committed, "-n", "2").splitlines() == COMMITTED[:2]
    assert ok(*committed, "-e").splitlines() == COMMITTED[2:]
    assert ok(*committed, "-e") == ""
    assert ok(*at, "-e").splitlines() == BEHIND, "the default"
    assert ok(*committed, "-e") == "", "the group is past the open transaction, which is no reason to begin again"
    new = ("consume", topic, "--group", f"{topic}-new", "-b", bootstrap, "--isolation", "read_committed", "-e")
    assert ok(*new, "--latest") == ""
    written.commit_transaction(TIMEOUT_S)
    until(lambda: ok(*new).splitlines() == BEHIND)
    assert ok(*committed, "-e") == ""


def test_an_unknown_isolation_level() -> None:
    assert "read_committed" in fails_usage("consume", "t", "--isolation", "serializable")


def test_a_closed_pipe_ends_a_reader_that_waits(bootstrap: str, topic: str) -> None:
    helpers.create_topic(bootstrap, topic)
    ok("produce", topic, "-m", "one", "-b", bootstrap)
    for options in ((), ("--group", topic)):
        command = [sys.executable, "-m", "raftwerk", "consume", topic, *options, "-b", bootstrap]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "one\n"
            reader.stdout.close()
            began = time.monotonic()
            assert reader.wait(TIMEOUT_S) == 0
            assert time.monotonic() - began < TIMEOUT_S / 2
    assert '"lag":0' in ok("groups", "lag", topic, "--json", "-b", bootstrap)
