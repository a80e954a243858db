"""kafka-delegation-tokens and other tools of Apache Kafka that log in by a token, against three nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from support.e2e.clusters import start_cluster
from support.e2e.java_tools import JavaTools

from raftwerk.cluster.local.supervisor import Supervisor

pytestmark = pytest.mark.java
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
TOKENS = "DelegationTokenCommand"
HMAC_CHARS = 88
REFUSED = "Authentication failed during authentication due to invalid credentials"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    users = 'username="node" password="n" user_node="n" user_alice="a" user_bob="b" user_carol="c"'
    overrides = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": f"{PLAIN} {users};",
        "delegation.token.secret.key": "sesame",
    }
    supervisor = start_cluster(tmp_path_factory.mktemp("cluster"), 3, overrides=overrides)
    yield supervisor
    supervisor.stop()


class Token(NamedTuple):
    """A row of what kafka-delegation-tokens prints."""

    token_id: str
    hmac: str
    owner: str
    requester: str
    renewers: str


def rows_of(told: str) -> dict[str, Token]:
    rows = [line.split() for line in told.splitlines()]
    tokens = [Token(row[0], row[1], *(one.strip("[]") for one in row[2:5])) for row in rows if len(row) > 4]
    return {one.token_id: one for one in tokens if len(one.hmac) == HMAC_CHARS}


class Tools:
    """The tools, as users and as those who have tokens."""

    def __init__(self, java_tools: JavaTools, bootstrap: str, directory: Path) -> None:
        self._java_tools = java_tools
        self._at = ("--bootstrap-server", bootstrap)
        self._file = directory / "client.properties"

    def tokens(self, user: str, *arguments: str, fails: bool = False) -> str:
        """kafka-delegation-tokens of a user, whose password is the first letter of the name."""
        login = f'{PLAIN} username="{user}" password="{user[0]}"'
        return self._run("PLAIN", login, TOKENS, *arguments, fails=fails)

    def seen(self, user: str, owner: str = "User:alice") -> dict[str, Token]:
        """The tokens of an owner that the user may see."""
        return rows_of(self.tokens(user, "--describe", "--owner-principal", owner))

    def sees(self, user: str, token: Token) -> bool:
        return self.seen(user).get(token.token_id) == token

    def can_log_in(self, token: Token, mechanism: str) -> bool:
        return REFUSED not in self.topics(token, mechanism)

    def topics(self, token: Token, mechanism: str, *, fails: bool = False) -> str:
        """kafka-topics, which logs in by a token."""
        return self.by_token(token, mechanism, "TopicCommand", "--list", fails=fails)

    def by_token(self, token: Token, mechanism: str, *arguments: str, fails: bool = False) -> str:
        login = f'{SCRAM} username="{token.token_id}" password="{token.hmac}" tokenauth="true"'
        return self._run(mechanism, login, *arguments, fails=fails)

    def _run(self, mechanism: str, login: str, tool: str, *arguments: str, fails: bool) -> str:
        lines = ("security.protocol=SASL_PLAINTEXT", f"sasl.mechanism={mechanism}", f"sasl.jaas.config={login};")
        self._file.write_text("\n".join(lines))
        return self._java_tools.run(tool, *self._at, "--command-config", str(self._file), *arguments, fails=fails)


@pytest.fixture
def tools(java_tools: JavaTools, cluster: Supervisor, tmp_path: Path) -> Tools:
    return Tools(java_tools, cluster.plan.bootstrap, tmp_path)


def eventually(holds: Callable[[], bool], timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end, "not in time"


def test_a_token_is_made_used_renewed_and_ended(tools: Tools) -> None:
    made = tools.tokens("alice", "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    ((token_id, token),) = rows_of(made).items()
    assert token[2:] == ("User:alice", "User:alice", "User:bob")
    for user in ("alice", "bob"):
        eventually(partial(tools.sees, user, token))
    assert not rows_of(tools.tokens("alice", "--describe"))  # which asks for the tokens of no owners

    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        eventually(partial(tools.can_log_in, token, mechanism))
    told = tools.by_token(token, "SCRAM-SHA-256", TOKENS, "--describe", fails=True)
    assert "DelegationTokenDisabledException" not in told
    assert "Delegation Token requests are not allowed" in told
    assert REFUSED in tools.topics(token._replace(hmac="d3Jvbmc="), "SCRAM-SHA-256", fails=True)

    told = tools.tokens("bob", "--renew", "--renew-time-period", "60000", "--hmac", token.hmac)
    assert "expiry date" in told
    for command in (("--renew", "--renew-time-period"), ("--expire", "--expiry-time-period")):
        told = tools.tokens("carol", *command, "1", "--hmac", token.hmac, fails=True)
        assert "DelegationTokenOwnerMismatchException" in told
        told = tools.tokens("alice", *command, "1", "--hmac", "bm9uZQ==", fails=True)
        assert "DelegationTokenNotFoundException" in told

    tools.tokens("alice", "--expire", "--expiry-time-period", "0", "--hmac", token.hmac)
    assert REFUSED in tools.topics(token, "SCRAM-SHA-512", fails=True)
    tools.tokens("alice", "--expire", "--expiry-time-period", "-1", "--hmac", token.hmac)
    eventually(lambda: token_id not in tools.seen("alice"))
    assert REFUSED in tools.topics(token, "SCRAM-SHA-256", fails=True)


def test_a_token_for_another_owner(tools: Tools) -> None:
    """Without an authorizer everybody may make one (KIP-373)."""
    made = tools.tokens("carol", "--create", "--max-life-time-period", "600000", "--owner-principal", "User:bob")
    (token,) = rows_of(made).values()
    assert token[2:4] == ("User:bob", "User:carol")
    eventually(lambda: token.token_id in tools.seen("carol", "User:bob"))
