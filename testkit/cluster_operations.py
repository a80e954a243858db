"""What tests do with a cluster through its protocol, whether it is simulated or runs in the test's own process."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from ..cluster.client.admin_client import AdminClient, NewTopic, has_leaders
from ..cluster.client.client_errors import ClientError, RefusedError, no_such_partition
from ..cluster.client.cluster_client import ClusterClient
from ..cluster.client.consumer import LATEST, READ_COMMITTED, Consumer
from ..cluster.client.group_client import GroupClient
from ..cluster.client.producer import Producer
from ..cluster.client.requests.attempts import Attempts
from ..cluster.command_line.plural import counted
from ..wire.errors import ErrorCode

T = TypeVar("T")
Value = str | bytes | tuple[str | bytes | None, str | bytes | None]
_TIMEOUT_S = 60.0
_HEARS_WITHIN_S = 10.0
_LOOK_AGAIN_S = 0.01


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A record as `ClusterOperations.records` gives it."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class ClusterOperations(ABC):
    """Topics, records and groups of a cluster, by a client of its own."""

    @abstractmethod
    async def _ask(self, ask: Callable[[ClusterClient], Coroutine[Any, Any, T]]) -> T:
        """The answer to a question that a client asks the cluster."""

    @property
    @abstractmethod
    def node_ids(self) -> list[int]:
        """The ids of all nodes, running or not."""

    @abstractmethod
    def _wall_ms(self) -> int:
        """The timestamp of records that are sent now."""

    async def create_topic(
        self, name: str, *, partitions: int = 1, replicas: int = -1, config: Mapping[str, object] | None = None
    ) -> None:
        """Create a topic and wait for its leaders. Raises `RefusedError` for what the cluster refuses."""
        topic, attempts = NewTopic(name, partitions, replicas, texts_of(config or {})), Attempts()
        try:
            await self._ask(lambda client: AdminClient(client).create_topic(topic, attempts=attempts))
        except RefusedError as error:
            raise with_number_of_nodes(error, replicas, len(self.node_ids)) from None

    async def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises `RefusedError` when there is none of this name."""
        attempts = Attempts()
        await self._ask(lambda client: AdminClient(client).delete_topic(name, attempts=attempts))

    async def produce(self, topic: str, *values: Value, partition: int | None = None) -> None:
        """Send values, or pairs of key and value, each once; returns when all are acked by all in-sync replicas.

        Raises `TypeError` for what is neither, and `ClientError` for a partition that the topic does not have.
        """
        if partition is not None and not isinstance(partition, int):
            raise TypeError(f"produce(partition={partition!r}): it is the number of a partition")
        records = [_record(value) for value in values]
        at_ms = self._wall_ms()

        async def send(client: ClusterClient) -> None:
            producer = Producer(client, topic, timeout_s=_TIMEOUT_S)
            await producer.start()
            if partition is not None:
                producer.check_partition(partition)
            await producer.send(records, partition=partition, timestamp_ms=at_ms)

        await self._ask(send)

    async def records(self, topic: str) -> list[ReadRecord]:
        """What a consumer that reads committed records finds from the beginning to the end of every partition."""

        async def read(client: ClusterClient) -> list[ReadRecord]:
            consumer = Consumer(client, topic, isolation_level=READ_COMMITTED)
            await consumer.start()
            ends = await consumer.offsets(LATEST, consumer.positions)
            found = [each async for each in consumer.records(end_offsets=ends)]
            return [_read_record(each.partition, each.record) for each in found]

        return await self._ask(read)

    async def values(self, topic: str) -> list[bytes | None]:
        """The values of `records`."""
        return [record.value for record in await self.records(topic)]

    async def committed(self, group: str, topic: str) -> dict[int, int]:
        """The committed offsets of a group, by partition of the topic."""
        offsets = await self._ask(lambda client: GroupClient(client).committed(group))
        return {where.partition: offset for where, offset in offsets.items() if where.topic == topic}

    async def leader_of(self, topic: str, partition: int = 0) -> int:
        """The node that leads a partition; -1 if none does. Raises `ClientError` for an unknown partition."""
        partitions = (await self._ask(lambda client: client.metadata([topic]))).topic(topic).partitions
        if not 0 <= partition < len(partitions):
            raise no_such_partition(topic, partition, len(partitions))
        return partitions[partition].leader


async def wait_until_known(topic: str, brokers: Iterable[str]) -> None:
    """Return when each of these brokers, given by its address, shows the topic with its leaders.

    They hear of it one after another. Those that do not answer are not waited for. Raises `ClientError` for one that
    answers and does not show it within ten seconds.
    """
    await asyncio.gather(*(_wait_until_one_knows(topic, broker) for broker in brokers))


async def _wait_until_one_knows(topic: str, broker: str) -> None:
    async def look() -> None:
        with suppress(ClientError):
            async with ClusterClient(broker, timeout_s=_HEARS_WITHIN_S / 2) as client:
                while not has_leaders(await client.metadata([topic]), topic):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_AGAIN_S)

    try:
        await asyncio.wait_for(look(), _HEARS_WITHIN_S)
    except TimeoutError:
        text = f"topic {topic} was created, and the broker at {broker} does not show it after {_HEARS_WITHIN_S:g} s"
        raise ClientError(text) from None


def with_number_of_nodes(error: RefusedError, replicas: int, brokers: int) -> RefusedError:
    """The refusal of a topic, with the number of nodes as the way out where the cluster is too small for it."""
    if error.code != ErrorCode.INVALID_REPLICATION_FACTOR or replicas <= brokers:
        return error
    return error.with_way_out(f"the cluster has {counted(brokers, 'broker')}: start it with nodes={replicas}")


def texts_of(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings as texts; booleans as Kafka writes them."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}


def _read_record(partition: int, record: Any) -> ReadRecord:
    headers = tuple((key, value) for key, value in record.headers)
    return ReadRecord(partition, record.offset, record.timestamp, record.key, record.value, headers)


def _record(value: Value) -> tuple[bytes | None, bytes | None]:
    pair = value if isinstance(value, tuple) else (None, value)
    if len(pair) != 2 or not all(one is None or isinstance(one, str | bytes) for one in pair):
        raise TypeError(f"produce({value!r}): a value is a text or bytes, or a pair of key and value")
    key, content = (one.encode() if isinstance(one, str) else one for one in pair)
    return key, content
