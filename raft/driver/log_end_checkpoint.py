"""How far a voter's metadata log reached, noted outside of that log, so that a log that lost its end is found out.

A voter whose log was cut, emptied or replaced could help to elect a leader without committed records. Recovery cannot
tell such a log from a shorter one. So a voter notes the offset up to which it has committed records on its disk, from
time to time and when it stops. A clean stop also notes where the log ends, and in which epoch. That end counts at the
next start only, because later the log may be truncated. The file is in the log directory, beside the directory of the
metadata log, which may be emptied as a whole. Emptying the log directory removes both, like the loss of a disk.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass

from ...log.errors import StorageError
from ...log.tools.log_end import sound_end
from ...runtime.invariants import sometimes
from ...runtime.ports import Disk
from ..snapshots.snapshot_store import parse_snapshot_name
from .quorum_state_store import QuorumStateStore

LOG_END_FILE = "metadata-log-end-checkpoint"
WRITE_EVERY_S = 10.0
"""How often at most a voter notes its log's end while it runs, in seconds."""
_UNKNOWN = -1
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The contents of the file. `end_offset` is the end of the log at a clean stop, else -1."""

    epoch: int = 0
    committed_offset: int = 0
    end_offset: int = _UNKNOWN

    def encode(self) -> bytes:
        """The file's bytes."""
        fields = {
            "version": 0,
            "epoch": self.epoch,
            "committedOffset": self.committed_offset,
            "logEndOffset": self.end_offset,
        }
        return json.dumps(fields, separators=(",", ":")).encode()


def parse_log_end(data: bytes) -> LogEnd:
    """The contents of the file's bytes. Raises ValueError."""
    try:
        fields = json.loads(data)
        found = LogEnd(fields["epoch"], fields["committedOffset"], fields["logEndOffset"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{error!r} is missing or of a wrong type") from error
    if not all(type(value) is int for value in (found.epoch, found.committed_offset, found.end_offset)):
        raise ValueError("its values are not whole numbers")
    return found


@dataclass(frozen=True, slots=True)
class LostLogEnd:
    """A metadata log that does not reach as far as was noted: `what` has happened, and the way out."""

    what: str
    way_out: str

    def __str__(self) -> str:
        return f"{self.what}. {self.way_out[:1].upper()}{self.way_out[1:]}."


def lost_log_end(disk: Disk, directory: str) -> LostLogEnd | None:
    """Why a voter would not start with the metadata log in `directory`; None if it would. Nothing is changed.

    Raises `QuorumStateError`, and `OSError`.
    """
    log_dir = directory.rpartition("/")[0]
    noted = _read(disk, f"{log_dir}/{LOG_END_FILE}")  # first, as a node that runs appends to the log
    epoch = QuorumStateStore(disk, directory).read().epoch
    names = disk.listdir(directory) if disk.exists(directory) else []
    snapshots = [one.end_offset for one in map(parse_snapshot_name, names) if one is not None]
    end_offset = max(sound_end(disk, directory), *snapshots, 0)  # a log that ends before its snapshot begins there
    return _compared(noted, epoch, end_offset, directory)


def _compared(noted: LogEnd, epoch: int, end_offset: int, directory: str) -> LostLogEnd | None:
    """Compare the epoch of quorum-state and the log's end with what was noted."""
    stopped_at = noted.end_offset if epoch == noted.epoch else _UNKNOWN
    least = max(noted.committed_offset, stopped_at)
    if epoch < noted.epoch:
        what = f"quorum-state is of epoch {epoch}, and this voter was in epoch {noted.epoch}"
    elif end_offset < least:
        before = "it held committed records up to" if stopped_at == _UNKNOWN else "at its clean stop it ended at"
        what = f"the log ends at offset {end_offset}, and {before} {least}"
    else:
        return None
    return LostLogEnd(
        f"{directory} has lost what this voter must know: {what}",
        f"restore the directory, or, while a majority of the other controllers runs, empty "
        f"{directory.rpartition('/')[0]} and format it again: the node then fetches all from them",
    )


def _read(disk: Disk, path: str) -> LogEnd:
    if not disk.exists(path):
        return LogEnd()
    try:
        return parse_log_end(disk.read_bytes(path))
    except ValueError as error:
        _logger.warning("%s cannot be read (%s): the end of the metadata log is not checked", path, error)
        return LogEnd()


class LogEndCheckpoint:
    """Checks the metadata log in `directory` at its start, and notes how far it reaches."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._path = f"{directory.rpartition('/')[0]}/{LOG_END_FILE}"
        self.noted = LogEnd()
        """What was noted last, though it may not be on the disk yet."""
        self._written_s = float("-inf")

    def check(self, epoch: int, end_offset: int) -> None:
        """Compare the epoch of quorum-state and the log's end with what was noted. `StorageError`, `OSError`."""
        noted = self.noted = _read(self._disk, self._path)
        lost = _compared(noted, epoch, end_offset, self._directory)
        if lost is not None:
            sometimes(True, "a voter did not start because its metadata log had lost its end")
            raise StorageError(str(lost))
        if noted.end_offset != _UNKNOWN:
            self._write(LogEnd(noted.epoch, noted.committed_offset))

    def note_committed(self, epoch: int, committed_offset: int) -> None:
        """Note from time to time, without blocking the loop, up to where committed records are durable here."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._written_s + WRITE_EVERY_S or committed_offset <= self.noted.committed_offset:
            return
        self._written_s = now_s
        self.noted = LogEnd(epoch, committed_offset)
        self._disk.write_atomic_soon(self._path, self.noted.encode()).add_done_callback(_log_failure)

    def note_stop(self, epoch: int, committed_offset: int, end_offset: int) -> None:
        """Durably note where the closed log ends. `OSError`."""
        committed = max(committed_offset, self.noted.committed_offset)
        self._write(LogEnd(epoch, min(committed, end_offset), end_offset))

    def _write(self, end: LogEnd) -> None:
        self._disk.write_atomic(self._path, end.encode())
        self.noted = end


def _log_failure(written: asyncio.Future[None]) -> None:
    if not written.cancelled() and (error := written.exception()) is not None:
        _logger.warning("the end of the metadata log was not noted, and is noted later: %s", error)
