"""Clients of users: one login for requests that come together, limits, idle ones, and credentials that hold no more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest

from raftwerk.cluster.client.client_errors import NotLoggedInError, WrongCredentialsError
from raftwerk.cluster.http_logins.credentials import Credentials
from raftwerk.rest.errors import RestError, error_of
from raftwerk.rest.logins.users import UserClients, UserLimits, Users
from raftwerk.rest.services import Services

ALICE, BOB, CAROL = (Credentials(name, "secret") for name in ("alice", "bob", "carol"))


class Cluster:
    """A cluster that knows some users. It stands for the clients of one of them, and notes when they are closed."""

    def __init__(self, known: set[str]) -> None:
        self.known = known
        self.logins: list[str] = []
        self.closed: list[str] = []
        self.open: list[str] = []
        self.has_closed = asyncio.Event()
        self.is_misconfigured = False
        """Whether no login gets as far as the password."""
        self.closing = asyncio.Event()
        self.slow: dict[str, asyncio.Event] = {}
        """What the close of a user's clients waits for."""

    def clients(self) -> UserClients:
        def services(credentials: Credentials, cluster: Any, producer: Any) -> Services:
            return Services(cluster, producer, cast(Any, credentials.owner))

        return UserClients(
            lambda one: cast(Any, _Client(self, one.user)), lambda one: cast(Any, _Producer(self, one.user)), services
        )


class _Client:
    def __init__(self, cluster: Cluster, user: str) -> None:
        self._cluster, self._user = cluster, user

    async def __aenter__(self) -> _Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def view(self) -> None:
        self._cluster.logins.append(self._user)
        await asyncio.sleep(0)
        if self._cluster.is_misconfigured:
            raise NotLoggedInError({("localhost", 9092): "fails in the TLS handshake"}, "name its authority")
        if self._user not in self._cluster.known:
            raise WrongCredentialsError({("localhost", 9092): "refuses the login"}, "")


class _Producer(_Client):
    async def __aenter__(self) -> _Producer:
        self._cluster.open.append(self._user)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._cluster.closing.set()
        if self._user in self._cluster.slow:
            await self._cluster.slow[self._user].wait()
        self._cluster.open.remove(self._user)
        self._cluster.closed.append(self._user)
        self._cluster.has_closed.set()


def run(cluster: Cluster, limits: UserLimits, work: Callable[[Users], Awaitable[None]]) -> None:
    """Do this with users of the cluster."""

    async def all_of_it() -> None:
        async with Users(cluster.clients(), limits) as users:
            await work(users)

    asyncio.run(all_of_it())
    assert cluster.open == []


def test_requests_that_come_together_log_in_once() -> None:
    cluster = Cluster({"alice"})

    async def request(users: Users) -> None:
        async with users.use(ALICE) as services:
            assert cast(Any, services.consumers) == "alice"
            await asyncio.sleep(0)

    async def work(users: Users) -> None:
        await asyncio.gather(*(request(users) for _ in range(20)))
        await request(users)

    run(cluster, UserLimits(), work)
    assert (cluster.logins, cluster.closed) == (["alice"], ["alice"])


def test_a_login_that_fails_before_the_password_is_looked_at_leaves_a_user_its_clients() -> None:
    cluster = Cluster({"alice"})

    async def work(users: Users) -> None:
        async with users.use(ALICE):
            pass
        cluster.is_misconfigured = True
        with pytest.raises(NotLoggedInError) as caught:
            async with users.use(ALICE):
                pass
        answer = error_of(caught.value)
        assert (answer.status, str(answer)) == (
            503,
            "cannot log in: localhost:9092 fails in the TLS handshake: name its authority",
        )
        assert len(users) == 1

    run(cluster, UserLimits(verified_s=0.0), work)


def test_who_is_refused_has_no_clients_and_is_tried_again() -> None:
    cluster = Cluster(set())

    async def work(users: Users) -> None:
        for _ in range(2):
            with pytest.raises(RestError) as caught:
                async with users.use(ALICE):
                    pass
            assert (caught.value.code, caught.value.status, len(users)) == (40101, 401, 0)
        cluster.known.add("alice")
        async with users.use(ALICE):
            assert len(users) == 1

    run(cluster, UserLimits(), work)
    assert cluster.logins == ["alice"] * 3


def test_credentials_are_tried_again_after_a_while() -> None:
    cluster = Cluster({"alice"})

    async def work(users: Users) -> None:
        for _ in range(2):
            async with users.use(ALICE):
                pass
        assert (cluster.logins, cluster.closed) == (["alice"] * 2, [])
        cluster.known.clear()  # the password was changed
        with pytest.raises(RestError):
            async with users.use(ALICE):
                pass
        assert (len(users), cluster.closed) == (0, ["alice"])

    run(cluster, UserLimits(verified_s=0.0), work)


def test_there_are_no_more_users_than_may_be() -> None:
    cluster = Cluster({"alice", "bob", "carol"})

    async def work(users: Users) -> None:
        async with users.use(ALICE), AsyncExitStack() as stack:
            await stack.enter_async_context(users.use(BOB))
            with pytest.raises(RestError, match="2 users are being served") as caught:
                async with users.use(CAROL):
                    pass
            assert caught.value.status == 429
            await stack.aclose()
            async with users.use(CAROL):
                assert (len(users), cluster.closed) == (2, ["bob"])

    run(cluster, UserLimits(users=2), work)


def test_clients_that_nobody_uses_are_closed() -> None:
    cluster = Cluster({"alice", "bob"})

    async def work(users: Users) -> None:
        async with users.use(ALICE):
            async with users.use(BOB):
                pass
            await cluster.has_closed.wait()  # the test's limit of time ends it
            assert (len(users), cluster.closed) == (1, ["bob"])

    run(cluster, UserLimits(timeout_s=0.05), work)


def test_a_user_that_comes_again_while_another_ones_clients_are_closed_keeps_its_new_ones() -> None:
    cluster = Cluster({"alice", "bob"})

    async def work(users: Users) -> None:
        async with users.use(ALICE), users.use(BOB):
            pass
        cluster.slow["alice"] = asyncio.Event()
        await cluster.closing.wait()
        cluster.known.clear()
        with pytest.raises(RestError):
            async with users.use(BOB):
                pass
        cluster.known.add("bob")
        async with users.use(BOB):
            cluster.slow["alice"].set()
            for _ in range(20):
                await asyncio.sleep(0)
            assert cluster.open == ["bob"]

    run(cluster, UserLimits(timeout_s=0.05, verified_s=0.0), work)


def test_clients_in_use_are_closed_by_their_last_request_when_the_credentials_hold_no_more() -> None:
    """A stream of records uses them: what it still sent was never answered, and it hung."""
    cluster = Cluster({"alice"})

    async def work(users: Users) -> None:
        async with users.use(ALICE):
            async with users.use(ALICE):
                cluster.known.clear()
                with pytest.raises(RestError):
                    async with users.use(ALICE):
                        pass
                assert (len(users), cluster.closed) == (0, [])
            assert cluster.closed == []
            cluster.known.add("alice")
            async with users.use(ALICE):  # with new clients
                assert cluster.open == ["alice", "alice"]
        assert (len(users), cluster.closed) == (1, ["alice"])

    run(cluster, UserLimits(verified_s=0.0), work)
