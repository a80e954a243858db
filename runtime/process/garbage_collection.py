"""The garbage collector of a server: short collections, whatever the number of objects that stay.

CPython's collector traverses all objects of a generation in one piece, some hundredths of a second for each hundred
thousand; a node with many partitions has millions. Reference counts free nearly everything, so here what has survived
three collections is frozen: no later collection traverses it. Reference cycles among frozen objects are not freed then.
So when the frozen objects have doubled, all are traversed once, but that happens at most once an hour.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from time import monotonic

YOUNG_OBJECTS = 3_000
"""Objects that a young collection traverses, about: one to two milliseconds."""
_YOUNG_PER_MIDDLE, _MIDDLE_PER_OLD = 2, 3
_OLDEST = 2
_LOOK_EVERY = 16
"""Collections of the oldest generation for each count of the frozen objects, which takes milliseconds itself."""
_GROWTH_MIN = 200_000
WHOLE_INTERVAL_S = 3_600.0


def tune_gc_for_start() -> None:
    """Make garbage collections rare while the server loads its state. To be called once, before that.

    Nearly all of the state stays, and every collection traverses it again: with thousands of partitions that would take
    as long as loading them.
    """
    gc.set_threshold(200_000, 50, 1_000)


class ServerCollections:
    """Sets the garbage collector for a running server, and freezes what stays. Made on the loop, when it is up."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._old_collections = 0
        self._threshold_before = gc.get_threshold()
        self._is_closed = False
        gc.collect(1)  # a full collection would block a node with many partitions for a good part of a second
        self._freeze()
        # A collection is due when its count is above the threshold.
        gc.set_threshold(YOUNG_OBJECTS, _YOUNG_PER_MIDDLE - 1, _MIDDLE_PER_OLD - 1)
        gc.callbacks.append(self._on_gc)

    def close(self) -> None:
        """Set the collector as it was before, for a server that starts again: what was frozen can be collected."""
        self._is_closed = True
        gc.callbacks.remove(self._on_gc)
        gc.unfreeze()
        gc.set_threshold(*self._threshold_before)

    def _freeze(self) -> None:
        gc.freeze()
        # The collector puts the oldest generation off until a quarter as many have come as the last time stayed.
        gc.collect()
        self._frozen_then = gc.get_freeze_count()
        self._whole_at_s = self._clock()

    def _on_gc(self, phase: str, info: dict[str, int]) -> None:
        """May be called in any thread."""
        if phase != "stop" or info["generation"] != _OLDEST:
            return
        gc.freeze()
        self._old_collections += 1
        if self._old_collections % _LOOK_EVERY == 0 and self._clock() - self._whole_at_s >= WHOLE_INTERVAL_S:
            frozen = gc.get_freeze_count()
            if frozen >= max(2 * self._frozen_then, self._frozen_then + _GROWTH_MIN):
                self._loop.call_soon_threadsafe(self._collect_all)

    def _collect_all(self) -> None:
        if self._is_closed:
            return
        gc.unfreeze()
        gc.collect()
        self._freeze()
