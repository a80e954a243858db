"""One epoch of leadership of the active controller: the image ahead of the commit, requests, responses and timers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ..runtime.incremental_work import Step
from ..runtime.invariants import sometimes
from ..wire.errors import ErrorCode
from .metadata.metadata_image import MetadataImage
from .metadata.metadata_records import Record
from .result import ControllerResult, Decision, Response

Decide: TypeAlias = Callable[[MetadataImage], ControllerResult | Decision]
"""A decision by the image of the moment at which it is made."""
PART_PAUSE_S = 0.005
"""The pause after a part of a client's request, while all nodes replay its records and make the new logs."""


class PendingResponse(NamedTuple):
    """A response that waits until `offset` is committed."""

    offset: int
    future: asyncio.Future[Response]
    response: Response
    not_controller: Response


@dataclass(slots=True)
class PendingRequest:
    """A request that is being decided, perhaps in several parts."""

    decide: Decide
    refuse: Callable[[ErrorCode, str | None], Response]
    finish: Callable[[Term, Response], None] | None
    future: asyncio.Future[Response]
    not_controller: Response
    _decision: Decision | None = None

    def next_part(self, image: MetadataImage) -> ControllerResult | Step | list[Record]:
        """The next part of the decision; the last one is a `ControllerResult`."""
        if self._decision is None:
            begun = self.decide(image)
            if isinstance(begun, ControllerResult):
                return begun
            self._decision = begun
        try:
            return next(self._decision)
        except StopIteration as end:
            result: ControllerResult = end.value
            return result

    def answer(self, response: Response) -> None:
        """Give the response to who waits for it, if anybody still does."""
        if not self.future.done():
            self.future.set_result(response)


class Term:
    """One epoch of leadership: the image ahead of the commit, the responses that wait for it, and timers."""

    def __init__(self, epoch: int, image: MetadataImage) -> None:
        self.epoch = epoch
        self.image = image
        self.pending_responses: deque[PendingResponse] = deque()
        self.waiting: deque[PendingRequest] = deque()
        """Requests of clients of which the next part is decided in a later iteration of the loop."""
        self.is_turn_scheduled = False
        self.rebalance: asyncio.TimerHandle | None = None
        self.token_check: asyncio.TimerHandle | None = None

    def end(self) -> None:
        """Leadership is lost: answer all pending requests NOT_CONTROLLER."""
        sometimes(self.pending_responses, "a controller lost its leadership while answers waited for their commit")
        for timer in (self.rebalance, self.token_check):
            if timer is not None:
                timer.cancel()
        for request in self.waiting:
            request.answer(request.not_controller)
        self.waiting.clear()
        for response in self.pending_responses:
            if not response.future.done():
                response.future.set_result(response.not_controller)
        self.pending_responses.clear()
