"""How a node stays logged in on a connection that it has opened: it logs in again before each end of the session."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from support.broker.broker_harness import Harness

from raftwerk.broker.network.listener_security import ListenerSecurity
from raftwerk.broker.network.server import Server, ServerConfig
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.chaos.sim.kernel.network import NetworkConfig, SimNetwork
from raftwerk.chaos.sim.kernel.trace import Trace
from raftwerk.security import client_login
from raftwerk.security.client_login import RENEW_AT, AuthenticationFailedError, ClientLogin
from raftwerk.security.oauthbearer.token_source import TokenError
from raftwerk.security.sasl.plain import PLAIN, PlainClient, PlainServer
from raftwerk.wire.client import Connection, connect

SESSION_S = 1000
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

    def __init__(self, port: int = 9092) -> None:
        self.passwords = {"node": "secret"}
        self.is_endpoint_down = False
        self.prepared_at: list[float] = []
        mechanisms = {PLAIN: lambda: PlainServer(lambda user, password: self.passwords.get(user) == password)}
        security = ListenerSecurity(mechanisms=mechanisms, max_reauth_ms={PLAIN: SESSION_S * 1000})
        config = ServerConfig("SASL", HOST, port, max_idle_ms=-1, security=security)
        self.server = Server(config, Harness().server.dispatcher)

    async def prepare(self) -> None:
        self.prepared_at.append(asyncio.get_running_loop().time())
        if self.is_endpoint_down:
            raise TokenError("the token endpoint cannot be reached")

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


def test_a_refused_login_closes_the_connection_at_once() -> None:
    async def main() -> None:
        cluster = Cluster()
        connection = await cluster.log_in()
        cluster.passwords["node"] = "another"
        await asyncio.sleep(RENEW_AT * SESSION_S + 1)
        assert connection.is_closed

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
