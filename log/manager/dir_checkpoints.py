"""The offset checkpoints of one log directory, each with what stands on disk, so that only changes are written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Mapping

from ...runtime.ports import Disk
from ...wire.types import TopicPartition
from ..errors import CorruptFileError, is_no_space
from ..state.checkpoints import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    read_offsets,
    render_offsets,
)

_logger = logging.getLogger(__name__)


class OffsetCheckpoint:
    """One checkpoint file. An unreadable one counts as empty, which is always safe: more is checked or fetched."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._under_way: dict[TopicPartition, int] | None = None
        self.was_unreadable = False
        """Whether what it held is not known."""
        try:
            self._on_disk = read_offsets(disk, path)
        except CorruptFileError as error:
            _logger.warning("%s It counts as empty.", error)
            self._on_disk = {}
            self.was_unreadable = True

    @property
    def offsets(self) -> Mapping[TopicPartition, int]:
        """What the file holds for certain."""
        return self._on_disk

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Durably replace the contents, whatever is under way. `OSError`."""
        if offsets != self._on_disk or self._under_way is not None or not self._disk.exists(self._path):
            self._under_way = None
            self._disk.write_atomic(self._path, render_offsets(offsets))
            self._on_disk = dict(offsets)

    def write_soon(self, offsets: Mapping[TopicPartition, int], on_failed: Callable[[OSError], None]) -> None:
        """Begin to replace the contents, unless a write is under way: then the next call makes up for it.

        An fsync beside a busy disk takes a tenth of a second, which no request should wait for. A full disk is no
        failure: what the file holds is right, if old.
        """
        if self._under_way is not None or (offsets == self._on_disk and self._disk.exists(self._path)):
            return
        written = self._under_way = dict(offsets)

        def done(future: asyncio.Future[None]) -> None:
            error = None if future.cancelled() else future.exception()
            if self._under_way is not written:
                return
            self._under_way = None
            if isinstance(error, OSError) and is_no_space(error):
                _logger.warning("%s stays as it is, and is written when there is space: %s", self._path, error)
            elif isinstance(error, OSError):
                on_failed(error)
            elif error is None and not future.cancelled():
                self._on_disk = written

        self._disk.write_atomic_soon(self._path, render_offsets(offsets)).add_done_callback(done)

    def lower(self, tp: TopicPartition, offset: int) -> None:
        """Durably make `tp`'s offset `offset` at most. `OSError`."""
        newest = self._newest()
        if max(self._on_disk.get(tp, 0), newest.get(tp, 0)) > offset:
            self.write({**newest, tp: min(offset, newest.get(tp, 0))})

    def forget_all_but(self, kept: Container[TopicPartition], tp: TopicPartition) -> None:
        """Durably drop `tp`: a former topic of the same name; and, as such seldom come alone, all but `kept`.
        `OSError`."""
        newest = self._newest()
        if tp in self._on_disk or tp in newest:
            self.write({other: offset for other, offset in newest.items() if other in kept})

    def _newest(self) -> Mapping[TopicPartition, int]:
        return self._on_disk if self._under_way is None else self._under_way


class DirCheckpoints:
    """The four offset checkpoints of a log directory."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.recovery_points = OffsetCheckpoint(disk, f"{path}/{RECOVERY_POINT_FILE}")
        self.high_watermarks = OffsetCheckpoint(disk, f"{path}/{HIGH_WATERMARK_FILE}")
        self.log_start_offsets = OffsetCheckpoint(disk, f"{path}/{LOG_START_OFFSET_FILE}")
        self.clean_offsets = OffsetCheckpoint(disk, f"{path}/{CLEANER_OFFSET_FILE}")

    def forget_all_but(self, kept: Container[TopicPartition], tp: TopicPartition) -> None:
        """Durably drop `tp`, which is not among `kept`, everywhere, and with it whatever is not. `OSError`."""
        for checkpoint in (self.recovery_points, self.high_watermarks, self.log_start_offsets, self.clean_offsets):
            checkpoint.forget_all_but(kept, tp)
