"""Records of `__consumer_offsets` that cannot be read are passed over, and everything else is served."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.broker.group_harness import PARTITIONS, FakeLog, GroupHarness, on_virtual_time, settle
from support.log.logs import make_runtime, open_log

from raftwerk.broker.coordinators.coordinator_loader import RECORDS_PER_STEP
from raftwerk.broker.coordinators.partition_for import partition_for
from raftwerk.broker.coordinators.record_fields import CoordinatorRecord
from raftwerk.broker.groups.group_config import OFFSETS_TOPIC
from raftwerk.broker.groups.records.consumer_group_records import (
    ConsumerGroupKey,
    EpochValue,
    RecordType,
    current_record,
    epoch_record,
    member_metadata_record,
    target_record,
)
from raftwerk.broker.groups.records.consumer_group_records import (
    CurrentAssignmentValue as Current,
)
from raftwerk.broker.groups.records.consumer_group_records import (
    MemberMetadataValue as Metadata,
)
from raftwerk.broker.groups.records.offset_and_classic_records import (
    GroupMetadataValue,
    MemberValue,
    OffsetAndMetadata,
    classic_group_record,
    offset_record,
)
from raftwerk.log.config import LogConfig
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.compression import Compression
from raftwerk.wire.records import NewRecord, compute_crc, encode_batch, read_header
from raftwerk.wire.types import TopicPartition

FLIGHTS = TopicPartition("flights", 0)
KEY = TopicPartition(OFFSETS_TOPIC, partition_for("g", PARTITIONS))


def with_crc(batch: bytearray) -> bytearray:
    struct.pack_into(">I", batch, 17, compute_crc(batch, 0, read_header(batch)))
    return batch


def lying_batch() -> bytearray:
    """A batch of 80 bytes whose one record says that its value has 32 bytes more than there are."""
    batch = encode_batch([NewRecord(b"\x00\x01\x00\x01g", b"value123")])
    at = batch.index(b"\x10value123")
    batch[at] += 2 * 32
    return with_crc(bytearray(batch))


def put(log: FakeLog, batch: bytearray, records: int = 1) -> None:
    """Append bytes that need not be readable."""
    struct.pack_into(">q", batch, 0, log.log_end_offset)
    log.batches.append((log.log_end_offset, bytes(batch)))
    log.log_end_offset += records


def load(logs: dict[TopicPartition, FakeLog], check: Callable[[GroupHarness], Awaitable[None]]) -> None:
    """Load the logs by a new coordinator, then run `check`. Nothing may raise out of a callback of the loop."""
    failures: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        harness = GroupHarness(logs)
        for _ in range(20):
            await settle()
        assert len(harness.groups.active_shards) == PARTITIONS
        await check(harness)
        harness.groups.stop()

    on_virtual_time(main)
    assert failures == []


def fresh_logs() -> dict[TopicPartition, FakeLog]:
    return {TopicPartition(OFFSETS_TOPIC, index): FakeLog() for index in range(PARTITIONS)}


def batch_of(*records: CoordinatorRecord, **options: Any) -> bytearray:
    return encode_batch([NewRecord(key, value) for key, value in records], **options)


def test_a_batch_whose_value_length_lies_ends_no_partition(caplog: pytest.LogCaptureFixture) -> None:
    logs = fresh_logs()

    async def attack() -> None:
        harness = GroupHarness(logs)
        await settle()
        assert await harness.commit("g", offset=41) == 0
        put(logs[KEY], lying_batch())
        put(logs[KEY], lying_batch())
        assert await harness.commit("g", offset=42) == 0
        harness.lead(2)
        with caplog.at_level(logging.WARNING, "raftwerk.groups"):
            harness.lead(1)
            await settle()
        assert await harness.committed("g") == 42
        assert await harness.commit("g", offset=43) == 0
        assert await harness.committed("g") == 43
        joined = await harness.join("g")
        assert (await harness.sync("g", joined)).error_code == 0
        assert harness.groups.partitions.passed_over == 2
        harness.groups.stop()

    on_virtual_time(attack)
    first, more = [record.getMessage() for record in caplog.records]
    assert "the batch at offset 1, from record 0 on, is passed over: CorruptBatchError" in first
    assert "1 more are passed over" in more


@pytest.mark.parametrize("key", [None, b"", b"\x00", b"\x00\x01\x7f\xff", b"\x00\x08\x00\x01g", b"\xff\xff"])
def test_a_malformed_record_is_passed_over(key: bytes | None) -> None:
    logs = fresh_logs()
    offsets = OffsetAndMetadata(7, -1, "", 1_000)
    put(logs[KEY], encode_batch([NewRecord(key, b"\x00")]))
    put(logs[KEY], batch_of(offset_record("g", FLIGHTS, offsets)))

    async def check(harness: GroupHarness) -> None:
        assert await harness.committed("g") == 7

    load(logs, check)


def test_a_compressed_batch_of_many_records_is_replayed_in_steps() -> None:
    logs = fresh_logs()
    count = 10 * RECORDS_PER_STEP
    record = offset_record("g", FLIGHTS, OffsetAndMetadata(7, -1, "", 1_000))
    put(logs[KEY], batch_of(*([record] * count), compression=Compression.ZSTD), count)

    async def main() -> None:
        harness = GroupHarness(logs)
        loader = harness.groups.partitions.loaders[KEY.partition]
        steps, step = 0, loader.step

        def counted() -> None:
            nonlocal steps
            steps += 1
            step()

        loader.step = counted  # type: ignore[method-assign]
        await settle()
        await settle()
        assert await harness.committed("g") == 7
        assert steps >= 10
        harness.groups.stop()

    on_virtual_time(main)


class LogOnDisk(FakeLog):
    """The log of a partition on a disk that may damage it."""

    def __init__(self) -> None:
        super().__init__()
        runtime, self.disk = make_runtime()
        self.log = open_log(runtime, LogConfig())

    def append(self, batch: memoryview) -> int:
        base_offset = self.log.append_as_leader(batch, 0, 0, internal=True).first_offset
        self.log_end_offset = self.log.log_end_offset
        return base_offset

    def replay(self) -> Any:
        return self.log.replay()

    def flip(self, position: int) -> None:
        """Flip a bit of the file, or flip it back."""
        self.disk.flip_bit(self.log.segments[0].file.path, position, 6)


def commits_on_disk() -> tuple[dict[TopicPartition, Any], LogOnDisk]:
    """Three commits, of three groups of one partition, in batches of the same size."""
    logs: dict[TopicPartition, Any] = dict(fresh_logs())
    log = logs[KEY] = LogOnDisk()
    groups = [f"g{number}" for number in range(100) if partition_for(f"g{number}", PARTITIONS) == KEY.partition]
    for group in groups[:3]:
        log.append(memoryview(batch_of(offset_record(group, FLIGHTS, OffsetAndMetadata(7, -1, "", 1_000)))))
    return logs, log


@pytest.mark.parametrize("at", [0, 5, 8, 11, 16, 20, 23, 30, 57, 60, 61, 80])
def test_what_is_damaged_on_the_disk_ends_no_partition(at: int, caplog: pytest.LogCaptureFixture) -> None:
    """Offset, length, magic, CRC, attributes, last delta, count and records of the second batch of three."""
    logs, log = commits_on_disk()
    size = log.log.segments[0].size_bytes // 3
    log.flip(size + at)

    async def check(harness: GroupHarness) -> None:
        shard = harness.groups.partitions.shards[KEY.partition]
        assert len(shard.offsets) == 2 and harness.groups.partitions.passed_over == 1
        assert [damage.offset for damage in harness.replicas.reported] == [1]
        group = next(iter(shard.offsets))
        assert await harness.commit(group, offset=43) == 0
        assert await harness.committed(group) == 43

    with caplog.at_level(logging.WARNING, "raftwerk.groups"):
        load(logs, check)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "all from offset 1 to 1 is passed over" in line


def test_a_damaged_partition_is_loaded_when_it_is_mended() -> None:
    logs, log = commits_on_disk()
    log.flip(70)

    async def main() -> None:
        harness = GroupHarness({key: FakeLog() for key in logs})
        harness.replicas.is_mending = True
        harness.lead(2)
        harness.replicas.partitions[KEY].log = log
        harness.lead(1)
        await asyncio.sleep(3)
        assert harness.groups.partitions.shards[KEY.partition].is_loading, "clients wait"
        log.flip(70)
        await asyncio.sleep(3)
        assert len(harness.groups.partitions.shards[KEY.partition].offsets) == 3
        assert harness.groups.partitions.passed_over == 0
        harness.groups.stop()

    on_virtual_time(main)


def member(member_id: str) -> MemberValue:
    return MemberValue(member_id, None, "c", "/h", 60_000, 10_000, b"", b"")


HIGHEST = 2**31 - 1
HASTY = MemberValue("m", None, "c", "/h", -HIGHEST, -HIGHEST, b"", b"")
"""Its session is over at once, and with it begins a rebalance."""
ABSENT = MemberValue("n", "i", "c", "/h", -HIGHEST, HIGHEST, b"", b"")
"""A static member for which a rebalance waits no time, for weeks."""
METADATA = Metadata(None, None, "c", "/h", ("flights",), None, 60_000, None)


@pytest.mark.parametrize(
    "records",
    [
        [classic_group_record("g", GroupMetadataValue("consumer", HIGHEST, "range", "m", 0, (member("m"),)))],
        [classic_group_record("g", GroupMetadataValue("consumer", 1, None, "m", 0, (member("m"),)))],
        [classic_group_record("g", GroupMetadataValue("consumer", 1, "range", "m", 0, (member("m"), member("m"))))],
        [classic_group_record("g", GroupMetadataValue("consumer", 1, "range", "m", 0, (HASTY, ABSENT)))],
        [epoch_record(ConsumerGroupKey(RecordType.GROUP, "g"), EpochValue(HIGHEST))],
        [
            epoch_record(ConsumerGroupKey(RecordType.GROUP, "g"), EpochValue(1)),
            epoch_record(ConsumerGroupKey(RecordType.TARGET, "g"), EpochValue(HIGHEST)),
        ],
        [
            member_metadata_record("g", "m", METADATA),
            current_record("g", "m", Current(HIGHEST, HIGHEST, 0, (), ())),
        ],
        [member_metadata_record("g", "m", METADATA._replace(assignor="no such assignor"))],
        [member_metadata_record("g", "m", METADATA._replace(topic_regex="(", rebalance_timeout_ms=-HIGHEST))],
        [
            member_metadata_record("g", "m", METADATA._replace(instance_id="i")),
            member_metadata_record("g", "n", METADATA._replace(instance_id="i")),
            target_record("g", "x", ((UUID(int=1), -HIGHEST),)),
        ],
    ],
)
def test_a_group_of_hostile_records_is_served(records: list[CoordinatorRecord]) -> None:
    """After the load, and after all that the records began has timed out, a member of either protocol can join."""
    logs = fresh_logs()
    put(logs[KEY], batch_of(*records), len(records))

    async def check(harness: GroupHarness) -> None:
        await asyncio.sleep(120)
        joined = await harness.join("g")
        if joined.error_code == 0:
            assert (await harness.sync("g", joined)).error_code == 0
        beat = {
            "group_id": "g",
            "member_id": "new",
            "member_epoch": 0,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": 60_000,
            "subscribed_topic_names": ["flights"],
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": [],
        }
        answer = await harness.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, beat)
        assert joined.error_code == 0 or answer.error_code == 0

    load(logs, check)


TYPED_KEYS = st.builds(
    lambda kind, group, rest: struct.pack(">hh", kind, len(group)) + group + rest,
    st.integers(0, 9),
    st.sampled_from([b"g", b""]),
    st.one_of(st.just(b""), st.just(b"\x00\x01m"), st.binary(max_size=20)),
)
VERSIONED_VALUES = st.builds(lambda version, rest: struct.pack(">h", version) + rest, st.integers(0, 4), st.binary())
HOSTILE = st.lists(
    st.tuples(
        st.one_of(st.none(), st.binary(max_size=40), TYPED_KEYS),
        st.one_of(st.none(), st.binary(max_size=60), VERSIONED_VALUES),
    ),
    min_size=1,
    max_size=8,
)
INT32S = st.one_of(st.sampled_from([-(2**31), -2, -1, 0, 1, 2**30, HIGHEST]), st.integers(-(2**31), HIGHEST))
PARTS = st.lists(st.tuples(st.sampled_from([UUID(int=0xF117), UUID(int=1)]), INT32S), max_size=3).map(tuple)
NAMES = st.sampled_from(["m", "n", ""])
WELL_FORMED = st.lists(
    st.one_of(
        st.builds(
            lambda kind, epoch, digest: epoch_record(ConsumerGroupKey(kind, "g"), EpochValue(epoch, digest)),
            st.sampled_from([RecordType.GROUP, RecordType.TARGET]),
            INT32S,
            st.integers(-(2**63), 2**63 - 1),
        ),
        st.builds(target_record, st.just("g"), NAMES, PARTS),
        st.builds(
            lambda name, *fields: current_record("g", name, Current(*fields)),
            NAMES,
            INT32S,
            INT32S,
            st.integers(-128, 127),
            PARTS,
            PARTS,
        ),
        st.builds(
            lambda name, instance, topics, regex, timeout, assignor: member_metadata_record(
                "g", name, Metadata(instance, None, "c", "/h", tuple(topics), regex, timeout, assignor)
            ),
            NAMES,
            st.one_of(st.none(), NAMES),
            st.lists(st.text(max_size=5), max_size=2),
            st.one_of(st.none(), st.text(max_size=5)),
            INT32S,
            st.one_of(st.none(), st.sampled_from(["uniform", "range", "x"])),
        ),
        st.builds(
            lambda generation, protocol, leader, members: classic_group_record(
                "g", GroupMetadataValue("consumer", generation, protocol, leader, 0, tuple(members))
            ),
            INT32S,
            st.one_of(st.none(), st.just("range")),
            st.one_of(st.none(), NAMES),
            st.lists(
                st.builds(
                    lambda name, instance, rebalance_ms, session_ms, blob: MemberValue(
                        name, instance, "c", "/h", rebalance_ms, session_ms, blob, blob
                    ),
                    NAMES,
                    st.one_of(st.none(), NAMES),
                    INT32S,
                    INT32S,
                    st.binary(max_size=8),
                ),
                max_size=3,
            ),
        ),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=100, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.one_of(HOSTILE, WELL_FORMED))
def test_no_records_raise_out_of_the_loader(records: list[tuple[bytes | None, bytes | None]]) -> None:
    logs = fresh_logs()
    put(logs[KEY], encode_batch([NewRecord(key, value) for key, value in records]), len(records))
    put(logs[KEY], batch_of(offset_record("other", FLIGHTS, OffsetAndMetadata(7, -1, "", 1_000))))

    async def check(harness: GroupHarness) -> None:
        shard = harness.groups.shard_of("g")
        assert shard.offsets_of("other") == {FLIGHTS: OffsetAndMetadata(7, -1, "", 1_000)}
        await asyncio.sleep(600)

    load(logs, check)


@settings(max_examples=100, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.binary(max_size=120), st.sampled_from(list(Compression)), st.integers(1, 3))
def test_no_bytes_in_a_batch_raise_out_of_the_loader(body: bytes, codec: Compression, count: int) -> None:
    logs = fresh_logs()
    batch = encode_batch([NewRecord(b"k", b"v")] * count)[:61] + body
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    batch[22] |= int(codec)
    put(logs[KEY], with_crc(batch), count)
    put(logs[KEY], batch_of(offset_record("g", FLIGHTS, OffsetAndMetadata(7, -1, "", 1_000))))

    async def check(harness: GroupHarness) -> None:
        assert await harness.committed("g") == 7
        assert harness.groups.partitions.passed_over <= 1 + count

    load(logs, check)
