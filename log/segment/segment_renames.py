"""Changes of many names in a partition's directory: compacted segments put in place, expired ones put away.

A rename waits while the file system commits what others have synced, and what follows one may have to wait until it is
durable. So a change is made in stages, each by a thread of the disk's, with what the log holds of it brought up to date
in between, on the loop. What a stage renames nobody reads or writes by its name meanwhile. A log that cannot wait, as
it is truncated or closed, has the whole change finished here and now; which at any moment is right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...runtime.ports import Disk, OrderedRenames
from ..errors import StorageError


class Stage(NamedTuple):
    """`renames` are asked for when the stage begins; `after` is called when they are durable."""

    renames: Callable[[], list[tuple[str, str]]]
    after: Callable[[], None]


class SegmentRenames:
    """One change of names. `fail` is told of a disk that refuses, and gives the error to raise."""

    def __init__(
        self, disk: Disk, directory: str, stages: Sequence[Stage], fail: Callable[[BaseException], StorageError]
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._stages = list(stages)
        self._fail = fail
        self._under_way: OrderedRenames | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self.is_over = False

    def soon(self) -> asyncio.Future[None]:
        """Go on without blocking the loop; the future ends when all is done. It fails with `StorageError`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        if self.is_over:
            self._end(None)
        elif self._under_way is None:
            self._begin()
        return waiter

    def finish(self) -> None:
        """Have all of it done on return. `StorageError`."""
        try:
            if self._under_way is not None:
                self._under_way.finish()
                self._stage_done()
            while not self.is_over:
                for source, target in self._stages[0].renames():
                    self._disk.rename(source, target)
                self._disk.fsync_dir(self._directory)
                self._stage_done()
        except OSError as error:
            failure = self._fail(error)
            self._end(failure)
            raise failure from error

    def _begin(self) -> None:
        try:
            self._under_way = self._disk.rearrange_soon(self._directory, self._stages[0].renames())
        except OSError as error:
            self._end(self._fail(error))
            return
        begun = self._under_way
        begun.done.add_done_callback(lambda done: self._on_done(begun, done))

    def _on_done(self, begun: OrderedRenames, done: asyncio.Future[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if self._under_way is not begun:
            return  # somebody could not wait
        if error is not None:
            self._end(self._fail(error))
            return
        self._stage_done()
        if not self.is_over:
            self._begin()

    def _stage_done(self) -> None:
        self._under_way = None
        self._stages.pop(0).after()
        if not self._stages:
            self._end(None)

    def _end(self, failure: StorageError | None) -> None:
        self._under_way = None
        self.is_over = True
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if waiter.done():
                continue
            if failure is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(failure)


def in_a_loop() -> bool:
    """Whether there is a running loop, which must not be held up; tools and tests do without."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
