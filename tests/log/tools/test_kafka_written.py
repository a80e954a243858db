"""A data directory written by Apache Kafka 4.2 is read record for record, and its files are found valid."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from support.log.kafka_written import (
    CLUSTER_ID,
    TOPICS,
    Expected,
    Served,
    kafka_broker,
    kafka_libs,
    unpack_fixture,
    write_topics,
)
from support.log.logs import headers_of, make_runtime, read_all

from raftwerk.log.config import LogConfig
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.log_manager_config import LogManagerConfig
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.tools.repair import repair_partition
from raftwerk.log.tools.verification import verify_dir, verify_partition
from raftwerk.runtime.files.real_disk import RealDisk
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.records import ControlRecordType, TimestampType, control_record_type, iter_records
from raftwerk.wire.types import TopicPartition


class Written(NamedTuple):
    """`left_cleanly` and `killed` are the same directory, before and after the broker's indexes were trimmed."""

    left_cleanly: Path
    killed: Path | None
    expected: Expected


@pytest.fixture(scope="module", params=["committed", pytest.param("live", marks=pytest.mark.java)])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    directory = tmp_path_factory.mktemp("kafka")
    if request.param == "committed":
        expected = unpack_fixture(directory)
        return Written(directory / "data", None, expected)
    with kafka_broker(kafka_libs(), directory) as broker:
        expected = write_topics(broker)
        killed = directory / "killed"
        shutil.copytree(broker.data, killed)
        broker.stop()
    return Written(directory / "data", killed, expected)


def copy_of(source: Path, target: Path) -> tuple[Runtime, Path]:
    simulated, _ = make_runtime()
    shutil.copytree(source, target)
    (target / ".lock").unlink(missing_ok=True)
    return Runtime(RealDisk(), simulated.clock, simulated.rng), target


def read_as_consumer(log: PartitionLog, isolation_level: str) -> list[Served]:
    """The records that a consumer gets; with read_committed, without those of aborted transactions."""
    aborted = sorted(log.aborted_transactions(0, log.log_end_offset), key=lambda one: one.first_offset)
    now_aborted: set[int] = set()
    found: list[Served] = []
    data, position = memoryview(read_all(log)), 0
    for header in headers_of(bytes(data)):
        batch = data[position : position + header.size_bytes]
        position += header.size_bytes
        while aborted and aborted[0].first_offset <= header.last_offset:
            now_aborted.add(aborted.pop(0).producer_id)
        if header.is_control:
            if control_record_type(next(iter(iter_records(batch))).key) == ControlRecordType.ABORT:
                now_aborted.discard(header.producer_id)
        elif isolation_level == "read_uncommitted" or not (
            header.is_transactional and header.producer_id in now_aborted
        ):
            stamped = header.timestamp_type is TimestampType.LOG_APPEND_TIME
            for record in iter_records(batch):
                timestamp = header.max_timestamp if stamped else record.timestamp
                found.append(Served(record.offset, timestamp, record.key, record.value, tuple(record.headers)))
    return found


def check_all(logs: Callable[[str], PartitionLog], expected: Expected) -> None:
    for topic in TOPICS:
        log = logs(topic)
        for level, served in expected[topic].items():
            assert read_as_consumer(log, level) == served, f"{topic} {level}"
        check_lookups(log, expected[topic]["read_uncommitted"])


def check_lookups(log: PartitionLog, served: list[Served]) -> None:
    """Each record is found through Kafka's indexes by its offset and by its time; markers have times too."""
    offsets = {one.offset for one in served}
    for one in served:
        header = headers_of(log.read(one.offset, 1, end_offset=log.log_end_offset))[0]
        assert header.base_offset <= one.offset <= header.last_offset
        found = log.offset_for_timestamp(one.timestamp)
        assert found is not None
        expected = next(other.offset for other in served if other.timestamp >= one.timestamp)
        assert found.offset == expected or (found.offset < expected and found.offset not in offsets)


def test_the_directory_of_kafka_has_everything_that_is_tested(written: Written) -> None:
    rows = written.expected
    assert len(rows["codecs"]["read_committed"]) == 450
    assert 0 < len(rows["transactional"]["read_committed"]) < len(rows["transactional"]["read_uncommitted"])
    assert len(rows["compacted"]["read_committed"]) < 250
    assert rows["empty"]["read_committed"] == []
    for topic in ("codecs", "compacted", "transactional"):
        assert len(list((written.left_cleanly / f"{topic}-0").glob("*.log"))) > 2
    assert list((written.left_cleanly / "transactional-0").glob("*.txnindex"))


def test_a_cleanly_stopped_broker_s_directory_is_read_record_for_record(written: Written, tmp_path: Path) -> None:
    runtime, path = copy_of(written.left_cleanly, tmp_path / "data")
    manager = LogManager(runtime, LogManagerConfig((str(path),), CLUSTER_ID, 1))
    manager.load()

    def log_of(topic: str) -> PartitionLog:
        log = manager.get(TopicPartition(topic, 0))
        assert log is not None
        assert log.topic_id is not None
        return log

    check_all(log_of, written.expected)
    transactional = log_of("transactional")
    producer_ids = {header.producer_id for header in headers_of(read_all(transactional)) if header.has_producer_id}
    assert len(producer_ids) == 2
    assert all(transactional.producers.get(producer_id) is not None for producer_id in producer_ids)
    assert not any(log.producers.open_transactions for log in manager.logs.values())
    manager.shutdown()


def test_verification_finds_nothing(written: Written) -> None:
    disk = RealDisk()
    assert list(verify_dir(disk, str(written.left_cleanly))) == []
    for topic in TOPICS:
        findings = verify_partition(disk, str(written.left_cleanly / f"{topic}-0"))
        assert [finding for finding in findings if "the segment before it ends at" not in finding.what] == []


def test_appends_continue_kafka_s_log(written: Written, tmp_path: Path) -> None:
    """Records that we append after Kafka's survive a recovery that checks every byte of both."""
    runtime, path = copy_of(written.left_cleanly, tmp_path / "data")
    source = PartitionLog.open(runtime, str(path / "codecs-0"), LogConfig(), clean_shutdown=True)
    end, data = source.log_end_offset, bytearray(source.read(0, 1, end_offset=source.log_end_offset))
    epoch = source.epoch_cache.latest
    assert source.append_as_leader(memoryview(data), epoch + 1, runtime.clock.wall_ms()).first_offset == end
    expected = read_all(source)
    source.close()
    again = PartitionLog.open(runtime, str(path / "codecs-0"), LogConfig())
    assert read_all(again) == expected
    again.close()


@pytest.mark.parametrize("repaired", [False, True])
def test_a_killed_broker_s_directory_is_recovered(written: Written, tmp_path: Path, repaired: bool) -> None:
    """Its indexes are still preallocated, and gaps that Kafka's compaction leaves between segments are not damage."""
    source = written.killed or written.left_cleanly
    runtime, path = copy_of(source, tmp_path / "data")

    def log_of(topic: str) -> PartitionLog:
        directory = str(path / f"{topic}-0")
        if repaired or topic == "compacted":
            assert repair_partition(runtime.disk, directory).lost_bytes == 0
        return PartitionLog.open(runtime, directory, LogConfig(), clean_shutdown=repaired or topic == "compacted")

    check_all(log_of, written.expected)
