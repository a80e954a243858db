"""A small idempotent producer. It sends a batch for each partition at a time, and retries it until it is acked.

A key's partition is Kafka's: murmur2 of the key without the sign bit, modulo the number of partitions. Records without
a key go to one partition in each call of `send`, and to the next one in the next call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ...runtime.clock import SystemClock
from ...security.authorizer.acl_binding import AclOperation, ResourceType
from ...wire.api_keys import ApiKey
from ...wire.compression import Compression
from ...wire.errors import ErrorCode
from ...wire.records import NewRecord, encode_batch
from .access.needed_rights import Asked, NeededRight
from .admin_client import TOPIC, AdminClient
from .client_errors import ClientError, RefusedError, is_retriable, no_such_partition
from .cluster_client import NO_ANSWER, NOTICE_AFTER_S, ClusterClient, TopicView
from .error_sentences import meaning_of
from .peer_protocol import no_answer_reason

_INIT_PRODUCER_ID_VERSION = 4
_PRODUCE_VERSION = 9
_RETRY_PAUSE_S = 0.05
BATCH_BYTES = 256 * 1024
_REQUEST_BYTES = 100 * 1024 * 1024
"""The default of the brokers' socket.request.max.bytes. They close the connection on larger requests."""
_EXPLAINED_IN_S = 5.0
"""How long brokers are asked why a batch was not acked."""
_SHOWN_BYTES = 40
_WAITS_FOR_REPLICAS = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)
_logger = logging.getLogger("raftwerk.cluster.client")
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


@dataclass(slots=True)
class Acked:
    """Where a batch of records was appended."""

    partition: int
    base_offset: int
    count: int


@dataclass(slots=True)
class _Batch:
    partition: int
    records: list[NewRecord]
    data: bytes


class TopicLeaders:
    """The leaders of a topic as they were told last. Those who find them wrong at the same time ask once.

    Otherwise each would ask for itself, and a late answer take the place of a newer one.
    """

    def __init__(self, client: ClusterClient, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._asking = asyncio.Lock()
        self._times_asked = 0
        self.view: TopicView | None = None

    async def start(self) -> TopicView:
        """Ask for the first time. Raises `RefusedError` when there is no such topic."""
        view = await self._client.metadata([self._topic], purpose=ApiKey.PRODUCE)
        self.view = view.topic(self._topic)
        return self.view

    async def refresh(self) -> None:
        """Ask again; while another caller asks, wait for its answer instead, or until it has failed.

        Raises `ClientError` where it has asked itself, and no broker has answered or the topic is gone.
        """
        before = self._times_asked
        async with self._asking:
            if self._times_asked != before:
                return
            try:
                self.view = await self._client.topic_again(self._topic, self.view)
            except ClientError:
                self._times_asked += 1
                raise
            self._times_asked += 1  # not when it is cancelled: then the next one that waits has to ask


class Producer:
    """Sends to one topic. `acks` is -1 (all), 1 or 0; only acks=all is idempotent."""

    def __init__(
        self,
        client: ClusterClient,
        topic: str,
        *,
        acks: int = -1,
        compression: Compression = Compression.NONE,
        timeout_s: float = 30.0,
    ) -> None:
        self.client = client
        self.topic = topic
        self.acks = acks
        self.compression = compression
        self.timeout_s = timeout_s
        self.acked: dict[int, int] = {}
        """How many records were acked, by partition."""
        self.taken = 0
        """How many records `send` was called with; those that are not acked may be written all the same."""
        self._leaders = TopicLeaders(client, topic)
        self._producer: tuple[int, int] = (-1, -1)
        self._sequences: dict[int, int] = {}
        self._round = 0
        self._has_told = False
        self._clock = SystemClock()

    async def start(self) -> None:
        """Read the topic's partitions and get a producer id. Raises `RefusedError` when there is no such topic."""
        await self._leaders.start()
        if self.acks == -1:
            self._producer = await self._init_producer_id()
        # Producers that send one batch each begin at different partitions.
        self._round = self._producer[0] if self.acks == -1 else self._clock.wall_ms()

    async def send(
        self,
        records: Iterable[tuple[bytes | None, bytes | None]],
        *,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> list[Acked]:
        """Send pairs of key and value; returns when all are acked.

        All of them go to `partition` if one is given, and have these headers and this timestamp (default: now). Raises
        `ClientError` if a partition refuses a record; the records for other partitions are sent all the same.
        """
        groups: dict[int, list[NewRecord]] = {}
        at_ms = self._clock.wall_ms() if timestamp_ms is None else timestamp_ms
        self._round += 1
        for key, value in records:
            chosen = self.partition_for(key) if partition is None else partition
            groups.setdefault(chosen, []).append(NewRecord(key, value, headers, at_ms))
        self.taken += sum(map(len, groups.values()))
        sending = [self._send_partition(partition, group) for partition, group in groups.items()]
        sent = await asyncio.gather(*sending, return_exceptions=True)
        for one in sent:
            if isinstance(one, BaseException):
                raise one
        return [acked for acks in sent if not isinstance(acks, BaseException) for acked in acks]

    def partition_for(self, key: bytes | None) -> int:
        """The partition to which a record with this key goes now."""
        count = len(self._topic().partitions)
        return self._round % count if key is None else (murmur2(key) & 0x7FFFFFFF) % count

    def check_partition(self, partition: int) -> None:
        """Raise `ClientError` when the topic has no such partition."""
        count = len(self._topic().partitions)
        if not 0 <= partition < count:
            raise no_such_partition(self.topic, partition, count)

    def _topic(self) -> TopicView:
        view = self._leaders.view
        if view is None or not view.partitions:
            raise ClientError(f"topic {self.topic} has no partitions yet")
        return view

    async def _init_producer_id(self) -> tuple[int, int]:
        fields = {"transactional_id": None, "transaction_timeout": 60000, "producer_id": -1, "producer_epoch": -1}
        now = self.client.throttling.unthrottled_time
        deadline = now() + self.timeout_s
        while True:
            answer = await self.client.request(ApiKey.INIT_PRODUCER_ID, _INIT_PRODUCER_ID_VERSION, fields)
            if not answer.error_code:
                return answer.producer_id, answer.producer_epoch
            if not is_retriable(answer.error_code) or now() > deadline:
                no_right = answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED  # KIP-679
                right = NeededRight(AclOperation.WRITE, ResourceType.TOPIC, self.topic)
                way_out = right.way_out if no_right else None
                raise RefusedError(answer.error_code, "a producer id", way_out=way_out)
            await asyncio.sleep(_RETRY_PAUSE_S)

    async def _send_partition(self, partition: int, records: list[NewRecord]) -> list[Acked]:
        """Send the records, in smaller batches where the topic refuses one as too large."""
        acks = []
        waiting = list(_split(records))[::-1]
        while waiting:
            group = waiting.pop()
            try:
                acks.append(await self._send_group(partition, group))
            except RefusedError as error:
                half = len(group) // 2
                if error.code not in _TOO_LARGE or not half:
                    raise
                waiting += [group[half:], group[:half]]
        return acks

    async def _send_group(self, partition: int, group: list[NewRecord]) -> Acked:
        sequence = self._sequences.get(partition, 0)
        producer_id, producer_epoch = self._producer
        data = encode_batch(
            group,
            compression=self.compression,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence if producer_id >= 0 else -1,
        )
        if len(data) > _REQUEST_BYTES:
            text = f"{len(data):,} bytes are more than a request may have, socket.request.max.bytes"
            raise RefusedError(ErrorCode.MESSAGE_TOO_LARGE, _described(self.topic, partition, group), text)
        acked = await self._send_batch(_Batch(partition, group, bytes(data)))
        self._sequences[partition] = (sequence + len(group)) & 0x7FFFFFFF
        self.acked[partition] = self.acked.get(partition, 0) + acked.count
        return acked

    async def _send_batch(self, batch: _Batch) -> Acked:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        code, message = int(ErrorCode.REQUEST_TIMED_OUT), None
        try:
            async with self.client.throttling.limit_until(began_at + self.timeout_s):
                while True:
                    code, offset, message = await self._try_batch(batch)
                    if code == ErrorCode.NONE or code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                        return Acked(batch.partition, offset, len(batch.records))
                    if not is_retriable(code):
                        what = _described(self.topic, batch.partition, batch.records)
                        asked = Asked(ApiKey.PRODUCE, topic=self.topic)
                        raise RefusedError(code, what, message, asked=asked)
                    if loop.time() - began_at > NOTICE_AFTER_S and not self._has_told:
                        self._has_told = True
                        reason, place = message or meaning_of(code), f"{self.topic}-{batch.partition}"
                        _logger.warning("%s: %s; trying for up to %g s", place, reason, self.timeout_s)
                    await asyncio.sleep(_RETRY_PAUSE_S)
                    await self._refresh()
        except TimeoutError:
            raise await self._late(batch, code, message) from None

    async def _late(self, batch: _Batch, code: int, message: str | None) -> RefusedError:
        """The error for a batch that nobody has acked in time; `code` and `message` are those of the last try."""
        missing = None
        with suppress(TimeoutError):
            async with asyncio.timeout(_EXPLAINED_IN_S):
                missing = await self._missing_replicas(batch.partition, code)
        leader = self._topic().partition(batch.partition).leader
        by = f" by {self.client.broker_text(leader)}" if code == ErrorCode.KAFKA_STORAGE_ERROR else ""
        late = f"{_described(self.topic, batch.partition, batch.records)} not acked after {self.timeout_s:g} s{by}"
        return RefusedError(code, late, missing or message)

    async def _missing_replicas(self, partition: int, code: int) -> str | None:
        """Which replicas a leader waits for that answers and acks nothing; None where that is not the reason."""
        if self.acks != -1 or code not in _WAITS_FOR_REPLICAS:
            return None
        await self._refresh()
        row = self._topic().partition(partition)
        reasons = await self.client.silences(row.replicas)
        if row.leader < 0 or row.leader in reasons:
            return None
        behind = {one: "is out of sync" for one in row.replicas if one not in row.isr}
        missing = [f"{self.client.broker_text(one)} {reason}" for one, reason in sorted((behind | reasons).items())]
        if not missing:
            return None
        needed = await self._min_insync_replicas()
        least = "" if needed is None else f" ({needed} in this topic)"
        rule = f"acks=all waits for all replicas in sync, and needs min.insync.replicas{least} of them"
        return f"{rule}: {'; '.join(missing)}"

    async def _silent_replicas(self, partition: int) -> str | None:
        """The replicas in sync that do not answer, for which a leader waits that does; None if there are none."""
        row = self._topic().partition(partition)
        if self.acks != -1:
            return None
        reasons = await self.client.silences(row.isr)
        if not reasons or row.leader in reasons:
            return None
        told = (f"{self.client.broker_text(one)}, which {reason}" for one, reason in sorted(reasons.items()))
        return " and ".join(told)

    async def _min_insync_replicas(self) -> str | None:
        try:
            found = await AdminClient(self.client).describe_configs(TOPIC, self.topic, everything=True)
        except ClientError:
            return None
        return next((one.value for one in found if one.name == "min.insync.replicas"), None)

    async def _try_batch(self, batch: _Batch) -> tuple[int, int, str | None]:
        leader = self._topic().partition(batch.partition).leader
        fields = {
            "transactional_id": None,
            "acks": self.acks,
            "timeout": self.client.replicas_timeout_ms(self.timeout_s),
            "topic_data": [{"name": self.topic, "partition_data": [{"index": batch.partition, "records": batch.data}]}],
        }
        if leader < 0:
            return ErrorCode.LEADER_NOT_AVAILABLE, -1, None
        try:
            answer = await self.client.request_node(
                leader, ApiKey.PRODUCE, _PRODUCE_VERSION, fields, lambda: self._silent_replicas(batch.partition)
            )
        except NO_ANSWER as error:
            return ErrorCode.NETWORK_EXCEPTION, -1, f"broker {leader} {no_answer_reason(error)}"
        row = answer.responses[0].partition_responses[0]
        return row.error_code, row.base_offset, row.error_message

    async def _refresh(self) -> None:
        with suppress(ClientError):
            await self._leaders.refresh()


def _described(topic: str, partition: int, records: Sequence[NewRecord]) -> str:
    """The partition; for a single record also how its value begins, so that it can be found among others."""
    value = records[0].value
    if len(records) > 1 or value is None:
        return f"{topic}-{partition}"
    shown = value[:_SHOWN_BYTES].decode(errors="replace") + ("..." if len(value) > _SHOWN_BYTES else "")
    return f"{topic}-{partition}, record {shown!r}"


def _split(records: Sequence[NewRecord]) -> Iterable[list[NewRecord]]:
    group: list[NewRecord] = []
    size = 0
    for record in records:
        group.append(record)
        size += len(record.key or b"") + len(record.value or b"") + 16
        if size >= BATCH_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash by which Kafka's clients choose partitions (seed 0x9747b28c), as an unsigned number."""
    mask, multiplier = 0xFFFFFFFF, 0x5BD1E995
    length = len(data)
    result = 0x9747B28C ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        result = (result * multiplier & mask) ^ word
    if length != whole:
        result = (result ^ int.from_bytes(data[whole:], "little")) * multiplier & mask
    result = (result ^ result >> 13) * multiplier & mask
    return result ^ result >> 15
