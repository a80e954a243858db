"""The start offset of each leader epoch, by which followers truncate their logs.

Source: KIP-101, KIP-279; the answers are those of Apache Kafka's LeaderEpochFileCache.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ...wire.types import UNKNOWN_EPOCH_END, EpochEndOffset


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of its first batch."""

    epoch: int
    start_offset: int


class LeaderEpochCache:
    """The leader epochs of a log; epochs and start offsets both grow strictly.

    `is_dirty` says that the checkpoint file lacks a change.
    """

    __slots__ = ("_epochs", "_log_end_offset", "_starts", "is_dirty", "latest")

    def __init__(self, log_end_offset: Callable[[], int], entries: Iterable[EpochEntry] = ()) -> None:
        self._log_end_offset = log_end_offset
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = -1
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)
        self.is_dirty = False

    @property
    def entries(self) -> list[EpochEntry]:
        """All epochs in order."""
        return [EpochEntry(epoch, start) for epoch, start in zip(self._epochs, self._starts)]

    def latest_epoch(self) -> int | None:
        """The greatest epoch, None in an empty log."""
        return self._epochs[-1] if self._epochs else None

    def assign(self, epoch: int, start_offset: int) -> None:
        """The batch at `start_offset` has this epoch; entries that contradict it are removed."""
        if epoch < 0 or (epoch == self.latest and start_offset >= self._starts[-1]):
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest = epoch
        self.is_dirty = True

    def end_offset_for(self, epoch: int) -> EpochEndOffset:
        """The greatest known epoch that is not above `epoch`, and its end offset; (-1, -1) above all known epochs.

        An epoch below all known ones is returned itself, with the start offset of the first known one.
        """
        if not self._epochs or epoch < 0 or epoch > self.latest:
            return UNKNOWN_EPOCH_END
        if epoch == self.latest:
            return EpochEndOffset(epoch, self._log_end_offset())
        higher = bisect_right(self._epochs, epoch)
        return EpochEndOffset(self._epochs[higher - 1] if higher else epoch, self._starts[higher])

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch of the batch at `offset`, None below the first known epoch."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget the epochs that start at or after `end_offset`."""
        at = bisect_left(self._starts, end_offset)
        if at < len(self._starts):
            del self._epochs[at:], self._starts[at:]
            self.latest = self._epochs[-1] if self._epochs else -1
            self.is_dirty = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget the epochs that end before `start_offset`; the one that holds it starts there."""
        at = bisect_right(self._starts, start_offset) - 1
        if at < 0 or self._starts[at] == start_offset == self._starts[0]:
            return
        del self._epochs[:at], self._starts[:at]
        self._starts[0] = start_offset
        self.is_dirty = True

    def clear(self) -> None:
        """Forget everything."""
        self.truncate_from_end(-1)
