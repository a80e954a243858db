"""`raftwerk transactions` as people call it, and what `raftwerk doctor` says of transactions that hang."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from support.e2e import helpers
from support.e2e.clusters import start_cluster
from support.e2e.command import fails, fails_usage, raftwerk
from support.e2e.in_process import ok
from support.e2e.transactions import (
    LONG_AGO_MS,
    STRANGER,
    TIMEOUT_S,
    leave_hanging,
    open_transaction,
    producer,
    until,
    values,
    wait_for_values,
)

from raftwerk.cluster.doctor import transaction_checks


@pytest.fixture(scope="module")
def unverified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster of one node, which opens transactions without asking their coordinator."""
    overrides = {"transaction.partition.verification.enable": "false"}
    with start_cluster(tmp_path_factory.mktemp("unverified"), 1, overrides=overrides) as supervisor:
        yield supervisor.plan.bootstrap


def rows(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in raftwerk("transactions", *arguments, "--json").stdout.splitlines()]


def test_before_there_are_transactions(new_cluster: Callable[..., Any]) -> None:
    at = ("-b", new_cluster(1).plan.bootstrap)
    assert "no such transactional id" in fails(1, "transactions", "describe", "nobody", *at)
    assert "__transaction_state" not in ok("topics", "list", *at), "looking does not create it"


def test_list_and_describe(unverified: str, topic: str) -> None:
    at = ("-b", unverified)
    helpers.create_topic(unverified, topic, 1, replicas=1)
    ended = producer(unverified, f"{topic}-ended")
    ended.begin_transaction()
    ended.produce(topic, b"ended")
    ended.commit_transaction(TIMEOUT_S)
    writer = open_transaction(unverified, topic)

    mine = ("--pattern", f"{topic}-.*")
    until(lambda: [row["state"] for row in rows("list", *mine, *at)] == ["CompleteCommit", "Ongoing"])
    ids = [row["transactional_id"] for row in rows("list", *mine, *at)]
    assert ids == [f"{topic}-ended", f"{topic}-id"]
    assert [row["transactional_id"] for row in rows("list", "--state", "ongoing", *mine, *at)] == [f"{topic}-id"]
    assert rows("list", "--state", "Ongoing", "--before", "1h", *mine, *at) == []
    assert f"{topic}-id" in ok("transactions", "list", *at)

    (described,) = rows("describe", f"{topic}-id", *at)
    assert (described["state"], described["partitions"]) == ("Ongoing", [{"topic": topic, "partition": 0}])
    assert described["start_ms"] > LONG_AGO_MS
    assert f"{topic}-0" in ok("transactions", "describe", f"{topic}-id", *at)
    writer.abort_transaction(TIMEOUT_S)
    until(lambda: rows("describe", f"{topic}-id", *at)[0]["partitions"] == [])


def test_a_hanging_transaction_is_found_and_aborted(unverified: str, topic: str) -> None:
    at = ("-b", unverified)
    helpers.create_topic(unverified, topic, 1, replicas=1)
    leave_hanging(unverified, topic)
    ordinary = f"{topic}-ordinary"
    helpers.create_topic(unverified, ordinary, 1, replicas=1)
    writer = open_transaction(unverified, ordinary)
    assert values(unverified, topic) == [[]]

    (found,) = rows("find-hanging", *at)
    assert (found["topic"], found["start_offset"], found["producer_id"]) == (topic, 0, STRANGER)
    assert rows("find-hanging", "--topic", ordinary, "--before", "0s", *at) == [], "its coordinator knows it"
    advice = [json.loads(line) for line in raftwerk("doctor", "--json", *at).stdout.splitlines()]
    assert [one["level"] for one in advice if f"{topic}-0 from offset 0" in one["what"]] == ["failure"]
    told = ok("transactions", "find-hanging", *at)
    assert f"raftwerk transactions abort {topic} --partition 0 --start-offset 0" in told

    abort = ("transactions", "abort")
    assert "no transaction is open" in fails(1, *abort, topic, "-p", "0", "--start-offset", "7", *at)
    assert "no such" in fails(1, *abort, topic, "-p", "9", "--start-offset", "0", *at)
    assert "--force" in fails(1, *abort, ordinary, "-p", "0", "--start-offset", "0", *at)
    assert "Aborted the transaction" in ok(*abort, topic, "-p", "0", "--start-offset", "0", *at)
    assert rows("find-hanging", *at) == []
    assert "no transaction hangs" in ok("doctor", *at)
    after = producer(unverified, f"{topic}-after")
    after.begin_transaction()
    after.produce(topic, b"after")
    after.commit_transaction(TIMEOUT_S)
    wait_for_values(unverified, topic, [b"after"])
    writer.commit_transaction(TIMEOUT_S)
    wait_for_values(unverified, ordinary, [b"open"])


def test_a_transaction_that_is_open_for_long_is_reported_and_terminated(
    unverified: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = ("-b", unverified)
    helpers.create_topic(unverified, topic, 1, replicas=1)
    idle = producer(unverified, f"{topic}-idle")
    idle.begin_transaction()
    outside = Producer({"bootstrap.servers": unverified, **helpers.PRODUCER})
    outside.produce(topic, b"before")
    assert outside.flush(TIMEOUT_S) == 0
    writer = open_transaction(unverified, topic)
    stands_still = f"{topic}-0 from offset 1 on"
    assert stands_still not in ok("doctor", *at), "it is not old"
    monkeypatch.setattr(transaction_checks, "LONG_OPEN_MS", 0)
    advice = [json.loads(line) for line in ok("doctor", "--json", *at).splitlines()]
    (found,) = [one for one in advice if stands_still in one["what"]]
    assert found["level"] == "warning" and f"transactional id {topic}-id (producer " in found["what"]
    assert f"raftwerk transactions terminate {topic}-id" in found["way_out"]
    assert not [one for one in advice if f"{topic}-idle" in one["what"]], "it has written nothing"

    told = ok("transactions", "terminate", f"{topic}-id", *at)
    aborted = (
        rf"Aborted the transaction of {topic}-id, open for \d+ s\. Producer \d+ is fenced: its next request is .*\n"
    )
    assert re.fullmatch(aborted, told), told
    until(lambda: "  Empty  " in ok("transactions", "describe", f"{topic}-id", *at))
    again = ok("transactions", "terminate", f"{topic}-id", *at)
    assert f"{topic}-id had no open transaction (its state was Empty)." in again
    until(lambda: stands_still not in ok("doctor", *at))
    assert values(unverified, topic) == [[b"before"]]
    with pytest.raises(KafkaException):
        writer.commit_transaction(TIMEOUT_S)
    assert "no such transactional id" in fails(1, "transactions", "terminate", f"{topic}-none", *at)


def test_what_is_wrong_is_said_in_a_sentence(unverified: str) -> None:
    at = ("-b", unverified)
    assert "is not one of 'Empty'" in fails_usage("transactions", "list", "--state", "Asleep", *at)
    assert "regular expression" in fails(1, "transactions", "list", "--pattern", "(", *at)
    assert "no such topic" in fails(1, "transactions", "find-hanging", "--topic", "none", *at)
