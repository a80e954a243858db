"""What `raftwerk pipeline status` tells of a job's output: whether the job runs, its batches, and how much is unread.

It looks at the directory only: the lock that the job holds, its status file, and the checkpoint of its query.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import PipelineError
from ..output_directory import CHECKPOINT, IDENTITY, LOCK, STATUS, no_directory
from ..running_query import Place, parse_offsets, unread
from .status_file import JobStatus


@dataclass(frozen=True, slots=True)
class JobReport:
    """An output and its job. `status` is None for one that an older version wrote.

    `last_batch` is the last one that Spark has noted in the checkpoint as done, -1 before the first; `next_offsets` are
    those after it.
    """

    output: str
    job: str
    topics: tuple[str, ...]
    is_running: bool
    status: JobStatus | None
    last_batch: int
    next_offsets: Mapping[Place, int]

    @property
    def state(self) -> str:
        """Whether the job runs, and if not, how it ended."""
        status = self.status
        if self.is_running:
            return "running" if status is None else f"running as process {status.process_id} of {status.host}"
        if status is None:
            return "not running"
        if status.ending is None:
            return "not running: it was killed; started again, it goes on where it was"
        return f"not running: {status.ending}"

    @property
    def is_well(self) -> bool:
        """Whether the job runs, or ended as it was to."""
        if self.is_running or self.status is None:
            return True
        return self.status.ending is not None and not self.status.failed

    def unread(self, ends: Mapping[Place, int]) -> int:
        """How many offsets are between the checkpoint and the ends of the logs."""
        return unread(self.next_offsets, ends)


def read_report(output: str) -> JobReport:
    """What the directory tells. Raises `PipelineError` where no job has written."""
    path = output.removeprefix("file://")
    try:
        with open(os.path.join(path, *IDENTITY.split("/")), encoding="utf-8") as file:
            identity: dict[str, Any] = json.load(file)
        job, topics = str(identity["kind"]), tuple(map(str, identity["identity"]["topics"]))
    except (FileNotFoundError, NotADirectoryError):
        if _is_held(os.path.join(path, *LOCK.split("/"))):
            raise PipelineError(f"a job that writes to {output} is starting: ask again when Spark runs.") from None
        there = f"{output} was written by no job" if os.path.isdir(path) else no_directory(output, path)
        raise PipelineError(
            f"{there}: name the --output of lake, changes or windows, or the --state of mirror."
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PipelineError(f"{output} cannot be read: {error}.") from None
    last_batch, next_offsets = _checkpoint(os.path.join(path, *CHECKPOINT.split("/")))
    lock = os.path.join(path, *LOCK.split("/"))
    return JobReport(output, job, topics, _is_held(lock), _status(path), last_batch, next_offsets)


def _status(path: str) -> JobStatus | None:
    try:
        with open(os.path.join(path, *STATUS.split("/")), encoding="utf-8") as file:
            return JobStatus.parse(file.read())
    except (OSError, ValueError):
        return None


def _checkpoint(path: str) -> tuple[int, dict[Place, int]]:
    """The last batch that is noted as done, and the offsets that follow it."""
    try:
        last = max((int(name) for name in os.listdir(os.path.join(path, "commits")) if name.isdecimal()), default=-1)
        if last < 0:
            return -1, {}
        with open(os.path.join(path, "offsets", str(last)), encoding="utf-8") as file:
            return last, parse_offsets(file.read().splitlines()[2]) or {}
    except (OSError, ValueError, IndexError):
        return -1, {}


def _is_held(lock: str) -> bool:
    try:
        with open(lock, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
