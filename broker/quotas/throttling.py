"""How a request that exceeds a quota is throttled (KIP-219)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from .client_quota_manager import ClientQuotaManager

if TYPE_CHECKING:
    from ..network.request import Request

EXEMPT = -1
"""The throttle time of a request that no quota limits, since another broker makes it."""


def loop_ms() -> int:
    """The loop's clock in milliseconds."""
    return int(asyncio.get_running_loop().time() * 1000)


def throttle(manager: ClientQuotaManager, request: Request, amount: float) -> None:
    """Count what a request uses. Where that is too much, its connection is not read for a time, and its answer says so.

    Of several throttle times of a request the longest one counts.
    """
    if request.throttle_ms == EXEMPT:
        return
    throttle_ms = manager.record(request.sink.principal.name, request.client_id or "", amount, loop_ms())
    if throttle_ms > request.throttle_ms:
        request.throttle_ms = throttle_ms
        request.sink.delay(throttle_ms / 1000)
