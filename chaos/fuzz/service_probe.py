"""Whether a cluster serves after the attacks: every partition takes and gives records, every coordinator its groups."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from ...broker.coordinators.partition_for import partition_for
from ...cluster.client.admin_client import AdminClient, NewTopic
from ...cluster.client.client_errors import ClientError, RefusedError
from ...cluster.client.cluster_client import NO_ANSWER, ClusterClient, PartitionView
from ...cluster.client.consumer import LATEST, Consumer
from ...cluster.client.group_client import GroupClient
from ...wire.api_keys import ApiKey
from ...wire.compression import CompressionError
from ...wire.errors import ErrorCode, ProtocolError, WireFormatError
from ...wire.records import NewRecord, encode_batch
from ...wire.types import TopicPartition
from .drawn_values import INTERNAL_TOPIC

Place = TypeVar("Place")
_PRODUCE_VERSION = 9
_TRY_FOR_S = 15.0
_PAUSE_S = 0.2
_AT_ONCE = 20
_PARTITIONS_PROBED_MAX = 500
_READ_LIMIT_S = 20.0
_SETTINGS_REFUSE = (
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.INVALID_RECORD,
    ErrorCode.POLICY_VIOLATION,
)
"""What a topic's own settings may make a leader answer; drawn requests may have changed them."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What a probe leaves out: topics, and partitions whose replicas in sync are all on a node that is down."""

    topics: Sequence[str] = ()
    down: Sequence[int] = ()

    def can_serve(self, partition: PartitionView) -> bool:
        """Whether the partition must be served. Drawn requests may have moved it to one node."""
        return any(node_id not in self.down for node_id in partition.isr)


async def stuck_partitions(bootstrap: str, rng: random.Random, left_out: LeftOut) -> list[str]:
    """Partitions that do not take a record, or do not give their last one back. At most 500 are asked."""
    async with ClusterClient(bootstrap, timeout_s=5.0) as client:
        view = await client.metadata()
        places = [
            (topic.name, row.partition)
            for topic in view.topics
            if not topic.internal and topic.name not in left_out.topics
            for row in topic.partitions
            if left_out.can_serve(row)
        ]
        if len(places) > _PARTITIONS_PROBED_MAX:
            places = rng.sample(places, _PARTITIONS_PROBED_MAX)
        return await _all(places, lambda place: _probe_partition(client, *place))


async def _probe_partition(client: ClusterClient, topic: str, partition: int) -> str | None:
    reason = await _until_served(lambda: _write(client, topic, partition))
    return reason and f"{topic}-{partition}: {reason}"


async def _write(client: ClusterClient, topic: str, partition: int) -> str | None:
    row = next((row for row in await _partitions(client, topic) if row.partition == partition), None)
    if row is None:
        return None  # it was deleted meanwhile
    batch = bytes(encode_batch([NewRecord(b"probe", b"probe", (), int(time.time() * 1000))]))
    rows = [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}]
    fields = {"acks": -1, "timeout": 3000, "topic_data": rows}
    answer = await client.request_node(row.leader, ApiKey.PRODUCE, _PRODUCE_VERSION, fields)
    code = answer.responses[0].partition_responses[0].error_code
    if code in _SETTINGS_REFUSE:
        return None
    if code:
        return f"Produce with acks=all is answered with {ErrorCode(code).name}"
    consumer = Consumer(client, topic, max_wait_ms=200)
    await consumer.start([partition], at=answer.responses[0].partition_responses[0].base_offset)
    return None if await consumer.poll() or await consumer.poll() else "the record that it took is not read back"


async def unserved_groups(bootstrap: str, topic: str) -> list[str]:
    """Partitions of `__consumer_offsets` whose coordinator does not take and give a committed offset."""
    async with ClusterClient(bootstrap, timeout_s=8.0) as client:
        groups = GroupClient(client)
        await GroupClient(client).commit("probe", {TopicPartition(topic, 0): 0})
        partitions = len((await client.metadata([INTERNAL_TOPIC])).topic(INTERNAL_TOPIC).partitions)
        names = _group_names(partitions)
        return await _all(list(enumerate(names)), lambda place: _probe_group(groups, topic, *place))


def _group_names(partitions: int) -> list[str]:
    """A group for each partition, by its number."""
    found: dict[int, str] = {}
    for number in count():
        name = f"probe-{number}"
        found.setdefault(partition_for(name, partitions), name)
        if len(found) == partitions:
            break
    return [found[partition] for partition in range(partitions)]


async def _probe_group(groups: GroupClient, topic: str, partition: int, group: str) -> str | None:
    async def commit_and_fetch() -> str | None:
        place = TopicPartition(topic, 0)
        await groups.commit(group, {place: partition})
        found = await groups.committed(group)
        return None if found.get(place) == partition else f"the committed offset {partition} is read as {found}"

    reason = await _until_served(commit_and_fetch)
    return reason and f"{INTERNAL_TOPIC}-{partition} (group {group}): {reason}"


async def refused_new_topic(bootstrap: str, name: str) -> list[str]:
    """Why the controller does not create and delete a topic; empty when it does."""

    async def create_and_delete() -> str | None:
        async with ClusterClient(bootstrap, timeout_s=5.0) as client:
            with contextlib.suppress(RefusedError):  # an earlier attempt may have created it
                await AdminClient(client).create_topic(NewTopic(name, 1, 1), wait=False)
            await AdminClient(client).delete_topic(name)
        return None

    reason = await _until_served(create_and_delete)
    return [] if reason is None else [reason]


async def unreadable_partitions(bootstrap: str, topics: Sequence[str], left_out: LeftOut) -> list[str]:
    """Partitions of these topics that hold a batch which a consumer cannot read."""
    found = []
    async with ClusterClient(bootstrap, timeout_s=5.0) as client:
        for topic in topics:
            try:
                partitions = await _partitions(client, topic)
            except (ClientError, *NO_ANSWER) as error:
                found.append(f"{topic}: {error or type(error).__name__}")
                continue
            for row in partitions:
                reason = await _read_to_end(client, topic, row.partition) if left_out.can_serve(row) else None
                if reason is not None:
                    found.append(f"{topic}-{row.partition}: {reason}")
    return found


async def _partitions(client: ClusterClient, topic: str) -> Sequence[PartitionView]:
    """The partitions of a topic; none if it does not exist."""
    try:
        return (await client.metadata([topic])).topic(topic).partitions
    except RefusedError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return ()


async def _read_to_end(client: ClusterClient, topic: str, partition: int) -> str | None:
    consumer = Consumer(client, topic, max_wait_ms=200)
    try:
        async with asyncio.timeout(_READ_LIMIT_S):
            await consumer.start([partition])
            ends = await consumer.offsets(LATEST, [partition])
            while not await consumer.is_past(ends):
                await consumer.poll()
    except (ClientError, ProtocolError, WireFormatError, TimeoutError, CompressionError) as error:
        position = consumer.positions.get(partition)
        return f"from offset {position} on: {error or type(error).__name__}"
    return None


async def in_sync_within(bootstrap: str, topics: Sequence[str], replicas: int, limit_s: float) -> bool:
    """Whether all partitions of these topics have a leader and all replicas in sync before the limit."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        with contextlib.suppress(ClientError, *NO_ANSWER):
            async with ClusterClient(bootstrap, timeout_s=3.0) as client:
                view = await client.metadata(topics)
                rows = [row for topic in view.topics for row in topic.partitions]
                if len(view.topics) == len(topics) and all(r.leader >= 0 and len(r.isr) >= replicas for r in rows):
                    return True
        await asyncio.sleep(_PAUSE_S)
    return False


async def _until_served(attempt: Callable[[], Awaitable[str | None]]) -> str | None:
    """None once an attempt succeeds; the reason of the last one after the time limit."""
    deadline = time.monotonic() + _TRY_FOR_S
    while True:
        try:
            reason = await attempt()
        except (ClientError, *NO_ANSWER) as error:
            reason = str(error) or type(error).__name__
        if reason is None or time.monotonic() > deadline:
            return reason
        await asyncio.sleep(_PAUSE_S)


async def _all(places: Sequence[Place], probe: Callable[[Place], Awaitable[str | None]]) -> list[str]:
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(place: Place) -> str | None:
        async with limit:
            return await probe(place)

    return [reason for reason in await asyncio.gather(*(one(place) for place in places)) if reason is not None]
