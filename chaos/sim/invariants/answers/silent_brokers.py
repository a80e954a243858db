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
from ..steps.lasting_roles import LastingRoles
from .answered_requests import AnsweredRequests

_LATE_S = 1.0
_ROLE = "active controller"


class SilentBrokers:
    """Watches connections to controllers, and what active controllers know of brokers."""

    def __init__(self, now_s: Callable[[], float], session_s: float) -> None:
        self._now_s = now_s
        self._session_s = session_s
        self._heard: dict[tuple[int, int], float] = {}
        """When a controller read a heartbeat of a broker last."""
        self._roles = LastingRoles(now_s)

    def requests(self, node_id: int) -> AnsweredRequests[Any]:
        """What watches a new connection to a controller."""

        def note(header: RequestHeader, frame: bytes, body_at: int) -> None:
            request = decode_request(header.api_key, header.api_version, frame, body_at)
            self._heard[node_id, request.broker_id] = self._now_s()

        return AnsweredRequests({ApiKey.BROKER_HEARTBEAT}, note, lambda noted, frame: None)

    def forget(self, node_id: int) -> None:
        """The process has ended."""
        self._roles.forget(node_id)

    def after_event(self, node_id: int, controller: Any) -> None:
        """`controller` is the node's, or None. Raises `InvariantBroken`."""
        if controller is None or not controller.active:
            self._roles.end(node_id, _ROLE)
            return
        since_s = self._roles.after_event(node_id, _ROLE)
        if since_s is None:
            return
        for broker_id, broker in controller.image.brokers.items():
            heard_s = max(since_s, self._heard.get((node_id, broker_id), 0.0))
            is_late = self._now_s() - heard_s > self._session_s + _LATE_S
            if is_late and not broker.fenced and broker_id != node_id:
                detail = f"{broker_id} by {node_id}, which leads since {since_s:.3f}: heard at {heard_s:.3f}"
                raise InvariantBroken("a broker that is silent for its session is fenced", detail)
