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
from ...runtime.invariants import sometimes
from ...runtime.ports import Disk

LOG_END_FILE = "metadata-log-end-checkpoint"
_WRITE_EVERY_S = 10.0
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


class LogEndCheckpoint:
    """Checks the metadata log in `directory` at its start, and notes how far it reaches."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._log_dir = directory.rpartition("/")[0]
        self._path = f"{self._log_dir}/{LOG_END_FILE}"
        self._written = LogEnd()
        self._written_s = float("-inf")

    def check(self, epoch: int, end_offset: int) -> None:
        """Compare the epoch of quorum-state and the log's end with what was noted. `StorageError`, `OSError`."""
        noted = self._written = self._read()
        if epoch < noted.epoch:
            self._refuse(f"quorum-state is of epoch {epoch}, and this voter was in epoch {noted.epoch}")
        stopped_at = noted.end_offset if epoch == noted.epoch else _UNKNOWN
        if end_offset < max(noted.committed_offset, stopped_at):
            what = "it held committed records up to" if stopped_at == _UNKNOWN else "at its clean stop it ended at"
            self._refuse(f"the log ends at offset {end_offset}, and {what} {max(noted.committed_offset, stopped_at)}")
        if noted.end_offset != _UNKNOWN:
            self._write(LogEnd(noted.epoch, noted.committed_offset))

    def note_committed(self, epoch: int, committed_offset: int) -> None:
        """Note from time to time, without blocking the loop, up to where committed records are durable here."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._written_s + _WRITE_EVERY_S or committed_offset <= self._written.committed_offset:
            return
        self._written_s = now_s
        self._written = LogEnd(epoch, committed_offset)
        self._disk.write_atomic_soon(self._path, self._written.encode()).add_done_callback(_log_failure)

    def note_stop(self, epoch: int, committed_offset: int, end_offset: int) -> None:
        """Durably note where the closed log ends. `OSError`."""
        committed = max(committed_offset, self._written.committed_offset)
        self._write(LogEnd(epoch, min(committed, end_offset), end_offset))

    def _write(self, end: LogEnd) -> None:
        self._disk.write_atomic(self._path, end.encode())
        self._written = end

    def _read(self) -> LogEnd:
        if not self._disk.exists(self._path):
            return LogEnd()
        try:
            return parse_log_end(self._disk.read_bytes(self._path))
        except ValueError as error:
            _logger.warning("%s cannot be read (%s): the end of the metadata log is not checked", self._path, error)
            return LogEnd()

    def _refuse(self, what: str) -> None:
        sometimes(True, "a voter did not start because its metadata log had lost its end")
        raise StorageError(
            f"{self._directory} has lost what this voter must know: {what}. Restore the directory, or, while a majority"
            f" of the other controllers runs, empty {self._log_dir} and format it again: the node then fetches all"
            " from them."
        )


def _log_failure(written: asyncio.Future[None]) -> None:
    if not written.cancelled() and (error := written.exception()) is not None:
        _logger.warning("the end of the metadata log was not noted, and is noted later: %s", error)
