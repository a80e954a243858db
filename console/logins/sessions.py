"""Sessions of users who have logged in. Each has clients of its own, so the user's own rights hold at the cluster.

A session is known by a random token in a cookie that scripts cannot read and other sites cannot send. It is in memory
only, and ends some time after its last request, some hours after the login, and when the cluster no longer takes the
user's password, which is tried again from time to time.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from ...cluster.client.client_errors import ClientError, WrongCredentialsError
from ...cluster.client.cluster_client import ClusterClient
from ...cluster.http_logins.credentials import Credentials
from ...cluster.http_logins.user_login import UserLogins
from ...security.client_login import ClientLogin
from ..cluster_watch import TIMEOUT_S
from ..errors import RequestRefusedError
from ..service import ConsoleService
from .login_limit import TRIES_OF_ADDRESS, TRIES_OF_USER, LoginLimit

CLIENT_ID = "raftwerk-console"
_CLIENT_TIMEOUT_S = 10.0
_TOKEN_BYTES = 32
_LOGINS_AT_A_TIME = 4
_TEXT_MAX = 1000

NewService = Callable[[ClusterClient, ClusterClient, str | None], ConsoleService]
"""Makes the service of a user, by two clients and the user's name."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """How many sessions there may be, when one ends, and how often its password is tried again, in seconds."""

    sessions: int = 100
    idle_s: float = 1800.0
    lasts_s: float = 12 * 3600.0
    verified_s: float = 60.0


@dataclass(slots=True, eq=False)
class Session:
    """A user who has logged in. Times are the loop's."""

    user: str
    service: ConsoleService
    clients: AsyncExitStack
    began_at: float
    used_at: float
    verified_at: float


@asynccontextmanager
async def open_service(
    bootstrap: str, login: ClientLogin | None, new_service: NewService, user: str | None
) -> AsyncIterator[ConsoleService]:
    """A service with clients that log in so; without a `login` as the running command does."""
    async with _new_client(bootstrap, login) as client, client.apart(TIMEOUT_S) as watching:
        service = new_service(client, watching, user)
        try:
            yield service
        finally:
            service.stop()


def _new_client(bootstrap: str, login: ClientLogin | None) -> ClusterClient:
    return ClusterClient(bootstrap, client_id=CLIENT_ID, timeout_s=_CLIENT_TIMEOUT_S, login=login, is_interactive=True)


class Sessions:
    """All sessions of one console. An async context manager, which ends them."""

    def __init__(
        self,
        bootstrap: str,
        logins: UserLogins,
        new_service: NewService,
        secret_bytes: Callable[[int], bytes],
        limits: SessionLimits,
    ) -> None:
        self._bootstrap = bootstrap
        self._logins = logins
        self._new_service = new_service
        self._secret_bytes = secret_bytes
        self._limits = limits
        self._of_user, self._of_address = LoginLimit(TRIES_OF_USER), LoginLimit(TRIES_OF_ADDRESS)
        self._sessions: dict[bytes, Session] = {}
        """By the hash of the token, so that a lookup tells nothing by its time."""
        self._at_once = asyncio.Semaphore(_LOGINS_AT_A_TIME)
        self._loop = asyncio.get_running_loop()
        self._expiry: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Sessions:
        self._expiry = asyncio.create_task(self._expire())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        for key in list(self._sessions):
            await self._end(key)

    def stop(self) -> None:
        """End the streams of all sessions."""
        for session in self._sessions.values():
            session.service.stop()

    async def log_in(self, user: str, password: str, address: str) -> str:
        """Begin a session; its token. Raises `RequestRefusedError` for a wrong password (401) and too many (429)."""
        if len(user) > _TEXT_MAX or len(password) > _TEXT_MAX:
            raise RequestRefusedError(400, f"a user and a password have at most {_TEXT_MAX} characters")
        credentials = Credentials(user, password)
        async with self._at_once:
            now = self._loop.time()
            wait_s = max(self._of_user.wait_s(user, now), self._of_address.wait_s(address, now))
            if wait_s:
                raise RequestRefusedError(429, f"too many logins have failed: try again in {math.ceil(wait_s)} s")
            try:
                await self._verify(_new_client(self._bootstrap, self._logins.login(credentials)))
            except RequestRefusedError:
                self._of_user.failed(user, self._loop.time())
                self._of_address.failed(address, self._loop.time())
                raise
        self._of_user.succeeded(user)
        while len(self._sessions) >= self._limits.sessions:
            await self._end(min(self._sessions, key=lambda one: self._sessions[one].used_at))
        clients = AsyncExitStack()
        login = self._logins.login(credentials)
        service = await clients.enter_async_context(open_service(self._bootstrap, login, self._new_service, user))
        token, now = self._secret_bytes(_TOKEN_BYTES).hex(), self._loop.time()
        self._sessions[_key(token)] = Session(user, service, clients, now, now, now)
        return token

    async def log_out(self, token: str) -> None:
        """End a session, if there is one."""
        await self._end(_key(token))

    async def of(self, token: str) -> Session | None:
        """The session of a token; None if there is none, or if it has ended. `ClientError` where nobody can say."""
        key = _key(token)
        session = self._sessions.get(key)
        if session is None or self._is_over(session):
            await self._end(key)
            return None
        session.used_at = now = self._loop.time()
        if now - session.verified_at > self._limits.verified_s:
            session.verified_at = now
            try:
                await self._verify(session.service.new_client())
            except RequestRefusedError:
                await self._end(key)
                return None
        return session

    async def _verify(self, client: ClusterClient) -> None:
        """Log in by a client without connections."""
        async with client:
            try:
                await client.metadata([])
            except WrongCredentialsError:
                raise RequestRefusedError(401, "the cluster does not take this user and password") from None

    def _is_over(self, session: Session) -> bool:
        now, limits = self._loop.time(), self._limits
        return now - session.used_at > limits.idle_s or now - session.began_at > limits.lasts_s

    async def _end(self, key: bytes) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            await session.clients.aclose()

    async def _expire(self) -> None:
        """End sessions that are over; one whose page is open is used."""
        while True:
            await asyncio.sleep(min(self._limits.verified_s, self._limits.idle_s) / 2)
            for key, session in list(self._sessions.items()):
                if session.service.watch.is_watched:
                    session.used_at = self._loop.time()
                await self._end_if_over(key, session)

    async def _end_if_over(self, key: bytes, session: Session) -> None:
        if self._is_over(session):
            await self._end(key)
        elif session.service.watch.is_watched and self._loop.time() - session.verified_at > self._limits.verified_s:
            session.verified_at = self._loop.time()
            try:
                await self._verify(session.service.new_client())
            except RequestRefusedError:
                await self._end(key)
            except (ClientError, OSError):
                pass  # nobody can say now: tried again later


def _key(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
