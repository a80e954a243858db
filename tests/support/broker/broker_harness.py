"""In-memory twins of a broker's surroundings: a scripted transport, scripted replicas, a small metadata image."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar
from uuid import UUID

from raftwerk.broker.apis.api_table import broker_registry
from raftwerk.broker.apis.metadata.suspected_brokers import SuspectedBrokers
from raftwerk.broker.authorization import Authorization
from raftwerk.broker.config import AdvertisedListener, BrokerConfig, TopicDefaults
from raftwerk.broker.groups.group_coordinator import GroupCoordinator
from raftwerk.broker.network.connection import Connection, ConnectionLimits
from raftwerk.broker.network.dispatch import Dispatcher
from raftwerk.broker.network.request import Request
from raftwerk.broker.network.server import Server, ServerConfig
from raftwerk.broker.quotas.client_quotas import ClientQuotas
from raftwerk.broker.services import BrokerServices
from raftwerk.broker.transactions.partition_verifier import PartitionVerifier, VerifierConfig
from raftwerk.broker.transactions.transaction_coordinator import TransactionCoordinator
from raftwerk.broker.transactions.transactional_appends import TransactionalAppends
from raftwerk.controller.metadata.metadata_image import MetadataDelta, MetadataImage
from raftwerk.controller.metadata.metadata_records import (
    BrokerChangeRecord,
    Endpoint,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from raftwerk.isr.fetching.dirty_partitions import DirtyPartitionTracker
from raftwerk.isr.fetching.fetch_requests import FetchRequests
from raftwerk.isr.fetching.leader_fetch_sessions import FetchSessionCache
from raftwerk.isr.fetching.partition_reader import FetchReading, PartitionReader, failed_row
from raftwerk.isr.hosted_partitions import HostedPartitions
from raftwerk.isr.leader.expected_first_fetches import ExpectedFetches
from raftwerk.isr.ports import NO_OBSERVER, FetchCaller, ReplicaManagerConfig, WantedPartition
from raftwerk.isr.purgatory.delayed_operations import DelayedOperations
from raftwerk.isr.results import FetchDone, FetchParams
from raftwerk.isr.throttling.throttles import Throttles
from raftwerk.log.segment.batch_scan import Damage
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct, decode_request, decode_response, encode_request, encode_response
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.fetch import FetchPartitionResponse, FetchRequest
from raftwerk.wire.frames import RequestHeader, parse_response_header
from raftwerk.wire.frames import encode_request as encode_frame
from raftwerk.wire.produce import ProducePartitionResponse
from raftwerk.wire.types import LeaderIdAndEpoch, TopicPartition

T = TypeVar("T")

LISTENER = "PLAINTEXT"
TOPIC = "flights"
TOPIC_ID = UUID(int=0xF117)
ROUNDS_MAX = 1000
"""Iterations of the loop within which every request is answered."""


class FakeTransport(asyncio.Transport):
    """Collects what is written; delivers scripted bytes the way the event loop does."""

    def __init__(self, peer: str = "192.0.2.1") -> None:
        super().__init__()
        self.written = bytearray()
        self.writes = 0
        self.closing = False
        self.reading = True
        self.peer = peer
        self.protocol: Any = None
        self.backlog = bytearray()
        self.tls: object = None
        """The context of a connection with TLS."""
        self.unsent_bytes = 0
        """What the client has not read yet, as the test says; `close` waits until it has."""
        self.is_lost = False

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": (self.peer, 50000), "sslcontext": self.tls}.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True
        if self.backlog:
            asyncio.get_running_loop().call_soon(self._deliver_backlog)

    def _deliver_backlog(self) -> None:
        data, self.backlog = bytes(self.backlog), bytearray()
        self.deliver(data)

    def write(self, data: Any) -> None:
        self.writes += 1
        self.written += data

    def writelines(self, buffers: Any) -> None:
        self.write(b"".join(buffers))

    def close(self) -> None:
        self.closing = True
        if not self.unsent_bytes:
            self.abort()

    def abort(self) -> None:
        self.closing = True
        if not self.is_lost:
            self.is_lost = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def deliver(self, data: bytes, chunk: int = 65536) -> None:
        """Hand `data` to the protocol in reads of at most `chunk` bytes, as long as it reads."""
        position = 0
        while position < len(data) and not self.closing:
            if not self.reading or self.backlog:
                self.backlog += data[position:]
                return
            view = self.protocol.get_buffer(-1)
            piece = data[position : position + min(chunk, len(view))]
            view[: len(piece)] = piece
            position += len(piece)
            self.protocol.buffer_updated(len(piece))

    def frames(self) -> list[bytes]:
        """The complete frames written so far, sizes cut off."""
        result, position = [], 0
        while position < len(self.written):
            (size,) = struct.unpack_from(">i", self.written, position)
            result.append(bytes(self.written[position + 4 : position + 4 + size]))
            position += 4 + size
        assert position == len(self.written)
        return result


class ScriptedReader(PartitionReader):
    """Reads the records that `replicas` are given by a test."""

    def __init__(self, hosted: HostedPartitions, replicas: FakeReplicas) -> None:
        nothing: Any = None
        super().__init__(hosted, nothing, nothing, nothing, None)
        self.replicas = replicas

    def read(self, found: FetchReading, params: FetchParams, wanted: Sequence[WantedPartition], *rest: Any) -> None:
        replicas = self.replicas
        found.clean += [False] * len(wanted)
        for one in wanted:
            if one.topic_partition is None:
                found.rows.append(failed_row(one.request.partition, one.error_code))
                continue
            name = f"{one.topic_partition.topic}-{one.request.partition}"
            records, high_watermark = replicas.records.get(name, b""), replicas.high_watermark
            row = FetchPartitionResponse(one.request.partition, replicas.error, high_watermark, high_watermark, 0)
            row.records = records
            found.rows.append(row)


@dataclass
class FakeReplicas:
    """Appends succeed at offsets that count up; `hold` keeps the callbacks until `release`."""

    hold: bool = False
    error: int = 0
    current_leader: LeaderIdAndEpoch | None = None
    fail_with: Exception | None = None
    appended: list[tuple[Any, bytes]] = field(default_factory=list)
    held: list[Callable[[], object]] = field(default_factory=list)
    records: dict[str, bytes] = field(default_factory=dict)
    high_watermark: int = 10
    partitions: dict[Any, Any] = field(default_factory=dict)
    verifies_transactions: bool = True
    write_markers: Any = None
    confirm_leadership: Any = None
    image: MetadataImage = field(default_factory=MetadataImage)
    reported: list[Damage] = field(default_factory=list)
    is_mending: bool = False
    leadership_watchers: dict[str, Callable[[int], None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        hosted = HostedPartitions(1, lambda: 1)
        hosted.image = self.image
        nothing: Any = SimpleNamespace(add=None)
        tracker = DirtyPartitionTracker()
        operations = DelayedOperations(hosted, nothing, tracker, lambda: 0)
        sessions = FetchSessionCache(2, random.Random(1), tracker)
        throttle = Throttles(ReplicaManagerConfig(1)).leader
        expected = ExpectedFetches(operations.purgatory)
        reader = ScriptedReader(hosted, self)
        self.fetches = FetchRequests(sessions, reader, expected, operations, throttle, NO_OBSERVER, lambda: 0)

    def watch_leadership(self, topic: str, on_led: Callable[[int], None]) -> None:
        self.leadership_watchers[topic] = on_led

    def mend(self, topic_partition: TopicPartition, damage: Damage) -> bool:
        self.reported.append(damage)
        return self.is_mending

    def append(
        self,
        acks: int,
        timeout_ms: int,
        entries: Sequence[Any],
        done: Callable[[Any], None],
        *,
        caller: object = None,
    ) -> None:
        if self.fail_with is not None:
            raise self.fail_with
        results = []
        for topic_partition, records in entries:
            self.appended.append((topic_partition, bytes(records)))
            base_offset = -1 if self.error else len(self.appended) - 1
            results.append(
                ProducePartitionResponse(
                    topic_partition.partition, self.error, base_offset, -1, 0, current_leader=self.current_leader
                )
            )
        self._later(lambda: done(results))

    def fetch(self, params: FetchParams, request: FetchRequest, done: FetchDone, caller: FetchCaller) -> Any:
        params.max_wait_ms = 0
        return self.fetches.fetch(params, request, lambda response: self._later(lambda: done(response)), caller)

    def fetch_in_steps(self, params: FetchParams, request: FetchRequest, done: FetchDone, caller: FetchCaller) -> Any:
        params.max_wait_ms = 0
        return self.fetches.fetch_in_steps(
            params, request, lambda response: self._later(lambda: done(response)), caller
        )

    def when_committed(self, key: Any, offset: int, timeout_ms: int, done: Callable[[bool], None]) -> None:
        done(True)

    def _later(self, callback: Callable[[], object]) -> None:
        if self.hold:
            self.held.append(callback)
        else:
            callback()

    def find(self, topic_partition: Any) -> Any:
        if topic_partition not in self.partitions:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "not here")
        return self.partitions[topic_partition]

    def list_offset(self, topic_partition: Any, timestamp: int, *rest: Any) -> Any:
        return SimpleNamespace(error_code=0, timestamp=timestamp, offset=42, leader_epoch=3)

    def offset_for_leader_epoch(self, topic_partition: Any, current: int, epoch: int) -> Any:
        return (0, epoch, 17)


class FakeController:
    """A channel to the controller, producer-id source and topic creator."""

    def __init__(self) -> None:
        self.answer: dict[str, Any] = {}
        self.gate: asyncio.Event | None = None
        self.created: list[str] = []
        self.ids = 100

    async def forward(self, request: Any, body: bytes) -> bytes:
        if self.gate is not None:
            await self.gate.wait()
        if not self.answer:
            raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT, "nobody there")
        return encode_response(request.api_key, request.api_version, self.answer)

    def next_id(self) -> int | None:
        self.ids += 1
        return self.ids

    async def wait_for_id(self) -> int:
        return 7

    async def wait_until_ready(self) -> None:
        pass

    def request_topics(self, names: Sequence[str], client: Request | None = None) -> None:
        self.created += names


def make_image(brokers: int = 3, partitions: int = 2) -> MetadataImage:
    """`brokers` unfenced brokers on two listeners, and one topic with RF3."""
    image, delta, offset = MetadataImage("cluster-1"), MetadataDelta(), 0
    for broker_id in range(1, brokers + 1):
        listeners = (
            Endpoint(LISTENER, f"host{broker_id}", 9090 + broker_id),
            Endpoint("INTERNAL", f"int{broker_id}", 8090 + broker_id),
        )
        record = RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=UUID(int=broker_id),
            listeners=listeners,
            rack=f"r{broker_id}",
            fenced=True,
            in_controlled_shutdown=False,
            log_dirs=(),
        )
        image.replay(record, offset, delta)
        image.replay(BrokerChangeRecord(broker_id, offset, fenced=False), offset + 1, delta)
        offset += 2
    image.replay(TopicRecord(TOPIC, TOPIC_ID), offset, delta)
    replicas = tuple(range(1, brokers + 1))
    for index in range(partitions):
        offset += 1
        leader = replicas[index % brokers]
        image.replay(PartitionRecord(TOPIC_ID, index, replicas, replicas, leader), offset, delta)
    return image


class Harness:
    """A server without a socket. `connect` gives a transport; `call` sends one request and decodes its answer."""

    def __init__(
        self,
        limits: ConnectionLimits | None = None,
        image: MetadataImage | None = None,
        authorization: Authorization | None = None,
        **settings: Any,
    ) -> None:
        self.image = image or make_image()
        self.replicas = FakeReplicas(image=self.image)
        self.controller = FakeController()
        self.fatal: list[BaseException] = []
        self.wall_ms = 1_000_000
        self.stopwatch: Callable[[], float] = lambda: 0.0
        self.recently_fenced: list[int] = []
        self.suspected_brokers = SuspectedBrokers()
        rng = random.Random(1)
        self.config = BrokerConfig(
            node_id=1,
            cluster_id="cluster-1",
            listeners=(AdvertisedListener(LISTENER, "host1", 9091),),
            inter_broker_listener=LISTENER,
            topics=TopicDefaults(configs={"retention.ms": "1000"}),
            values={"node.id": "1", "ssl.keystore.password": "hunter2"},
            supported_features={"metadata.version": (7, 27), "kraft.version": (0, 1)},
            **settings,
        )
        registry = broker_registry()
        metadata: Any = SimpleNamespace(
            image=self.image, finalized_features=self.image.features, leader=SimpleNamespace(leader_id=2)
        )
        replicas: Any = self.replicas
        controller: Any = self.controller
        recently_fenced: Any = SimpleNamespace(ids=lambda now: self.recently_fenced)
        runtime: Any = SimpleNamespace(rng=rng, clock=SimpleNamespace(wall_ms=lambda: self.wall_ms))
        self.marker_channels: Any = SimpleNamespace()
        self.groups = GroupCoordinator(1, self.config.groups, runtime, metadata, replicas)
        self.transactions = TransactionCoordinator(
            1, self.config.transactions, runtime, metadata, replicas, controller.next_id, self.marker_channels
        )
        self.coordinator_answers: Callable[[Struct], dict[str, Any]] | None = None
        """Answers AddPartitionsToTxn for the transaction coordinator; None: the coordinator is not reached."""
        self.verifications: list[Struct] = []
        channels: Any = SimpleNamespace(request=self.ask_coordinator)
        self.verifier = PartitionVerifier(VerifierConfig(), replicas, channels, lambda _: 1)
        self.quotas = ClientQuotas(self.image, self.config.quota_window, self.look_at_stopwatch)
        services = BrokerServices(
            config=self.config,
            runtime=SimpleNamespace(rng=rng),  # type: ignore[arg-type]
            metadata=metadata,
            replicas=replicas,
            controller_channel=controller,
            producer_ids=controller,
            topic_creator=controller,
            recently_fenced_brokers=recently_fenced,
            suspected_brokers=self.suspected_brokers,
            version_rows=registry.version_rows,
            groups=self.groups,
            transactions=self.transactions,
            verifier=self.verifier,
            transactional_appends=TransactionalAppends(self.verifier, replicas, lambda _: None),
            authorization=authorization or Authorization(),
            quotas=self.quotas,
        )
        self.services = services
        self.registry = registry
        self.dispatcher = Dispatcher(registry, services, self.fatal.append, request_quota=self.quotas.request)
        config = ServerConfig(LISTENER, "127.0.0.1", 0, limits or ConnectionLimits())
        self.server = Server(config, self.dispatcher)
        self.correlation_id = 0

    def look_at_stopwatch(self) -> float:
        """The time by the stopwatch, which tests replace."""
        return self.stopwatch()

    async def ask_coordinator(self, broker_id: int, key: ApiKey, version: int, fields: Any, **_: Any) -> Struct:
        """The transaction coordinator's answer to this broker."""
        request = decode_request(key, version, encode_request(key, version, fields))
        self.verifications.append(request)
        if self.coordinator_answers is None:
            raise ConnectionRefusedError("nobody listens")
        return decode_response(key, version, encode_response(key, version, self.coordinator_answers(request)))

    def connect(self, peer: str = "192.0.2.1") -> FakeTransport:
        transport = FakeTransport(peer)
        transport.protocol = self.server.make_connection()
        transport.protocol.connection_made(transport)
        return transport

    def frame(self, key: ApiKey, version: int, fields: Any, client_id: str | None = "test") -> bytes:
        body = fields if isinstance(fields, bytes) else encode_request(key, version, fields)
        self.correlation_id += 1
        return b"".join(encode_frame(RequestHeader(key, version, self.correlation_id, client_id), body))

    async def call(self, key: ApiKey, version: int, fields: Any, transport: FakeTransport | None = None) -> Struct:
        transport = transport or self.connect()
        before = len(transport.frames())
        transport.deliver(self.frame(key, version, fields))
        await settle()
        for _ in range(ROUNDS_MAX):  # a request that is handled in steps takes some more
            if len(transport.frames()) > before or transport.closing:
                break
            await asyncio.sleep(0)
        frames = transport.frames()[before:]
        assert len(frames) == 1, f"{len(frames)} answers; closed: {transport.closing}"
        return decode_answer(key, version, frames[0])


def decode_answer(key: ApiKey, version: int, frame: bytes) -> Struct:
    _, position = parse_response_header(key, version, frame)
    return decode_response(key, version, frame, position)


def correlation_ids(transport: FakeTransport) -> list[int]:
    return [struct.unpack_from(">i", frame)[0] for frame in transport.frames()]


def connection_of(transport: FakeTransport) -> Connection:
    connection: Connection = transport.protocol
    return connection


def run(coroutine: Coroutine[Any, Any, T], timeout_s: float = 20) -> T:
    """Run a test's coroutine."""
    return asyncio.run(asyncio.wait_for(coroutine, timeout_s))


async def settle(rounds: int = 10) -> None:
    """Run everything that is ready."""
    for _ in range(rounds):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    """Return when `condition` holds; real sockets need real time."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)
