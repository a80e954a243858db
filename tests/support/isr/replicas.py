"""A cluster's metadata and replicas without a network, for the tests of isr."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from uuid import UUID

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.isr.high_watermark import HighWatermark
from raftwerk.isr.leader.leader_state import IsrProposal, LeaderConfig, LeaderState
from raftwerk.log.config import LogConfig
from raftwerk.log.partition_log import PartitionLog
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.records import encode_batch
from raftwerk.wire.types import TopicPartition

TOPIC_ID = UUID(int=77)
TP = TopicPartition("t", 0)
WALL_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Reg:
    """A partition's registration, as far as replicas look at it."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    adding_replicas: tuple[int, ...] = ()


@dataclass
class FakeBrokers:
    """`BrokerView` over a plain dict; a broker that is not in it is not registered."""

    epochs: dict[int, int] = field(default_factory=dict)
    ineligible: dict[int, None] = field(default_factory=dict)

    def broker_epoch(self, broker_id: int) -> int | None:
        return self.epochs.get(broker_id)

    def is_isr_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        return broker_id not in self.ineligible and broker_epoch in (-1, self.epochs.get(broker_id))


class FixedClock:
    def wall_ms(self) -> int:
        return WALL_MS


def make_runtime(seed: int = 1) -> tuple[Runtime, SimDisk]:
    disk = SimDisk(random.Random(seed))
    disk.makedirs("/data")
    disk.fsync_dir("/")
    return Runtime(disk, FixedClock(), random.Random(seed)), disk


def open_log(runtime: Runtime, name: str = "t-0") -> PartitionLog:
    return PartitionLog.open(runtime, f"/data/{name}", LogConfig())


def batch(value: bytes = b"v", count: int = 1) -> memoryview:
    return memoryview(encode_batch([(None, value, (), WALL_MS)] * count))


def new_leader(
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] = (1, 2, 3),
    *,
    min_isr: int = 1,
    log_end_offset: int = 0,
    high_watermark: int = 0,
    brokers: FakeBrokers | None = None,
    lag_ms: int = 1000,
) -> LeaderState:
    """Broker 1 as leader in epoch 5, partition epoch 10, at time 0."""
    view = brokers or FakeBrokers({replica: 100 + replica for replica in replicas})
    leader = LeaderState(LeaderConfig(1, min_isr, lag_ms), view, HighWatermark(high_watermark))
    leader.on_registration(replicas, isr, (5, 10), log_end_offset, 0)
    return leader


def fetch(
    leader: LeaderState, replica_id: int, offset: int, end: int, now_ms: int, epoch: int | None = None
) -> IsrProposal | None:
    """A follower's fetch that passed all checks."""
    broker_epoch = 100 + replica_id if epoch is None else epoch
    follower = leader.check_follower(replica_id, broker_epoch)
    return leader.on_follower_fetch(follower, broker_epoch, (offset, 0), end, now_ms)
