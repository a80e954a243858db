"""Threads that wait for the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from raftwerk.runtime.ports import complete_with
from raftwerk.runtime.work_queue import TurnQueue


class OneThread:
    """`ComputeThreads` that do one work when the test says so, of the owner whose turn it is."""

    def __init__(self) -> None:
        self._waiting: TurnQueue[Callable[[], None]] = TurnQueue()
        self.left = 0

    def run_soon(self, work: Callable[[], Any], owner: object = None) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.add(owner, partial(complete_with, future, work))
        self.left += 1
        return future

    def close(self) -> None:
        """Nothing: there are no threads."""

    def do_one(self) -> None:
        """Do the next work, and end its future."""
        self.left -= 1
        self._waiting.take()()
