"""Inspection, verification and repair of files, without a node."""

from __future__ import annotations

import errno
import json
import os
import random
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from click.testing import CliRunner
from support.log.compacted_logs import COMPACT, Writer, drive, plan_of
from support.log.logs import DIRECTORY, SMALL, append, headers_of, make_runtime, open_log, read_all

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.cli.main import cli
from raftwerk.log.cleaner.compaction import clean
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.log_manager_config import LogManagerConfig
from raftwerk.log.manager.meta_properties import format_dirs
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.tools.inspection import describe, partition_dirs
from raftwerk.log.tools.repair import plan_repair, repair_partition
from raftwerk.log.tools.verification import verify_open_partition, verify_partition
from raftwerk.runtime.files.real_disk import RealDisk
from raftwerk.runtime.ports import Disk, Runtime
from raftwerk.wire.types import TopicPartition

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"


def closed_log() -> tuple[Runtime, SimDisk, bytes, list[int]]:
    runtime, disk = make_runtime()
    log = open_log(runtime)
    for number in range(40):
        append(log, 2, epoch=number // 15, producer_id=7, producer_epoch=0, base_sequence=2 * number)
    content, bases = read_all(log), [segment.base_offset for segment in log.segments]
    log.close()
    return runtime, disk, content, bases


def kinds(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {kind: sum(row["kind"] == kind for row in rows) for kind in dict.fromkeys(row["kind"] for row in rows)}


def test_everything_in_a_directory_is_described() -> None:
    _, disk, content, bases = closed_log()
    rows = list(describe(disk, DIRECTORY, with_records=True))
    counts = kinds(rows)
    assert (counts["batch"], counts["record"]) == (40, 80)
    assert counts["epoch"] == 3
    assert counts["producer"] == len(bases)
    assert counts["index"] > 3 <= counts["time_index"]
    assert [row["base_offset"] for row in rows if row["kind"] == "batch"] == [
        header.base_offset for header in headers_of(content)
    ]
    assert partition_dirs(disk, "/data") == [DIRECTORY] == partition_dirs(disk, DIRECTORY)
    json.dumps(rows)


def test_an_empty_segment_is_described_as_one() -> None:
    runtime, disk = make_runtime()
    open_log(runtime).close()
    (row,) = describe(disk, f"{DIRECTORY}/{0:020d}.log")
    assert (row["kind"], row["what"]) == ("empty", "the segment has no batches")


@pytest.mark.parametrize("name", ["quorum-state", "n1.log", "00000000000000000000.log.deleted", "other"])
def test_a_file_of_an_unknown_kind_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    for path, what in ((tmp_path / name, "is not"), (tmp_path, "has no file")):
        result = CliRunner().invoke(cli, ["log", "dump", str(path)])
        assert (result.exit_code, result.stdout) == (2, "")
        assert (
            f"{path} {what} of a kind that log dump shows, by these names: OFFSET followed by .log, " in result.stderr
        )
        assert result.stderr.endswith(", leader-epoch-checkpoint, partition.metadata, meta.properties\n")


def test_a_file_without_entries_is_said_to_have_none(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.index"
    path.write_bytes(b"")
    result = CliRunner().invoke(cli, ["log", "dump", str(path)])
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", f"{path} has no entries.\n")


def test_valid_logs_have_no_findings() -> None:
    _, disk, _, _ = closed_log()
    assert list(verify_partition(disk, DIRECTORY)) == []
    runtime, disk = make_runtime()
    log = open_log(runtime, COMPACT)
    Writer(log, 3).fill(6, transactional=True)
    drive(clean(log, disk, plan_of(log)))
    log.close()
    assert list(verify_partition(disk, DIRECTORY)) == []


def open_with_batches() -> tuple[PartitionLog, SimDisk]:
    runtime, disk = make_runtime()
    log = open_log(runtime)
    for _ in range(30):
        append(log, 2)
    return log, disk


def test_a_log_that_a_node_has_open_has_no_findings_though_the_last_indexes_are_in_memory() -> None:
    log, disk = open_with_batches()
    last = f"{DIRECTORY}/{log.segments[-1].base_offset:020d}"
    assert [one.file for one in verify_partition(disk, DIRECTORY)] == [f"{last}.index", f"{last}.timeindex"]
    disk.write_atomic(f"{last}.log.cleaned", b"")
    assert verify_open_partition(disk, DIRECTORY) == []
    disk.remove(f"{DIRECTORY}/{0:020d}.index")
    assert [one.file for one in verify_open_partition(disk, DIRECTORY)] == [f"{DIRECTORY}/{0:020d}.index"]


def test_damage_of_a_log_that_a_node_has_open_is_found() -> None:
    log, disk = open_with_batches()
    path = f"{DIRECTORY}/{log.segments[-1].base_offset:020d}.log"
    disk.flip_bit(path, 70, 1)
    (found,) = verify_open_partition(disk, DIRECTORY)
    assert (found.file, found.is_fatal) == (path, True)


class _WrittenMeanwhile:
    """A disk on which a batch is half written at the first look, and written whole at the next one."""

    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._rest = disk.read_bytes(path)[-20:]
        self._end = len(disk.read_bytes(path))
        disk.open(path).truncate(self._end - 20)
        self.looks = 0

    def listdir(self, path: str) -> list[str]:
        self.looks += 1
        if self.looks == 2:
            self._disk.open(self._path).pwrite(self._end - 20, self._rest)
        return self._disk.listdir(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)


def test_a_batch_that_a_node_is_writing_is_no_damage() -> None:
    log, disk = open_with_batches()
    writing = _WrittenMeanwhile(disk, f"{DIRECTORY}/{log.segments[-1].base_offset:020d}.log")
    assert verify_open_partition(cast(Disk, writing), DIRECTORY) == []
    assert writing.looks == 2
    unfinished = _WrittenMeanwhile(disk, f"{DIRECTORY}/{log.segments[-1].base_offset:020d}.log")
    unfinished.looks = 2
    assert [one.is_fatal for one in verify_open_partition(cast(Disk, unfinished), DIRECTORY)] == [True]


def test_a_partition_that_is_deleted_while_it_is_looked_at_has_no_findings() -> None:
    _, disk = open_with_batches()
    disk.remove_tree(DIRECTORY)
    assert verify_open_partition(disk, DIRECTORY) == []


@pytest.mark.parametrize("seed", range(25))
def test_damaged_batches_are_found_and_cut_off(seed: int) -> None:
    runtime, disk, content, bases = closed_log()
    rng = random.Random(seed)
    base = rng.choice(bases[:-1])
    path = f"{DIRECTORY}/{base:020d}.log"
    position = rng.randrange(len(disk.read_bytes(path)))
    if seed % 5 == 0:
        disk.open(path).truncate(position)
    else:
        disk.open(path).pwrite(position, bytes([disk.read_bytes(path)[position] ^ 0x55]))
    findings = list(verify_partition(disk, DIRECTORY))
    planned = plan_repair(disk, DIRECTORY)
    assert repair_partition(disk, DIRECTORY) == planned
    assert list(verify_partition(disk, DIRECTORY)) == []
    log = open_log(runtime, clean_shutdown=True)
    assert log.log_end_offset == planned.log_end_offset
    if findings:
        assert content.startswith(read_all(log))
    assert log.size_bytes == planned.kept_bytes
    if planned.lost_bytes and seed % 5:
        assert findings


def test_small_files_that_contradict_the_batches_are_found() -> None:
    def damage(name: str, data: bytes) -> list[str]:
        _, disk, _, _ = closed_log()
        disk.write_atomic(f"{DIRECTORY}/{name}", data)
        return [one.what for one in verify_partition(disk, DIRECTORY)]

    first = f"{0:020d}"
    assert "is not at position 77" in damage(f"{first}.index", b"\0\0\0\5\0\0\0\x4d")[0]
    assert "has not timestamp" in damage(f"{first}.timeindex", b"\0\0\0\0\0\0\0\5\0\0\0\1")[0]
    assert damage(f"{first}.txnindex", b"x" * 7) == ["7 bytes are no whole entries"]
    assert damage(f"{first}.snapshot", b"x" * 7) == ["7 bytes are too few"]
    assert "leader epoch 2 is said to start at 99" in damage("leader-epoch-checkpoint", b"0\n1\n2 99\n")[0]
    assert "does not parse" in damage("partition.metadata", b"x")[0]
    assert "left over" in damage(f"{first}.log.cleaned", b"")[0]


def test_the_commands(tmp_path: Path) -> None:
    simulated, _ = make_runtime()
    runtime = Runtime(RealDisk(), simulated.clock, simulated.rng)
    root = str(tmp_path / "node")
    format_dirs(runtime, (root,), CLUSTER, 1)
    manager = LogManager(runtime, LogManagerConfig((root,), CLUSTER, 1, SMALL))
    manager.load()
    log = manager.create(TopicPartition("t", 0), UUID(int=5))
    for _ in range(30):
        append(log, 2)
    runner = CliRunner()
    refused = runner.invoke(cli, ["log", "repair", root])
    assert refused.exit_code == 1
    assert "in use" in refused.output
    for directory in (root, f"{root}/t-0"):
        running = runner.invoke(cli, ["log", "verify", directory])
        assert running.exit_code == 0
        assert running.stdout == "1 partition checked, 0 damaged, 0 notes.\n"
        told = " ".join(running.stderr.split())
        assert told.startswith(f"Note: a node runs in {root} (process {os.getpid()}): it has the indexes of")
    manager.shutdown()
    rows = [
        json.loads(line)
        for line in runner.invoke(cli, ["log", "dump", root, "--records", "--json"]).output.splitlines()
    ]
    assert kinds(rows)["record"] == 60
    assert {"directory", "topic", "offset"} <= set(kinds(rows))
    text = runner.invoke(cli, ["log", "dump", f"{root}/t-0", "--records"]).output
    assert "  batch position=0 base_offset=0 last_offset=1 count=2" in text
    sound = runner.invoke(cli, ["log", "verify", root])
    assert (sound.exit_code, sound.output) == (0, "1 partition checked, 0 damaged, 0 notes.\n")
    with (Path(root) / "t-0" / f"{0:020d}.log").open("r+b") as file:
        file.seek(400)
        file.write(b"damage")
    damaged = runner.invoke(cli, ["log", "verify", root])
    assert damaged.exit_code == 1
    assert "DAMAGE" in damaged.output
    format_dirs(runtime, (other := str(tmp_path / "other"),), CLUSTER, 2)
    several = runner.invoke(cli, ["log", "verify", other, root, f"{root}/t-0"])
    assert (several.exit_code, several.output.splitlines()[-1]) == (1, damaged.output.splitlines()[-1])
    assert "is neither a node's log directory" in runner.invoke(cli, ["log", "verify", root, str(tmp_path)]).output
    both = runner.invoke(cli, ["log", "repair", f"{root}/t-0", root, other])
    assert both.exit_code == 0 and both.output.count("would be cut off") == 1
    assert "Nothing was changed" in runner.invoke(cli, ["log", "repair", root]).output
    assert runner.invoke(cli, ["log", "verify", root]).exit_code == 1
    assert "cut off" in runner.invoke(cli, ["log", "repair", root, "--execute"]).output
    assert "--execute" not in runner.invoke(cli, ["log", "repair", root]).output
    assert runner.invoke(cli, ["log", "verify", root]).exit_code == 0
    manager = LogManager(runtime, LogManagerConfig((root,), CLUSTER, 1, SMALL))
    manager.load()
    reopened = manager.get(TopicPartition("t", 0))
    assert isinstance(reopened, PartitionLog)
    assert 0 < reopened.log_end_offset < 60
    manager.shutdown()


def test_nothing_is_opened_for_writing_by_who_only_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated, _ = make_runtime()
    runtime = Runtime(RealDisk(), simulated.clock, simulated.rng)
    root = str(tmp_path / "node")
    format_dirs(runtime, (root,), CLUSTER, 1)
    manager = LogManager(runtime, LogManagerConfig((root,), CLUSTER, 1, SMALL))
    manager.load()
    append(manager.create(TopicPartition("t", 0), UUID(int=5)), 2)
    manager.shutdown()
    really = os.open

    def read_only(path: str, flags: int, *more: Any, **others: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return really(path, flags, *more, **others)

    monkeypatch.setattr("os.open", read_only)
    for words in (["dump", root, "--records"], ["dump", f"{root}/t-0/{0:020d}.log"], ["verify", root]):
        done = CliRunner().invoke(cli, ["log", *words])
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize("command", ["verify", "repair"])
def test_a_directory_without_logs_is_not_sound(command: str, tmp_path: Path) -> None:
    (tmp_path / "node-1" / "t-0").mkdir(parents=True)
    (tmp_path / "n1.log").write_text("the log of a node's process, which is no segment")
    refused = CliRunner().invoke(cli, ["log", command, str(tmp_path)])
    assert refused.exit_code == 2
    assert "neither a node's log directory" in refused.output
