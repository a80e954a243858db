"""A topic with tiny segments whose beginning is deleted while replicas are down.

DeleteRecords moves the start of the leader's log, and segments below it are removed. A follower that was away finds its
end offset below the leader's start offset, and begins again there. About half of the records carry old timestamps, as
when old data is loaded. Every acked record stays, once and in order, unless its deletion was asked for; no log starts
after the offset that was asked for. A follower that begins again does not know the producers of deleted records. When
it leads, a batch that was written, deleted and never acked may come again, as in Apache Kafka (KIP-360).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from .....cluster.client.admin_client import NewTopic
from .....cluster.client.client_errors import ClientError, is_retriable
from .....cluster.client.cluster_client import NO_ANSWER
from .....wire.api_keys import ApiKey
from .....wire.errors import ErrorCode
from ...invariants.invariant_broken import InvariantBroken
from ...invariants.partition_invariants import PartitionKey
from ..clients import ClientContext, IdempotentProducer, TopicClient, TopicConsumer
from ..workload import create_topic_until_done

SETTINGS = {
    "log.retention.check.interval.ms": "200",
    "log.segment.delete.delay.ms": "100",
    "replica.fetch.max.bytes": "400",
}
"""Settings of the nodes: retention checks within a run, and followers that need several fetches to catch up."""
_TOPIC_CONFIGS = {"segment.ms": "150", "retention.ms": "-1", "index.interval.bytes": "100"}
_DELETE_RECORDS = 2
_LIST_OFFSETS = 7
_EARLIEST = -2
_PRODUCERS = 2
_PAUSE_S = 0.25
_DAY_MS = 24 * 60 * 60 * 1000
_TIMEOUT_S = 3.0


class DeletedRecordsLoad:
    """Idempotent producers, a consumer, and a client that deletes old records. A `Workload`."""

    name = "trims"

    def __init__(self, context: ClientContext, *, is_compacted: bool = False) -> None:
        """A compacted topic has a key for each record, so that it keeps all that is not deleted."""
        self.finished = False
        self.is_compacted = is_compacted
        self.context = context
        self.client = TopicClient(context, self.name)
        rng, wall_ms = context.rng, context.wall_ms

        def some_time_ms() -> int:
            return wall_ms() - (rng.randrange(1, 30) * _DAY_MS if rng.random() < 0.5 else 0)

        old = replace(context, wall_ms=some_time_ms)
        kind = _ManyKeysProducer if is_compacted else IdempotentProducer
        self._producers = [kind(old, f"trimmed{n}", _PAUSE_S / 2) for n in range(_PRODUCERS)]
        self._consumer = SkippingConsumer(context, "trims consumer")
        self.stopping = False

    @property
    def topic_configs(self) -> dict[str, str]:
        """The settings of the topic."""
        return {**_TOPIC_CONFIGS, "cleanup.policy": "compact,delete"} if self.is_compacted else _TOPIC_CONFIGS

    async def run(self) -> None:
        """See `Workload`."""
        await create_topic_until_done(self.client.cluster, NewTopic(self.context.topic, 2, -1, self.topic_configs))
        await self.client.until_known()
        reader = asyncio.get_running_loop().create_task(self._consumer.run(), name=self._consumer.name)
        await asyncio.gather(self.delete_records(), *(each.run() for each in self._producers))
        self.finished = True
        await reader

    def stop(self) -> None:
        """See `Workload`."""
        self.stopping = True
        for each in self._producers:
            each.stop()

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        if not self.finished:
            return "it still sends"
        return None if self._consumer.caught_up() else f"its consumer reads: {self._consumer.describe()}"

    def check(self) -> None:
        """The promises at the top of this module hold."""
        history = self.context.history
        for (partition, producer, number), offset in history.acked.items():
            value = f"{producer}/{partition}/{number}"
            found = history.consumed.get(partition, {}).get(offset)
            if found != value and (found is not None or offset >= self.deleted_below(partition)):
                raise InvariantBroken("every acked record is read", f"{value} acked at {offset}, there is {found}")
        for partition, values in history.consumed.items():
            latest: dict[str, int] = {}
            deleted_below = self.deleted_below(partition)
            for offset in sorted(values):
                if offset >= deleted_below > 0:
                    latest, deleted_below = {}, 0
                producer, _, text = values[offset].split("/")
                if int(text) <= latest.get(producer, -1):
                    detail = f"partition {partition} at {offset}: {values[offset]} after {latest[producer]}"
                    raise InvariantBroken("records are there once and in order", detail)
                latest[producer] = int(text)

    def deleted_below(self, partition: int) -> int:
        """Below this offset acked records may be missing."""
        return self.context.checker.requested_log_start.get((self.client.topic_id, partition), 0)

    # -- deletions

    async def delete_records(self) -> None:
        """Delete records until `stop`."""
        rng = self.context.rng
        while not self.stopping:
            await asyncio.sleep(rng.expovariate(1 / _PAUSE_S))
            view = rng.choice(self.client.partitions)
            key = (self.client.topic_id, view.partition)
            await self._delete_before(key, self._choose_offset(key), view.leader)

    def _choose_offset(self, key: PartitionKey) -> int:
        """An offset to delete up to: the end of what is committed, or one before it."""
        checker, rng = self.context.checker, self.context.rng
        committed = checker.committed.get(key)
        end = 0 if committed is None else committed.promised_end_offset
        start = checker.requested_log_start.get(key, 0)
        return end if rng.random() < 0.5 else rng.randrange(start, end + 1)

    async def _delete_before(self, key: PartitionKey, offset: int, leader: int) -> None:
        """Send one DeleteRecords. It may be carried out even when its answer is lost."""
        allowed = self.context.checker.requested_log_start
        allowed[key] = max(allowed.get(key, 0), offset)
        partitions = [{"partition_index": key[1], "offset": offset}]
        fields = {"topics": [{"name": self.context.topic, "partitions": partitions}], "timeout_ms": 500}
        try:
            answer = await self.client.cluster.request_node(leader, ApiKey.DELETE_RECORDS, _DELETE_RECORDS, fields)
        except (ClientError, *NO_ANSWER):
            await self.client.refresh()
            return
        row = answer.topics[0].partitions[0]
        if not row.error_code and row.low_watermark < offset:
            raise InvariantBroken("deleted records are gone on all replicas", f"{key[1]}: {row} for {offset}")
        if row.error_code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            await self.client.refresh()


class _ManyKeysProducer(IdempotentProducer):
    """No two of its records have the same key."""

    def key_of(self, partition: int, number: int) -> bytes:
        """See `IdempotentProducer`."""
        return f"{self.name}/{partition}/{number}".encode()


class SkippingConsumer(TopicConsumer):
    """Continues at the log start offset when its next record has been deleted."""

    async def _read_partition(self, partition: int) -> None:
        self.start_at(partition, 0)
        while True:
            try:
                code = await self.fetch(partition)
                if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    code = await self._skip_deleted(partition)
            except NO_ANSWER:
                code = ErrorCode.NETWORK_EXCEPTION
            if code:
                if not is_retriable(code):
                    detail = f"partition {partition} at {self.positions[partition]}: {ErrorCode(code).name}"
                    raise InvariantBroken("a consumer's position stays valid, or was deleted", detail)
                await asyncio.sleep(_PAUSE_S / 5)
                await self.client.refresh()

    async def _skip_deleted(self, partition: int) -> int:
        view = self.client.partitions[partition]
        asked = {"partition_index": partition, "current_leader_epoch": view.leader_epoch, "timestamp": _EARLIEST}
        topics = [{"name": self.client.topic, "partitions": [asked]}]
        connection = await self.client.cluster.connection(view.leader)
        fields = {"replica_id": -1, "isolation_level": 0, "topics": topics}
        answer = await connection.request(ApiKey.LIST_OFFSETS, _LIST_OFFSETS, fields, timeout_s=_TIMEOUT_S)
        row = answer.topics[0].partitions[0]
        if row.error_code:
            return int(row.error_code)
        if row.offset <= self.positions[partition]:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        self.positions[partition] = row.offset
        return ErrorCode.NONE
