"""Renames that a simulated disk carries out in the background; see `runtime.ports`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence


class SimOrderedRenames:
    """Steps that are carried out one after the other, each after the disk's latency, or at once by `finish`."""

    def __init__(
        self, steps: Sequence[Callable[[], None]], after_latency: Callable[[Callable[[], None]], asyncio.Future[None]]
    ) -> None:
        self._steps = list(steps)
        self._after_latency = after_latency
        self._error: OSError | None = None
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._begin()

    @property
    def done(self) -> asyncio.Future[None]:
        """Done when all steps are, or when one has failed."""
        return self._done

    def finish(self) -> None:
        """Carry out the remaining steps now."""
        while self._error is None and self._steps:
            self._step()
        if self._error is not None:
            raise self._error

    def _begin(self) -> None:
        self._after_latency(self._step).add_done_callback(lambda _: self._go_on())

    def _step(self) -> None:
        """After a first error no step is tried."""
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
