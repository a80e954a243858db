"""Classes of the operator that know the users of PLAIN and SCRAM, and verify the tokens of OAUTHBEARER."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.broker.group_harness import on_virtual_time

from raftwerk.security.oauthbearer.exchange import OAUTHBEARER, OAuthBearerClient
from raftwerk.security.oauthbearer.token_callback import tokens_by_callback
from raftwerk.security.principals import KafkaPrincipal
from raftwerk.security.sasl.mechanism import ClientMechanism
from raftwerk.security.sasl.plain import PLAIN, PlainClient
from raftwerk.security.sasl.scram import ScramClientExchange, ScramServer
from raftwerk.security.sasl.scram_callback import scram_by_callback
from raftwerk.security.sasl.scram_credential import SCRAM_SHA_256, ScramCredential, credential_of, salted
from raftwerk.security.sasl.server_callbacks import CALLBACK_TIMEOUT_S, ServerCallback, plain_by_callback
from raftwerk.security.sasl.session import SaslSession, TokenAnswer
from raftwerk.wire.errors import ErrorCode

SALT = b"salt" * 4
CREDENTIAL = credential_of(SCRAM_SHA_256, salted(SCRAM_SHA_256, "wonder", SALT, 4096), SALT, 4096)
ALICE = KafkaPrincipal("User", "alice")
NOW_MS = 1_000_000


def session(method: Callable[..., Any]) -> SaslSession:
    """Of a listener all of whose mechanisms ask this method of a class."""
    callback = ServerCallback("house.Users", method)
    return SaslSession(
        {
            PLAIN: lambda: plain_by_callback(callback),
            SCRAM_SHA_256: lambda: scram_by_callback(callback, lambda find: ScramServer(SCRAM_SHA_256, find, "nonce")),
            OAUTHBEARER: lambda: tokens_by_callback(callback, lambda: NOW_MS),
        }
    )


async def answered(one: SaslSession, client: ClientMechanism) -> TokenAnswer:
    """The last answer to a client that logs in."""
    assert one.handshake(client.name) is ErrorCode.NONE
    token: bytes | None = client.first()
    while True:
        assert token is not None
        assert one.is_awaited
        answer = await one.evaluate_soon(token)
        token = client.evaluate(answer.token) if answer.error is ErrorCode.NONE else None
        if token is None:
            return answer


def log_in(method: Callable[..., Any], client: ClientMechanism) -> tuple[TokenAnswer, KafkaPrincipal | None]:
    async def run() -> tuple[TokenAnswer, KafkaPrincipal | None]:
        one = session(method)
        return await answered(one, client), one.principal

    return asyncio.run(run())


def refused(method: Callable[..., Any], client: ClientMechanism) -> TokenAnswer:
    answer, principal = log_in(method, client)
    assert answer.error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert principal is None
    assert "wonder" not in f"{answer}"
    return answer


def scram() -> ScramClientExchange:
    return ScramClientExchange(SCRAM_SHA_256, "alice", "wonder", "client-nonce")


async def in_time(user: str, password: str) -> bool:
    await asyncio.sleep(0)
    return (user, password) == ("alice", "wonder")


def at_once(user: str, password: str) -> bool:
    return (user, password) == ("alice", "wonder")


@pytest.mark.parametrize("method", [in_time, at_once])
def test_passwords(method: Callable[..., Any]) -> None:
    assert log_in(method, PlainClient("alice", "wonder"))[1] == ALICE
    assert (
        refused(method, PlainClient("alice", "bricks")).message == "Authentication failed: Invalid username or password"
    )


def test_what_is_no_token_asks_nobody() -> None:
    async def run() -> None:
        asked: list[object] = []
        one = session(lambda *arguments: asked.append(arguments))
        one.handshake(PLAIN)
        assert (await one.evaluate_soon(b"alice")).error is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert asked == []

    asyncio.run(run())


def test_only_true_lets_in() -> None:
    for found in (1, "yes", None, False):
        refused(lambda user, password, found=found: found, PlainClient("alice", "wonder"))


@pytest.mark.parametrize(
    "new_client", [lambda: PlainClient("alice", "wonder"), scram, lambda: OAuthBearerClient("wonder")]
)
def test_a_class_that_raises_denies_and_its_words_are_told_to_nobody(new_client: Callable[[], ClientMechanism]) -> None:
    def fails(*arguments: str) -> bool:
        raise ValueError(f"cannot connect with {arguments} wonder")

    async def leaves(*arguments: str) -> bool:
        raise SystemExit(f"{arguments}")

    answer = refused(fails, new_client())
    assert "house.Users failed: ValueError in test_server_callbacks.py, line " in (answer.reason or "")
    answer = refused(leaves, new_client())
    assert "house.Users failed: SystemExit in test_server_callbacks.py, line " in (answer.reason or "")


def test_a_class_that_takes_too_long_denies() -> None:
    async def never(user: str, password: str) -> bool:
        await asyncio.Event().wait()
        return True

    async def main() -> None:
        started = asyncio.get_running_loop().time()
        answer = await answered(session(never), PlainClient("alice", "wonder"))
        assert answer.error is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.reason == "house.Users gave no answer within 10 s"
        assert asyncio.get_running_loop().time() - started == pytest.approx(CALLBACK_TIMEOUT_S)

    on_virtual_time(main)


def test_a_method_that_is_not_async_does_not_hold_the_loop() -> None:
    go_on = threading.Event()

    def waits(user: str, password: str) -> bool:
        return go_on.wait(30)

    async def run() -> None:
        one = session(waits)
        login = asyncio.ensure_future(answered(one, PlainClient("alice", "wonder")))
        await asyncio.sleep(0.01)
        assert not login.done()
        assert (await one.evaluate_soon(b"\0alice\0wonder")).error is ErrorCode.ILLEGAL_SASL_STATE
        assert one.handshake(PLAIN) is ErrorCode.ILLEGAL_SASL_STATE
        go_on.set()
        assert (await login).error is ErrorCode.NONE
        assert one.principal == ALICE

    asyncio.run(run())


def test_credentials() -> None:
    async def credential(user: str) -> ScramCredential | None:
        return CREDENTIAL if user == "alice" else None

    assert log_in(credential, scram())[1] == ALICE
    assert log_in(lambda user: tuple(CREDENTIAL), scram())[1] == ALICE
    other = ScramClientExchange(SCRAM_SHA_256, "bob", "wonder", "client-nonce")
    assert "invalid credentials" in (refused(credential, other).message or "")
    wrong = ScramClientExchange(SCRAM_SHA_256, "alice", "bricks", "client-nonce")
    assert "invalid credentials" in (refused(credential, wrong).message or "")


@pytest.mark.parametrize("found", ["wonder", (b"", b"", b"", "many"), (b"", b""), True])
def test_what_is_no_credential_denies(found: object) -> None:
    answer = refused(lambda user: found, scram())
    assert answer.reason == "house.Users returned what is no ScramCredential"
    assert "invalid credentials with SASL mechanism SCRAM-SHA-256" in (answer.message or "")


def test_tokens() -> None:
    async def validate(token: str) -> tuple[str, int] | None:
        return ("alice", NOW_MS + 5_000) if token == "abc" else None

    answer, principal = log_in(validate, OAuthBearerClient("abc"))
    assert (principal, answer.session_lifetime_ms) == (ALICE, 5_000)
    assert "it says no, or the token has expired (house.Users)" in (
        refused(validate, OAuthBearerClient("no")).reason or ""
    )


@pytest.mark.parametrize("found", ["alice", ("", NOW_MS + 1), ("alice", None), ("alice", NOW_MS)])
def test_what_is_no_valid_token_denies(found: object) -> None:
    refused(lambda token: found, OAuthBearerClient("abc"))
