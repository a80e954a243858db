"""Whether a process listens at an address: the cheapest proof that a broker is dead.

The operating system of a running host refuses a connect when no process listens. A connect without an answer proves
nothing, since a paused process, a cut network and a lost packet look alike. So the caller acts on REFUSED only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TypeAlias


class ProbeResult(Enum):
    """The outcome of a connect."""

    CONNECTED = "connected"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    """The connect timed out, or failed in another way."""


Probe: TypeAlias = Callable[[str, int], Awaitable[ProbeResult]]


class _Connection(asyncio.Protocol):
    """A connection over which nothing is said. A class of its own, so that `NetworkFaults` can take hold of it."""


async def tcp_probe(host: str, port: int, timeout_s: float = 1.0) -> ProbeResult:
    """Connect, and close the connection at once."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            transport, _ = await loop.create_connection(_Connection, host, port)
    except ConnectionRefusedError:
        return ProbeResult.REFUSED
    except (OSError, TimeoutError, ValueError):  # ValueError: the host name cannot be encoded
        return ProbeResult.UNKNOWN
    transport.close()
    return ProbeResult.CONNECTED
