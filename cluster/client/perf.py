"""Measures the throughput and latency of a cluster with a client that does as little work as possible.

The producer encodes one batch and sends it again and again; the consumer counts records by the headers of their
batches. So the cluster is measured, and not Python's record codec. Records carry no producer id: after a failover a
batch whose ack was lost is sent again, and may be in the log twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field

from ...runtime.clock import SystemClock
from ...wire.api_keys import ApiKey
from ...wire.compression import Compression
from ...wire.errors import ErrorCode
from ...wire.records import AbortedTransactions, BatchHeader, NewRecord, encode_batch
from ..command_line.plural import counted
from ..metrics.latency import Latency
from .access.bootstrap import bootstrap_text
from .access.needed_rights import Asked
from .admin_client import AdminClient, NewTopic
from .client_errors import ClientError, RefusedError, is_retriable
from .cluster_client import NO_ANSWER, ClusterClient
from .consumer import EARLIEST, LATEST, Consumed, Consumer
from .error_sentences import SENTENCES
from .peer_protocol import no_answer_reason
from .producer import Producer, TopicLeaders

_PRODUCE_VERSION = 9
_RETRY_PAUSE_S = 0.05
_BATCH_BYTES = 64 * 1024
_STAMP_EVERY_MS = 200
_LONG_WAIT_S = 1.0
_NO_ANSWER_YET = "no answer yet"


@dataclass(slots=True)
class PerfResult:
    """The figures so far."""

    records: int = 0
    size_bytes: int = 0
    seconds: float = 0.0
    retries: int = 0
    longest_gap_s: float = 0.0
    latency: Latency = field(default_factory=Latency)
    longest_latency_s: float = 0.0
    throttled_s: float = 0.0
    """For how long quotas have throttled the client, which it waited for."""
    unacked: int = 0
    """Records that were sent and had no ack when the run ended. They may be written all the same."""

    def observe(self, latency_s: float) -> None:
        """Count the latency of one request or record."""
        self.latency.observe(latency_s)
        self.longest_latency_s = max(self.longest_latency_s, latency_s)

    def _quantiles_s(self) -> list[tuple[float, float]]:
        """Pairs of quantile and seconds; none is longer than the longest that was observed, as buckets are."""
        return [(quantile, min(s, self.longest_latency_s)) for quantile, s in self.latency.quantiles_s(1.0)]

    def to_json(self) -> dict[str, float]:
        """The figures as plain values: records, MB, seconds, rates, latencies in milliseconds."""
        seconds = self.seconds or 1e-9
        found = {
            "records": self.records,
            "seconds": round(self.seconds, 3),
            "records_per_s": round(self.records / seconds),
            "mb_per_s": round(self.size_bytes / seconds / 1e6, 2),
        }
        for quantile, duration_s in self._quantiles_s():
            found[f"latency_p{quantile * 100:g}_ms"] = round(duration_s * 1000, 3)
        if self.latency.count:
            found |= {"longest_gap_ms": round(self.longest_gap_s * 1000, 1), "retries": self.retries}
        if self.throttled_s:
            found["throttled_ms"] = round(self.throttled_s * 1000)
        if self.unacked:
            found["unacked_records"] = self.unacked
        return found

    def __str__(self) -> str:
        """One line for people: `5,000 records in 2.01 s: 2,488 records/s, 0.25 MB/s; latency p50 1.9 ms, ...`."""
        seconds = self.seconds or 1e-9
        rates = f"{self.records / seconds:,.0f} records/s, {self.size_bytes / seconds / 1e6:,.2f} MB/s"
        text = f"{counted(self.records, 'record')} in {self.seconds:,.2f} s: {rates}"
        throttled = f"throttled by a quota for {self.throttled_s:,.1f} s" if self.throttled_s else ""
        unacked = f"{counted(self.unacked, 'record')} without ack" if self.unacked else ""
        if not self.latency.count:
            return "; ".join(filter(None, (text, throttled, unacked)))
        latencies = (f"p{quantile * 100:g} {s * 1000:,.1f} ms" for quantile, s in self._quantiles_s())
        latency = f"latency {' '.join(latencies)}"
        gap = f"longest gap {self.longest_gap_s * 1000:,.0f} ms" if self.longest_gap_s else ""
        retries = f"{self.retries:,} {'retry' if self.retries == 1 else 'retries'}" if self.retries else ""
        return "; ".join(filter(None, (text, latency, gap, retries, throttled, unacked)))


@dataclass(frozen=True, slots=True)
class PerfProgress:
    """The figures so far, those of the last interval, and the records that wait for their acks."""

    result: PerfResult
    interval_s: float
    interval_records: int
    waiting_records: int
    waiting_s: float
    """How long the oldest of the waiting records has been waiting."""
    reason: str
    """Why the oldest was sent again, or has no answer yet."""

    def to_json(self) -> dict[str, float]:
        """The figures as plain values: those of `PerfResult`, the rate of the interval, and what waits."""
        return self.result.to_json() | {
            "interval_s": round(self.interval_s, 3),
            "interval_records_per_s": round(self._rate),
            "waiting_records": self.waiting_records,
            "waiting_ms": round(self.waiting_s * 1000),
        }

    def __str__(self) -> str:
        """One line for people, which says from a wait of one second on how many records wait and since when."""
        text = f"{self.result}; last {self.interval_s:.1f} s: {self._rate:,.0f} records/s"
        if self.waiting_s < _LONG_WAIT_S:
            return text
        waiting = f"{counted(self.waiting_records, 'record')} without ack, the oldest for {self.waiting_s:,.1f} s"
        return f"{text}; {waiting}: {self.reason}"

    @property
    def _rate(self) -> float:
        return self.interval_records / (self.interval_s or 1e-9)


@dataclass(frozen=True, slots=True)
class ProduceLoad:
    """What to send. 0 means no limit for `records`, `seconds` and `throughput` (records/s over all partitions).

    A load with a limit ends when records had no ack for `delivery_timeout_s`, with `seconds` not before these.
    """

    topic: str
    records: int = 0
    seconds: float = 0.0
    record_size: int = 100
    batch_records: int = 0
    throughput: int = 0
    acks: int = -1
    in_flight: int = 5
    compression: Compression = Compression.NONE
    delivery_timeout_s: float = 30.0

    @property
    def batch_size(self) -> int:
        """Records in a batch: `batch_records`, or as many as fit in 64 KB.

        Fewer when a throughput is set, so that it is even.
        """
        fitting = max(1, _BATCH_BYTES // (self.record_size + 10))
        if self.batch_records:
            return self.batch_records
        return min(fitting, max(1, self.throughput // 50)) if self.throughput else fitting


class _Batch:
    """A batch that is sent again and again. Its timestamp is not renewed for each send, since encoding takes time."""

    def __init__(self, load: ProduceLoad) -> None:
        self._load = load
        self._value = (b"raftwerk" * (load.record_size // 8 + 1))[: load.record_size]
        self._clock = SystemClock()
        self._encoded_ms = 0
        self._data = b""

    def data(self, count: int) -> bytes:
        """The encoded batch, of `count` records if these are fewer."""
        now_ms = self._clock.wall_ms()
        if count < self._load.batch_size:
            return self._encoded(count, now_ms)
        if now_ms - self._encoded_ms >= _STAMP_EVERY_MS:
            self._encoded_ms = now_ms
            self._data = self._encoded(count, now_ms)
        return self._data

    def _encoded(self, count: int, now_ms: int) -> bytes:
        records = [NewRecord(None, self._value, (), now_ms)] * count
        return bytes(encode_batch(records, compression=self._load.compression))


@dataclass(slots=True, eq=False)
class _Waiting:
    """Records that were sent and not acked, and why they were sent again."""

    records: int
    sent_at: float
    reason: str = ""


class ProducePerf:
    """Keeps `in_flight` requests for each partition under way; each is sent again until it is acked.

    A load without a limit goes on through an outage of any length.
    """

    def __init__(self, client: ClusterClient, load: ProduceLoad, result: PerfResult) -> None:
        self.result = result
        self._client = client
        self._load = load
        self._leaders = TopicLeaders(client, load.topic)
        self._begun = self._last_ack = 0.0
        self._taken = 0
        self._waiting: dict[_Waiting, None] = {}
        """In the order in which they were sent first."""
        self._reported = (0.0, 0)

    async def run(self) -> None:
        """Send until the limit.

        Raises `ClientError` when the cluster refuses with an error that is not retriable, and when records stay
        without acks for longer than the load allows.
        """
        load, loop = self._load, asyncio.get_running_loop()
        view = await self._leaders.start()
        batch = _Batch(load)
        self._begun = self._last_ack = loop.time()
        self._reported = (self._begun, 0)
        workers = [
            loop.create_task(self._work(one.partition, batch)) for one in view.partitions for _ in range(load.in_flight)
        ]
        try:
            await asyncio.gather(*workers)
        finally:
            self._note_time()
            self.result.unacked = self._unacked
            for worker in workers:
                worker.cancel()

    def progress(self) -> PerfProgress:
        """The figures of now, with those of the time since the last call. An outage counts as it goes on."""
        now = self._note_time()
        (before, records_before), records = self._reported, self.result.records
        self._reported = (now, records)
        oldest = next(iter(self._waiting), _Waiting(0, now))
        counts = (now - before, records - records_before, self._unacked)
        return PerfProgress(self.result, *counts, now - oldest.sent_at, oldest.reason or self._reason())

    @property
    def _unacked(self) -> int:
        return sum(one.records for one in self._waiting)

    def _note_time(self) -> float:
        """Count the time without acks up to now, which it returns."""
        now = asyncio.get_running_loop().time()
        self.result.seconds = now - self._begun
        self.result.throttled_s = self._client.throttling.seconds
        if self._waiting:
            self.result.longest_gap_s = max(self.result.longest_gap_s, now - self._last_ack)
        return now

    async def _work(self, partition: int, batch: _Batch) -> None:
        load, loop = self._load, asyncio.get_running_loop()
        while not self._is_over():
            size = min(load.batch_size, load.records - self._taken) if load.records else load.batch_size
            due = self._begun + self._taken / load.throughput if load.throughput else 0.0
            if load.seconds and due >= self._begun + load.seconds:
                return
            self._taken += size
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            waiting = _Waiting(size, loop.time())
            self._waiting[waiting] = None
            try:
                async with self._client.throttling.limit_until(self._deadline(waiting.sent_at)):
                    await self._send(partition, batch.data(size), waiting)
            except TimeoutError:
                raise self._late() from None
            del self._waiting[waiting]
            now = loop.time()
            result = self.result
            result.observe(now - waiting.sent_at)
            result.records += size
            result.size_bytes += size * load.record_size
            result.seconds = now - self._begun
            result.longest_gap_s = max(result.longest_gap_s, now - self._last_ack)
            self._last_ack = now

    def _is_over(self) -> bool:
        load = self._load
        passed = asyncio.get_running_loop().time() - self._begun
        return bool((load.records and self._taken >= load.records) or (load.seconds and passed >= load.seconds))

    def _deadline(self, sent_at: float) -> float | None:
        """Until when records that were sent first at this time wait for their ack; None: as long as the load runs."""
        load = self._load
        if not load.records and not load.seconds:
            return None
        over_at = 0.0 if load.records else self._begun + load.seconds
        return max(over_at, sent_at + load.delivery_timeout_s)

    def _late(self) -> ClientError:
        oldest = next(iter(self._waiting))
        waited_s = asyncio.get_running_loop().time() - oldest.sent_at
        what = f"{counted(self._unacked, 'record')} without ack, the oldest for {waited_s:,.1f} s"
        reason = next((one.reason for one in self._waiting if one.reason), self._reason())
        return ClientError(f"{what}: {reason}; they may be written all the same; raftwerk doctor shows what is wrong")

    def _reason(self) -> str:
        """Why records that were sent once have no answer yet."""
        left_s = self._client.throttling.left_s
        if not left_s:
            return _NO_ANSWER_YET
        no_more = "; no more is sent, and Ctrl-C ends the wait" if self._is_over() else ""
        return f"a quota throttles this client, for another {left_s:,.0f} s{no_more}"

    async def _send(self, partition: int, data: bytes, waiting: _Waiting) -> None:
        load = self._load
        row = {"index": partition, "records": data}
        fields = {
            "transactional_id": None,
            "acks": load.acks,
            "timeout": self._client.replicas_timeout_ms(load.delivery_timeout_s),
            "topic_data": [{"name": load.topic, "partition_data": [row]}],
        }
        while True:
            code, message = await self._try(partition, fields)
            if code == ErrorCode.NONE:
                return
            if not is_retriable(code):
                asked = Asked(ApiKey.PRODUCE, topic=load.topic)
                raise RefusedError(code, f"{load.topic}-{partition}", message, asked=asked)
            self.result.retries += 1
            waiting.reason = f"{load.topic}-{partition}: {message or SENTENCES[code][0]}"
            await asyncio.sleep(_RETRY_PAUSE_S)
            with suppress(ClientError):
                await self._leaders.refresh()

    async def _try(self, partition: int, fields: Mapping[str, object]) -> tuple[int, str | None]:
        view = self._leaders.view
        leader = view.partition(partition).leader if view is not None else -1
        if leader < 0:
            return ErrorCode.LEADER_NOT_AVAILABLE, None
        try:
            answer = await self._client.request_node(leader, ApiKey.PRODUCE, _PRODUCE_VERSION, fields)
        except NO_ANSWER as error:
            return ErrorCode.NETWORK_EXCEPTION, f"{self._client.broker_text(leader)} {no_answer_reason(error)}"
        row = answer.responses[0].partition_responses[0]
        return row.error_code, row.error_message


class _CountingConsumer(Consumer):
    """Counts records by the headers of their batches; at most `max_records`, or all for 0."""

    def __init__(self, client: ClusterClient, topic: str, result: PerfResult, max_records: int = 0) -> None:
        super().__init__(client, topic)
        self._result = result
        self._max_records = max_records

    @property
    def is_full(self) -> bool:
        """Whether as many records were counted as were asked for."""
        return 0 < self._max_records <= self._result.records

    def _records_of(
        self, partition: int, batch: memoryview, header: BatchHeader, aborted: AbortedTransactions, end: float
    ) -> list[Consumed]:
        """None: they are counted by the header."""
        if not header.is_control:
            self._count(header, self.positions[partition])
        return []

    def _count(self, header: BatchHeader, position: int) -> None:
        """Count the records from `position` on. Of a batch of which only some count, so much of its bytes counts."""
        wanted = min(header.record_count, header.next_offset - position)
        if self._max_records:
            wanted = min(wanted, self._max_records - self._result.records)
        self._result.records += wanted
        self._result.size_bytes += header.size_bytes * wanted // max(1, header.record_count)


async def consume_perf(client: ClusterClient, topic: str, result: PerfResult, max_records: int = 0) -> None:
    """Read a topic from its beginning to its present end, or `max_records`, and count in `result` as it goes.

    Bytes are counted as sizes of batches.
    """
    consumer = _CountingConsumer(client, topic, result, max_records)
    await consumer.start((), at=EARLIEST)
    ends = await consumer.offsets(LATEST, consumer.positions)
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not consumer.is_full and not await consumer.is_past(ends):
        await consumer.poll()
        result.seconds = loop.time() - began
        result.throttled_s = client.throttling.seconds


async def e2e_perf(client: ClusterClient, topic: str, result: PerfResult, count: int, record_size: int) -> None:
    """Send `count` records one after the other, and measure the time from sending each until a consumer has it.

    `result` has the figures of those that have arrived.
    """
    view = (await client.metadata([topic])).topic(topic)
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[bytes | ClientError | None] = asyncio.Queue()
    async with AsyncExitStack() as stack:
        readers = []
        for one in view.partitions:  # own connections, since a fetch that waits delays what is behind it
            reader = Consumer(await stack.enter_async_context(_another(client)), topic)
            await reader.start((one.partition,), at=LATEST)
            readers.append(loop.create_task(_read_into(arrived, reader)))
        producer = Producer(client, topic)
        await producer.start()
        began = loop.time()
        try:
            for number in range(count):
                value = str(number).encode().ljust(record_size, b".")
                sent_at = loop.time()
                arriving = loop.create_task(_arrival(arrived, value))
                try:
                    arrived_at, _ = await asyncio.gather(arriving, producer.send([(None, value)]))
                finally:
                    arriving.cancel()
                result.observe(arrived_at - sent_at)
                result.records += 1
                result.size_bytes += record_size
                result.seconds = loop.time() - began
                result.throttled_s = client.throttling.seconds
        finally:
            for task in readers:
                task.cancel()


async def _read_into(arrived: asyncio.Queue[bytes | ClientError | None], reader: Consumer) -> None:
    try:
        async for one in reader.records():
            arrived.put_nowait(one.record.value)
    except ClientError as error:
        arrived.put_nowait(error)


async def _arrival(arrived: asyncio.Queue[bytes | ClientError | None], value: bytes) -> float:
    """Wait for a record of this value; returns the loop's time. Raises the error of a reader that has failed."""
    while (found := await arrived.get()) != value:
        if isinstance(found, ClientError):
            raise found
    return asyncio.get_running_loop().time()


def _another(client: ClusterClient) -> ClusterClient:
    return ClusterClient(bootstrap_text(client.bootstrap))


async def ensure_topic(client: ClusterClient, topic: str, partitions: int, replicas: int) -> None:
    """Create the topic unless it exists."""
    view = await client.metadata([topic])
    if all(one.name != topic for one in view.topics):
        try:
            await AdminClient(client).create_topic(NewTopic(topic, partitions, replicas))
        except RefusedError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise


async def reported(perf: ProducePerf, interval_s: float, report: Callable[[PerfProgress], None]) -> None:
    """Run the load, and call `report` every `interval_s` seconds, in an outage too."""
    running = asyncio.get_running_loop().create_task(perf.run())
    try:
        while not (await asyncio.wait([running], timeout=interval_s or None))[0]:
            report(perf.progress())
    finally:
        running.cancel()
    await running
