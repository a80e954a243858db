"""Apache Kafka's dump tool reads every file that a node of ours has left, after real clients have filled it."""

from __future__ import annotations

import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from support.e2e import helpers, transactions
from support.e2e.clusters import start_cluster

from raftwerk.cluster.local.supervisor import Supervisor
from raftwerk.log.state.checkpoints import read_offsets
from raftwerk.runtime.files.real_disk import RealDisk

pytestmark = pytest.mark.java

SETTINGS = {
    "log.index.interval.bytes": "300",
    "log.cleaner.backoff.ms": "50",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "file.delete.delay.ms": "0",
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COMMIT_STATES, ABORT_STATES = ["0", "1", "2", "4"], ["0", "1", "3", "5"]
"""Empty, Ongoing, Prepare and Complete, by their ids in the records."""
GROUPS = tuple(f"group-{number}" for number in range(4))


class Left(NamedTuple):
    """A node's data directory, and how many records were produced to its topics."""

    data: Path
    produced: dict[str, int]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    supervisor = start_cluster(tmp_path_factory.mktemp("left"), 1, overrides=SETTINGS)
    try:
        produced = fill(supervisor)
        return Left(Path(supervisor.plan.node(1).data_dir), produced)
    finally:
        supervisor.stop()


def fill(supervisor: Supervisor) -> dict[str, int]:
    bootstrap, data = supervisor.plan.bootstrap, Path(supervisor.plan.node(1).data_dir)
    helpers.create_topic(bootstrap, "plain", 2, 1, segment_ms="1000")
    compacted = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", "segment_ms": "1000"}
    helpers.create_topic(bootstrap, "compacted", 1, 1, **compacted)
    now_ms = int(time.time() * 1000) - 3_600_000
    produced = Counter[str]()
    for turn in range(4):
        for codec in CODECS:
            now_ms += 400  # segments roll by the records' time
            settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": turn % 2 == 0}
            producer = Producer(settings)
            for number in range(60):
                headers: list[tuple[str, str | bytes | None]] = [("h", b"x"), ("null", None)] if number % 4 == 0 else []
                key = None if number % 5 == 0 else b"k%d" % number
                value = None if number % 7 == 3 else b"%d %d " % (turn, number) * (number % 9)
                producer.produce("plain", value, key, number % 2, timestamp=now_ms, headers=headers)
                producer.produce("compacted", value, b"k%d" % (number % 13), timestamp=now_ms)
                produced.update(("plain", "compacted"))
            assert producer.flush(30) == 0
    commit(bootstrap)
    write_transactions(bootstrap)
    active = max(int(file.stem) for file in (data / "compacted-0").glob("*.log"))
    wait_for(lambda: cleaned_up_to(data) >= active)
    return dict(produced)


def commit(bootstrap: str) -> None:
    """Offsets of many groups, one of which has joined as members do."""
    for group in GROUPS:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
        if group == GROUPS[0]:
            consumer.subscribe(["plain"])
            deadline = time.monotonic() + 30
            while not consumer.assignment() and time.monotonic() < deadline:
                consumer.poll(0.05)
        consumer.commit(offsets=[TopicPartition("plain", 0, 7), TopicPartition("plain", 1, 9)], asynchronous=False)
        consumer.close()


def write_transactions(bootstrap: str) -> None:
    """One that commits, and one that aborts."""
    helpers.create_topic(bootstrap, "transactional", 1, 1)
    for name in ("committed", "aborted"):
        writer = transactions.producer(bootstrap, name)
        writer.begin_transaction()
        writer.produce("transactional", name)
        assert writer.flush(30) == 0
        if name == "committed":
            writer.commit_transaction(30)
        else:
            writer.abort_transaction(30)


def cleaned_up_to(data: Path) -> int:
    checkpoint = str(data / "cleaner-offset-checkpoint")
    disk = RealDisk()
    return max((offset for tp, offset in read_offsets(disk, checkpoint).items() if tp.topic == "compacted"), default=0)


def wait_for(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the compacted topic was not compacted"
        time.sleep(0.02)


def dump(java: list[str], files: list[Path], *options: str) -> list[str]:
    assert files
    done = subprocess.run(
        [*java, "kafka.tools.DumpLogSegments", *options, "--files", ",".join(map(str, files))],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Exception" not in done.stdout + done.stderr
    return done.stdout.splitlines()


def records_in(lines: list[str]) -> dict[str, int]:
    """Records by the partition's directory, as the dump of several files tells them."""
    found = Counter[str]()
    partition = ""
    for line in lines:
        if line.startswith("Dumping "):
            partition = Path(line.removeprefix("Dumping ")).parent.name
        found[partition] += line.startswith("| offset:")
    return dict(found)


def test_every_batch_of_every_log_is_valid(java_command: list[str], left: Left) -> None:
    files = sorted(left.data.glob("*-*/*.log"))
    lines = dump(java_command, files, "--deep-iteration", "--print-data-log")
    batches = [line for line in lines if line.startswith("baseOffset:")]
    assert len(files) > 12
    assert all("isvalid: true" in line for line in batches)
    for codec in CODECS:
        assert any(f"compresscodec: {codec} " in line for line in batches)
    records = records_in(lines)
    assert records["plain-0"] + records["plain-1"] == left.produced["plain"]
    assert 0 < records["compacted-0"] < left.produced["compacted"] // 2


def test_every_index_is_sane_and_agrees_with_its_log(java_command: list[str], left: Left) -> None:
    files = sorted(left.data.glob("*-*/*.index")) + sorted(left.data.glob("*-*/*.timeindex"))
    sane = dump(java_command, files, "--index-sanity-check")
    judged = [line for line in sane if not line.startswith("Dumping ")]
    assert len(judged) == len(files)
    assert all("passed sanity check" in line or "is empty" in line for line in judged)
    verified = dump(java_command, files, "--verify-index-only")
    assert [line for line in verified if not re.match(r"Dumping |offset: |timestamp: |.* is empty", line)] == []


def test_every_producer_snapshot_is_read(java_command: list[str], left: Left) -> None:
    files = sorted(left.data.glob("*-*/*.snapshot"))
    lines = dump(java_command, files)
    assert sum(line.startswith("Dumping ") for line in lines) == len(files)
    assert [line for line in lines if not line.startswith(("Dumping ", "producerId: "))] == []
    assert any(line.startswith("producerId: ") for line in lines)


def test_committed_offsets_are_read(java_command: list[str], left: Left) -> None:
    files = sorted(left.data.glob("__consumer_offsets-*/*.log"))
    text = "\n".join(dump(java_command, files, "--offsets-decoder"))
    for group in GROUPS:
        for partition, offset in ((0, 7), (1, 9)):
            key = f'"group":"{group}","topic":"plain","partition":{partition}'
            assert re.search(re.escape(key) + rf'.*"offset":{offset}\b', text), f"{group} {partition}"
    assert '"protocolType":"consumer"' in text


def test_the_state_of_transactions_is_read(java_command: list[str], left: Left) -> None:
    files = sorted(left.data.glob("__transaction_state-*/*.log"))
    text = "\n".join(dump(java_command, files, "--transaction-log-decoder"))
    for name, states in {"committed": COMMIT_STATES, "aborted": ABORT_STATES}.items():
        lines = [line for line in text.splitlines() if f'"transactionalId":"{name}"' in line]
        found = [match[1] for line in lines if (match := re.search(r'"transactionStatus":(\d+)', line))]
        assert list(dict.fromkeys(found)) == states


def test_the_metadata_log_is_read(java_command: list[str], left: Left) -> None:
    """Its batches and control records are Kafka's; what the data records hold is ours."""
    directory = left.data / "__cluster_metadata-0"
    files = sorted(directory.glob("*.log")) + sorted(directory.glob("*.checkpoint"))
    lines = dump(java_command, files, "--deep-iteration")
    assert all("isvalid: true" in line for line in lines if line.startswith("baseOffset:"))
    assert any("LeaderChange" in line for line in lines)
