"""Clients in the simulator: an idempotent producer with several requests in flight, and a consumer of all partitions.

They speak the wire protocol over the simulated network, and keep a history of the answers (`client_invariants`). A
record's value names its producer, its partition and its number: "producer/partition/number".
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from ....cluster.client.client_errors import ClientError, is_retriable
from ....cluster.client.cluster_client import NO_ANSWER, ClusterClient, PartitionView
from ....wire.api_keys import ApiKey
from ....wire.client import Connection
from ....wire.codec import Struct, decode_response, encode_request
from ....wire.compression import Compression
from ....wire.errors import ErrorCode
from ....wire.fetch import FetchPartition, FetchRequest, FetchTopic, decode_fetch_response, encode_fetch_request
from ....wire.records import NewRecord, Record, encode_batch, iter_headers, iter_records, verify_crc
from ..invariants.client_invariants import History
from ..invariants.invariant_broken import InvariantBroken
from ..invariants.partition_invariants import PartitionChecker

_INIT_PRODUCER_ID_VERSION = 4
_FIND_COORDINATOR_VERSION = 4
_OF_GROUP = 0
_PRODUCE_VERSION = 9
_FETCH_VERSION = 12
_IN_FLIGHT_MAX = 3
RECORDS_MAX = 4
_RETRY_PAUSE_S = 0.05
_REQUEST_TIMEOUT_S = 3.0
_STALE_PROBABILITY = 0.05
_LARGE_BATCH_EVERY = 16
"""One batch in so many records is compressed, and too large for the leader to validate it on its event loop."""
LARGE_HEADERS = (("filler", bytes(200_000)),)
"""With these a record is too large for the leader to validate it on its event loop."""


@dataclass(frozen=True, slots=True)
class ClientContext:
    """What a client needs: where the cluster is, its topic, its randomness, and where its answers are recorded."""

    bootstrap: str
    topic: str
    rng: random.Random
    checker: PartitionChecker
    history: History
    wall_ms: Callable[[], int]


async def find_coordinator(
    cluster: ClusterClient, key: str, *, key_type: int = _OF_GROUP, at: tuple[str, int] | None = None
) -> Struct:
    """Who coordinates a group or a transactional id, as any broker says, or the one `at` an address.

    Raises `ClientError`, also where there is no coordinator now, and one of `NO_ANSWER`.
    """
    fields = {"key_type": key_type, "coordinator_keys": [key]}
    api, version = ApiKey.FIND_COORDINATOR, _FIND_COORDINATOR_VERSION
    asked = cluster.request(api, version, fields) if at is None else cluster.request_at(at, api, version, fields)
    row: Struct = (await asked).coordinators[0]
    if row.error_code:
        raise ClientError(f"no coordinator: {row.error_code}")
    return row


@dataclass(slots=True)
class SentBatch:
    """A batch of `count` records, the first of which has the number `first`."""

    first: int
    count: int
    data: bytes


class ProduceAnswer(NamedTuple):
    """What a producer is told of a batch. The time is that of the leader's append; -1: the records keep their own."""

    code: int
    base_offset: int = -1
    append_time_ms: int = -1


class TopicClient:
    """The metadata of one topic, refreshed after errors, and the connections to its leaders."""

    def __init__(self, context: ClientContext, name: str) -> None:
        self.cluster = ClusterClient(
            context.bootstrap, client_id=name, timeout_s=_REQUEST_TIMEOUT_S, probe_timeout_s=None
        )
        self.topic = context.topic
        self.topic_id = UUID(int=0)
        self.partitions: tuple[PartitionView, ...] = ()

    async def refresh(self) -> None:
        """Request the metadata once; keep the old metadata if no broker answers.

        What is said of an older leader epoch is ignored, as Kafka's clients do (KIP-320): the broker that was asked may
        be cut off, and the former leader that it names has not all records.
        """
        try:
            view = await self.cluster.metadata([self.topic])
        except ClientError:
            return
        for topic in view.topics:
            if topic.topic_id is not None:
                is_same = topic.topic_id == self.topic_id
                known = {each.partition: each for each in self.partitions} if is_same else {}
                self.topic_id = topic.topic_id
                self.partitions = tuple(_newer(each, known.get(each.partition)) for each in topic.partitions)

    async def ask(self, view: PartitionView, leader_epoch: int, offset: int, *, max_wait_ms: int) -> tuple[int, bytes]:
        """The error code and the records of one fetch. Raises one of `NO_ANSWER` without an answer."""
        wanted = FetchPartition(view.partition, current_leader_epoch=leader_epoch, fetch_offset=offset)
        request = FetchRequest(max_wait_ms=max_wait_ms, topics=[FetchTopic(self.topic, None, [wanted])])
        connection = await self.cluster.connection(view.leader)
        body = [encode_fetch_request(_FETCH_VERSION, request)]
        answer = await connection.send_raw(ApiKey.FETCH, _FETCH_VERSION, body, timeout_s=_REQUEST_TIMEOUT_S)
        response = decode_fetch_response(_FETCH_VERSION, answer)
        if response.error_code:
            return response.error_code, b""
        row = response.topics[0].partitions[0]
        return row.error_code, bytes(row.records_in_memory())

    async def until_known(self) -> None:
        """Wait until every partition has a leader."""
        while not self.partitions or any(each.leader < 0 for each in self.partitions):
            await self.refresh()
            await asyncio.sleep(_RETRY_PAUSE_S)


def _newer(heard: PartitionView, known: PartitionView | None) -> PartitionView:
    return heard if known is None or heard.leader_epoch >= known.leader_epoch else known


class IdempotentProducer:
    """Sends small batches to every partition until `stop`, then repeats until all are acked."""

    def __init__(self, context: ClientContext, name: str, pause_s: float) -> None:
        self.name = name
        self.context = context
        self.producer = (-1, -1)
        """Its id and epoch."""
        self._acked_epochs: dict[int, int] = {}
        """The leader epoch of each partition at its last ack; the client's metadata may be older."""
        self._pause_s = pause_s
        self._client = TopicClient(context, name)
        self._stopping = False
        self.finished = False

    def stop(self) -> None:
        """Send no new batches."""
        self._stopping = True

    async def run(self) -> None:
        """Send until `stop`; return when every batch is acked."""
        await self._client.until_known()
        await self._init_producer_id()
        senders = [self._send_partition(each.partition) for each in self._client.partitions]
        await asyncio.gather(*senders)
        self.finished = True

    async def _init_producer_id(self) -> None:
        fields = {"transactional_id": None, "transaction_timeout": 60000, "producer_id": -1, "producer_epoch": -1}
        while True:
            try:
                answer = await self._client.cluster.request(ApiKey.INIT_PRODUCER_ID, _INIT_PRODUCER_ID_VERSION, fields)
            except ClientError:
                await asyncio.sleep(_RETRY_PAUSE_S)
                continue
            if not answer.error_code:
                self.producer = (answer.producer_id, answer.producer_epoch)
                self.context.checker.transactions.on_idempotent_producer(self.name, answer.producer_id)
                return
            await asyncio.sleep(_RETRY_PAUSE_S)

    async def _send_partition(self, partition: int) -> None:
        window: deque[SentBatch] = deque()
        next_number = 0
        while window or not self._stopping:
            while len(window) < _IN_FLIGHT_MAX and not self._stopping:
                window.append(self.make_batch(partition, next_number))
                next_number += window[-1].count
                if self.context.rng.random() < 0.5:
                    break
            is_acked = await self._send_window(partition, window)
            if not is_acked:
                await asyncio.sleep(_RETRY_PAUSE_S)
                await self._client.refresh()
            await self.pause(partition, is_acked=is_acked)

    async def pause(self, partition: int, *, is_acked: bool) -> None:
        """Wait between two requests to a partition; `is_acked`: nothing that was sent there waits for its ack."""
        await asyncio.sleep(self.context.rng.expovariate(1 / self._pause_s))

    def key_of(self, partition: int, number: int) -> bytes:
        """The key of a record."""
        return f"{self.name}/{partition}".encode()

    def sequence_of(self, partition: int, number: int) -> int:
        """The sequence number of a record."""
        return number

    def make_batch(self, partition: int, number: int) -> SentBatch:
        """The next batch; `number` is that of its first record."""
        count = self.context.rng.randrange(1, RECORDS_MAX + 1)
        key = f"{self.name}/{partition}"
        now_ms = self.context.wall_ms()
        records = [
            NewRecord(self.key_of(partition, number + i), f"{key}/{number + i}".encode(), (), now_ms)
            for i in range(count)
        ]
        producer_id, epoch = self.producer
        codec = Compression.NONE
        if number % _LARGE_BATCH_EVERY < count:
            codec = Compression.ZSTD
            records[0] = records[0]._replace(headers=LARGE_HEADERS)
        sequence = self.sequence_of(partition, number)
        data = encode_batch(
            records, compression=codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        self.context.history.sent += count
        return SentBatch(number, count, bytes(data))

    async def _send_window(self, partition: int, window: deque[SentBatch]) -> bool:
        """Send all unacked batches in order, without waiting between them; whether all were acked."""
        view = self._client.partitions[partition]
        try:
            connection = await self._client.cluster.connection(view.leader)
        except NO_ANSWER:
            return False
        is_deposed = view.leader_epoch < self._acked_epochs.get(partition, -1)
        sent = [self._send(connection, partition, batch) for batch in window]
        answers = [await self._answer(future) for future in sent]
        unacked: list[SentBatch] = []
        for batch, answer in zip(window, answers, strict=True):
            code = answer.code
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self.on_acked(partition, batch, answer)
                self._acked_epochs[partition] = self.context.checker.leader_epoch((self._client.topic_id, partition))
            elif is_retriable(code) or (code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and (unacked or is_deposed)):
                unacked.append(batch)
            else:
                detail = f"{self.name}/{partition}/{batch.first}: {ErrorCode(code).name}"
                raise InvariantBroken("a producer that retries in order is never refused", detail)
        window.clear()
        window.extend(unacked)
        return not unacked

    def _send(self, connection: Connection, partition: int, batch: SentBatch) -> asyncio.Future[memoryview]:
        data = {"index": partition, "records": batch.data}
        fields = {
            "transactional_id": None,
            "acks": -1,
            "timeout": 1500,
            "topic_data": [{"name": self.context.topic, "partition_data": [data]}],
        }
        body = encode_request(ApiKey.PRODUCE, _PRODUCE_VERSION, fields)
        return connection.send_raw(ApiKey.PRODUCE, _PRODUCE_VERSION, [body], timeout_s=_REQUEST_TIMEOUT_S)

    async def _answer(self, sent: asyncio.Future[memoryview]) -> ProduceAnswer:
        try:
            answer = decode_response(ApiKey.PRODUCE, _PRODUCE_VERSION, await sent)
        except NO_ANSWER:
            return ProduceAnswer(ErrorCode.NETWORK_EXCEPTION)
        row = answer.responses[0].partition_responses[0]
        return ProduceAnswer(row.error_code, row.base_offset, row.log_append_time)

    def on_acked(self, partition: int, batch: SentBatch, answer: ProduceAnswer) -> None:
        """The batch is in the log; a duplicate whose offsets are forgotten has none."""
        context, base_offset = self.context, answer.base_offset
        context.history.on_ack(asyncio.get_running_loop().time())
        if base_offset < 0:
            return
        context.checker.on_acked((self._client.topic_id, partition), base_offset, batch.count)
        for i in range(batch.count):
            context.history.acked[partition, self.name, batch.first + i] = base_offset + i


class TopicConsumer:
    """Reads all partitions of a topic from the beginning, until the run ends."""

    may_skip = False
    """Whether offsets may be missing, as in a compacted topic."""

    def __init__(self, context: ClientContext, name: str = "consumer") -> None:
        self.name = name
        self.positions: dict[int, int] = {}
        self.client = TopicClient(context, name)
        self._context = context

    async def run(self) -> None:
        """Read; does not return."""
        await self.client.until_known()
        readers = [self._read_partition(each.partition) for each in self.client.partitions]
        await asyncio.gather(*readers)

    def caught_up(self) -> bool:
        """Whether it has read everything that is committed."""
        ends = {
            index: log.end_offset
            for (topic_id, index), log in self._context.checker.committed.items()
            if topic_id == self.client.topic_id
        }
        return bool(ends) and all(self.positions.get(index, 0) >= end for index, end in ends.items())

    def describe(self) -> str:
        """Its positions, for an error text."""
        return f"positions {self.positions}"

    async def _read_partition(self, partition: int) -> None:
        self.start_at(partition, 0)
        while True:
            try:
                code = await self.fetch(partition)
            except NO_ANSWER:
                code = ErrorCode.NETWORK_EXCEPTION
            if code:
                if not is_retriable(code) and not self._may_be_mended(code, partition):
                    detail = f"partition {partition} at {self.positions[partition]}: {ErrorCode(code).name}"
                    raise InvariantBroken("a consumer's position stays valid", detail)
                await asyncio.sleep(_RETRY_PAUSE_S)
                await self.client.refresh()

    def _may_be_mended(self, code: int, partition: int) -> bool:
        """Whether the batch was damaged on the disk of the leader, which mends it from another replica."""
        leader = self.client.partitions[partition].leader
        return code == ErrorCode.CORRUPT_MESSAGE and self._context.checker.has_bit_rot(leader)

    def start_at(self, partition: int, offset: int) -> None:
        """Set the position in a partition."""
        self.positions[partition] = offset
        self._context.history.consumed.setdefault(partition, {})

    async def fetch(self, partition: int) -> int:
        """Fetch once at the partition's position; the error code. Raises one of `NO_ANSWER` without an answer."""
        view = self.client.partitions[partition]
        if view.leader < 0:
            return ErrorCode.LEADER_NOT_AVAILABLE
        code, records = await self._ask(view, view.leader_epoch, max_wait_ms=300)
        if code:
            return code
        refused = self._take(partition, memoryview(records))
        if not refused and view.leader_epoch > 0 and self._context.rng.random() < _STALE_PROBABILITY:
            await self._ask_with_stale_epoch(view)
        return refused

    async def _ask_with_stale_epoch(self, view: PartitionView) -> None:
        """A leader that has just answered in one epoch must refuse a fetch with the epoch before."""
        code, _ = await self._ask(view, view.leader_epoch - 1, max_wait_ms=0)
        if code in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            detail = f"partition {view.partition}: {view.leader} answers epoch {view.leader_epoch - 1} with {code}"
            raise InvariantBroken("stale leader epochs are refused", detail)

    async def _ask(self, view: PartitionView, leader_epoch: int, *, max_wait_ms: int) -> tuple[int, bytes]:
        """The error code and the records of one fetch."""
        return await self.client.ask(view, leader_epoch, self.positions[view.partition], max_wait_ms=max_wait_ms)

    def text_of(self, record: Record) -> str:
        """The text that the history keeps of a record."""
        return bytes(record.value or b"").decode()

    def _take(self, partition: int, records: memoryview) -> int:
        for position, header in iter_headers(records, allow_partial_tail=True):
            if header.last_offset < self.positions[partition]:
                continue
            batch = records[position : position + header.size_bytes]
            if header.base_offset > self.positions[partition] and not self.may_skip:
                detail = f"partition {partition}: {header.base_offset} after {self.positions[partition]}"
                raise InvariantBroken("a consumer is shown every offset", detail)
            if not verify_crc(records, position, header):
                return ErrorCode.CORRUPT_MESSAGE
            self._context.checker.on_consumed((self.client.topic_id, partition), header.base_offset, bytes(batch))
            for record in iter_records(batch):
                if record.offset >= self.positions[partition]:
                    self._context.history.consumed[partition][record.offset] = self.text_of(record)
            self.positions[partition] = header.next_offset
        return ErrorCode.NONE
