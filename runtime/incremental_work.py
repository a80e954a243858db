"""Incremental work: a long job cut into short steps, so that it never holds the event loop for long.

The job is a generator. Each `yield` ends a step; the `Step` that it yields says how much was done, and what has to
happen before the next step (files to be fsynced, bytes to be read ahead). The job itself never waits, so the same job
runs in three ways: `run_at_once` blocks until it is done (command line tools, tests), `run_in_steps` is awaited and
waits without blocking, and an `IncrementalTask` goes on by itself in later iterations of the loop.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from .invariants import invariant
from .ports import Disk, File

T = TypeVar("T")
S = TypeVar("S")
H = TypeVar("H", bound=Hashable)


class PendingChange(Protocol):
    """A change of files that the next step depends on."""

    def soon(self) -> asyncio.Future[None]:
        """Begin the change; the future ends when it is durable."""
        ...

    def finish(self) -> None:
        """Make the change and return when it is durable."""
        ...


class FileRange(NamedTuple):
    """`length` bytes of `file` from `position` on."""

    file: File
    position: int
    length: int


class Step(NamedTuple):
    """One step is over. What the other fields ask for happens before the next step, in the order of the fields."""

    done_bytes: int = 0
    """Bytes that were processed since the last step."""
    fsyncs: tuple[File, ...] = ()
    change: PendingChange | None = None
    reads: FileRange | None = None
    """Bytes that the next step reads: they are brought into the page cache, so that the read does not wait."""


PLAIN_STEP = Step()
"""A step that asks for nothing."""

ITEMS_PER_STEP = 128
"""Cheap items, such as rows of a response: some hundred microseconds of processor time."""


class Pace:
    """Counts the items of a step, over nested loops."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = ITEMS_PER_STEP

    def add(self, items: int) -> None:
        """Count so many more items, where the step cannot end yet."""
        self._left -= items

    def ends_step(self, items: int = 1) -> bool:
        """Count so many more items; true when it is time to `yield`."""
        self._left -= items
        if self._left > 0:
            return False
        self._left = ITEMS_PER_STEP
        return True


Work: TypeAlias = Generator[Step, None, T]


def map_in_steps(make: Callable[[S], T], items: Iterable[S], pace: Pace | None = None) -> Work[list[T]]:
    """Work that makes something of each item, some items a step."""
    pace = pace or Pace()
    made = []
    for item in items:
        made.append(make(item))
        if pace.ends_step():
            yield PLAIN_STEP
    return made


def sort_in_steps(items: Sequence[S], pace: Pace | None = None) -> Work[list[S]]:
    """Work that sorts the items, which can be compared: it sorts short runs and merges them."""
    pace = pace or Pace()
    if len(items) <= ITEMS_PER_STEP:
        return sorted(items)  # type: ignore[type-var]
    runs = []
    for start in range(0, len(items), ITEMS_PER_STEP):
        runs.append(sorted(items[start : start + ITEMS_PER_STEP]))  # type: ignore[type-var]
        if pace.ends_step(ITEMS_PER_STEP):
            yield PLAIN_STEP
    return (yield from map_in_steps(lambda item: item, heapq.merge(*runs), pace))  # type: ignore[type-var]


def count_in_steps(items: Iterable[H], pace: Pace | None = None) -> Work[Counter[H]]:
    """Work that counts how many times each item occurs."""
    pace = pace or Pace()
    counter: Counter[H] = Counter()
    for item in items:
        counter[item] += 1
        if pace.ends_step():
            yield PLAIN_STEP
    return counter


def for_each(items: Iterable[S], visit: Callable[[S], object]) -> Work[None]:
    """Work that visits one item a step. The items must not change until the end."""
    for item in items:
        visit(item)
        yield PLAIN_STEP


def run_at_once(work: Work[T]) -> T:
    """Do all of the work and return its result; blocks the loop, if there is one."""
    while True:
        try:
            step = next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        for file in step.fsyncs:
            file.fsync()
        if step.change is not None:
            step.change.finish()


def _no_pause(step: Step) -> float | None:
    return 0


async def run_in_steps(work: Work[T], disk: Disk, pause_s: Callable[[Step], float | None] = _no_pause) -> T:
    """Do the work without blocking the loop, and return its result. The work is closed when this is cancelled.

    `pause_s` says how many seconds to pause after a step; with 0 other tasks run for one iteration of the loop, with
    None the next step follows at once.
    """
    try:
        while True:
            try:
                step = next(work)
            except StopIteration as end:
                result: T = end.value
                return result
            for file in step.fsyncs:
                await disk.fsync_soon(file)
            if step.change is not None:
                await step.change.soon()
            if step.reads is not None and not step.reads.file.is_cached(*step.reads[1:]):
                await disk.warm_soon(*step.reads)
            pause = pause_s(step)
            if pause is not None:
                await asyncio.sleep(pause)
    finally:
        work.close()


def _no_pause_between_slices() -> float:
    return 0.0


class IncrementalTask(Generic[T]):
    """Does work whose steps ask for nothing, `steps_per_slice` steps in each iteration of the loop, then calls `done`.

    `pause_s` says how many seconds to pause after a slice; with 0 the next one follows in the next iteration. The
    first slice is done before the constructor returns, so a short job is not delayed. An error of the work ends it;
    it is raised by the constructor in the first slice, and goes to the loop's exception handler later.
    """

    def __init__(
        self,
        work: Work[T],
        *,
        steps_per_slice: int = 1,
        pause_s: Callable[[], float] = _no_pause_between_slices,
        done: Callable[[T], object] | None = None,
    ) -> None:
        self._work = work
        self._steps_per_slice = steps_per_slice
        self._pause_s = pause_s
        self._done = done
        self._handle: asyncio.Handle | None = None
        self.is_running = True
        """False when the work is done, has failed, or was cancelled."""
        self._run_slice()

    def cancel(self) -> None:
        """Stop after the present step; `done` is not called."""
        self.is_running = False
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
            self._work.close()

    def _run_slice(self) -> None:
        self._handle = None
        try:
            for _ in range(self._steps_per_slice):
                step = next(self._work)
                invariant(step is PLAIN_STEP, "work in the background asks for nothing between its steps")
                if not self.is_running:
                    self._work.close()
                    return
        except StopIteration as end:
            result: T = end.value
        except BaseException:
            self.is_running = False
            raise
        else:
            loop, pause_s = asyncio.get_running_loop(), self._pause_s()
            self._handle = loop.call_later(pause_s, self._run_slice) if pause_s else loop.call_soon(self._run_slice)
            return
        self.is_running = False
        if self._done is not None:
            self._done(result)
