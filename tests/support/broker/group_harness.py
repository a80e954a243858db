"""A broker that leads all of `__consumer_offsets`, whose log is a list in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any
from uuid import UUID

from support.broker.broker_harness import TOPIC, Harness, decode_answer, make_image, settle

from raftwerk.broker.coordinators.record_fields import FieldWriter
from raftwerk.broker.groups.group_config import OFFSETS_TOPIC
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.controller.metadata.metadata_image import MetadataDelta
from raftwerk.controller.metadata.metadata_records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from raftwerk.isr.leader.transaction_markers import encode_marker
from raftwerk.log.config import LogConfig
from raftwerk.log.recovery.log_replay import PIECE_BYTES
from raftwerk.log.state.transaction_verification import VerificationGuard
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.produce import ProducePartitionResponse
from raftwerk.wire.records import Record, iter_records, read_header, set_base_offset
from raftwerk.wire.types import TopicPartition

OFFSETS_TOPIC_ID = UUID(int=0x0FF5)
PARTITIONS = 3


class FakeReplay:
    """Hands out the batches in pieces."""

    damage = None

    def __init__(self, batches: list[bytes], refusal: OSError | None) -> None:
        self._batches = batches
        self._refusal = refusal

    @property
    def is_at_end(self) -> bool:
        return not self._batches

    def read(self) -> memoryview:
        if self._refusal is not None:
            raise self._refusal
        piece = b""
        while self._batches and len(piece) < PIECE_BYTES:
            piece += self._batches.pop(0)
        return memoryview(piece)


class FakeLog:
    """Batches by offset."""

    def __init__(self) -> None:
        self.config = LogConfig()
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.batches: list[tuple[int, bytes]] = []
        self.refusal: OSError | None = None
        """The first read of the next replay raises this."""

    def append(self, batch: memoryview) -> int:
        base = self.log_end_offset
        set_base_offset(batch, 0, base)
        self.batches.append((base, bytes(batch)))
        self.log_end_offset += len(list(iter_records(batch)))
        return base

    def replay(self) -> FakeReplay:
        refusal, self.refusal = self.refusal, None
        return FakeReplay([batch for _, batch in self.batches], refusal)

    def records(self) -> list[Record]:
        return [record for _, batch in self.batches for record in iter_records(batch)]


class FakeLeader:
    """A leader that knows which producers have a transaction open."""

    is_leader = True
    offline = False

    def __init__(self, key: TopicPartition, log: FakeLog) -> None:
        self.topic_partition = key
        self.log = log
        self.open: set[int] = set()
        self.guard = VerificationGuard()

    def begin_verification(self, producer_id: int, *_: Any, **__: Any) -> VerificationGuard | None:
        return None if producer_id in self.open else self.guard


AFTER_APPEND = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""With these errors, an append has taken place."""


class GroupHarness(Harness):
    """`logs` outlive coordinators: a second harness may be made with the first one's."""

    def __init__(self, logs: dict[TopicPartition, FakeLog] | None = None) -> None:
        super().__init__(image=make_image())
        self.offset = self.image.offset
        self.replay(TopicRecord(OFFSETS_TOPIC, OFFSETS_TOPIC_ID))
        for index in range(PARTITIONS):
            self.replay(PartitionRecord(OFFSETS_TOPIC_ID, index, (1, 2, 3), (1, 2, 3), 1))
        keys = [TopicPartition(OFFSETS_TOPIC, index) for index in range(PARTITIONS)]
        self.logs = logs or {key: FakeLog() for key in keys}
        self.append_error = 0
        self.held_appends: list[Callable[[], None]] = []
        self.hold = False
        self.held_commits: list[Callable[[], None]] = []
        for key in keys:
            self.replicas.partitions[key] = FakeLeader(key, self.logs[key])
        self.replicas.append = self.append  # type: ignore[method-assign]
        self.replicas.write_markers = self.write_markers
        self.replicas.when_committed = self.when_committed  # type: ignore[method-assign]
        self.replicas.confirm_leadership = self.confirm_leadership
        self.held_reads: dict[TopicPartition, list[Callable[[bool], None]]] = {}
        self.holds_reads = False
        self.groups.start()

    def replay(self, record: Any) -> MetadataDelta:
        delta = MetadataDelta()
        self.offset += 1
        self.image.replay(record, self.offset, delta)
        return delta

    def tell(self, record: Any) -> None:
        """Replay a record, and tell the coordinator."""
        self.groups.on_metadata(self.image, self.replay(record))

    def lead(self, broker_id: int) -> None:
        for index in range(PARTITIONS):
            self.tell(PartitionChangeRecord(OFFSETS_TOPIC_ID, index, leader=broker_id))

    def remove_topic(self, topic_id: UUID) -> None:
        self.tell(RemoveTopicRecord(topic_id))

    def append(
        self,
        acks: int,
        timeout_ms: int,
        entries: Sequence[Any],
        done: Callable[[Any], None],
        guards: Mapping[TopicPartition, VerificationGuard] | None = None,
        internal: bool = False,
        *,
        caller: object = None,
    ) -> None:
        assert acks == -1 and internal, "a coordinator's batch is never validated later, in a thread"
        ((key, batch),) = entries
        header = read_header(batch)
        if header.is_transactional:
            leader = self.replicas.partitions[key]
            assert header.base_sequence == -1
            assert header.producer_id in leader.open or (guards or {})[key] is leader.guard
            leader.open.add(header.producer_id)
        is_refused = self.append_error and self.append_error not in AFTER_APPEND
        base = -1 if is_refused else self.logs[key].append(batch)
        result = [ProducePartitionResponse(key.partition, self.append_error, base)]
        if self.hold:
            self.held_appends.append(lambda: done(result))
        else:
            done(result)

    def write_markers(
        self,
        timeout_ms: int,
        entries: Sequence[Any],
        done: Callable[[list[ErrorCode]], None],
        committed: Callable[[Any], None],
    ) -> None:
        ((key, marker),) = entries
        code = ErrorCode(self.append_error)
        is_appended = not code or code in AFTER_APPEND
        if is_appended:
            self.replicas.partitions[key].open.discard(marker.producer_id)
            self.logs[key].append(memoryview(encode_marker(marker, 1_000)))

        def answer() -> None:
            if code == ErrorCode.REQUEST_TIMED_OUT:
                self.held_commits.append(lambda: committed(entries[0]))
            elif is_appended:
                committed(entries[0])
            done([code])

        if self.hold:
            self.held_appends.append(answer)
        else:
            answer()

    def when_committed(self, key: Any, offset: int, timeout_ms: int, done: Callable[[bool], None]) -> None:
        """Batches whose append has timed out are committed by `release_commits`."""
        if self.append_error == ErrorCode.REQUEST_TIMED_OUT:
            self.held_commits.append(lambda: done(True))
        else:
            done(True)

    def confirm_leadership(
        self, key: TopicPartition, leader_epoch: int, timeout_ms: int, done: Callable[[bool], None]
    ) -> None:
        """Stable reads are confirmed at once, or wait for the test while `holds_reads`."""
        registration = self.groups.metadata.image.topics_by_name[key.topic].partitions[key.partition]
        assert leader_epoch == registration.leader_epoch
        assert timeout_ms == self.groups.config.offsets.commit_timeout_ms
        if self.holds_reads:
            self.held_reads.setdefault(key, []).append(done)
        else:
            done(True)

    def release_commits(self) -> None:
        held, self.held_commits = self.held_commits, []
        for finish in held:
            finish()

    def release(self) -> None:
        self.hold = False
        held, self.held_appends = self.held_appends, []
        for finish in held:
            finish()

    def records(self) -> list[Record]:
        return [record for log in self.logs.values() for record in log.records()]

    def parked(self, key: ApiKey, version: int, fields: Any) -> Callable[[], Struct | None]:
        """Send a request that may wait; the result tells its answer when there is one."""
        transport = self.connect()
        transport.deliver(self.frame(key, version, fields))

        def answer() -> Struct | None:
            frames = transport.frames()
            return decode_answer(key, version, frames[0]) if frames else None

        return answer

    async def join(self, group: str, version: int = 9, **fields: Any) -> Struct:
        """Join as the only member, or join again."""
        asked = {
            "group_id": group,
            "session_timeout": 10_000,
            "rebalance_timeout": 60_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription("flights")}],
            **fields,
        }
        answer = self.parked(ApiKey.JOIN_GROUP, version, asked)
        for _ in range(500):
            await asyncio.sleep(0.01)
            if (found := answer()) is not None:
                break
        assert found is not None
        if found.error_code == 79:
            return await self.join(group, version, **{**fields, "member_id": found.member_id})
        return found

    async def sync(self, group: str, joined: Struct, version: int = 5) -> Struct:
        fields = {
            "group_id": group,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "protocol_type": "consumer",
            "protocol_name": joined.protocol_name,
            "assignments": [{"member_id": joined.member_id, "assignment": b"all"}],
        }
        return await self.call(ApiKey.SYNC_GROUP, version, fields)

    async def commit(self, group: str, version: int = 9, offset: int = 42, **fields: Any) -> int:
        """Commit `offset` of flights-0; the code."""
        row = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": 3, "committed_metadata": "m"}
        topic = {"name": "flights", "topic_id": UUID(int=0xF117), "partitions": [row]}
        asked = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": [topic]}
        answer = await self.call(ApiKey.OFFSET_COMMIT, version, {"retention_time": -1, **asked, **fields})
        return int(answer.topics[0].partitions[0].error_code)

    async def committed(self, group: str, version: int = 9) -> int:
        """The offset of flights-0."""
        topics = [{"name": "flights", "topic_id": UUID(int=0xF117), "partition_indexes": [0]}]
        asked = {"group_id": group, "topics": topics}
        answer = await self.call(ApiKey.OFFSET_FETCH, version, {**asked, "groups": [asked], "require_stable": True})
        if version >= 8:
            assert answer.groups[0].error_code == 0
            return int(answer.groups[0].topics[0].partitions[0].committed_offset)
        return int(answer.topics[0].partitions[0].committed_offset)


def subscription(*topics: str) -> bytes:
    writer = FieldWriter().int16(0).count(len(topics))
    for topic in topics:
        writer.string(topic)
    return bytes(writer.blob(b"").data)


def on_virtual_time(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run on the simulator's loop, in virtual time."""
    ProcessLoop(Scheduler(), "test").run_until_complete(test(), 100_000.0)


__all__ = ["GroupHarness", "on_virtual_time", "settle", "subscription"]


GroupTest = Callable[[GroupHarness], Awaitable[None]]


def played(test: GroupTest) -> Callable[[], None]:
    """The test on virtual time, with a harness of its own."""

    def run() -> None:
        async def main() -> None:
            await test(GroupHarness())

        on_virtual_time(main)

    run.__name__ = test.__name__
    return run


def play(test: GroupTest) -> None:
    """Run `test` on virtual time, with a harness of its own."""
    played(test)()


async def stable_group(harness: GroupHarness, group: str = "g", **fields: Any) -> Any:
    """Make a stable group of one member; returns the answer to its JoinGroup."""
    joined = await harness.join(group, **fields)
    assert (await harness.sync(group, joined)).assignment == b"all"
    return joined


async def consumer_heartbeat(harness: GroupHarness, version: int = 1, **fields: Any) -> Struct:
    """The answer to a ConsumerGroupHeartbeat of the member `m` of the group `g`."""
    asked = {"group_id": "g", "member_id": "m", "member_epoch": 0, "rebalance_timeout": -1, **fields}
    return await harness.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, asked)


async def join_consumer_group(harness: GroupHarness, version: int = 1, **fields: Any) -> Struct:
    """The answer to a member's first ConsumerGroupHeartbeat."""
    full = {"rebalance_timeout": 60_000, "subscribed_topic_names": [TOPIC], "topic_partitions": [], **fields}
    return await consumer_heartbeat(harness, version, **full)
