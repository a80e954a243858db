"""Classes of the operator that know users in place of a node: `sasl.server.callback.handler.class`.

A class is asked before the first token is evaluated, and then the mechanism is the usual one. Whatever goes wrong in
the class, or takes too long, denies the login.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os.path
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

from ...runtime.blocking.daemon_threads import DaemonThreads
from .mechanism import Authenticated, SaslAuthenticationError, ServerMechanism
from .plain import INVALID_CREDENTIALS, PlainServer, parse_response

CALLBACK_TIMEOUT_S = 10.0
"""How long a class may take for an answer."""
THREADS = 16
"""So many calls of one class that are not async are in progress at a time."""

LOG_INTERVAL_S = 10.0
"""How often the log says that a class fails: clients may cause it by what they send."""

logger = logging.getLogger("raftwerk.broker")


class PlainCallback(Protocol):
    """Knows the passwords of users. The method may be async; if it is not, it is called in a thread."""

    def authenticate(self, user: str, password: str) -> bool | Awaitable[bool]:
        """Whether this is the user's password. Only True lets the user in."""
        ...


class ScramCallback(Protocol):
    """Knows what SCRAM needs of the passwords of users. The method may be async, or is called in a thread."""

    def credential(self, user: str) -> tuple[bytes, bytes, bytes, int] | Awaitable[Any] | None:
        """The user's `ScramCredential`: salt, stored key, server key and iterations; None if there is no such user."""
        ...


class TokenCallback(Protocol):
    """Verifies the tokens of OAUTHBEARER. The method may be async, or is called in a thread."""

    def validate(self, token: str) -> tuple[str, int] | Awaitable[Any] | None:
        """The user's name, and when the token expires in milliseconds since 1970; None to refuse it."""
        ...


class CallbackError(Exception):
    """A class gave no answer. The text is for the log; it has nothing of what the class was asked or said."""


class ServerCallback:
    """Asks one method of a class. `name` is that of the class."""

    def __init__(self, name: str, method: Callable[..., Any]) -> None:
        self.name = name
        self._method = method
        self._threads = DaemonThreads(THREADS)
        self._next_log_s = float("-inf")

    async def ask(self, *arguments: object) -> Any:
        """What the method returns. Raises `CallbackError`."""
        try:
            async with asyncio.timeout(CALLBACK_TIMEOUT_S) as limit:
                if inspect.iscoroutinefunction(self._method):
                    return await self._method(*arguments)
                found = await self._threads.run(partial(self._method, *arguments))
                return await found if inspect.isawaitable(found) else found
        except (Exception, SystemExit) as error:
            if isinstance(error, TimeoutError) and limit.expired():
                raise self._failed(f"gave no answer within {CALLBACK_TIMEOUT_S:g} s") from None
            raise self._failed(f"failed: {_place(error)}") from None

    def wrong(self, what: str) -> CallbackError:
        """The error of an answer that is none."""
        return self._failed(f"returned what is no {what}")

    def _failed(self, how: str) -> CallbackError:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._next_log_s:
            self._next_log_s = now_s + LOG_INTERVAL_S
            logger.error("%s %s; such logins are denied", self.name, how)
        return CallbackError(f"{self.name} {how}")


def _place(error: BaseException) -> str:
    """The type of an error and where it was raised. Its text may have a password."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = (
        "" if frame is None else f" in {os.path.basename(frame.tb_frame.f_code.co_filename)}, line {frame.tb_lineno}"
    )
    return f"{type(error).__name__}{where}"


class AskedMechanism:
    """An exchange that `begin` makes of the first token, when it has asked a class for what is needed."""

    def __init__(self, begin: Callable[[bytes], Awaitable[ServerMechanism]]) -> None:
        self._begin = begin
        self._exchange: ServerMechanism | None = None

    @property
    def result(self) -> Authenticated | None:
        """Who the peer is, once it has proved it."""
        return None if self._exchange is None else self._exchange.result

    async def evaluate_soon(self, token: bytes) -> bytes:
        """The answer to the client's next token. Raises `SaslAuthenticationError`."""
        if self._exchange is None:
            self._exchange = await self._begin(token)
        return self._exchange.evaluate(token)


def plain_by_callback(callback: ServerCallback) -> AskedMechanism:
    """SASL/PLAIN whose passwords a `PlainCallback` checks."""

    async def begin(token: bytes) -> ServerMechanism:
        response = parse_response(token)
        try:
            is_valid = await callback.ask(response.user, response.password) is True
        except CallbackError as error:
            raise SaslAuthenticationError(INVALID_CREDENTIALS, str(error)) from None
        return PlainServer(lambda user, password: is_valid)

    return AskedMechanism(begin)
