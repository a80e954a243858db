"""The topic of a registry's schemas, with producers of our own in place of librdkafka's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from raftwerk.registry import decisions, schemas_topic
from raftwerk.registry.decisions import NewSchema
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


@pytest.mark.parametrize(
    "code", [KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.NOT_LEADER_FOR_PARTITION]
)
def test_a_broker_that_has_not_heard_of_the_new_topic_is_waited_for(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Metadata may name the leader before that has taken up its role."""
    asked: list[None] = []

    def end(_: SchemasTopic) -> int:
        asked.append(None)
        if len(asked) < 3:
            raise KafkaException(KafkaError(code))
        return 7

    async def main() -> None:
        assert await asyncio.to_thread(SchemasTopic({}, "schemas")._first_end) == 7

    monkeypatch.setattr(SchemasTopic, "_end", end)
    asyncio.run(main())


class LogInMemory:
    """The log of the topic, with the clients for it. It is followed when it grows, or when its end was asked for."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes, bytes | None]] = []
        self._loop = asyncio.get_running_loop()
        self._is_asked = asyncio.Event()
        self._followed = 0

    def ask(self) -> None:
        """Let the follower read, from any thread."""
        self._loop.call_soon_threadsafe(self._is_asked.set)

    async def follow(self, topic: SchemasTopic) -> None:
        """What the topic's thread does."""
        self._is_asked.clear()
        while True:
            await self._is_asked.wait()
            self._is_asked.clear()
            while self._followed < len(self.records):
                self._followed += 1
                await topic._take(self._followed, *self.records[self._followed - 1])
            await topic._take(self._followed, None, None)

    def producer(self, _: Any) -> ProducerInMemory:
        return ProducerInMemory(self)

    def consumer(self, _: Any) -> Any:
        def get_watermark_offsets(place: Any, timeout: float) -> tuple[int, int]:
            self.ask()
            return 0, len(self.records)

        return SimpleNamespace(get_watermark_offsets=get_watermark_offsets, close=lambda: None)


class ProducerInMemory:
    """A transactional producer, whose transactions are committed at once."""

    def __init__(self, log: LogInMemory) -> None:
        self._log = log
        self._sent: list[tuple[bytes, bytes | None, Callable[[Any, Any], None]]] = []

    def list_topics(self, topic: str, timeout: float) -> None: ...

    def init_transactions(self, timeout: float) -> None: ...

    def begin_transaction(self) -> None:
        assert not self._sent, "a transaction is open"

    def produce(
        self, topic: str, *, key: bytes, value: bytes | None, partition: int, on_delivery: Callable[[Any, Any], None]
    ) -> None:
        self._sent.append((key, value, on_delivery))

    def commit_transaction(self, timeout: float) -> None:
        for key, value, on_delivery in self._sent:
            offset = len(self._log.records)
            self._log.records.append((key, value))
            on_delivery(None, SimpleNamespace(offset=lambda offset=offset: offset))
        self._sent.clear()
        self._log.ask()


def test_an_id_is_not_given_twice_when_a_write_is_not_read_back_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is committed all the same, and the next change must not decide without it."""

    async def main() -> list[tuple[str, int]]:
        log = LogInMemory()
        monkeypatch.setattr(confluent_kafka, "Producer", log.producer)
        monkeypatch.setattr(confluent_kafka, "Consumer", log.consumer)
        topic = SchemasTopic({}, "schemas")
        with monkeypatch.context() as patience:
            patience.setattr(schemas_topic, "_TIMEOUT_S", 0.2)
            with pytest.raises(RegistryError, match="it may be done or not") as told:
                await topic.change(lambda image: decisions.register(image, "a", NewSchema('"string"')))
        assert (told.value.code, len(log.records)) == (50002, 1)
        following = asyncio.ensure_future(log.follow(topic))
        await topic.change(lambda image: decisions.register(image, "b", NewSchema('"bytes"')))
        await topic.change(lambda image: decisions.register(image, "c", NewSchema('"long"')))
        following.cancel()
        await topic.stop()
        return [(one.subject, one.schema_id) for one in topic.image.all_versions()]

    assert asyncio.run(main()) == [("a", 1), ("b", 2), ("c", 3)]
