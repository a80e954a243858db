"""Whether anything listens at an address: the cheapest proof that a process is dead.

A refused connect comes from a living host on which nobody listens. Silence proves nothing, since a paused process, a
cut network and a lost packet all look alike; so only REFUSED is acted upon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TypeAlias


class ProbeResult(Enum):
    """What a connect told."""

    CONNECTED = "connected"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    """It timed out, or failed in another way."""


Probe: TypeAlias = Callable[[str, int], Awaitable[ProbeResult]]


async def tcp_probe(host: str, port: int, timeout_s: float = 1.0) -> ProbeResult:
    """Connect and hang up."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            transport, _ = await loop.create_connection(asyncio.Protocol, host, port)
    except ConnectionRefusedError:
        return ProbeResult.REFUSED
    except (OSError, TimeoutError):
        return ProbeResult.UNKNOWN
    transport.close()
    return ProbeResult.CONNECTED
