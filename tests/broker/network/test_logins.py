"""Connections on listeners with SASL: how long a peer may take to authenticate itself, and what the log says of it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from joserfc import jwt
from support.broker.broker_harness import FakeTransport, Harness
from support.broker.group_harness import on_virtual_time
from support.security.identity_provider import AUDIENCE, ISSUER, new_key

from raftwerk.broker.network.connection import LOGIN_TIMEOUT_S, ConnectionLimits
from raftwerk.broker.network.connection_quota import ConnectionQuota
from raftwerk.broker.network.listener_security import ListenerSecurity
from raftwerk.broker.network.server import KINDS_OF_REJECTIONS_MAX, Server, ServerConfig
from raftwerk.controller.metadata.metadata_image import MetadataImage
from raftwerk.security.oauthbearer.exchange import OAUTHBEARER, OAuthBearerClient, OAuthBearerServer
from raftwerk.security.oauthbearer.signed_tokens import SignedTokenOptions, SignedTokens, parse_key_set
from raftwerk.security.sasl.mechanism import SaslAuthenticationError, ServerMechanism
from raftwerk.security.sasl.plain import PLAIN, PlainServer
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.client import connect
from raftwerk.wire.errors import ErrorCode

NOW_S = 1_700_000_000
KEY, NEW_KEY = new_key("RS256", "one"), new_key("RS256", "two")


def secured(harness: Harness, quota: ConnectionQuota | None = None) -> Server:
    security = ListenerSecurity(mechanisms={PLAIN: lambda: PlainServer(lambda user, password: False)})
    return Server(ServerConfig("SASL", "127.0.0.1", 0, security=security), harness.server.dispatcher, quota)


def test_who_does_not_log_in_is_disconnected() -> None:
    async def main() -> None:
        server = secured(Harness())
        transport = FakeTransport()
        server.make_connection().connection_made(transport)
        await asyncio.sleep(LOGIN_TIMEOUT_S - 1)
        assert not transport.closing
        await asyncio.sleep(2)
        assert transport.closing
        assert server.rejected_total == 1

    on_virtual_time(main)


def test_a_frame_that_is_too_large_before_the_login_closes_the_connection_at_once() -> None:
    """CVE-2022-34917: it names a size, and gets no memory of that size."""

    async def main() -> None:
        server = secured(Harness())
        transport = FakeTransport()
        connection = server.make_connection()
        transport.protocol = connection
        connection.connection_made(transport)
        transport.deliver((512 * 1024 + 1).to_bytes(4, "big") + bytes(100))
        assert transport.closing
        assert server.memory.used_bytes == 0

    on_virtual_time(main)


def test_2_000_peers_that_babble_before_the_login_hold_no_memory_of_the_size_that_they_name() -> None:
    async def main() -> None:
        server = secured(Harness())
        transports = []
        for number in range(2_000):
            transport = FakeTransport()
            transport.protocol = server.make_connection()
            transport.protocol.connection_made(transport)
            transport.deliver((512 * 1024).to_bytes(4, "big") + bytes(10 + number % 50))
            transports.append(transport)
        assert server.memory.used_bytes < 8 * 1024 * 1024
        await asyncio.sleep(LOGIN_TIMEOUT_S + 1)
        assert all(transport.closing for transport in transports)
        assert server.memory.used_bytes == 0

    on_virtual_time(main)


def test_the_time_for_the_login_begins_when_the_connection_is_not_delayed_any_more() -> None:
    async def main() -> None:
        quota = ConnectionQuota(MetadataImage("c"), 1, {"max.connection.creation.rate": "1"})
        for _ in range(15):
            quota.delay_s(asyncio.get_running_loop().time())
        server = secured(Harness(), quota)
        transport = FakeTransport()
        transport.protocol = server.make_connection()
        transport.protocol.connection_made(transport)
        await asyncio.sleep(0)
        assert not transport.reading
        await asyncio.sleep(6 + LOGIN_TIMEOUT_S - 1)
        assert transport.reading and not transport.closing
        await asyncio.sleep(2)
        assert transport.closing

    on_virtual_time(main)


def test_a_connection_whose_tls_handshake_failed_is_not_waited_for() -> None:
    """The loop makes its protocol before the handshake, and calls it only after it."""

    async def main() -> None:
        server = secured(Harness())
        server.make_connection()
        await asyncio.sleep(2 * LOGIN_TIMEOUT_S)
        assert server.rejected_total == 0

    on_virtual_time(main)


def test_a_handshake_of_version_0_is_offered_and_refused() -> None:
    """librdkafka 2.0 logs in only where ApiVersions has version 0, and then sends version 1."""

    async def main() -> None:
        server = secured(Harness())
        await server.start()
        try:
            client = await connect("127.0.0.1", server.port)
            assert (await client.api_versions())[ApiKey.SASL_HANDSHAKE] == (0, 1)
            answer = await client.request(ApiKey.SASL_HANDSHAKE, 0, {"mechanism": PLAIN})
            assert (answer.error_code, list(answer.mechanisms)) == (ErrorCode.UNSUPPORTED_VERSION, [PLAIN])
            await asyncio.wait_for(client.closed, 10)
        finally:
            await server.stop()

    asyncio.run(main())


def test_the_log_names_no_mechanism_as_unknown_that_was_chosen_in_the_midst_of_a_login(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        server = secured(Harness())
        await server.start()
        try:
            client = await connect("127.0.0.1", server.port)
            codes = [(await client.request(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": PLAIN})).error_code for _ in "12"]
            assert codes == [ErrorCode.NONE, ErrorCode.ILLEGAL_SASL_STATE]
            await asyncio.wait_for(client.closed, 10)
        finally:
            await server.stop()

    with caplog.at_level(logging.WARNING, "raftwerk.broker"):
        asyncio.run(main())
    (said,) = [record.getMessage() for record in caplog.records]
    assert "SaslHandshake chose 'PLAIN' during a login, after a failed one, or for" in said


class Waiting:
    """A mechanism whose every token waits until the connection ends."""

    result = None

    def __init__(self) -> None:
        self.has_begun, self.has_ended = asyncio.Event(), asyncio.Event()

    async def evaluate_soon(self, token: bytes) -> bytes:
        self.has_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.has_ended.set()
        return b""


def test_a_token_of_a_connection_that_is_gone_is_evaluated_no_more() -> None:
    async def main() -> None:
        one = Waiting()
        security = ListenerSecurity(mechanisms={PLAIN: lambda: one})
        server = Server(ServerConfig("SASL", "127.0.0.1", 0, security=security), Harness().server.dispatcher)
        await server.start()
        try:
            client = await connect("127.0.0.1", server.port)
            await client.request(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": PLAIN})
            asked = asyncio.ensure_future(client.request(ApiKey.SASL_AUTHENTICATE, 1, {"auth_bytes": b"x"}))
            async with asyncio.timeout(10):
                await one.has_begun.wait()
                client.close()
                await one.has_ended.wait()
            await asyncio.gather(asked, return_exceptions=True)
        finally:
            await server.stop()

    asyncio.run(main())


def test_a_second_token_before_the_answer_to_the_first_fails_the_login() -> None:
    """On a controller's listener requests need not wait for earlier ones."""

    async def main() -> None:
        security = ListenerSecurity(mechanisms={PLAIN: Waiting}, failure_delay_s=0)
        limits = ConnectionLimits(ordered_start=False)
        config = ServerConfig("SASL", "127.0.0.1", 0, security=security, limits=limits)
        server = Server(config, Harness().server.dispatcher)
        await server.start()
        try:
            client = await connect("127.0.0.1", server.port)
            await client.request(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": PLAIN})
            sent = [client.request(ApiKey.SASL_AUTHENTICATE, 1, {"auth_bytes": b"x"}) for _ in range(2)]
            answers = asyncio.gather(*sent, return_exceptions=True)
            await asyncio.wait_for(client.closed, 10)
            assert all(isinstance(answer, OSError) for answer in await answers)
            assert server.rejected_total == 1
        finally:
            await server.stop()

    asyncio.run(main())


def token_server() -> OAuthBearerServer:
    keys = parse_key_set(json.dumps({"keys": [KEY.as_dict(private=False)]}).encode())
    return OAuthBearerServer(SignedTokens(SignedTokenOptions((AUDIENCE,), ISSUER), lambda: keys), lambda: NOW_S * 1000)


def token_message(header: Mapping[str, Any] | None = None, **claims: Any) -> bytes:
    """The first message of a client with such a token."""
    fields = {"alg": "RS256", "kid": "one"} | dict(header or {})
    values = {"sub": "alice", "aud": AUDIENCE, "iss": ISSUER, "iat": NOW_S - 100, "exp": NOW_S + 60} | claims
    return OAuthBearerClient(jwt.encode(fields, values, NEW_KEY if fields["kid"] == "two" else KEY)).first()


class Refusing:
    """A mechanism whose reasons have what the peer has sent, and that does not say of which kind they are."""

    result = None

    def evaluate(self, token: bytes) -> bytes:
        raise SaslAuthenticationError("no", f"it sent {token!r}")


def log_of_refusals(
    caplog: pytest.LogCaptureFixture,
    logins: Iterable[tuple[str, bytes]],
    mechanisms: Mapping[str, type[ServerMechanism]] | None = None,
) -> list[str]:
    """What the log says of these logins from one address, without what all such lines begin with."""

    async def main() -> None:
        security = ListenerSecurity(mechanisms=mechanisms or {OAUTHBEARER: token_server}, failure_delay_s=0)
        server = Server(ServerConfig("SASL", "127.0.0.1", 0, security=security), Harness().server.dispatcher)
        await server.start()
        try:
            for mechanism, message in logins:
                client = await connect("127.0.0.1", server.port)
                answer = await client.request(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": mechanism})
                if not answer.error_code:
                    answer = await client.request(ApiKey.SASL_AUTHENTICATE, 1, {"auth_bytes": message})
                if not answer.error_code:
                    answer = await client.request(ApiKey.SASL_AUTHENTICATE, 1, {"auth_bytes": b"\x01"})
                assert answer.error_code
                await asyncio.wait_for(client.closed, 10)
        finally:
            await server.stop()

    with caplog.at_level(logging.WARNING, "raftwerk.broker"):
        asyncio.run(main())
    return [record.getMessage().partition(" on listener SASL: ")[2] for record in caplog.records]


def test_the_log_says_each_reason_why_logins_from_an_address_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    """Who corrects one fault of a token is told the next one."""
    wrong = [
        token_message(aud="other"),
        token_message(iss="https://other.example"),
        token_message({"kid": "two"}),
        token_message({"kid": "one"}, exp=NOW_S - 60),
        token_message(sub=7),
    ]
    begin = "the login failed: the token is refused because "
    assert log_of_refusals(caplog, [(OAUTHBEARER, message) for message in wrong]) == [
        f"{begin}its audience is 'other'; expected is {AUDIENCE}",
        f"{begin}its issuer is 'https://other.example', not {ISSUER}",
        f"{begin}there is no key 'two' for RS256 in the JWKS document",
        f"{begin}the token has expired 60 s ago",
        f"{begin}the claim sub is not a text: 7",
    ]


def test_a_flood_of_different_tokens_leaves_one_line_for_each_kind_of_reason(caplog: pytest.LogCaptureFixture) -> None:
    """Quotes in a claim and words of any kind make no other reason of it."""
    values = [f"it's {letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    logins = [
        (OAUTHBEARER, message)
        for value in values
        for message in (
            token_message(aud=value),
            token_message(iss=value),
            token_message({"kid": value}),
            token_message(sub=[value]),
            token_message(scope=[value, value]),
            token_message(exp=value),
        )
    ]
    logins += [(value, b"") for value in values]
    assert len(log_of_refusals(caplog, logins)) == 7


def test_reasons_that_vary_with_what_the_peer_sends_leave_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    """The number of kinds for one address has a bound, if a mechanism gives a kind that the peer chooses."""
    logins = [("MADE-UP", b"%d" % number) for number in range(3 * KINDS_OF_REJECTIONS_MAX)]
    assert len(log_of_refusals(caplog, logins, {"MADE-UP": Refusing})) == KINDS_OF_REJECTIONS_MAX
