"""TLS contexts that follow their key stores and trust stores: certificates are exchanged while a node runs.

The files are looked at when a connection is made, at most once a second. A new certificate counts for new connections;
those in flight go on as they are. One that cannot be used is refused, and the former one kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from ...runtime.tls_contexts import TlsContext, TlsError

CHECK_INTERVAL_S = 1.0
"""The files are looked at once in so many seconds at most."""

logger = logging.getLogger("raftwerk.node")


class RenewedContext:
    """The context that `make` builds of the files by `read`, which has all their bytes.

    `what` is named in logs. The first call of `make` may raise `TlsError`.
    """

    def __init__(self, what: str, read: Callable[[], Sequence[bytes]], make: Callable[[], TlsContext]) -> None:
        self._what = what
        self._read = read
        self._make = make
        self._seen = self._bytes()  # the last that was tried, whether it could be used or not
        self._context = make()
        self._next_check_s = float("-inf")

    def current(self) -> TlsContext:
        """The context for a new connection."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._next_check_s:
            self._next_check_s = now_s + CHECK_INTERVAL_S
            self._renew()
        return self._context

    def _renew(self) -> None:
        found = self._bytes()
        if found == self._seen:
            return
        self._seen = found
        try:
            self._context = self._make()
        except (TlsError, OSError, ValueError) as error:
            logger.error("%s keeps its former certificates, since the new ones cannot be used: %s", self._what, error)
        else:
            logger.info("%s uses its new certificates for new connections", self._what)

    def _bytes(self) -> tuple[bytes, ...] | None:
        try:
            return tuple(self._read())
        except OSError:
            return None  # `make` says which file it is, and why
