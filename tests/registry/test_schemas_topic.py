"""The topic of a registry's schemas, with producers of our own in place of librdkafka's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from raftwerk.cluster.client.client_errors import NotLoggedInError, UnreachableError
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.registry import decisions, schemas_topic
from raftwerk.registry.decisions import NewSchema
from raftwerk.registry.errors import RegistryError
from raftwerk.registry.schemas_topic import SchemasTopic

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


def check(monkeypatch: pytest.MonkeyPatch, failure: Exception | None) -> None:
    """Ask whether the cluster is reached, where a request for metadata ends so, or for None never."""

    async def metadata(client: ClusterClient, topics: list[str]) -> None:
        assert topics == ["schemas"]
        if failure is None:
            await asyncio.Event().wait()
        else:
            raise failure

    async def main() -> None:
        await SchemasTopic(NOWHERE, "schemas")._check_reached()

    monkeypatch.setattr(ClusterClient, "metadata", metadata)
    asyncio.run(main())


@pytest.mark.parametrize("failure", [None, UnreachableError({("a", 1): "refuses the connection"})])
def test_no_broker_answers_in_time(monkeypatch: pytest.MonkeyPatch, failure: Exception | None) -> None:
    monkeypatch.setattr(schemas_topic, "_REACH_TIMEOUT_S", 0.1)
    with pytest.raises(RegistryError, match="no broker of the cluster answers"):
        check(monkeypatch, failure)


def test_other_errors_are_told_in_their_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = NotLoggedInError({("a", 1): "refuses the login"}, "give a password")
    with pytest.raises(RegistryError, match="Error in the backend data store: cannot log in: a:1 refuses"):
        check(monkeypatch, refused)


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
        assert await asyncio.to_thread(SchemasTopic(NOWHERE, "schemas")._first_end) == 7

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
        monkeypatch.setattr(SchemasTopic, "_check_reached", lambda _: asyncio.sleep(0))
        monkeypatch.setattr(confluent_kafka, "Producer", log.producer)
        monkeypatch.setattr(confluent_kafka, "Consumer", log.consumer)
        topic = SchemasTopic(NOWHERE, "schemas")
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
