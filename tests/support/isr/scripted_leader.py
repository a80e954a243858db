"""A leader whose answers the test writes, and a fetcher of one partition that fetches from it, on virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from support.isr.replicas import TOPIC_ID, TP, WALL_MS, FakeBrokers, Reg, make_runtime, open_log

from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.isr.follower.replica_fetcher import FetcherContext, ReplicaFetcher
from raftwerk.isr.leader.leader_state import LeaderConfig
from raftwerk.isr.partition import Partition
from raftwerk.isr.ports import ReplicaManagerConfig
from raftwerk.isr.replica import Replica
from raftwerk.isr.throttling.replication_quota import ReplicationQuota
from raftwerk.isr.throttling.throttles import FOLLOWER, Throttle
from raftwerk.log.errors import NoSpaceError
from raftwerk.runtime.files.file_slice import in_memory
from raftwerk.wire.client import ConnectionLostError
from raftwerk.wire.codec import decode_response, encode_response
from raftwerk.wire.fetch import (
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
    decode_fetch_request,
    encode_fetch_response,
)
from raftwerk.wire.records import NewRecord, encode_batch

EPOCH = 5
NEVER: FetchResponse | None = None
"""The leader parks the fetch, or has gone."""


def records(offset: int, epoch: int = EPOCH) -> bytes:
    """A batch of one record."""
    return bytes(encode_batch([NewRecord(None, b"v", (), WALL_MS)], base_offset=offset, leader_epoch=epoch))


def answer(*rows: FetchPartitionResponse, error_code: int = 0) -> FetchResponse:
    """An answer with these rows for the partition, or one that refuses the whole request."""
    return FetchResponse(error_code, 1, [FetchTopicResponse(None, TOPIC_ID, list(rows))])


class LeaderConnection:
    """A `FetchConnection` that answers at once, as the leader says."""

    def __init__(self, leader: ScriptedLeader) -> None:
        self._leader = leader
        self._parked: list[asyncio.Future[memoryview]] = []
        self.is_closed = False
        self.received_bytes = 0

    def send_raw(self, api_key: int, version: int, body: Sequence[Any]) -> asyncio.Future[memoryview]:
        loop = asyncio.get_running_loop()
        request = decode_fetch_request(version, b"".join(bytes(part) for part in body))
        self._leader.asked_at.append(loop.time())
        self._leader.asked.append(request)
        future: asyncio.Future[memoryview] = loop.create_future()
        response = self._leader.answers.pop(0) if self._leader.answers else self._leader.otherwise
        if response is None:
            self._parked.append(future)
        else:
            future.set_result(memoryview(bytearray(in_memory(encode_fetch_response(version, response)))))
        return future

    async def request(self, api_key: int, version: int, fields: Mapping[str, Any]) -> Any:
        partition = fields["topics"][0]["partitions"][0]
        error_code, offset = self._leader.offsets(partition["timestamp"])
        row = {"partition_index": partition["partition_index"], "error_code": error_code, "offset": offset}
        encoded = encode_response(api_key, version, {"topics": [{"name": TP.topic, "partitions": [row]}]})
        return decode_response(api_key, version, memoryview(encoded))

    def close(self) -> None:
        self.is_closed = True
        for future in self._parked:
            if not future.done():
                future.set_exception(ConnectionLostError("closed"))


class ScriptedLeader:
    """Broker 1. It answers fetches with `answers`, in order, and after these with `otherwise`."""

    def __init__(self, *answers: FetchResponse | None, otherwise: FetchResponse | None = NEVER) -> None:
        self.answers = list(answers)
        self.otherwise = otherwise
        self.offsets: Callable[[int], tuple[int, int]] = lambda timestamp: (0, 0)
        """By timestamp, what ListOffsets answers: an error code and an offset."""
        self.asked: list[FetchRequest] = []
        self.asked_at: list[float] = []
        self.connections: list[LeaderConnection] = []

    async def connect(self, broker_id: int) -> LeaderConnection:
        self.connections.append(LeaderConnection(self))
        return self.connections[-1]

    @property
    def pauses_s(self) -> list[float]:
        """Between one fetch and the next."""
        return [after - before for before, after in zip(self.asked_at, self.asked_at[1:], strict=False)]


class Following:
    """Broker 2 follows the leader in one partition, whose log has `own` records. To be made on the running loop."""

    def __init__(self, leader: ScriptedLeader, own: int = 0) -> None:
        runtime, _ = make_runtime()
        partition = Partition(TP, LeaderConfig(2, 1, 1000), FakeBrokers({1: 101, 2: 102}), 0)
        self.replica = Replica(TOPIC_ID, partition, open_log(runtime), lambda replica: None)
        self.replica.make_follower(Reg((1, 2), (1,), 1, EPOCH, 10))
        for offset in range(own):
            self.replica.log.append_as_follower(memoryview(records(offset)), EPOCH)
        throttle = Throttle(FOLLOWER, 2, ReplicationQuota(11, 1000))
        context = FetcherContext(ReplicaManagerConfig(2), leader.connect, lambda: 102, self, random.Random(1), throttle)
        self.fetcher = ReplicaFetcher(1, context)
        self.fetcher.add([self.replica])

    # ---- the listener

    def on_records_fetched(self, replica: Replica, size_bytes: int) -> None: ...

    def on_replica_failed(self, replica: Replica, error: Exception) -> None:
        raise AssertionError("the log has failed") from error

    def on_no_space(self, replica: Replica, error: NoSpaceError) -> None: ...


def run(body: Coroutine[Any, Any, None]) -> None:
    """Run it on virtual time; an error that nobody caught fails the test."""
    scheduler = Scheduler()
    ProcessLoop(scheduler, "follower").run_until_complete(body, 600.0)
    assert not scheduler.errors
