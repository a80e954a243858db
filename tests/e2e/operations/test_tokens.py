"""`raftwerk tokens`, logins by tokens, and connections by tokens that end, on a node whose clients log in."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.e2e.clusters import start_cluster
from support.e2e.command import ok, raftwerk

from raftwerk.cluster.local.supervisor import Supervisor
from raftwerk.security.client_login import ClientLogin
from raftwerk.security.sasl.plain import PlainClient
from raftwerk.security.sasl.scram import ScramClientExchange, new_nonce
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.client import Connection, ConnectionLostError, connect
from raftwerk.wire.errors import ErrorCode

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
SECRET_KEY = "open-sesame-0123"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    users = 'username="node" password="n" user_node="n" user_alice="a" user_bob="b"'
    overrides = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": f"{PLAIN} {users};",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": f"{PLAIN} {users};",
        "delegation.token.secret.key": SECRET_KEY,
        "delegation.token.expiry.check.interval.ms": "500",
    }
    supervisor = start_cluster(tmp_path_factory.mktemp("cluster"), 1, overrides=overrides)
    yield supervisor
    supervisor.stop()


class Clients:
    """How users, and those who have tokens, call commands."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._directory = directory

    def of_user(self, user: str) -> tuple[str, ...]:
        """The options of a user, whose password is the first letter of the name."""
        return self._options(user, "PLAIN", f'{PLAIN} username="{user}" password="{user[0]}";')

    def of_token(self, token: dict[str, Any]) -> tuple[str, ...]:
        login = f'{SCRAM} username="{token["id"]}" password="{token["hmac"]}" tokenauth="true";'
        return self._options("token", "SCRAM-SHA-256", login)

    def _options(self, name: str, mechanism: str, login: str) -> tuple[str, ...]:
        file = self._directory / f"{name}.properties"
        lines = ("security.protocol=SASL_PLAINTEXT", f"sasl.mechanism={mechanism}", f"sasl.jaas.config={login}")
        file.write_text("\n".join(lines))
        return "-b", self._bootstrap, "--command-config", str(file)

    def create(self, *arguments: str) -> dict[str, Any]:
        """A token of alice."""
        made: dict[str, Any] = json.loads(ok("tokens", "create", "--json", *arguments, *self.of_user("alice")))
        return made


@pytest.fixture
def clients(cluster: Supervisor, tmp_path: Path) -> Clients:
    return Clients(cluster.plan.bootstrap, tmp_path)


def eventually(holds: Callable[[], bool], timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.05)


def test_tokens_are_made_used_renewed_and_ended(clients: Clients) -> None:
    alice, bob = clients.of_user("alice"), clients.of_user("bob")
    none = raftwerk("tokens", "list", *alice)
    assert (none.returncode, none.stdout, none.stderr) == (0, "", "There are no tokens that you may see.\n")
    made = clients.create("--renewer", "bob", "--max-lifetime", "2d")
    assert (made["owner"], made["requester"], made["renewers"]) == ("User:alice", "User:alice", ["User:bob"])
    assert len(b64decode(made["hmac"])) == 64
    assert (made["max_ms"] - made["issued_ms"], made["expires_ms"] - made["issued_ms"]) == (172_800_000, 86_400_000)
    assert raftwerk("topics", "list", *clients.of_token(made)).returncode == 0

    shown = ok("tokens", "list", *bob)
    assert f"id        {made['id']}\nowner     User:alice\nrenewers  User:bob\nexpires   20" in shown
    assert made["hmac"] not in shown + ok("tokens", "list", "--json", *bob)
    assert made["hmac"] in ok("tokens", "list", "--secrets", "--owner", "alice", *bob)
    assert ok("tokens", "renew", made["id"], "--period", "12h", *bob).startswith(f"Token {made['id']} expires at 20")
    assert "expires at 20" in ok("tokens", "expire", made["id"], "--after", "10m", *alice)
    assert ok("tokens", "expire", made["id"], *bob) == f"Ended token {made['id']}.\n"
    eventually(lambda: raftwerk("topics", "list", *clients.of_token(made)).returncode == 1)
    told = " ".join(raftwerk("topics", "list", *clients.of_token(made)).stderr.split())
    assert "the delegation token may have expired, or was ended: raftwerk tokens list shows" in told
    assert "users list" not in told


def test_what_is_refused(clients: Clients, cluster: Supervisor) -> None:
    made = clients.create("--owner", "User:carol")
    assert (made["owner"], made["requester"]) == ("User:carol", "User:alice")
    for arguments, way in (
        (("renew", made["id"], *clients.of_user("alice")), "only its owner and its renewers may change it"),
        (("expire", "none", *clients.of_user("alice")), "there is no token none that you may see"),
        (("create", *clients.of_token(made)), "a --command-config with a user's name and password"),
    ):
        told = raftwerk("tokens", *arguments)
        assert (told.returncode, told.stdout) == (1, "")
        assert way in " ".join(told.stderr.split()), told.stderr
    for arguments in (("--max-lifetime", "7"), ("--renewer", ""), ("--owner", ":x")):
        told = raftwerk("tokens", "create", *arguments, *clients.of_user("alice"))
        assert told.returncode == 2, told.stderr
    log = "".join(ok("logs", "-d", cluster.plan.directory))
    assert made["hmac"] not in log
    assert SECRET_KEY not in log
    described = ok("configs", "show", "--broker", "1", "--all", *clients.of_user("alice"))
    assert "delegation.token.max.lifetime.ms" in described
    assert SECRET_KEY not in described


def _login(token: dict[str, Any]) -> ClientLogin:
    def exchange(_: str) -> ScramClientExchange:
        nonce = new_nonce(lambda size: b"n" * size)
        return ScramClientExchange("SCRAM-SHA-256", token["id"], token["hmac"], nonce, is_token=True)

    return ClientLogin(new_exchange=exchange)


async def _connection(cluster: Supervisor, token: dict[str, Any], *, logs_in_again: bool) -> Connection:
    login = _login(token)
    host, _, port = cluster.plan.bootstrap.rpartition(":")
    if logs_in_again:
        return await connect(host, int(port), login=login)
    return await connect(host, int(port), login=_Once(login))


class _Once:
    """A login that is not repeated before the session ends."""

    def __init__(self, login: ClientLogin) -> None:
        self._login = login

    def connection_options(self, host: str) -> dict[str, Any]:
        return self._login.connection_options(host)

    async def log_in(self, connection: Connection, host: str) -> None:
        assert self._login.new_exchange is not None
        self.lifetime_ms = await self._login._log_in_once(connection, partial(self._login.new_exchange, host))


async def _ask(connection: Connection) -> Any:
    return await connection.request(ApiKey.DESCRIBE_CLUSTER, 0, {}, timeout_s=10)


def test_a_connection_ends_with_its_token(clients: Clients, cluster: Supervisor) -> None:
    """Who logs in again in time keeps it while the token is renewed (KIP-368); expired tokens are removed."""
    made = clients.create("--max-lifetime", "6s")

    async def main() -> None:
        once = await _connection(cluster, made, logs_in_again=False)
        again = await _connection(cluster, made, logs_in_again=True)
        began = time.monotonic()
        for connection in (once, again):
            assert (await _ask(connection)).error_code == ErrorCode.NONE
        for connection in (once, again):
            with pytest.raises((ConnectionLostError, OSError)):
                while time.monotonic() < began + 20:
                    await _ask(connection)
                    await asyncio.sleep(0.05)
        assert 4 < time.monotonic() - began < 15

    asyncio.run(main())
    eventually(lambda: made["id"] not in ok("tokens", "list", *clients.of_user("alice")))
    assert raftwerk("topics", "list", *clients.of_token(made)).returncode == 1


def test_controllers_know_tokens_too(clients: Clients, cluster: Supervisor) -> None:
    """They take logins by tokens, and make tokens for who asks them without a broker (KIP-919)."""
    made = clients.create()
    port = cluster.plan.nodes[0].controller_port
    assert port is not None
    fields: dict[str, Any] = {
        "owner_principal_type": None,
        "owner_principal_name": None,
        "renewers": [],
        "max_lifetime": -1,
    }

    async def main() -> None:
        for login, code in (
            (_login(made), ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
            (ClientLogin(new_exchange=lambda _: PlainClient("bob", "b")), ErrorCode.NONE),
        ):
            connection = await connect("127.0.0.1", port, login=login)
            answer = await connection.request(ApiKey.CREATE_DELEGATION_TOKEN, 3, fields, timeout_s=10)
            assert answer.error_code == code
            connection.close()

    asyncio.run(main())
    assert "owner     User:bob" in ok("tokens", "list", *clients.of_user("bob"))


def test_a_token_holds_through_a_kill_and_a_restart(clients: Clients, cluster: Supervisor) -> None:
    made = clients.create()
    cluster.kill(1)
    cluster.restart_node(1)
    eventually(lambda: raftwerk("topics", "list", *clients.of_token(made)).returncode == 0)
    rows = [json.loads(line) for line in ok("tokens", "list", "--json", *clients.of_user("alice")).splitlines()]
    assert {name: value for name, value in made.items() if name != "hmac"} in rows
