"""The SASL mechanisms from token to token, on both sides, and the session of a connection."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.security.principals import KafkaPrincipal
from raftwerk.security.sasl import plain
from raftwerk.security.sasl.mechanism import Authenticated, SaslAuthenticationError
from raftwerk.security.sasl.plain import PlainClient, PlainServer, passwords_of
from raftwerk.security.sasl.scram import ScramClientExchange, ScramServer
from raftwerk.security.sasl.scram_credential import (
    SCRAM_MECHANISMS,
    SCRAM_SHA_256,
    ScramCredential,
    credential_of,
    salted,
)
from raftwerk.security.sasl.session import MakeMechanism, SaslSession
from raftwerk.wire.errors import ErrorCode

ALICE = KafkaPrincipal("User", "alice")
is_valid = passwords_of({"user_alice": "wonder", "user_bob": "bricks", "username": "alice", "password": "x"})
SALT = b"salt" * 4
CREDENTIALS = {
    name: credential_of(name, salted(name, "wonder", SALT, 4096), SALT, 4096) for name in SCRAM_MECHANISMS.values()
}


def find(mechanism: str, user: str) -> ScramCredential | None:
    return CREDENTIALS[mechanism] if user == "alice" else None


def session(max_reauth_ms: int = 0) -> SaslSession:
    mechanisms: dict[str, MakeMechanism] = {
        "PLAIN": lambda: PlainServer(is_valid),
        SCRAM_SHA_256: lambda: ScramServer(SCRAM_SHA_256, find, "server-nonce"),
    }
    return SaslSession(mechanisms, dict.fromkeys(mechanisms, max_reauth_ms))


def test_plain() -> None:
    server = PlainServer(is_valid)
    assert server.evaluate(PlainClient("alice", "wonder").first()) == b""
    assert server.result == Authenticated(ALICE)
    same = PlainServer(is_valid)
    same.evaluate(b"alice\0alice\0wonder")
    assert same.result == Authenticated(ALICE)


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"alice",
        b"\0alice\0wrong",
        b"\0nobody\0wonder",
        b"\0nobody\0",
        b"\0\0wonder",
        b"\0alice\0",
        b"bob\0alice\0wonder",
        b"\0alice\0wonder\0more",
        b"\0\xff\0x",
    ],
)
def test_plain_refuses(token: bytes) -> None:
    server = PlainServer(is_valid)
    with pytest.raises(SaslAuthenticationError):
        server.evaluate(token)
    assert server.result is None


@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_passwords_are_compared_in_constant_time(user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CVE-2021-38153: also for a user that does not exist."""
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(plain, "compare_digest", compare)
    assert not is_valid(user, "wrong")
    assert [given for _, given in compared] == [b"wrong"]


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS.values())
def test_scram_both_sides(mechanism: str) -> None:
    server = ScramServer(mechanism, find, "server-nonce")
    client = ScramClientExchange(mechanism, "alice", "wonder", "client-nonce")
    second = client.evaluate(server.evaluate(client.first()))
    assert second is not None
    assert server.result is None
    assert client.evaluate(server.evaluate(second)) is None
    assert server.result == Authenticated(ALICE)


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "wonder")])
def test_scram_refuses_a_wrong_password_and_a_user_that_does_not_exist(user: str, password: str) -> None:
    server = ScramServer(SCRAM_SHA_256, find, "server-nonce")
    client = ScramClientExchange(SCRAM_SHA_256, user, password, "client-nonce")
    with pytest.raises(SaslAuthenticationError, match="invalid credentials"):
        server.evaluate(client.evaluate(server.evaluate(client.first())) or b"")
    assert server.result is None


def test_scram_checks_the_nonce_of_the_final_message() -> None:
    """CVE-2024-56128: without this a proof that was overheard could be used again."""
    client = ScramClientExchange(SCRAM_SHA_256, "alice", "wonder", "client-nonce")
    first = client.first()
    overheard = client.evaluate(ScramServer(SCRAM_SHA_256, find, "server-nonce").evaluate(first))
    assert overheard is not None
    later = ScramServer(SCRAM_SHA_256, find, "another-nonce")
    later.evaluate(first)
    with pytest.raises(SaslAuthenticationError, match="librdkafka before"):
        later.evaluate(overheard)


def test_a_scram_client_notices_a_server_that_does_not_know_the_password() -> None:
    other = credential_of(SCRAM_SHA_256, salted(SCRAM_SHA_256, "other", SALT, 4096), SALT, 4096)
    server = ScramServer(SCRAM_SHA_256, lambda *_: other, "server-nonce")
    client = ScramClientExchange(SCRAM_SHA_256, "alice", "wonder", "client-nonce")
    client.evaluate(server.evaluate(client.first()))
    with pytest.raises(SaslAuthenticationError):
        client.evaluate(b"v=" + b"A" * 43 + b"=")


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_no_tokens_break_scram(tokens: list[bytes]) -> None:
    server = ScramServer(SCRAM_SHA_256, find, "server-nonce")
    for token in tokens:
        try:
            server.evaluate(token)
        except SaslAuthenticationError:
            break
    assert server.result is None


def test_a_token_without_a_handshake_is_refused() -> None:
    assert session().evaluate(b"\0alice\0wonder").error is ErrorCode.ILLEGAL_SASL_STATE


def test_an_unknown_mechanism_is_refused() -> None:
    assert session().handshake("GSSAPI") is ErrorCode.UNSUPPORTED_SASL_MECHANISM


def test_two_handshakes_are_refused() -> None:
    one = session()
    assert one.handshake("PLAIN") is ErrorCode.NONE
    assert one.handshake("PLAIN") is ErrorCode.ILLEGAL_SASL_STATE


def test_a_session_holds_as_long_as_is_set() -> None:
    one = session(60_000)
    one.handshake("PLAIN")
    answer = one.evaluate(b"\0alice\0wonder")
    assert (answer.error, answer.session_lifetime_ms) == (ErrorCode.NONE, 60_000)
    assert one.principal == ALICE


def test_a_peer_that_logs_in_again_must_be_the_same_by_the_same_mechanism() -> None:
    one = session()
    one.handshake("PLAIN")
    one.evaluate(b"\0alice\0wonder")
    assert one.handshake(SCRAM_SHA_256) is ErrorCode.ILLEGAL_SASL_STATE
    assert one.handshake("PLAIN") is ErrorCode.NONE
    answer = one.evaluate(b"\0bob\0bricks")
    assert answer.error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert one.principal == ALICE


def test_after_a_failure_no_other_token_is_taken() -> None:
    """The answer is delayed; a client that does not wait for it must not guess on."""
    one = session()
    one.handshake("PLAIN")
    assert one.evaluate(b"\0alice\0wrong").error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert one.evaluate(b"\0alice\0wonder").error is ErrorCode.ILLEGAL_SASL_STATE
    assert one.handshake("PLAIN") is ErrorCode.ILLEGAL_SASL_STATE
    assert one.principal is None


def test_after_a_login_as_somebody_else_no_other_token_is_taken() -> None:
    one = session()
    one.handshake("PLAIN")
    one.evaluate(b"\0alice\0wonder")
    one.handshake("PLAIN")
    assert one.evaluate(b"\0bob\0bricks").error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert one.handshake("PLAIN") is ErrorCode.ILLEGAL_SASL_STATE
