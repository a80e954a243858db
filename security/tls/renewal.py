"""TLS contexts that follow their key stores and trust stores: certificates are exchanged while a node runs.

The files are looked at when a connection is made, at most once a second. A new certificate counts for new connections;
those in flight go on as they are. One that cannot be used is refused, and the former one kept. It is tried again after
a pause, since the cause may pass, such as too many open files.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from ...runtime.tls_contexts import TlsContext, TlsError

CHECK_INTERVAL_S = 1.0
"""The files are looked at once in so many seconds at most."""
RETRY_INTERVAL_S = 10.0
"""When files that could not be used are tried again, if they have not changed."""

logger = logging.getLogger("raftwerk.node")


class RenewedContext:
    """The context that `make` builds of the files by `read`, which has all their bytes.

    `what` is named in logs. The first call of `make` may raise `TlsError`.
    """

    def __init__(self, what: str, read: Callable[[], Sequence[bytes]], make: Callable[[], TlsContext]) -> None:
        self._what = what
        self._read = read
        self._make = make
        self._used = self._bytes()
        self._refused = self._used  # the last that could not be used, if it is not the one in use
        self._retry_at_s = float("-inf")
        self._context = make()
        self._next_check_s = float("-inf")

    def current(self) -> TlsContext:
        """The context for a new connection."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._next_check_s:
            self._next_check_s = now_s + CHECK_INTERVAL_S
            self._renew(now_s)
        return self._context

    def _renew(self, now_s: float) -> None:
        found = self._bytes()
        if found == self._used:
            return
        is_known = found == self._refused
        if is_known and now_s < self._retry_at_s:
            return
        try:
            self._context = self._make()
        except (TlsError, OSError, ValueError) as error:
            self._refused = found
            self._retry_at_s = now_s + RETRY_INTERVAL_S
            if not is_known:
                told = "%s keeps its former certificates, since the new ones cannot be used: %s"
                logger.error(told, self._what, error)
        else:
            self._used = found
            logger.info("%s uses its new certificates for new connections", self._what)

    def _bytes(self) -> tuple[bytes, ...] | None:
        try:
            return tuple(self._read())
        except OSError:
            return None  # `make` says which file it is, and why
