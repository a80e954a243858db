"""A controller on a loop with virtual time, with a metadata log in memory that commits when a test says so."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import cache
from typing import Any, TypeVar
from uuid import UUID

from raftwerk.controller.brokers.listener_probe import ProbeResult
from raftwerk.controller.metadata.metadata_image import MetadataImage
from raftwerk.controller.metadata.metadata_loader import MetadataLoader
from raftwerk.controller.metadata.metadata_records import Record, decode_record
from raftwerk.controller.quorum_controller import ControllerPorts, QuorumController
from raftwerk.controller.result import ControllerResult, Decision
from raftwerk.controller.settings import ControllerSettings
from raftwerk.raft.types import CommittedBatch, LeaderAndEpoch, NotLeaderError
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import decode_request, encode_request
from raftwerk.wire.schemas import load_text, parse_message

T = TypeVar("T")
CLUSTER_ID = "cluster-a"


@cache
def _newest_version(api_key: ApiKey) -> int:
    text = load_text(api_key.name.lower(), "request")
    assert text is not None
    return parse_message(text).versions[-1]


def decoded(api_key: ApiKey, *, version: int | None = None, **fields: Any) -> Any:
    """A request as the controller gets it: encoded, in its newest version if none is given, and decoded again."""
    if version is None:
        version = _newest_version(api_key)
    return decode_request(api_key, version, encode_request(api_key, version, fields))


def decided(decision: Decision) -> ControllerResult:
    """The result of a decision that has one part."""
    try:
        next(decision)
    except StopIteration as end:
        result: ControllerResult = end.value
        return result
    raise AssertionError("the decision has several parts")


class _VirtualSelector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is not None and timeout > 0:
            self.now += timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that never waits: when it is idle, it jumps to its next timer."""

    def __init__(self) -> None:
        self._virtual = _VirtualSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def run(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        errors: list[dict[str, Any]] = []
        runner.get_loop().set_exception_handler(lambda loop, context: errors.append(context))
        result = runner.run(main)
        assert not errors, errors
        return result


class MemoryQuorum:
    """The quorum as the controller sees it: the port to append, and commits to the loader."""

    def __init__(self) -> None:
        self.batches: list[CommittedBatch] = []
        self.loader = MetadataLoader(CLUSTER_ID)
        self.leader = LeaderAndEpoch(None, 0)
        self.auto_commit = True
        self.committed = 0
        self.kraft_version = 0

    def log_end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def append(self, records: Sequence[bytes], epoch: int) -> int:
        if self.leader != LeaderAndEpoch(1, epoch):
            raise NotLeaderError(epoch, self.leader)
        base = self.log_end_offset()
        self.batches.append(CommittedBatch(base, base + len(records) - 1, epoch, 0, list(records)))
        if self.auto_commit:
            asyncio.get_running_loop().call_soon(self._commit_if_automatic)
        return base + len(records) - 1

    def _commit_if_automatic(self) -> None:
        if self.auto_commit:
            self.commit()

    def commit(self) -> None:
        batches, self.committed = self.batches[self.committed :], len(self.batches)
        if batches:
            self.loader.on_commit(batches)

    def elect(self, leader_id: int | None, epoch: int) -> None:
        """Begin an epoch. When this node leads, its leader change record and all records before it are committed."""
        self.leader = LeaderAndEpoch(leader_id, epoch)
        if leader_id == 1:
            base = self.log_end_offset()
            self.batches.append(CommittedBatch(base, base, epoch, 0, []))
            self.commit()
        self.loader.on_leader_change(self.leader)

    def drop_uncommitted(self) -> None:
        del self.batches[self.committed :]

    def upgrade_kraft_version(self, epoch: int, level: int, validate_only: bool) -> None:
        """Append a control batch, as the quorum does."""
        if epoch != self.leader.epoch:
            raise NotLeaderError(epoch, self.leader)
        if not validate_only:
            base = self.log_end_offset()
            self.batches.append(CommittedBatch(base, base, epoch, 0, []))
            self.kraft_version = level

    def records(self) -> list[tuple[int, Record]]:
        return [(b.base_offset + i, decode_record(raw)) for b in self.batches for i, raw in enumerate(b.records)]


class Probes:
    """Answers probes: with the result that a test sets for the address, else CONNECTED."""

    def __init__(self) -> None:
        self.down: dict[tuple[str, int], ProbeResult] = {}
        self.asked: list[tuple[str, int]] = []

    def __call__(self, host: str, port: int) -> Awaitable[ProbeResult]:
        return self._probe(host, port)

    async def _probe(self, host: str, port: int) -> ProbeResult:
        self.asked.append((host, port))
        await asyncio.sleep(0.001)
        return self.down.get((host, port), ProbeResult.CONNECTED)


class LoopClock:
    """A wall clock that goes as the loop's time does."""

    def wall_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)


class Harness:
    """A controller (node 1), active in epoch 1 unless a test says otherwise."""

    def __init__(self, settings: ControllerSettings | None = None, *, elect: bool = True) -> None:
        self.quorum = MemoryQuorum()
        self.probes = Probes()
        runtime = Runtime(disk=None, clock=LoopClock(), rng=random.Random(7))  # type: ignore[arg-type]
        ports = ControllerPorts(
            self.quorum.append,
            self.quorum.log_end_offset,
            self.probes,
            lambda: self.quorum.kraft_version,
            self.quorum.upgrade_kraft_version,
            lambda: [1],
        )
        self.controller = QuorumController(
            settings or ControllerSettings(1, default_replication_factor=3), runtime, self.quorum.loader, ports
        )
        if elect:
            self.quorum.elect(1, 1)

    @property
    def image(self) -> Any:
        return self.controller.image

    def registration(self, broker_id: int, incarnation: int = 1, **more: Any) -> Any:
        fields = {
            "broker_id": broker_id,
            "cluster_id": CLUSTER_ID,
            "incarnation_id": UUID(int=1000 * broker_id + incarnation),
            "listeners": [{"name": "PLAINTEXT", "host": f"b{broker_id}", "port": 9092, "security_protocol": 0}],
            "features": [
                {"name": "metadata.version", "min_supported_version": 7, "max_supported_version": 29},
                {"name": "raftwerk.record.version", "min_supported_version": 0, "max_supported_version": 2},
                {"name": "transaction.version", "min_supported_version": 0, "max_supported_version": 2},
            ],
            "rack": None,
            "log_dirs": [],
            "previous_broker_epoch": -1,
        }
        return decoded(ApiKey.BROKER_REGISTRATION, **{**fields, **more})

    def heartbeat(self, broker_id: int, **more: Any) -> Any:
        fields = {
            "broker_id": broker_id,
            "broker_epoch": self.image.brokers[broker_id].epoch if broker_id in self.image.brokers else 0,
            "current_metadata_offset": self.image.offset,
            "want_fence": False,
            "want_shut_down": False,
        }
        return decoded(ApiKey.BROKER_HEARTBEAT, **{**fields, **more})

    async def add_broker(self, broker_id: int, incarnation: int = 1, **more: Any) -> None:
        """Register a broker and unfence it."""
        response = await self.controller.register_broker(self.registration(broker_id, incarnation, **more))
        assert response["error_code"] == 0, response
        response = await self.controller.broker_heartbeat(self.heartbeat(broker_id))
        assert response == {"error_code": 0, "is_caught_up": True, "is_fenced": False, "should_shut_down": False}

    async def create(self, name: str, *assignments: Sequence[int], configs: dict[str, str] | None = None) -> Any:
        rows = [{"partition_index": i, "broker_ids": list(replicas)} for i, replicas in enumerate(assignments)]
        topic = {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": rows,
            "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
        }
        response = await self.controller.create_topics(
            decoded(ApiKey.CREATE_TOPICS, topics=[topic], validate_only=False)
        )
        assert response["topics"][0]["error_code"] == 0, response
        return response["topics"][0]["topic_id"]

    def partition(self, name: str, index: int = 0) -> Any:
        return self.image.topics_by_name[name].partitions[index]


def scenario(body: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Decorator: run the coroutine of a test on the virtual loop."""

    def test() -> None:
        run(body())

    test.__name__, test.__doc__, test.__module__ = body.__name__, body.__doc__, body.__module__
    return test


def restore_image(cluster_id: str, records: Iterable[Record], offset: int, epoch: int) -> MetadataImage:
    """The image after the record at `offset`, which was written in `epoch`, from the records of a snapshot."""
    image = MetadataImage(cluster_id)
    for record in records:
        image.restore(record)
    image.advance(offset, epoch)
    return image
