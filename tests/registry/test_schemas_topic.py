"""The topic of a registry's schemas, with producers of our own in place of librdkafka's."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import KafkaError, KafkaException

from raftwerk.registry import schemas_topic
from raftwerk.registry.errors import RegistryError
from raftwerk.registry.schemas_topic import SchemasTopic


class Unreached:
    """Its first requests go to a broker that has died; `refusals` says how many."""

    def __init__(self, refusals: int, code: int = KafkaError._TRANSPORT) -> None:
        self.refusals = refusals
        self.code = code
        self.asked = 0

    def list_topics(self, topic: str, timeout: float) -> None:
        self.asked += 1
        assert topic == "schemas" and timeout > 0
        if self.asked <= self.refusals:
            raise KafkaException(KafkaError(self.code))


def check(producer: Unreached) -> None:
    """Ask whether the cluster is reached, in a thread as the registry does."""

    async def main() -> None:
        await asyncio.to_thread(SchemasTopic({}, "schemas")._check_reached, producer)

    asyncio.run(main())


def test_a_broker_that_has_died_is_not_the_whole_cluster() -> None:
    """librdkafka asks any broker, and does not ask another one when the connection to that one ends."""
    producer = Unreached(3)
    check(producer)
    assert producer.asked == 4


def test_no_broker_answers_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas_topic, "_REACH_TIMEOUT_S", 0.3)
    with pytest.raises(RegistryError, match="no broker of the cluster answers"):
        check(Unreached(1_000))


def test_other_errors_are_told_at_once() -> None:
    producer = Unreached(1, KafkaError._AUTHENTICATION)
    with pytest.raises(KafkaException):
        check(producer)
    assert producer.asked == 1
