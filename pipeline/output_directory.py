"""The output directory of a streaming job: what the job wrote there and reads, and the checkpoint of its query.

`_job/job.json` says what the output holds; a job that would write something else there is refused. Beside it are the
checkpoint and, on this machine's disks, a lock. Readers of tables skip names that begin with an underscore.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from ..runtime.files.file_lock import lock_within
from ..runtime.os_errors import os_words
from .errors import PipelineError, WrongOptionError
from .hadoop_files import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = 2
META = "_job"
IDENTITY = f"{META}/job.json"
CHECKPOINT = f"{META}/checkpoint"
DELETED = f"{META}/deleted"
"""Where `changes` remembers the keys that were deleted, with their places in the database's log."""
LOCK = f"{META}/lock"
STATUS = f"{META}/status.json"
"""What the job that runs, or ran last, says of itself."""
_LOOK_S = 1.0
"""The longest for which `pipeline status` may hold the lock, on a machine that is busy."""
_OF_UNWRITTEN_TABLES = ("metadata", "data", "_delta_log")
"""What a table has that was not written to yet, which is made anew with the columns of the job."""
_EARLIER = "_table"
"""What a table of version 1 has, whose log of commits nobody writes any more."""


class OutputDirectory:
    """The directory, open for its only writer. `identity` says what it holds; one with another identity is refused.

    `is_written` tells whether a batch was written to the table there. Before that, it is made anew at each start, and
    another identity begins the output anew.
    """

    def __init__(
        self, spark: SparkSession, root: str, kind: str, identity: Mapping[str, Any], is_written: Callable[[], bool]
    ) -> None:
        self.files = HadoopFiles(spark, root)
        self.root = self.files.root
        self._open({"format": FORMAT, "kind": kind, "identity": dict(identity)}, is_written)

    @property
    def checkpoint(self) -> str:
        """The checkpoint location of the streaming query that writes here."""
        return self.files.full(CHECKPOINT)

    def query_id(self) -> str:
        """The id of the query, which Spark keeps in its checkpoint and gives to no other."""
        return str(self.files.read_json(f"{CHECKPOINT}/metadata")["id"])

    def last_batch(self) -> int:
        """The last batch that Spark has noted as done, -1 before the first."""
        names = [name for name in self.files.names(f"{CHECKPOINT}/commits") if name.isdecimal()]
        return max(map(int, names), default=-1)

    def offsets_of(self, batch: int) -> dict[str, dict[str, int]]:
        """The end offsets of a batch, by topic and partition."""
        lines = self.files.read_text(f"{CHECKPOINT}/offsets/{batch}").splitlines()
        whole: dict[str, dict[str, int]] = json.loads(lines[2])
        return whole

    def _open(self, wanted: dict[str, Any], is_written: Callable[[], bool]) -> None:
        if not self.files.exists(IDENTITY):
            _check_foreign(self.root, self.files.names(""))
            self.files.write_json(IDENTITY, wanted)
            return
        there = self.files.read_json(IDENTITY)
        if not is_written():
            for name in _OF_UNWRITTEN_TABLES:
                self.files.delete(name)
            if there != wanted:
                self.files.delete(CHECKPOINT)
                self.files.delete(DELETED)  # places in the log of another database
                self.files.write_json(IDENTITY, wanted)
            return
        _check_identity(self.root, there, wanted)
        if not self.files.names(f"{CHECKPOINT}/offsets"):
            raise PipelineError(
                f"{self.root} was written, and its checkpoint {self.checkpoint} is gone, so nobody knows where to go "
                "on: restore it, or name another output."
            )


@contextmanager
def locked(root: str, master: str) -> Iterator[None]:
    """Hold the lock of an output on this machine's disk; `PipelineError` when another process holds it.

    A rename of a local disk replaces a file, so two processes that commit to a table at once could lose a commit. On
    other file systems the table's format keeps them apart. A job that ends before it has begun its output leaves
    nothing there.
    """
    path = local_path(root, master)
    if path is None:
        yield
        return
    made = _missing_directories(path)
    with _lock_held(root, path):
        try:
            yield
        finally:
            if not os.path.exists(os.path.join(path, IDENTITY)):
                _remove_traces(path, made)


@contextmanager
def _lock_held(root: str, path: str) -> Iterator[None]:
    while True:
        with _lock_file(root, path) as file:
            try:
                lock_within(file, _LOOK_S)
            except BlockingIOError:
                raise PipelineError(
                    f"another job writes to {root}: end one of the two, the other goes on where it was; or name "
                    "another output for this one."
                ) from None
            except OSError as error:
                raise _unwritable(root, error) from None
            if os.fstat(file.fileno()).st_nlink:  # otherwise who had the lock has removed the file
                yield
                return


def _lock_file(root: str, path: str) -> BinaryIO:
    """The open file that is locked, which is made with its directory if it is not there."""
    try:
        os.makedirs(os.path.join(path, META), exist_ok=True)
        return open(os.path.join(path, LOCK), "ab")
    except OSError as error:
        raise _unwritable(root, error) from None


def _remove_traces(path: str, made: Sequence[str]) -> None:
    for name in (STATUS, LOCK):
        with suppress(OSError):
            os.remove(os.path.join(path, name))
    for directory in made:
        with suppress(OSError):  # another job writes there by now
            os.rmdir(directory)


def _missing_directories(path: str) -> list[str]:
    """The directories that an output at this path lacks, the innermost first."""
    missing = []
    directory = os.path.join(os.path.abspath(path), META)
    while not os.path.lexists(directory):
        missing.append(directory)
        directory = os.path.dirname(directory)
    return missing


def _unwritable(root: str, error: OSError) -> PipelineError:
    return PipelineError(f"cannot write in {root} ({os_words(error)}): name another directory, or mend its rights.")


def check_local_table(root: str, master: str) -> None:
    """`PipelineError` where a table to read is to be in a directory of this machine, and there is none."""
    path = local_path(root, master)
    if path is not None and not os.path.isdir(path):
        raise PipelineError(f"{no_directory(root, path)}: name the --output of lake, changes or windows.")


def no_directory(root: str, path: str) -> str:
    """What to say of a path of this machine that is no directory."""
    return f"{root} is a file" if os.path.exists(path) else f"there is no directory {root} on this machine"


def check_local_output(root: str, kind: str, identity: Mapping[str, Any], master: str) -> None:
    """`PipelineError` for a directory that an `OutputDirectory` will refuse, as far as it can be seen without Spark.

    That is a directory of this machine; only Spark reaches all others.
    """
    if not root:
        raise WrongOptionError("the name of the directory is empty: name one.")
    path = local_path(root, master)
    if path is None:
        return
    above = os.path.abspath(path)
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    if not os.path.isdir(above):
        where = f"{root} is a file" if above == os.path.abspath(path) else f"{above}, which is above {root}, is a file"
        raise PipelineError(f"{where}, and the output is a directory: name another.")
    if not os.access(above, os.W_OK | os.X_OK):
        raise PipelineError(f"{root} cannot be written: the directory {above} takes no files of this user.")
    _check_can_be_made(root, path)
    try:
        with open(os.path.join(path, *IDENTITY.split("/")), encoding="utf-8") as file:
            there = json.load(file)
        commits = os.path.join(path, *CHECKPOINT.split("/"), "commits")
        if os.path.isdir(commits) and any(name[:1] != "." for name in os.listdir(commits)):
            _check_identity(root, there, {"format": FORMAT, "kind": kind, "identity": dict(identity)})
    except FileNotFoundError:
        _check_foreign(root, sorted(os.listdir(path)) if os.path.isdir(path) else [])
    except (OSError, ValueError):
        return  # Spark tells what it finds there


def _check_can_be_made(root: str, path: str) -> None:
    """Make the directory and remove it again, since a job that ends before Spark has started leaves nothing."""
    missing = _missing_directories(path)
    try:
        for one in reversed(missing):
            os.makedirs(one, exist_ok=True)
    except OSError as error:
        raise _unwritable(root, error) from None
    finally:
        for one in missing:
            with suppress(OSError):  # it is not there, or another job writes there by now
                os.rmdir(one)


def local_path(root: str, master: str) -> str | None:
    """The path of a directory of this machine, None for a URL, and for a path that Spark may take for another's."""
    path = root.removeprefix("file://") if root.startswith("file:///") else root
    if ":" in path.partition("/")[0] or (path == root and not _is_on_this_machine(master)):
        return None
    return path


def _is_on_this_machine(master: str) -> bool:
    """Whether Spark takes a path without a scheme for one of this machine; Hadoop's settings may say otherwise."""
    settings = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_GATEWAY_PORT")
    return master.startswith("local") and not any(name in os.environ for name in settings)


def _check_foreign(root: str, names: list[str]) -> None:
    if _EARLIER in names:
        raise PipelineError(
            f"{root} holds a table of an earlier version, whose directories stay readable as plain Parquet: name "
            "another output, which begins with the earliest record."
        )
    foreign = [name for name in names if name[:1] not in "._"]
    if foreign:
        raise PipelineError(f"{root} holds {foreign[0]}, which this job did not write: name an empty directory.")


def _check_identity(root: str, there: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    kind = wanted["kind"]
    if there.get("format") != wanted["format"] or there.get("kind") != kind:
        raise PipelineError(f"{root} is a table of kind {there.get('kind')}, not {kind}: name another output.")
    for name, value in wanted["identity"].items():
        before = there.get("identity", {}).get(name)
        if before != value:
            raise PipelineError(
                f"{root} was begun with {name} {_show(before)}, and this is {_show(value)}: "
                "go on with the same, or name another output."
            )


def _show(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
