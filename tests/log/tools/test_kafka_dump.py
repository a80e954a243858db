"""Apache Kafka's own dump tool reads our files, and finds no fault."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest
from support.log.compacted_logs import Writer, drive
from support.log.kafka_written import kafka_libs
from support.log.logs import NOW_MS, headers_of, make_runtime, read_all

from raftwerk.log.cleaner.compaction import CleanPlan, clean
from raftwerk.log.config import LogConfig
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.log_manager_config import LogManagerConfig
from raftwerk.log.manager.meta_properties import format_dirs, random_id
from raftwerk.log.partition_log import PartitionLog
from raftwerk.runtime.files.real_disk import RealDisk
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.compression import Compression
from raftwerk.wire.records import encode_batch
from raftwerk.wire.types import TopicPartition

CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=500)


def dump(files: list[Path], *options: str) -> list[str]:
    """What the tool prints; the faults that it finds in indexes are on its standard error."""
    command = ["java", "-cp", kafka_libs(), "kafka.tools.DumpLogSegments", *options, "--files"]
    done = subprocess.run(
        [*command, ",".join(map(str, files))], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    noise = ("SLF4J", "Picked up JAVA_TOOL_OPTIONS")
    faults = [line for line in done.stderr.splitlines() if line and not line.startswith(noise)]
    return done.stdout.splitlines() + faults


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, int]:
    """A partition's directory of several segments with every codec; how many batches and records are in it."""
    simulated, _ = make_runtime()
    runtime = Runtime(RealDisk(), simulated.clock, simulated.rng)
    path = tmp_path_factory.mktemp("node")
    format_dirs(runtime, (str(path),), "MkU3OEVBNTcwNTJENDM2Qg", 1)
    manager = LogManager(runtime, LogManagerConfig((str(path),), "MkU3OEVBNTcwNTJENDM2Qg", 1, CONFIG))
    manager.load()
    log = manager.create(TopicPartition("t", 0), random_id(runtime))
    rng = random.Random(1)
    sequences = {5: 0, 6: 0}
    batches = 0
    while len(log.segments) < 4 or log.segments[-1].size_bytes < 5000:
        producer_id = rng.choice([5, 6])
        records = [
            (b"k%d" % number, rng.randbytes(rng.randint(0, 100)), (("h", b"x"),), NOW_MS + batches + rng.randint(-9, 9))
            for number in range(rng.randint(1, 5))
        ]
        data = encode_batch(
            records,
            compression=list(Compression)[batches % len(Compression)],
            producer_id=producer_id,
            producer_epoch=1,
            base_sequence=sequences[producer_id],
        )
        sequences[producer_id] += len(records)
        log.append_as_leader(memoryview(data), batches // 50, NOW_MS)
        batches += 1
    records_written = log.log_end_offset
    manager.shutdown()
    return path / "t-0", batches, records_written


@pytest.mark.java
def test_every_record_is_read(partition: tuple[Path, int, int]) -> None:
    directory, batches, records = partition
    lines = dump(sorted(directory.glob("*.log")), "--deep-iteration")
    assert sum(line.startswith("baseOffset:") for line in lines) == batches
    offsets = [int(match[1]) for line in lines if (match := re.match(r"\| offset: (\d+) ", line))]
    assert offsets == list(range(records))
    assert all("isvalid: true" in line for line in lines if line.startswith("baseOffset:"))


@pytest.mark.java
def test_every_index_agrees_with_its_log(partition: tuple[Path, int, int]) -> None:
    files = sorted(partition[0].glob("*index"))
    lines = dump(files, "--verify-index-only")
    assert len(files) == 8
    assert [line for line in lines if not re.match(r"Dumping |offset: |timestamp: ", line)] == []
    sane = dump(files, "--index-sanity-check")
    assert sum("passed sanity check" in line for line in sane) == len(files)


@pytest.mark.java
def test_every_producer_snapshot_is_read(partition: tuple[Path, int, int]) -> None:
    files = sorted(partition[0].glob("*.snapshot"))
    assert len(files) == 4
    for file in files:
        entries = [line for line in dump([file]) if line.startswith("producerId:")]
        last = {line.split()[1]: line for line in entries}
        assert sorted(last) == ["5", "6"]
        assert all("producerEpoch: 1 " in line for line in entries)


@pytest.mark.java
def test_compacted_segments_and_transaction_indexes_are_read(tmp_path: Path) -> None:
    simulated, _ = make_runtime()
    runtime = Runtime(RealDisk(), simulated.clock, simulated.rng)
    config = LogConfig(segment_bytes=5000, index_interval_bytes=200, cleanup_policy=("compact",))
    log = PartitionLog.open(runtime, str(tmp_path / "t-0"), config)
    last_of_producer = encode_batch(
        [(b"key0", b"v", (), NOW_MS + 99)], producer_id=9, producer_epoch=0, base_sequence=0
    )
    log.append_as_leader(memoryview(last_of_producer), 0, NOW_MS)
    Writer(log, 1).fill(6, transactional=True)
    aborted = len(log.aborted_transactions(0, log.log_end_offset))
    drive(clean(log, runtime.disk, CleanPlan(0, log.segments[-1].base_offset, NOW_MS, 1 << 20)))
    records = sum(header.record_count for header in headers_of(read_all(log)))
    log.close()
    files = sorted((tmp_path / "t-0").glob("*.log")) + sorted((tmp_path / "t-0").glob("*.txnindex"))
    lines = dump(files, "--deep-iteration")
    assert sum(line.startswith("| offset:") for line in lines) == records
    assert all("isvalid: true" in line for line in lines if line.startswith("baseOffset:"))
    assert sum("deleteHorizonMs: OptionalLong[" in line for line in lines) > 0
    assert 0 < sum(line.startswith("version: 0 producerId:") for line in lines) <= aborted
    indexes = [file for file in sorted((tmp_path / "t-0").glob("*index")) if file.suffix != ".txnindex"]
    verified = dump(indexes, "--verify-index-only")
    assert [line for line in verified if not re.match(r"Dumping |offset: |timestamp: |.* is empty", line)] == []
    assert not [
        line for line in dump(indexes, "--index-sanity-check") if not re.search("passed|Dumping|is empty", line)
    ]
