"""A request that is larger than any client needs, beside a neighbour: how long it holds the loop, and who waits."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from support.broker.broker_harness import FakeTransport, decode_answer
from support.processor_speed import times_slower

from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct

ITERATION_S_MAX = 0.04
"""Processor time of one iteration of the loop: twice what is wanted. A slower machine has as many times more."""

ITERATIONS_WAITED_MAX = 3
"""Of the neighbour's request."""
_TRIES = 3


@contextmanager
def only_requests_count() -> Iterator[None]:
    """Collections of the whole test process are not a node's work. What handlers log is not looked at."""
    gc.collect()
    gc.disable()
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
    gc.enable()


class Listener(Protocol):
    """A listener without sockets."""

    def connect(self) -> FakeTransport: ...

    def frame(self, key: ApiKey, version: int, fields: Any) -> bytes: ...


class Attack:
    """One large request beside a neighbour that asks for the versions in each iteration of the loop."""

    def __init__(self, harness: Listener, key: ApiKey, version: int, fields: Any) -> None:
        self._harness = harness
        self._key, self._version = key, version
        self._frame = harness.frame(key, version, fields)
        self.longest_s = 0.0
        self.iterations = 0

    async def run(self) -> Struct:
        """Send it, and again if it held the loop: what else this machine does makes an iteration long now and then."""
        answer = await self._send()
        for _ in range(_TRIES - 1):
            if self._is_in_bounds():
                break
            self.longest_s = 0.0
            await self._send()
        assert self._is_in_bounds(), f"{self.longest_s * 1000:.0f} ms in one iteration"
        return answer

    def _is_in_bounds(self) -> bool:
        return self.longest_s < ITERATION_S_MAX * times_slower()

    async def _send(self) -> Struct:
        gc.collect()
        gc.disable()  # collections of the whole test process are not a node's work
        try:
            return await self._answer()
        finally:
            gc.enable()

    async def _answer(self) -> Struct:
        attacker, neighbour = self._harness.connect(), self._harness.connect()
        ping = self._harness.frame(ApiKey.API_VERSIONS, 0, {})
        pings = waited = 0
        self._timed(lambda: attacker.deliver(self._frame, chunk=1 << 20))
        while not attacker.frames() and self.iterations < 100_000:
            if len(neighbour.frames()) == pings:
                neighbour.deliver(ping)
                pings, waited = pings + 1, 0
            waited += 1
            assert waited <= ITERATIONS_WAITED_MAX, "the neighbour waits"
            began = time.thread_time()
            await asyncio.sleep(0)
            self.longest_s = max(self.longest_s, time.thread_time() - began)
            self.iterations += 1
        (frame,) = attacker.frames()
        return decode_answer(self._key, self._version, frame)

    def _timed(self, deliver: Callable[[], None]) -> None:
        began = time.thread_time()
        deliver()
        self.longest_s = max(self.longest_s, time.thread_time() - began)
