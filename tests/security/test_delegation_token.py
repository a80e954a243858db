"""Logins by delegation tokens: SCRAM with the extension tokenauth, and how long the login holds."""

from __future__ import annotations

from base64 import b64encode

import pytest

from raftwerk.security.delegation_token import DelegationToken, TokenKey, TokenLogins
from raftwerk.security.principal_serde import deserialize, serialize
from raftwerk.security.principals import KafkaPrincipal, principal_of_text
from raftwerk.security.sasl.mechanism import Authenticated, SaslAuthenticationError
from raftwerk.security.sasl.scram import ScramClientExchange, ScramServer
from raftwerk.security.sasl.scram_credential import SCRAM_MECHANISMS, SCRAM_SHA_256, ScramCredential
from raftwerk.security.sasl.session import SaslSession
from raftwerk.wire.errors import ErrorCode

KEY = TokenKey("sesame")
SECRET = b64encode(KEY.hmac_of("t1")).decode()
ALICE = KafkaPrincipal("User", "alice", True)


class Node:
    """What a node knows of tokens, and its clock."""

    def __init__(self, key: TokenKey | None = KEY) -> None:
        self.tokens = {"t1": DelegationToken("User:alice", "User:bob", (), 0, 100_000, 60_000)}
        self.now_ms = 0
        self.salts = 0
        self.logins = TokenLogins(key, lambda: self.tokens, lambda: self.now_ms, self._salt)

    def _salt(self, size: int) -> bytes:
        self.salts += 1
        return b"s" * size

    def server(self, mechanism: str = SCRAM_SHA_256) -> ScramServer:
        return ScramServer(mechanism, no_users, "server-nonce", self.logins.find)


def no_users(mechanism: str, user: str) -> ScramCredential | None:
    return None


def client(mechanism: str = SCRAM_SHA_256, user: str = "t1", secret: str = SECRET) -> ScramClientExchange:
    return ScramClientExchange(mechanism, user, secret, "client-nonce", is_token=True)


def log_in(server: ScramServer, one: ScramClientExchange, first: bytes | None = None) -> Authenticated | None:
    token: bytes | None = one.first() if first is None else first
    while token is not None:
        token = one.evaluate(server.evaluate(token))
    return server.result


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS.values())
def test_a_token_logs_in_as_its_owner_until_it_expires(mechanism: str) -> None:
    node = Node()
    node.now_ms = 20_000
    result = log_in(node.server(mechanism), client(mechanism))
    assert result == Authenticated(ALICE, 40_000)
    assert log_in(node.server(mechanism), client(mechanism)) == result
    assert node.salts == 1
    node.logins.forget("t1")
    log_in(node.server(mechanism), client(mechanism))
    assert node.salts == 2


@pytest.mark.parametrize("extensions", ["tokenauth=TRUE", "x=1,tokenauth=true", "abc=1,tokenauth=true"])
def test_other_extensions_are_passed_over(extensions: str) -> None:
    class Extended(ScramClientExchange):
        def first(self) -> bytes:
            self._extensions = f",{extensions}"
            return super().first()

    assert log_in(Node().server(), Extended(SCRAM_SHA_256, "t1", SECRET, "nonce")) == Authenticated(ALICE, 60_000)


@pytest.mark.parametrize(
    ("user", "secret", "expiry_ms", "key", "reason"),
    [
        ("t1", "wrong", 1, KEY, "invalid credentials"),
        ("t2", SECRET, 1, KEY, "not known, or has expired"),
        ("t1", SECRET, 0, KEY, "not known, or has expired"),
        ("t1", SECRET, -1, KEY, "not known, or has expired"),
        ("t1", SECRET, 1, None, "not known, or has expired"),
        ("t1", SECRET, 1, TokenKey("another"), "invalid credentials"),
    ],
)
def test_refused(user: str, secret: str, expiry_ms: int, key: TokenKey | None, reason: str) -> None:
    node = Node(key)
    node.tokens["t1"] = node.tokens["t1"]._replace(expiry_timestamp_ms=expiry_ms)
    with pytest.raises(SaslAuthenticationError, match="invalid credentials") as caught:
        log_in(node.server(), client(user=user, secret=secret))
    assert reason in caught.value.reason
    assert SECRET not in str(caught.value) + caught.value.reason


@pytest.mark.parametrize("extension", ["", "tokenauth", "m=1", "tokenauth=", "tokenauth=true,tokenauth=true", "1=2"])
def test_malformed_extensions(extension: str) -> None:
    with pytest.raises(SaslAuthenticationError, match="invalid credentials"):
        Node().server().evaluate(f"n,,n=t1,r=abc,{extension}".encode())


def test_a_token_is_no_user_and_a_user_is_no_token() -> None:
    with pytest.raises(SaslAuthenticationError):
        log_in(Node().server(), ScramClientExchange(SCRAM_SHA_256, "t1", SECRET, "nonce"))


def test_a_token_that_ends_during_the_login() -> None:
    node = Node()
    server, one = node.server(), client()
    answer = one.evaluate(server.evaluate(one.first()))
    assert answer is not None
    node.tokens.clear()
    with pytest.raises(SaslAuthenticationError):
        server.evaluate(answer)
    assert server.result is None


def test_a_renewed_token_prolongs_the_session_and_a_removed_one_ends_it() -> None:
    node = Node()
    session = SaslSession({SCRAM_SHA_256: node.server}, {SCRAM_SHA_256: 50_000})

    def log_in_again() -> tuple[ErrorCode, int]:
        one = client()
        session.handshake(SCRAM_SHA_256)
        final = one.evaluate(session.evaluate(one.first()).token)
        answer = session.evaluate(final or b"")
        return answer.error, answer.session_lifetime_ms

    assert log_in_again() == (ErrorCode.NONE, 50_000)
    node.now_ms = 30_000
    assert log_in_again() == (ErrorCode.NONE, 30_000)
    node.tokens["t1"] = node.tokens["t1"]._replace(expiry_timestamp_ms=75_000)
    assert log_in_again() == (ErrorCode.NONE, 45_000)
    node.tokens.clear()
    session.handshake(SCRAM_SHA_256)
    assert session.evaluate(client().first()).error is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_an_envelope_says_that_a_token_was_shown() -> None:
    assert deserialize(serialize(ALICE)) == ALICE
    assert principal_of_text(str(ALICE), is_token=True) == ALICE
    assert str(ALICE) == "User:alice"
    assert KEY.hmac_of("t1").hex() not in repr(KEY)
