"""Work on many things, some in each turn of the loop, so that nobody has to wait for all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")


def _nothing() -> None:
    pass


class Slices(Generic[T]):
    """Calls `visit` for every item, `per_turn` of them a turn of the loop, then `done`.

    The first slice is done before the constructor returns: what fits into one slice is not put off at all. `items` must
    stay as they are until the end; an error of `visit` ends it, and goes to the loop but for the first slice's.
    """

    def __init__(
        self, items: Iterable[T], visit: Callable[[T], object], per_turn: int, done: Callable[[], object] = _nothing
    ) -> None:
        self._items = iter(items)
        self._visit = visit
        self._per_turn = per_turn
        self._done = done
        self._handle: asyncio.Handle | None = None
        self.is_running = True
        self._turn()

    def cancel(self) -> None:
        """Stop where it is; `done` is not called."""
        self.is_running = False
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _turn(self) -> None:
        self._handle = None
        visited = 0
        for item in islice(self._items, self._per_turn):
            visited += 1
            self._visit(item)
            if not self.is_running:
                return
        if visited == self._per_turn:
            self._handle = asyncio.get_running_loop().call_soon(self._turn)
        else:
            self.is_running = False
            self._done()
