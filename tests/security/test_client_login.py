"""How a node stays logged in on a connection that it has opened: it logs in again before each end of the session."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest
from support.broker.broker_harness import Harness

from raftwerk.broker.network.listener_security import ListenerSecurity
from raftwerk.broker.network.server import Server, ServerConfig
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.chaos.sim.kernel.network import NetworkConfig, SimNetwork
from raftwerk.chaos.sim.kernel.trace import Trace
from raftwerk.security import client_login
from raftwerk.security.client_login import RENEW_AT, RENEW_PAUSE_MIN_S, AuthenticationFailedError, ClientLogin
from raftwerk.security.oauthbearer.exchange import OAUTHBEARER, OAuthBearerClient, OAuthBearerServer
from raftwerk.security.oauthbearer.token_source import TokenError, TokenSource
from raftwerk.security.oauthbearer.unsecured_tokens import UnsecuredTokens, unsecured_token
from raftwerk.security.sasl.plain import PLAIN, PlainClient, PlainServer
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.client import Connection, RequestTimedOutError, connect

SESSION_S = 1000
TOKEN_S = 300
CLOCK_SKEW_MS = 30_000
HOST = "node"


def on_virtual_time(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run on one host of the simulator's network."""
    scheduler = Scheduler()
    trace = Trace(lambda: scheduler.now_s)
    network = SimNetwork(scheduler, random.Random(1), trace, NetworkConfig(spike_probability=0))
    network.add_host(HOST)
    ProcessLoop(scheduler, HOST, network).run_until_complete(test(), 100_000.0)


class Cluster:
    """A listener whose sessions end, and what a client needs to log in there."""

    def __init__(self, port: int = 9092, session_s: float = SESSION_S) -> None:
        self.passwords = {"node": "secret"}
        self.is_endpoint_down = False
        self.unexpected: Exception | None = None
        self.prepared_at: list[float] = []
        mechanisms = {PLAIN: lambda: PlainServer(lambda user, password: self.passwords.get(user) == password)}
        security = ListenerSecurity(mechanisms=mechanisms, max_reauth_ms={PLAIN: int(session_s * 1000)})
        config = ServerConfig("SASL", HOST, port, max_idle_ms=-1, security=security)
        self.server = Server(config, Harness().server.dispatcher)

    async def prepare(self) -> None:
        self.prepared_at.append(asyncio.get_running_loop().time())
        if self.is_endpoint_down:
            raise TokenError("the token endpoint cannot be reached")
        if self.unexpected is not None:
            raise self.unexpected

    async def log_in(self, *, does_block: bool = False) -> Connection:
        await self.server.start()
        connection = await connect(HOST, self.server.port)
        login = ClientLogin(
            new_exchange=lambda _: PlainClient("node", "secret"), prepare=self.prepare, does_block=does_block
        )
        await login.log_in(connection, HOST)
        return connection


def test_a_session_is_kept_when_what_a_login_needs_is_missing_for_a_while() -> None:
    async def main() -> None:
        cluster = Cluster()
        connection = await cluster.log_in()
        cluster.is_endpoint_down = True
        await asyncio.sleep(RENEW_AT * SESSION_S + 50)
        assert not connection.is_closed
        assert 5 <= len(cluster.prepared_at) <= 8
        cluster.is_endpoint_down = False
        await asyncio.sleep(SESSION_S)
        assert (await connection.api_versions()) and not connection.is_closed

    on_virtual_time(main)


def test_a_session_that_cannot_be_renewed_ends() -> None:
    async def main() -> None:
        cluster = Cluster()
        connection = await cluster.log_in()
        cluster.is_endpoint_down = True
        await asyncio.sleep(SESSION_S - 15)
        assert not connection.is_closed
        await asyncio.sleep(15)
        assert connection.is_closed

    on_virtual_time(main)


@pytest.mark.parametrize("session_s", [0.1, 0.5, 0.9, 1.1, 3.0])
def test_a_short_session_is_kept(session_s: float) -> None:
    """After its end the listener takes nothing but a login: any other request would cut the connection."""

    async def main() -> None:
        cluster = Cluster(session_s=session_s)
        connection = await cluster.log_in()
        topics = {"topics": [], "allow_auto_topic_creation": False}
        for _ in range(200):
            await connection.request(ApiKey.METADATA, 4, topics)
            await asyncio.sleep(session_s / 20)
        assert not connection.is_closed
        assert 10 <= len(cluster.prepared_at) <= 16

    on_virtual_time(main)


def test_a_session_that_ends_while_a_quota_throttles_the_client_is_renewed_before_any_request() -> None:
    """A request that waited for longer than the login would be the first one after the end of the session."""

    async def main() -> None:
        cluster = Cluster(session_s=10.0)
        connection = await cluster.log_in()
        connection.throttle(30_000)
        topics = {"topics": [], "allow_auto_topic_creation": False}
        await asyncio.gather(*(connection.request(ApiKey.METADATA, 4, topics, timeout_s=1.0) for _ in range(3)))
        assert asyncio.get_running_loop().time() >= 30.0
        assert not connection.is_closed
        assert len(cluster.prepared_at) == 2

    on_virtual_time(main)


def test_a_request_gives_up_a_login_that_was_held_up_and_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        connection = await Cluster(session_s=10.0).log_in()
        connection.throttle(30_000)
        monkeypatch.setattr("raftwerk.broker.network.connection.Connection.buffer_updated", lambda *_: None)
        with pytest.raises(RequestTimedOutError):
            await connection.request(
                ApiKey.METADATA, 4, {"topics": [], "allow_auto_topic_creation": False}, timeout_s=5.0
            )
        assert 35.0 <= asyncio.get_running_loop().time() <= 41.0
        assert connection.is_closed

    on_virtual_time(main)


def test_a_refused_login_closes_the_connection_at_once() -> None:
    async def main() -> None:
        cluster = Cluster()
        connection = await cluster.log_in()
        cluster.passwords["node"] = "another"
        await asyncio.sleep(RENEW_AT * SESSION_S + 1)
        assert connection.is_closed

    on_virtual_time(main)


def test_an_error_that_nobody_expects_ends_a_session_and_is_reported() -> None:
    """Else the connection would stay open behind the end of its session, and its next request fail."""
    reported: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
        cluster = Cluster()
        connection = await cluster.log_in()
        cluster.unexpected = ValueError("a bug")
        await asyncio.sleep(RENEW_AT * SESSION_S + 1)
        assert connection.is_closed
        assert reported == [cluster.unexpected]

    on_virtual_time(main)


class ClusterWithTokens:
    """A listener that takes tokens for some seconds after their end, and a client whose token endpoint can be down.

    `client_is_late_ms` is how much the client's clock is behind the one of the cluster.
    """

    def __init__(self, client_is_late_ms: int = 0) -> None:
        self.is_endpoint_down = False
        self.logged_in_at: list[float] = []
        validate = UnsecuredTokens({"unsecuredValidatorAllowableClockSkewMs": str(CLOCK_SKEW_MS)})

        def new_server() -> OAuthBearerServer:
            self.logged_in_at.append(asyncio.get_running_loop().time())
            return OAuthBearerServer(validate, wall_ms)

        security = ListenerSecurity(mechanisms={OAUTHBEARER: new_server})
        config = ServerConfig("SASL", HOST, 9092, max_idle_ms=-1, security=security)
        self._server = Server(config, Harness().server.dispatcher)
        self._source = TokenSource(self._read, lambda: wall_ms() - client_is_late_ms)

    async def _read(self) -> str:
        if self.is_endpoint_down:
            raise TokenError("the token endpoint cannot be reached")
        options = {"unsecuredLoginStringClaim_sub": "node", "unsecuredLoginLifetimeSeconds": str(TOKEN_S)}
        return unsecured_token(options, wall_ms()) or ""

    async def log_in(self) -> Connection:
        await self._server.start()
        login = ClientLogin(new_exchange=lambda _: OAuthBearerClient(self._source.token), prepare=self._source.prepare)
        return await connect(HOST, self._server.port, login=login)


def wall_ms() -> int:
    return 1_700_000_000_000 + int(asyncio.get_running_loop().time() * 1000)


def test_a_token_that_has_ended_logs_in_no_more() -> None:
    """Servers take it for the clock skew, each time for 1 ms: it was hundreds of logins in a second."""

    async def main() -> None:
        cluster = ClusterWithTokens()
        connection = await cluster.log_in()
        cluster.is_endpoint_down = True
        await asyncio.sleep(TOKEN_S - 1)
        assert not connection.is_closed
        await asyncio.sleep(2)
        assert connection.is_closed
        assert [at for at in cluster.logged_in_at if at > TOKEN_S] == []

    on_virtual_time(main)


def test_logins_for_an_instant_are_not_repeated_at_once() -> None:
    """As where the client's clock is behind, so that its token has ended for the cluster alone."""

    async def main() -> None:
        cluster = ClusterWithTokens(client_is_late_ms=CLOCK_SKEW_MS // 2)
        await cluster.log_in()
        cluster.is_endpoint_down = True
        await asyncio.sleep(TOKEN_S + CLOCK_SKEW_MS / 1000)
        gaps = [after - before for before, after in pairwise(cluster.logged_in_at)]
        assert len(gaps) > 10
        assert min(gaps) >= RENEW_PAUSE_MIN_S

    on_virtual_time(main)


def test_a_system_without_threads_fails_a_login_and_ends_no_session_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kerberos needs a thread. Else the session would end, and nobody know why."""

    def no_thread(_: object) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        monkeypatch.setattr(client_login, "in_daemon_thread", client_login._at_once)
        connection = await Cluster().log_in(does_block=True)
        monkeypatch.setattr(client_login, "in_daemon_thread", no_thread)
        await asyncio.sleep(RENEW_AT * SESSION_S + 1)
        assert connection.is_closed
        with pytest.raises(AuthenticationFailedError, match="can't start new thread"):
            await Cluster(9093).log_in(does_block=True)

    on_virtual_time(main)
