"""Watches the space in log directories, and stops writing before there is none (`log.dirs.reserve.bytes`).

A disk that is really full fails whatever is written next, and that may be the metadata log, without which a node cannot
live. So while less than the reserve is left in a directory, its replicas take no more records; they serve what they
have, and take records again when there is space, without a restart. Meanwhile the broker asks to be fenced, so that
others lead, unless there is nobody else for one of its partitions.

The nearer the reserve, the more often it is looked at: nothing writes faster than a gigabyte a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from ...controller.metadata.metadata_image import MetadataImage
from ...controller.metadata.metadata_records import NO_LEADER

_logger = logging.getLogger("raftwerk.node")
_FASTEST_BYTES_PER_S = 1e9
_INTERVAL_MIN_S, _INTERVAL_MAX_S = 0.01, 5.0
_LOOK_AGAIN_S = 0.5


def next_look_s(free_bytes: Iterable[int], reserve_bytes: int, *, is_full: bool) -> float:
    """When to look again at directories with so much left."""
    if is_full:
        return _LOOK_AGAIN_S
    left = min(free_bytes, default=reserve_bytes) - reserve_bytes
    return min(max(left / _FASTEST_BYTES_PER_S, _INTERVAL_MIN_S), _INTERVAL_MAX_S)


def is_full_now(free_bytes: int, reserve_bytes: int, *, was_full: bool) -> bool:
    """Whether a directory takes no more records. Once it does not, twice the reserve must be free again."""
    return free_bytes < (2 * reserve_bytes if was_full else reserve_bytes)


def others_can_lead(image: MetadataImage, broker_id: int) -> bool:
    """Whether each partition that the broker leads has another that could at once, and none of its has no leader."""
    return all(
        any(other != broker_id and image.may_lead(partition, other) for other in partition.isr)
        for topic in image.topics_by_id.values()
        for partition in topic.partitions.values()
        if partition.leader in (broker_id, NO_LEADER) and broker_id in partition.replicas
    )


class DiskSpaceGuard:
    """`free_bytes` tells what is left in each directory in use; `on_change` is told which are full."""

    def __init__(
        self,
        reserve_bytes: int,
        free_bytes: Callable[[], dict[str, int]],
        on_change: Callable[[list[str]], None],
    ) -> None:
        self._reserve_bytes = reserve_bytes
        self._free_bytes = free_bytes
        self._on_change = on_change
        self._timer: asyncio.TimerHandle | None = None
        self.full: list[str] = []

    def start(self) -> None:
        """Look now, and from time to time, on the running loop."""
        self._look()

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_no_space(self, path: str) -> None:
        """A write to the directory found no space."""
        if path not in self.full:
            self._set([*self.full, path])

    def _look(self) -> None:
        free: dict[str, int] = {}
        try:
            free = self._free_bytes()
        except OSError as error:
            _logger.warning("the space in the log directories cannot be told: %s", error)
        full = [
            path for path, left in free.items() if is_full_now(left, self._reserve_bytes, was_full=path in self.full)
        ]
        if full or self.full:
            self._set(full)  # again, as there may be new replicas
        delay_s = next_look_s(free.values(), self._reserve_bytes, is_full=bool(self.full))
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _set(self, full: list[str]) -> None:
        for path in full:
            if path not in self.full:
                _logger.error("log directory %s is full: its replicas take no records until there is space", path)
        for path in self.full:
            if path not in full:
                _logger.warning("log directory %s has space again", path)
        self.full = full
        self._on_change(full)
