"""An active controller behind its listener, without sockets, in a cluster with thousands of topics and partitions."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from support.broker.broker_harness import FakeTransport
from support.controller.controller_harness import CLUSTER_ID, Harness

from raftwerk.broker.apis.api_table import controller_dispatcher
from raftwerk.broker.config import BrokerConfig
from raftwerk.broker.network.connection import ConnectionLimits
from raftwerk.broker.network.server import Server, ServerConfig
from raftwerk.broker.services import ControllerServices
from raftwerk.controller.metadata.features import SUPPORTED_FEATURES
from raftwerk.controller.metadata.metadata_image import (
    BROKER_RESOURCE,
    ELR_FEATURE,
    METADATA_VERSION_FEATURE,
    RECORD_VERSION_FEATURE,
)
from raftwerk.controller.metadata.metadata_records import (
    NO_LEADER,
    ConfigRecord,
    Endpoint,
    FeatureLevelRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
)
from raftwerk.controller.settings import ControllerSettings
from raftwerk.raft.types import CommittedBatch
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import encode_request
from raftwerk.wire.frames import RequestHeader
from raftwerk.wire.frames import encode_request as encode_frame

BROKERS = (1, 2, 3)
DIRECTORIES = tuple(tuple(UUID(int=1_000 * broker_id + number) for number in (1, 2)) for broker_id in BROKERS)
"""The ids of each broker's two log directories."""
LARGE_TOPIC = "large"
LARGE_TOPIC_ID = UUID(int=1 << 100)


def topic_name(number: int) -> str:
    return f"topic-{number}"


def topic_id(number: int) -> UUID:
    return UUID(int=(1 << 80) + number)


class State(Enum):
    """The state of all partitions: they are on all brokers, and broker 1 is preferred."""

    HEALTHY = "broker 1 leads, and all are in the ISR"
    MOVED = "broker 2 leads, and all are in the ISR"
    SHRUNK = "broker 1 is alone in the ISR, the others are eligible"
    LEADERLESS = "broker 1 is fenced, and alone in the ISR"
    FORGOTTEN = "there is no leader, though all are in the ISR and alive"
    REASSIGNED = "a replica on broker 3 is being added"


class ControllerListener:
    """Three brokers, `topics` topics with one partition each, and one topic with `partitions` partitions."""

    def __init__(self, topics: int = 0, partitions: int = 0, state: State = State.HEALTHY, **settings: Any) -> None:
        quiet = {"broker_session_timeout_ms": 1 << 30, "auto_leader_rebalance_enable": False}
        self.harness = Harness(
            ControllerSettings(1, default_replication_factor=3, **{**quiet, **settings}), elect=False
        )
        image = self.harness.quorum.loader.image
        for record in _cluster(topics, partitions, state):
            image.restore(record)
        self.harness.quorum.batches.append(CommittedBatch(0, max(BROKERS), 0, 0, []))  # the epochs of brokers are below
        self.harness.quorum.elect(1, 1)
        quorum: Any = SimpleNamespace()
        config = BrokerConfig(1, CLUSTER_ID, (), "PLAINTEXT", values={"node.id": "1"})
        self.fatal: list[BaseException] = []
        self.services = ControllerServices(
            CLUSTER_ID, quorum, self.harness.controller, self.harness.quorum.loader, dict, {}, config
        )
        dispatcher = controller_dispatcher(self.services, self.fatal.append)
        limits = ConnectionLimits(ordered_start=False)
        self.server = Server(ServerConfig("CONTROLLER", "127.0.0.1", 0, limits), dispatcher)

    def connect(self) -> FakeTransport:
        transport = FakeTransport()
        transport.protocol = self.server.make_connection()
        transport.protocol.connection_made(transport)
        return transport

    def frame(self, key: ApiKey, version: int, fields: Any) -> bytes:
        body = encode_request(key, version, fields)
        return b"".join(encode_frame(RequestHeader(key, version, 1, "test"), body))


def _cluster(topics: int, partitions: int, state: State) -> list[Record]:
    levels = {
        name: SUPPORTED_FEATURES[name][1] for name in (METADATA_VERSION_FEATURE, ELR_FEATURE, RECORD_VERSION_FEATURE)
    }
    records: list[Record] = [FeatureLevelRecord(name, level) for name, level in levels.items()]
    records.append(ConfigRecord(BROKER_RESOURCE, "", "min.insync.replicas", "1"))
    for broker_id, log_dirs in zip(BROKERS, DIRECTORIES, strict=True):
        endpoints = (Endpoint("PLAINTEXT", f"b{broker_id}", 9092),)
        fenced = state is State.LEADERLESS and broker_id == 1
        records.append(
            RegisterBrokerRecord(
                broker_id, UUID(int=broker_id), endpoints, fenced=fenced, log_dirs=log_dirs, epoch=broker_id
            )
        )
    for number in range(topics):
        records.append(TopicRecord(topic_name(number), topic_id(number)))
        records.append(_partition(topic_id(number), 0, state))
    if partitions:
        records.append(TopicRecord(LARGE_TOPIC, LARGE_TOPIC_ID))
    return records + [_partition(LARGE_TOPIC_ID, index, state) for index in range(partitions)]


def _partition(topic: UUID, index: int, state: State) -> PartitionRecord:
    homes = tuple(log_dirs[0] for log_dirs in DIRECTORIES)
    partition = PartitionRecord(topic, index, BROKERS, BROKERS, 1, directories=homes)
    if state is State.MOVED:
        return replace(partition, leader=2)
    if state is State.SHRUNK:
        return replace(partition, isr=(1,), elr=(2, 3))
    if state is State.LEADERLESS:
        return replace(partition, isr=(1,), leader=NO_LEADER)
    if state is State.FORGOTTEN:
        return replace(partition, leader=NO_LEADER)
    if state is State.REASSIGNED:
        return replace(partition, isr=(1, 2), adding_replicas=(3,))
    return partition
