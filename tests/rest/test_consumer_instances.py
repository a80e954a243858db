"""Consumer instances of version 2 with a consumer of our own in librdkafka's place: errors and rebalances."""

from __future__ import annotations

import json
from typing import Any, cast

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException
from support.rest.scripted_consumer import ScriptedConsumer, ScriptedMessage

from raftwerk.rest.errors import AUTHORIZATION_FAILED, RestError
from raftwerk.rest.v2.consumer_instance import ConsumerInstance
from raftwerk.rest.v2.shown_records import shown_by

ALL = 1 << 20
REFUSED = ScriptedMessage("u", 0, -1, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))


class ReadInstance:
    """An instance that reads the topics `t` and `u`."""

    def __init__(self) -> None:
        settings = {"enable.auto.commit": True}
        self.instance = ConsumerInstance(settings, "json", shown_by("json", None), min_bytes=1)
        self.consumer = cast(ScriptedConsumer, self.instance._consumer)
        self.instance.subscribe(["t", "u"], None)

    def read(self, max_bytes: int = ALL, timeout_s: float = 0.0) -> list[tuple[str, int, int]]:
        """The places of the records of a read."""
        rows = json.loads(self.instance.read(timeout_s, max_bytes))
        return [(one["topic"], one["partition"], one["offset"]) for one in rows]


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confluent_kafka, "Consumer", ScriptedConsumer)


def test_an_error_of_another_partition_loses_no_record_that_came_before() -> None:
    here = ReadInstance()
    here.consumer.arriving = [ScriptedMessage("t", 0, 0), None, REFUSED, None, ScriptedMessage("t", 0, 1)]
    assert here.read(timeout_s=5.0) == [("t", 0, 0)]
    assert here.consumer.stored == {("t", 0): 1}
    with pytest.raises(RestError) as caught:
        here.read()
    assert caught.value.code == AUTHORIZATION_FAILED
    assert here.read() == [("t", 0, 1)]


def test_a_failure_of_librdkafka_loses_no_record_that_came_before() -> None:
    here = ReadInstance()
    failure = KafkaException(KafkaError(KafkaError._FAIL))
    here.consumer.arriving = [ScriptedMessage("t", 0, 0), None, ScriptedMessage("t", 0, 1), failure]
    with pytest.raises(KafkaException):
        here.read()
    assert here.read() == [("t", 0, 0), ("t", 0, 1)]


def test_a_record_that_cannot_be_shown_loses_none() -> None:
    here = ReadInstance()
    here.consumer.arriving = [ScriptedMessage("t", 0, -1), ScriptedMessage("t", 0, 0), ScriptedMessage("t", 0, 1)]
    shown = here.instance._show

    def refuse_zero(data: bytes | None, where: str) -> Any:
        if data == b"0":
            raise RestError(50002, where)
        return shown(data, where)

    here.instance._show = refuse_zero
    with pytest.raises(RestError, match="t-0 at offset 0"):
        here.read()
    assert here.consumer.stored == {}
    here.instance._show = shown
    assert here.read(max_bytes=3) == [("t", 0, -1), ("t", 0, 0)]
    assert here.read() == [("t", 0, 1)]


def test_a_commit_of_all_leaves_partitions_alone_that_were_taken_away() -> None:
    """Another member has them by now, and commits its own progress."""
    here = ReadInstance()
    here.consumer.arriving = [ScriptedMessage("t", 0, 5), ScriptedMessage("t", 1, 7)]
    assert here.read() == [("t", 0, 5), ("t", 1, 7)]
    here.consumer.revoke(("t", 0))
    assert here.read() == []
    here.instance.commit(None)
    assert here.consumer.committed_offsets == {("t", 1): 8}


def test_records_of_a_partition_that_was_taken_away_are_not_delivered_any_more() -> None:
    """Another member begins at the committed offset, and has them."""
    here = ReadInstance()
    here.consumer.arriving = [ScriptedMessage("t", one, offset) for offset in range(3) for one in (0, 1)]
    assert here.read(max_bytes=1) == [("t", 0, 0)]
    here.consumer.revoke(("t", 0))
    assert here.read() == [("t", 1, 0), ("t", 1, 1), ("t", 1, 2)]
