"""The offset checkpoints of one log directory, each with what stands on disk, so that only changes are written."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ..runtime.ports import Disk
from ..wire.types import TopicPartition
from .checkpoints import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    read_offsets,
    write_offsets,
)
from .errors import CorruptFileError

_logger = logging.getLogger(__name__)


class OffsetCheckpoint:
    """One checkpoint file. An unreadable one counts as empty, which is always safe: more is checked or fetched."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        try:
            self._on_disk = read_offsets(disk, path)
        except CorruptFileError as error:
            _logger.warning("%s It counts as empty.", error)
            self._on_disk = {}

    @property
    def offsets(self) -> Mapping[TopicPartition, int]:
        """What the file holds."""
        return self._on_disk

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Durably replace the contents. `OSError`."""
        if offsets != self._on_disk or not self._disk.exists(self._path):
            write_offsets(self._disk, self._path, offsets)
            self._on_disk = dict(offsets)

    def lower(self, tp: TopicPartition, offset: int) -> None:
        """Durably make `tp`'s offset `offset` at most. `OSError`."""
        if self._on_disk.get(tp, 0) > offset:
            self.write({**self._on_disk, tp: offset})

    def forget(self, tp: TopicPartition) -> None:
        """Durably drop `tp`: a former topic of the same name. `OSError`."""
        if tp in self._on_disk:
            self.write({other: offset for other, offset in self._on_disk.items() if other != tp})


class DirCheckpoints:
    """The four offset checkpoints of a log directory."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.recovery_points = OffsetCheckpoint(disk, f"{path}/{RECOVERY_POINT_FILE}")
        self.high_watermarks = OffsetCheckpoint(disk, f"{path}/{HIGH_WATERMARK_FILE}")
        self.log_start_offsets = OffsetCheckpoint(disk, f"{path}/{LOG_START_OFFSET_FILE}")
        self.clean_offsets = OffsetCheckpoint(disk, f"{path}/{CLEANER_OFFSET_FILE}")

    def forget(self, tp: TopicPartition) -> None:
        """Durably drop `tp` everywhere. `OSError`."""
        for checkpoint in (self.recovery_points, self.high_watermarks, self.log_start_offsets, self.clean_offsets):
            checkpoint.forget(tp)
