"""The clients by which users act at the cluster: made when a user comes, kept while used, closed after a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from ...cluster.client.client_errors import WrongCredentialsError
from ...cluster.http_logins.credentials import Credentials
from ..errors import AUTHENTICATION_FAILED, RestError
from ..record_producer import RecordProducer
from ..rest_cluster import RestCluster
from ..services import Services

_LOGINS_AT_A_TIME = 10
_LOOKS_PER_TIMEOUT = 4

NewServices = Callable[[Credentials, RestCluster, RecordProducer], Services]
"""Makes the services of a user out of its own clients."""


@dataclass(frozen=True, slots=True)
class UserClients:
    """How the clients of a user are made."""

    cluster: Callable[[Credentials], RestCluster]
    producer: Callable[[Credentials], RecordProducer]
    services: NewServices


@dataclass(frozen=True, slots=True)
class UserLimits:
    """How many users may have clients, and after which time without a request those of one are closed.

    After `verified_s` credentials are tried again: a password may have been changed, or a token have expired.
    """

    users: int = 100
    timeout_s: float = 300.0
    verified_s: float = 60.0


@dataclass(slots=True)
class _User:
    """A user with its clients. Times are the loop's."""

    services: Services
    clients: AsyncExitStack
    verified_at: float
    used_at: float
    requests: int = 0


@dataclass(slots=True)
class _Arriving:
    """Requests of one user that come at the same time, for which it logs in once."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    requests: int = 0


class Users:
    """Keeps the clients of users by their credentials. An async context manager, which closes them all."""

    def __init__(self, clients: UserClients, limits: UserLimits) -> None:
        self._clients = clients
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._users: dict[Credentials, _User] = {}
        self._arriving: dict[Credentials, _Arriving] = {}
        self._logins = asyncio.Semaphore(_LOGINS_AT_A_TIME)
        self._expiry: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Users:
        self._expiry = asyncio.ensure_future(self._expire())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        await asyncio.gather(*(self._close(one) for one in list(self._users)), return_exceptions=True)

    def __len__(self) -> int:
        return len(self._users)

    @asynccontextmanager
    async def use(self, credentials: Credentials) -> AsyncIterator[Services]:
        """The services of a user, which stay open meanwhile.

        Raises `RestError` (40101) where the cluster does not take the credentials, (429) for too many users, and
        `ClientError` where no broker answers.
        """
        user = await self._user(credentials)
        user.requests += 1
        try:
            yield user.services
        finally:
            user.requests -= 1
            user.used_at = self._loop.time()
            if self._users.get(credentials) is not user:  # it was refused meanwhile, and its clients are to be closed
                await _close_if_idle(user)

    async def _user(self, credentials: Credentials) -> _User:
        arriving = self._arriving.setdefault(credentials, _Arriving())
        arriving.requests += 1
        try:
            async with arriving.lock:
                user = self._users.get(credentials)
                if user is not None and self._loop.time() - user.verified_at < self._limits.verified_s:
                    return user
                await self._verify(credentials)
                user = self._users.get(credentials) or await self._new(credentials)
                user.verified_at = self._loop.time()
                return user
        finally:
            arriving.requests -= 1
            if not arriving.requests:
                del self._arriving[credentials]

    async def _verify(self, credentials: Credentials) -> None:
        """Log in by a connection of its own.

        Raises `RestError` where the cluster refuses. The clients serve no more requests then, and are closed.
        """
        try:
            async with self._logins, self._clients.cluster(credentials) as cluster:
                await cluster.view()
        except WrongCredentialsError:
            if credentials in self._users:
                await self._close(credentials)
            text = "Authentication failed: the cluster does not take these credentials"
            raise RestError(AUTHENTICATION_FAILED, text) from None

    async def _new(self, credentials: Credentials) -> _User:
        if len(self._users) >= self._limits.users:
            await self._make_room()
        clients = AsyncExitStack()
        cluster = await clients.enter_async_context(self._clients.cluster(credentials))
        producer = await clients.enter_async_context(self._clients.producer(credentials))
        now = self._loop.time()
        made = _User(self._clients.services(credentials, cluster, producer), clients, now, now)
        self._users[credentials] = made
        return made

    async def _make_room(self) -> None:
        """Close the clients of the user that has made no request for the longest time."""
        idle = [(user.used_at, one) for one, user in self._users.items() if not user.requests]
        if not idle:
            raise RestError(429, f"{len(self._users)} users are being served: try again in a moment")
        await self._close(min(idle, key=lambda one: one[0])[1])

    async def _close(self, credentials: Credentials) -> None:
        """Close the clients of a user, which its requests may still use: then the last of them does."""
        user = self._users.pop(credentials, None)
        if user is not None:
            await _close_if_idle(user)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(self._limits.timeout_s / _LOOKS_PER_TIMEOUT)
            earliest = self._loop.time() - self._limits.timeout_s
            for one in list(self._users):
                user = self._users.get(one)  # another one, perhaps: to close the one before took a while
                if user is not None and not user.requests and user.used_at <= earliest:
                    await self._close(one)


async def _close_if_idle(user: _User) -> None:
    if not user.requests:
        await user.clients.aclose()
