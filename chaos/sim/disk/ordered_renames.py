"""Renames that a simulated disk carries out beside its caller; see `runtime.ports.Rearrangement`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence


class SimOrderedRenames:
    """The steps one after the other, each when the disk's latency is over, or at once by `finish`."""

    def __init__(
        self, steps: Sequence[Callable[[], None]], later: Callable[[Callable[[], None]], asyncio.Future[None]]
    ) -> None:
        self._steps = list(steps)
        self._later = later
        self._error: OSError | None = None
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._begin()

    @property
    def done(self) -> asyncio.Future[None]:
        return self._done

    def finish(self) -> None:
        """What is left of it, now."""
        while self._error is None and self._steps:
            self._step()
        if self._error is not None:
            raise self._error

    def _begin(self) -> None:
        self._later(self._step).add_done_callback(lambda _: self._go_on())

    def _step(self) -> None:
        """A disk that refuses once is not asked again."""
        if self._steps and self._error is None:
            step = self._steps.pop(0)
            try:
                step()
            except OSError as error:
                self._error = error

    def _go_on(self) -> None:
        if self._steps and self._error is None:
            self._begin()
        elif self._done.done():
            return
        elif self._error is not None:
            self._done.set_exception(self._error)
        else:
            self._done.set_result(None)
