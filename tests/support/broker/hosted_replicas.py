"""A harness whose broker hosts many real partitions, on a disk in memory and the test's own loop."""

from __future__ import annotations

import asyncio
import random
from typing import Any
from uuid import UUID

from support.broker.broker_harness import TOPIC, TOPIC_ID, Harness, make_image
from support.isr.replicas import FixedClock

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.controller.metadata.metadata_image import MetadataDelta, MetadataImage
from raftwerk.controller.metadata.metadata_records import PartitionRecord, RegisterBrokerRecord, TopicRecord
from raftwerk.isr.ports import ReplicaManagerConfig, ReplicaPorts
from raftwerk.isr.replica_manager import ReplicaManager
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.log_manager_config import LogManagerConfig
from raftwerk.log.manager.meta_properties import format_dirs
from raftwerk.runtime.ports import ComputeThreads, LoopAsThreads, Runtime
from raftwerk.wire.errors import ProtocolError
from raftwerk.wire.fetch import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from raftwerk.wire.types import TopicPartition

FETCH_VERSION = 16
NO_SESSION = (0, -1)
NEW_SESSION = (0, 0)


class HostingHarness:
    """`harness` is served by `manager`, which leads all partitions of the topic."""

    def __init__(self, partitions: int, threads: ComputeThreads | None = None) -> None:
        self.harness = Harness(image=make_image(brokers=1, partitions=partitions))
        runtime = Runtime(SimDisk(random.Random(1)), FixedClock(), random.Random(1), threads or LoopAsThreads())
        logs = LogManager(runtime, LogManagerConfig(("/n",), "cluster-1", 1))
        format_dirs(runtime, ["/n"], "cluster-1", 1)
        logs.acquire()
        logs.load()
        nothing: Any = None
        config = ReplicaManagerConfig(1, cluster_id="cluster-1", high_watermark_checkpoint_interval_ms=3_600_000)
        ports = ReplicaPorts(nothing, nothing, lambda: 0, nothing)
        self.manager = ReplicaManager(config, runtime, logs, ports)
        self._partitions = partitions
        replicas: Any = self.harness.replicas
        replicas.fetch, replicas.fetch_in_steps = self.manager.fetch, self.manager.fetch_in_steps
        replicas.append = self.manager.append

    async def start(self) -> None:
        image, delta = MetadataImage("cluster-1"), MetadataDelta()
        broker = RegisterBrokerRecord(1, UUID(int=1), (), None, False, False, ())
        partitions = [PartitionRecord(TOPIC_ID, index, (1,), (1,), 1) for index in range(self._partitions)]
        records: list[Any] = [broker, TopicRecord(TOPIC, TOPIC_ID), *partitions]
        for offset, record in enumerate(records):
            image.replay(record, offset, delta)
        self.manager.apply(image, delta)
        await self.manager.start()
        deadline = asyncio.get_running_loop().time() + 60
        while not self._leads_all():
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.01)

    def _leads_all(self) -> bool:
        try:
            return all(self.manager.find(TopicPartition(TOPIC, index)).is_leader for index in range(self._partitions))
        except ProtocolError:
            return False


def fetch_body(partitions: int, session: tuple[int, int] = NO_SESSION, max_wait_ms: int = 0) -> bytes:
    """A consumer's fetch of the first partitions."""
    rows = [FetchPartition(index) for index in range(partitions)]
    topics = [FetchTopic(None, TOPIC_ID, rows)] if rows else []
    return encode_fetch_request(FETCH_VERSION, FetchRequest(-1, -1, max_wait_ms, 1, 1 << 20, 0, *session, topics))
