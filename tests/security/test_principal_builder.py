"""A Python class that says who peers are: what it is given, and what its errors do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.broker.broker_harness import Harness
from support.security.certificates import Authority

from raftwerk.broker.network.listener_security import ListenerSecurity
from raftwerk.broker.network.server import Server, ServerConfig
from raftwerk.runtime.tls_contexts import TlsMaterial, TlsOptions, client_context, server_context
from raftwerk.security.client_login import AuthenticationFailedError, ClientLogin
from raftwerk.security.principal_builder import PrincipalContext, checked_builder
from raftwerk.security.principals import ANONYMOUS, KafkaPrincipal
from raftwerk.security.sasl.plain import PLAIN, PlainClient, PlainServer
from raftwerk.wire.client import connect

ALICE = KafkaPrincipal("User", "alice")
CONTEXT = PrincipalContext(ALICE, "CLIENTS", "127.0.0.1", None, PLAIN)


def test_a_principal_or_its_text() -> None:
    assert checked_builder("house", lambda context: "Team:tea")(CONTEXT) == KafkaPrincipal("Team", "tea")
    assert checked_builder("house", lambda context: context.principal)(CONTEXT) == ALICE


def test_a_principal_by_a_delegation_token_stays_one() -> None:
    by_token = CONTEXT._replace(principal=ALICE._replace(is_token_authenticated=True))
    assert checked_builder("house", lambda context: "User:bob")(by_token) == KafkaPrincipal("User", "bob", True)


@pytest.mark.parametrize("found", [None, 7, "alice", "User:", ("User", "alice")])
def test_what_is_no_principal(found: object) -> None:
    with pytest.raises(ValueError, match="house makes no principal of User:alice"):
        checked_builder("house", lambda context: found)(CONTEXT)  # type: ignore[arg-type, return-value]


def principals(security: ListenerSecurity, login: ClientLogin) -> list[KafkaPrincipal]:
    """Those of a server's connections when a client has logged in."""

    async def run() -> list[KafkaPrincipal]:
        server = Server(ServerConfig("CLIENTS", "127.0.0.1", 0, security=security), Harness().server.dispatcher)
        await server.start()
        try:
            client = await connect("127.0.0.1", server.port, login=login)
            await client.api_versions()
            return [connection.principal for connection in server.connections]
        finally:
            await server.stop()

    return asyncio.run(run())


def test_logins_and_certificates(tmp_path: Path) -> None:
    seen: list[PrincipalContext] = []

    def build(context: PrincipalContext) -> str:
        seen.append(context)
        return f"Built:{len(seen)}"

    pem = Authority(tmp_path)
    own = pem.issue("node", "localhost", "127.0.0.1").read_bytes()
    material = TlsMaterial(own, own, authorities=pem.file.read_bytes())
    builder = checked_builder("house", build)
    mechanisms = {PLAIN: lambda: PlainServer(lambda user, password: True)}
    by_sasl = ListenerSecurity(mechanisms=mechanisms, build_principal=builder)
    login = ClientLogin(new_exchange=lambda _: PlainClient("alice", "wonder"))
    assert principals(by_sasl, login) == [KafkaPrincipal("Built", "1")]
    assert seen == [PrincipalContext(ALICE, "CLIENTS", "127.0.0.1", None, PLAIN)]
    tls = server_context(material, TlsOptions(client_auth="required"))
    assert principals(
        ListenerSecurity(tls=tls, build_principal=builder), ClientLogin(client_context(material, TlsOptions()))
    )
    name = seen[1].certificate_name
    assert name
    assert seen[1] == PrincipalContext(KafkaPrincipal("User", name), "CLIENTS", "127.0.0.1", name, None)
    tls = server_context(material, TlsOptions())
    anonymous = ClientLogin(client_context(TlsMaterial(authorities=pem.file.read_bytes()), TlsOptions()))
    assert principals(ListenerSecurity(tls=tls, build_principal=builder), anonymous) == [KafkaPrincipal("Built", "3")]
    assert seen[2].principal == ANONYMOUS


def test_an_error_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    def build(context: PrincipalContext) -> str:
        raise KeyError(context.principal.name)

    mechanisms = {PLAIN: lambda: PlainServer(lambda user, password: True)}
    security = ListenerSecurity(mechanisms=mechanisms, build_principal=checked_builder("house", build))
    with pytest.raises(AuthenticationFailedError, match="closes the connection during the login"):
        principals(security, ClientLogin(new_exchange=lambda _: PlainClient("alice", "wonder")))
    assert "house makes no principal of User:alice: KeyError: 'alice'" in caplog.text


def test_who_becomes_somebody_else_keeps_no_right_to_write() -> None:
    made = iter(["User:alice", "User:bob"])
    mechanisms = {PLAIN: lambda: PlainServer(lambda user, password: True)}
    builder = checked_builder("house", lambda context: next(made))
    security = ListenerSecurity(mechanisms=mechanisms, build_principal=builder)

    async def run() -> None:
        server = Server(ServerConfig("CLIENTS", "127.0.0.1", 0, security=security), Harness().server.dispatcher)
        await server.start()
        try:
            login = ClientLogin(new_exchange=lambda _: PlainClient("alice", "wonder"))
            client = await connect("127.0.0.1", server.port, login=login)
            await client.api_versions()
            (connection,) = server.connections
            connection.writable_topics["orders"] = object()
            connection.on_authenticated(0)
            assert (str(connection.principal), connection.writable_topics) == ("User:bob", {})
        finally:
            await server.stop()

    asyncio.run(run())
