"""Producer ids, which the controller gives in blocks (KIP-730). The next block is fetched before it is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ...runtime.invariants import sometimes
from ...wire.api_keys import ApiKey
from ...wire.errors import ErrorCode, ProtocolError, known_error
from .controller_channel import ControllerChannel

ALLOCATE_PRODUCER_IDS_VERSION = 0
ALLOCATE_TIMEOUT_MS = 5_000
PREFETCH_AT = 0.9
WAIT_S = 2.0
RETRY_S = 0.05


class ProducerIdBlock(NamedTuple):
    """A range of ids: `length` ids, beginning with `first`."""

    first: int
    length: int


class ProducerIdBlockSource:
    """Asks the active controller for blocks."""

    def __init__(self, channel: ControllerChannel, node_id: int, broker_epoch: Callable[[], int]) -> None:
        self._channel = channel
        self._node_id = node_id
        self._broker_epoch = broker_epoch

    async def allocate(self) -> ProducerIdBlock:
        """A new block. Raises ProtocolError when the controller refuses or does not answer."""
        fields = {"broker_id": self._node_id, "broker_epoch": self._broker_epoch()}
        response = await self._channel.request(
            ApiKey.ALLOCATE_PRODUCER_IDS, ALLOCATE_PRODUCER_IDS_VERSION, fields, timeout_ms=ALLOCATE_TIMEOUT_MS
        )
        if response.error_code:
            raise ProtocolError(known_error(response.error_code), "AllocateProducerIds refused")
        return ProducerIdBlock(response.producer_id_start, response.producer_id_len)


class ProducerIdManager:
    """Gives out ids. `allocate` asks the controller for a block; it may raise ProtocolError."""

    def __init__(self, allocate: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        self._allocate = allocate
        self._current = ProducerIdBlock(-1, 0)
        self._used = 0
        self._spare: ProducerIdBlock | None = None
        self._fetching: asyncio.Task[None] | None = None

    def next_id(self) -> int | None:
        """An id; None while no block is left and the controller has not answered."""
        if self._used >= self._current.length:
            if self._spare is None:
                sometimes(self._current.length, "a broker had used up its producer ids before it got more")
                self._prefetch()
                return None
            self._current, self._spare, self._used = self._spare, None, 0
        producer_id = self._current.first + self._used
        self._used += 1
        if self._used >= self._current.length * PREFETCH_AT and self._spare is None:
            self._prefetch()
        return producer_id

    @property
    def blocks(self) -> tuple[ProducerIdBlock, ...]:
        """The blocks that it gives ids of: the present one, and the next if that has come."""
        present = (self._current,) if self._current.length else ()
        return present if self._spare is None else (*present, self._spare)

    @property
    def is_ready(self) -> bool:
        """Whether there is an id to give out."""
        return self._used < self._current.length or self._spare is not None

    async def wait_for_id(self) -> int:
        """Wait for an id. Raises as `wait_until_ready`."""
        while True:
            await self.wait_until_ready()
            producer_id = self.next_id()
            if producer_id is not None:
                return producer_id

    async def wait_until_ready(self) -> None:
        """Wait until there is an id.

        Raises COORDINATOR_LOAD_IN_PROGRESS, which clients retry, when none came in two seconds.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WAIT_S
        while not self.is_ready:
            self._prefetch()
            fetching = self._fetching
            left_s = deadline - loop.time()
            if fetching is None or left_s <= 0:
                raise ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the controller gave no producer ids")
            await asyncio.wait([fetching], timeout=left_s)
            if self._spare is None and loop.time() < deadline:
                await asyncio.sleep(RETRY_S)

    def close(self) -> None:
        """Cancel the request for a block."""
        if self._fetching is not None:
            self._fetching.cancel()

    def _prefetch(self) -> None:
        if self._fetching is None:
            self._fetching = asyncio.get_running_loop().create_task(self._fetch())
            self._fetching.add_done_callback(self._fetched)

    async def _fetch(self) -> None:
        self._spare = await self._allocate()

    def _fetched(self, task: asyncio.Task[None]) -> None:
        self._fetching = None
        if not task.cancelled():
            task.exception()  # an error is not logged: the next request for an id asks again
