"""The invariant "a broker that is silent for its session is fenced", by the heartbeats on controllers' connections.

A controller that is active, and runs, fences each broker that it has not heard for `broker.session.timeout.ms`, since
its leadership began. That a broker is fenced sooner, because its listener refuses connections, is not seen here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .....wire.api_keys import ApiKey
from .....wire.codec import decode_request
from .....wire.frames import RequestHeader
from ..invariant_broken import InvariantBroken
from .answered_requests import AnsweredRequests

_STALLED_S = 0.25
"""A controller that has run nothing for so long did not run, and may extend all sessions."""
_LATE_S = 1.0
_LOOKS_EVERY_S = 0.1


class SilentBrokers:
    """Watches connections to controllers, and what active controllers know of brokers."""

    def __init__(self, now_s: Callable[[], float], session_s: float) -> None:
        self._now_s = now_s
        self._session_s = session_s
        self._heard: dict[tuple[int, int], float] = {}
        """When a controller read a heartbeat of a broker last."""
        self._active: dict[int, tuple[float, float]] = {}
        """Since when a controller leads without a pause, and when it has run last."""
        self._looked_at = 0.0

    def requests(self, node_id: int) -> AnsweredRequests[Any]:
        """What watches a new connection to a controller."""

        def note(header: RequestHeader, frame: bytes, body_at: int) -> None:
            request = decode_request(header.api_key, header.api_version, frame, body_at)
            self._heard[node_id, request.broker_id] = self._now_s()

        return AnsweredRequests({ApiKey.BROKER_HEARTBEAT}, note, lambda noted, frame: None)

    def forget(self, node_id: int) -> None:
        """The process has ended."""
        self._active.pop(node_id, None)

    def after_event(self, node_id: int, controller: Any) -> None:
        """`controller` is the node's, or None. Raises `InvariantBroken`."""
        if controller is None or not controller.active:
            self._active.pop(node_id, None)
            return
        now_s = self._now_s()
        since_s, ran_s = self._active.get(node_id, (now_s, now_s))
        if now_s - ran_s > _STALLED_S:
            since_s = now_s
        self._active[node_id] = since_s, now_s
        if now_s - since_s < self._session_s + _LATE_S or now_s - self._looked_at < _LOOKS_EVERY_S:
            return
        self._looked_at = now_s
        for broker_id, broker in controller.image.brokers.items():
            heard_s = max(since_s, self._heard.get((node_id, broker_id), 0.0))
            if not broker.fenced and broker_id != node_id and now_s - heard_s > self._session_s + _LATE_S:
                detail = f"{broker_id} by {node_id}, which leads since {since_s:.3f}: heard at {heard_s:.3f}"
                raise InvariantBroken("a broker that is silent for its session is fenced", detail)
