"""Space that the metadata log keeps for the time when the disk is full (`metadata.log.spare.bytes`).

A file of zeros holds it. The first write that finds no space removes the file and is tried again, so that a disk that
others have filled does not end the node. The file is made again when several times as much space is free.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from ...log.errors import NoSpaceError, is_no_space
from ...runtime.invariants import sometimes
from ...runtime.ports import Disk

SPARE_FILE = "metadata-spare-space"
_FREE_SPARES = 4
"""The file is made again when so many times its size is free."""

T = TypeVar("T")

_logger = logging.getLogger(__name__)


class SpareSpace:
    """The spare space in one log directory; none with `size_bytes` 0."""

    def __init__(self, disk: Disk, log_dir: str, size_bytes: int) -> None:
        self._disk = disk
        self._log_dir = log_dir
        self._path = f"{log_dir}/{SPARE_FILE}"
        self._size_bytes = size_bytes
        self.is_held = False
        """Whether the file is there."""

    def hold(self) -> bool:
        """Make the file unless it is there, or its space is not free; returns whether it is there now."""
        try:
            if not self._size_bytes or not self._is_complete():
                if self._disk.exists(self._path):
                    self._disk.remove(self._path)
                if self._size_bytes and self._disk.free_bytes(self._log_dir) >= _FREE_SPARES * self._size_bytes:
                    self._disk.write_atomic(self._path, bytes(self._size_bytes))
            self.is_held = bool(self._size_bytes) and self._disk.exists(self._path)
        except OSError as error:
            self.is_held = False
            _logger.warning("the metadata log has no spare space: %s", error)
        return self.is_held

    def _is_complete(self) -> bool:
        if not self._disk.exists(self._path):
            return False
        file = self._disk.open(self._path)
        try:
            return file.size() == self._size_bytes
        finally:
            file.close()

    def release(self) -> bool:
        """Give the space to the file system; returns whether there was any."""
        if not self.is_held:
            return False
        self.is_held = False
        sometimes(True, "the metadata log used its spare space on a full disk")
        try:
            self._disk.remove(self._path)
        except OSError as error:
            _logger.error("the spare space of the metadata log cannot be used: %s", error)
            return False
        _logger.error("the disk of %s is full: the metadata log uses its spare space", self._log_dir)
        return True

    def retried(self, write: Callable[[], T]) -> T:
        """What `write` returns, which is tried again on the spare space when the disk is full.

        A write that fails for want of space must have changed nothing.
        """
        try:
            return write()
        except (NoSpaceError, OSError) as error:
            if isinstance(error, OSError) and not is_no_space(error):
                raise
            if not self.release():
                raise
        return write()
