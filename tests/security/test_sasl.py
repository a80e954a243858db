"""The SASL mechanisms from token to token, on both sides, and the session of a connection."""

from __future__ import annotations

from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.security.principals import KafkaPrincipal
from raftwerk.security.sasl import plain
from raftwerk.security.sasl.mechanism import Authenticated, ClientMechanism, SaslAuthenticationError
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


@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("bob\u00b2", "m\u00b2"),
        ("a\u00adb", "e\u0301t\u00e9"),
        ("\uff41dmin", "smile\U0001f642"),
        ("\u05d0a", "\ue000"),
        ("a=2C,b=", "a,b=\0\n"),
    ],
)
def test_a_user_and_a_password_are_taken_as_they_are(user: str, password: str) -> None:
    """As in Apache Kafka, there is no SASLprep, which the credential of a user was not made with either."""
    credential = credential_of(SCRAM_SHA_256, salted(SCRAM_SHA_256, password, SALT, 4096), SALT, 4096)
    server = ScramServer(SCRAM_SHA_256, lambda _, name: credential if name == user else None, "server-nonce")
    client = ScramClientExchange(SCRAM_SHA_256, user, password, "client-nonce")
    final = client.evaluate(server.evaluate(client.first()))
    assert final is not None and client.evaluate(server.evaluate(final)) is None
    assert server.result == Authenticated(KafkaPrincipal("User", user))


@pytest.mark.parametrize(("user", "password"), [("\ud800", "x"), ("alice", "x\udfff")])
def test_half_of_a_surrogate_pair_is_no_part_of_a_login(user: str, password: str) -> None:
    clients: list[ClientMechanism] = [
        PlainClient(user, password),
        ScramClientExchange(SCRAM_SHA_256, user, password, "nonce"),
    ]
    for client in clients:
        with pytest.raises(SaslAuthenticationError, match="a character that is none"):
            client.first()


def test_the_conversation_of_rfc_7677() -> None:
    """Section 3 of the RFC has the messages of one exchange for SCRAM-SHA-256."""
    nonce, more = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = credential_of(SCRAM_SHA_256, salted(SCRAM_SHA_256, "pencil", salt, 4096), salt, 4096)
    server = ScramServer(SCRAM_SHA_256, lambda *_: credential, more)
    client = ScramClientExchange(SCRAM_SHA_256, "user", "pencil", nonce)
    told = [client.first()]
    told.append(server.evaluate(told[-1]))
    told.append(client.evaluate(told[-1]) or b"")
    told.append(server.evaluate(told[-1]))
    assert client.evaluate(told[-1]) is None
    assert told == [
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ]


@pytest.mark.parametrize(
    "first",
    [
        "n=alice,r=abc",
        "p=tls-unique,,n=alice,r=abc",
        "n,a=bob,n=alice,r=abc",
        "n,,n=,r=abc",
        "n,,n=alice",
        "n,,n=alice,r=",
        "n,,n=alice,r=a b",
        "n,,n=al=ice,r=abc",
        "n,,n=al\0ice,r=abc",
        "n,,m=x,n=alice,r=abc",
        "n,,n=alice,r=abc,",
        "n,,r=abc,n=alice",
    ],
)
def test_malformed_first_messages_of_scram(first: str) -> None:
    with pytest.raises(SaslAuthenticationError, match="invalid credentials"):
        ScramServer(SCRAM_SHA_256, find, "server-nonce").evaluate(first.encode())


def test_a_scram_client_may_name_itself_as_whom_it_acts() -> None:
    """As with PLAIN, and as in Apache Kafka; nobody acts as another user."""
    answer = ScramServer(SCRAM_SHA_256, find, "server-nonce").evaluate(b"n,a=alice,n=alice,r=abc")
    assert answer.startswith(b"r=abcserver-nonce,s=")


@pytest.mark.parametrize("change", [("c=biws", "c=eSws"), (",p=", ",p=AAAA"), (",p=", ",m=1,p="), (",p=", ",q=")])
def test_final_messages_of_scram_that_do_not_fit(change: tuple[str, str]) -> None:
    server = ScramServer(SCRAM_SHA_256, find, "server-nonce")
    client = ScramClientExchange(SCRAM_SHA_256, "alice", "wonder", "abc")
    final = client.evaluate(server.evaluate(client.first())) or b""
    with pytest.raises(SaslAuthenticationError, match="invalid credentials"):
        server.evaluate(final.decode().replace(*change).encode())
    assert server.result is None


@pytest.mark.parametrize(
    "answer",
    [
        b"r=abc,s=c2FsdA==,i=4096",
        b"r=other,s=c2FsdA==,i=4096",
        b"r=abcd,s=c2FsdA==,i=4095",
        b"r=abcd,s=c2FsdA==,i=99999999",
        b"r=abcd,s=c2FsdA==,i=04096",
        b"r=abcd,s=c2FsdA,i=4096",
        b"e=unknown-user",
        b"\xff",
    ],
)
def test_a_scram_client_takes_no_other_first_message_of_the_server(answer: bytes) -> None:
    """With few iterations the password could be guessed from the proof; very many would take hours."""
    client = ScramClientExchange(SCRAM_SHA_256, "alice", "wonder", "abc")
    client.first()
    with pytest.raises(SaslAuthenticationError):
        client.evaluate(answer)


def test_a_credential_with_too_few_iterations_logs_in_nobody() -> None:
    weak = credential_of(SCRAM_SHA_256, salted(SCRAM_SHA_256, "wonder", SALT, 4095), SALT, 4095)
    with pytest.raises(SaslAuthenticationError, match="invalid credentials") as caught:
        ScramServer(SCRAM_SHA_256, lambda *_: weak, "server-nonce").evaluate(b"n,,n=alice,r=abc")
    assert "fewer than 4096 iterations" in caught.value.reason


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
