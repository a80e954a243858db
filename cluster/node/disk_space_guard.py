"""Stops appends to a log directory before its disk is full (`log.dirs.reserve.bytes`).

On a full disk the next write fails, and that write may be one to the metadata log, which has little spare space. So
while less than the reserve is free in a directory, its replicas take no more records. They still serve what they have,
and they take records again when there is space, without a restart. Meanwhile the broker asks to be fenced, so that
other brokers lead; it does not ask when one of its partitions has no other replica that could lead. (Apache Kafka fails
the directory instead, until a restart.)

The less space is left, the more often it is checked; the interval assumes at most a gigabyte of writes a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from ...controller.metadata.metadata_image import MetadataImage
from ...controller.metadata.metadata_records import NO_LEADER
from ...runtime.ports import Disk

_logger = logging.getLogger("raftwerk.node")
_FASTEST_BYTES_PER_S = 1e9
_INTERVAL_MIN_S, _INTERVAL_MAX_S = 0.01, 5.0
_LOOK_AGAIN_S = 0.5


def next_look_s(free_bytes: Iterable[int], reserve_bytes: int, *, is_full: bool) -> float:
    """Seconds until the next check of directories with so many bytes free; none is given that cannot be read."""
    least = min(free_bytes, default=None)
    if is_full or least is None:
        return _LOOK_AGAIN_S
    left = least - reserve_bytes
    return min(max(left / _FASTEST_BYTES_PER_S, _INTERVAL_MIN_S), _INTERVAL_MAX_S)


def is_full_now(free_bytes: int, reserve_bytes: int, *, was_full: bool) -> bool:
    """Whether a directory takes no more records. A full one takes records again when twice the reserve is free."""
    return free_bytes < (2 * reserve_bytes if was_full else reserve_bytes)


def others_can_lead(image: MetadataImage, broker_id: int) -> bool:
    """Whether the broker can be fenced without harm: each partition that it leads has another in-sync replica that may
    lead, and none of its partitions is without a leader.
    """
    return all(
        any(other != broker_id and image.may_lead(partition, other) for other in partition.isr)
        for topic in image.topics_by_id.values()
        for partition in topic.partitions.values()
        if partition.leader in (broker_id, NO_LEADER) and broker_id in partition.replicas
    )


def readable_free_bytes(disk: Disk, directories: Iterable[str]) -> dict[str, int]:
    """The free bytes of these directories, without those where they cannot be read: their disks have failed."""
    found: dict[str, int] = {}
    for path in directories:
        with suppress(OSError):
            found[path] = disk.free_bytes(path)
    return found


class DiskSpaceGuard:
    """Checks `free_bytes`, the space left, in each of `directories()`, and calls `on_change` with the full ones.

    A directory whose space cannot be read stays full, or not full, as it was. `on_change` may call `on_no_space`.
    """

    def __init__(
        self,
        reserve_bytes: int,
        directories: Callable[[], Iterable[str]],
        free_bytes: Callable[[str], int],
        on_change: Callable[[list[str]], None],
    ) -> None:
        self._reserve_bytes = reserve_bytes
        self._directories = directories
        self._free_bytes = free_bytes
        self._on_change = on_change
        self._timer: asyncio.TimerHandle | None = None
        self._unread: list[str] = []
        """The directories whose space could not be read by the last check."""
        self.full: list[str] = []

    def start(self) -> None:
        """Check now, and from time to time, on the running loop."""
        self._look()

    def stop(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_no_space(self, path: str) -> None:
        """A write to the directory has failed because there was no space."""
        if path not in self.full:
            self._set([*self.full, path])
            if self._timer is not None:
                self._look_in(_LOOK_AGAIN_S)

    def _look(self) -> None:
        free = self._read()
        full = [path for path in self._unread if path in self.full]
        for path, left in free.items():
            if is_full_now(left, self._reserve_bytes, was_full=path in self.full):
                full.append(path)
        if full or self.full:
            self._set(full)  # also when nothing changed: there may be new replicas
        self._look_in(next_look_s(free.values(), self._reserve_bytes, is_full=bool(self.full)))

    def _look_in(self, delay_s: float) -> None:
        self.stop()
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _read(self) -> dict[str, int]:
        """The free space of the directories where it can be read."""
        free: dict[str, int] = {}
        unread: list[str] = []
        for path in self._directories():
            try:
                free[path] = self._free_bytes(path)
            except OSError as error:
                unread.append(path)
                if path not in self._unread:
                    _logger.warning("the free space of log directory %s cannot be read: %s", path, error)
        self._unread = unread
        return free

    def _set(self, full: list[str]) -> None:
        for path in full:
            if path not in self.full:
                _logger.error("log directory %s is full: its replicas take no records until there is space", path)
        for path in self.full:
            if path not in full:
                _logger.warning("log directory %s has space again", path)
        self.full = full
        self._on_change(full)
