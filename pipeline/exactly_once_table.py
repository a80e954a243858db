"""A Parquet table that a streaming query writes exactly once, on any file system that can rename a file.

The directories are plain partitioned Parquet. Beside them, `_table/` holds a log of commits, one JSON file each: the
files that the commit adds, the files that it removes, and numbers to add up (`facts`). A batch is first written to a
staging directory. The creation of its commit file commits it. Then its files are renamed into the directories. A crash
before the commit leaves nothing that a reader sees; after a crash behind it, the next writer completes the renames. A
batch that Spark repeats after a restart is already in the log, and is skipped.

A reader of the directories alone sees the files of a batch appear one by one, and may see records twice for a moment
while small files are merged. `read_table` follows the log and sees neither.
"""

from __future__ import annotations

import json
import os
import posixpath
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .errors import PipelineError, WrongOptionError
from .hadoop_files import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = 1
META = "_table"
_IDENTITY = f"{META}/table.json"
_COMMITS = f"{META}/commits"
_STAGING = f"{META}/staging"
CHECKPOINT = f"{META}/checkpoint"
_SNAPSHOT = "snapshot-"
_COMMIT = "commit-"
_READ_RETRY_S = 0.1
_READ_TIMEOUT_S = 10.0

Reducer = Callable[["DataFrame"], "DataFrame"]


@dataclass
class TableState:
    """The state after all commits: live files with their sizes in bytes, the last batch, and the sums of the facts."""

    sequence: int = -1
    last_batch: int = -1
    files: dict[str, int] = field(default_factory=dict)
    facts: dict[str, int] = field(default_factory=dict)

    def apply(self, commit: Mapping[str, Any]) -> None:
        """Apply one commit."""
        self.sequence = commit["sequence"]
        self.last_batch = max(self.last_batch, commit["batch"])
        for path in commit["removes"]:
            self.files.pop(path, None)
        for add in commit["adds"]:
            self.files[add["path"]] = add["bytes"]
        for name, number in commit["facts"].items():
            self.facts[name] = self.facts.get(name, 0) + number

    @staticmethod
    def of_snapshot(snapshot: Mapping[str, Any]) -> TableState:
        """The state that a snapshot file holds."""
        return TableState(
            snapshot["sequence"], snapshot["last_batch"], dict(snapshot["files"]), dict(snapshot["facts"])
        )


class ParquetTable:
    """A table, open for its only writer. `identity` says what it holds; a table with another identity is refused."""

    def __init__(self, spark: SparkSession, root: str, kind: str, identity: Mapping[str, Any]) -> None:
        self.spark = spark
        self.files = HadoopFiles(spark, root)
        self.root = self.files.root
        self.state = load_table_state(self.files)
        self._open(kind, dict(identity))
        self._finish_last_commit()

    @property
    def checkpoint(self) -> str:
        """The checkpoint location of the streaming query that writes this table."""
        return self.files.full(CHECKPOINT)

    def last_offsets(self) -> dict[str, dict[str, int]]:
        """The end offsets of the last batch in the table, by topic and partition, from the checkpoint."""
        if self.state.last_batch < 0:
            return {}
        lines = self.files.read_text(f"{CHECKPOINT}/offsets/{self.state.last_batch}").splitlines()
        whole: dict[str, dict[str, int]] = json.loads(lines[2])
        return whole

    def committed(self, batch: int) -> bool:
        """Whether the table holds a batch of the stream."""
        return batch <= self.state.last_batch

    def commit(
        self, batch: int, rows: DataFrame, partition_by: Sequence[str], facts: Callable[[], Mapping[str, int]]
    ) -> None:
        """Write and commit a batch, unless the table holds it already. `facts` is called after the rows are written."""
        if self.committed(batch):
            return
        moves = self._stage(rows, partition_by, f"b{batch:010d}")
        self._commit(batch, moves, [], facts())

    def compact(self, small_bytes: int, *, reduce: Reducer | None = None, min_files: int = 4) -> int:
        """Merge the small files of each partition directory into one, in one commit. Returns how many it removed.

        `reduce` may drop rows that later rows of the directory replace. With it, all files are merged, also large ones.
        """
        groups: dict[str, list[str]] = {}
        for path, size in self.state.files.items():
            if reduce is not None or size < small_bytes:
                groups.setdefault(posixpath.dirname(path), []).append(path)
        paths = sorted(path for group in groups.values() if len(group) >= min_files for path in group)
        if not paths:
            return 0
        columns = partition_columns(posixpath.dirname(paths[0]))
        with _names_as_text(self.spark):
            rows = self._rows(paths)
        rows = reduce(rows) if reduce is not None else rows
        rows = rows.repartition(*columns) if columns else rows.coalesce(1)
        moves = self._stage(rows, columns, f"c{self.state.sequence + 1:010d}")
        self._commit(-1, moves, paths, {})
        self._snapshot()
        return len(paths)

    def read(self) -> DataFrame:
        """The rows as of the last commit."""
        return self._rows(sorted(self.state.files))

    # -- within

    def _open(self, kind: str, identity: dict[str, Any]) -> None:
        wanted = {"format": FORMAT, "kind": kind, "identity": identity}
        if not self.files.exists(_IDENTITY):
            foreign = [name for name in self.files.names("") if name[:1] not in "._"]
            if foreign:
                raise _foreign(self.root, foreign[0])
            self.files.write_json(_IDENTITY, wanted)
            return
        there = self.files.read_json(_IDENTITY)
        if there != wanted and self.state.sequence < 0:
            self.files.delete(CHECKPOINT)
            self.files.write_json(_IDENTITY, wanted)
            return
        _check_identity(self.root, there, kind, identity)

    def _finish_last_commit(self) -> None:
        """Complete the last commit after a crash, and delete what was never committed."""
        names = [name for name in self.files.names(_COMMITS) if name.startswith(_COMMIT)]
        if names:
            self._roll_forward(self.files.read_json(f"{_COMMITS}/{names[-1]}"))
        self.files.delete(_STAGING)
        if self.state.last_batch >= 0 and not self.files.names(f"{CHECKPOINT}/offsets"):
            raise PipelineError(
                f"{self.root} holds batches up to {self.state.last_batch}, and its checkpoint {self.checkpoint} is "
                "gone, so nobody knows where to go on: restore it, or name another output."
            )

    def _stage(self, rows: DataFrame, partition_by: Sequence[str], mark: str) -> list[dict[str, Any]]:
        """Write rows to the staging directory. Returns the renames that a commit will make."""
        staging = f"{_STAGING}/{mark}"
        self.files.delete(staging)
        writer = rows.write.mode("overwrite")
        if partition_by:
            writer = writer.partitionBy(*partition_by)
        writer.parquet(self.files.full(staging))
        moves = []
        for number, path in enumerate(self.files.tree(staging, ".parquet")):
            target = posixpath.join(posixpath.dirname(path), f"part-{mark}-{number:05d}.parquet")
            size = self.files.size(f"{staging}/{path}")
            moves.append({"from": f"{staging}/{path}", "path": target, "bytes": size})
        return moves

    def _commit(self, batch: int, adds: list[dict[str, Any]], removes: list[str], facts: Mapping[str, int]) -> None:
        sequence = self.state.sequence + 1
        commit = {"sequence": sequence, "batch": batch, "adds": adds, "removes": removes, "facts": dict(facts)}
        self.files.write_json(f"{_COMMITS}/{_COMMIT}{sequence:012d}.json", commit)
        self._roll_forward(commit)
        self.state.apply(commit)

    def _roll_forward(self, commit: Mapping[str, Any]) -> None:
        for add in commit["adds"]:
            if not self.files.exists(add["path"]):
                self.files.rename(add["from"], add["path"])
        for path in commit["removes"]:
            self.files.delete(path)
        self.files.delete(_STAGING)

    def _snapshot(self) -> None:
        """Write the state as a snapshot and delete the older commits. The last commit stays: it may be incomplete."""
        state = self.state
        whole = {
            "sequence": state.sequence,
            "last_batch": state.last_batch,
            "files": state.files,
            "facts": state.facts,
        }
        name = f"{_SNAPSHOT}{state.sequence:012d}.json"
        self.files.write_json(f"{_COMMITS}/{name}", whole)
        for other in self.files.names(_COMMITS):
            if other < f"{_COMMIT}{state.sequence:012d}.json" or (other.startswith(_SNAPSHOT) and other < name):
                self.files.delete(f"{_COMMITS}/{other}")

    def _rows(self, paths: Sequence[str]) -> DataFrame:
        return _read_paths(self.spark, self.files, paths)


def check_local_table(root: str, kind: str, identity: Mapping[str, Any], master: str) -> None:
    """`PipelineError` for a directory that a `ParquetTable` will refuse, as far as it can be seen without Spark.

    That is a directory of this machine; only Spark reaches all others.
    """
    if not root:
        raise WrongOptionError("the name of the directory is empty: name one.")
    path = root.removeprefix("file://") if root.startswith("file:///") else root
    if ":" in path.partition("/")[0] or (path == root and not _is_on_this_machine(master)):
        return
    above = os.path.abspath(path)
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    if not os.path.isdir(above):
        where = f"{root} is a file" if above == os.path.abspath(path) else f"{above}, which is above {root}, is a file"
        raise PipelineError(f"{where}, and the output is a directory: name another.")
    if not os.access(above, os.W_OK | os.X_OK):
        raise PipelineError(f"{root} cannot be written: the directory {above} takes no files of this user.")
    try:
        with open(os.path.join(path, *_IDENTITY.split("/")), encoding="utf-8") as file:
            there = json.load(file)
        commits = os.path.join(path, *_COMMITS.split("/"))
        if os.path.isdir(commits) and any(name[:1] != "." for name in os.listdir(commits)):
            _check_identity(root, there, kind, identity)
    except FileNotFoundError:
        foreign = sorted(name for name in os.listdir(path) if name[:1] not in "._") if os.path.isdir(path) else []
        if foreign:
            raise _foreign(root, foreign[0]) from None
    except (OSError, ValueError):
        return  # Spark tells what it finds there


def _is_on_this_machine(master: str) -> bool:
    """Whether Spark takes a path without a scheme for one of this machine; Hadoop's settings may say otherwise."""
    settings = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_GATEWAY_PORT")
    return master.startswith("local") and not any(name in os.environ for name in settings)


def _check_identity(root: str, there: Mapping[str, Any], kind: str, identity: Mapping[str, Any]) -> None:
    if there.get("format") != FORMAT or there.get("kind") != kind:
        raise PipelineError(f"{root} is a table of kind {there.get('kind')}, not {kind}: name another output.")
    for name, value in identity.items():
        before = there.get("identity", {}).get(name)
        if before != value:
            raise PipelineError(
                f"{root} was begun with {name} {_show(before)}, and this is {_show(value)}: "
                "go on with the same, or name another output."
            )


def _foreign(root: str, name: str) -> PipelineError:
    return PipelineError(f"{root} holds {name}, which this job did not write: name an empty directory.")


@contextmanager
def _names_as_text(spark: SparkSession) -> Iterator[None]:
    """Read the values in directory names as text: `007` must not become the number 7."""
    name = "spark.sql.sources.partitionColumnTypeInference.enabled"
    before = spark.conf.get(name)
    spark.conf.set(name, "false")
    try:
        yield
    finally:
        spark.conf.set(name, str(before))


def partition_columns(directory: str) -> list[str]:
    """The columns in a directory's name: `topic` and `date` for `topic=flights/date=2013-01-01`."""
    return [part.partition("=")[0] for part in directory.split("/") if "=" in part]


def load_table_state(files: HadoopFiles) -> TableState:
    """The state of a table, from its last snapshot and the commits after it."""
    names = files.names(_COMMITS)
    snapshots = [name for name in names if name.startswith(_SNAPSHOT)]
    state = TableState.of_snapshot(files.read_json(f"{_COMMITS}/{snapshots[-1]}")) if snapshots else TableState()
    for name in names:
        if name.startswith(_COMMIT) and name > f"{_COMMIT}{state.sequence:012d}.json":
            state.apply(files.read_json(f"{_COMMITS}/{name}"))
    return state


def read_table(spark: SparkSession, root: str) -> DataFrame:
    """The rows of a table as of its last commit, also while its writer runs. `PipelineError` when there is no table."""
    files = HadoopFiles(spark, root)
    if not files.exists(_IDENTITY):
        raise PipelineError(f"{root} is no table of these jobs: it has no {_IDENTITY}.")
    deadline = time.monotonic() + _READ_TIMEOUT_S
    while True:
        paths = sorted(load_table_state(files).files)
        missing = [path for path in paths if not files.exists(path)]
        if not missing:
            return _read_paths(spark, files, paths)
        if time.monotonic() > deadline:
            raise PipelineError(
                f"{files.full(missing[0])} is in the table's log and not there: a writer stopped between commit and "
                "rename; start the job once more, it completes this first."
            )
        time.sleep(_READ_RETRY_S)


def _read_paths(spark: SparkSession, files: HadoopFiles, paths: Sequence[str]) -> DataFrame:
    if not paths:
        raise PipelineError(f"{files.root} holds no rows yet.")
    return (
        spark.read.option("basePath", files.root)
        .option("mergeSchema", "true")
        .parquet(*(files.full(path) for path in paths))
    )


def _show(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
