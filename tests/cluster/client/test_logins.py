"""What a command says when it cannot log in: what the listener did, and which property of the client to correct."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from support.broker.broker_harness import Harness
from support.security.certificates import Authority

from raftwerk.broker.network.listener_security import ListenerSecurity
from raftwerk.broker.network.server import Server, ServerConfig
from raftwerk.cluster.client.access.current_login import CURRENT_LOGIN
from raftwerk.cluster.client.client_errors import NotLoggedInError, UnreachableError, WrongCredentialsError
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.cluster.client.peer_protocol import explained
from raftwerk.runtime.tls_contexts import TlsMaterial, TlsOptions, client_context, server_context
from raftwerk.security.client_login import ClientLogin, _correction, _own_correction
from raftwerk.security.kerberos.exchange import GSSAPI
from raftwerk.security.oauthbearer.exchange import OAUTHBEARER, OAuthBearerClient
from raftwerk.security.oauthbearer.token_source import TokenError
from raftwerk.security.sasl.mechanism import ClientMechanism
from raftwerk.security.sasl.plain import PLAIN, PlainClient, PlainServer

SCRAM = "SCRAM-SHA-512"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def listener(authority: Authority | None, *, has_sasl: bool = True) -> ListenerSecurity:
    """The security of a listener, with TLS if there is an authority. The user is alice, the password wonder."""
    tls = None
    if authority is not None:
        pem = authority.issue("node", "localhost", "127.0.0.1").read_bytes()
        tls = server_context(TlsMaterial(pem, pem), TlsOptions())
    valid = ("alice", "wonder")
    mechanisms = {PLAIN: lambda: PlainServer(lambda *user: user == valid)} if has_sasl else None
    return ListenerSecurity(tls=tls, mechanisms=mechanisms, failure_delay_s=0)


def login(authority: Authority | None, make: Callable[[str], ClientMechanism] | None) -> ClientLogin:
    tls = None
    if authority is not None:
        tls = client_context(TlsMaterial(authorities=authority.file.read_bytes()), TlsOptions())
    return ClientLogin(tls, make)


def wrong_password(_: str) -> ClientMechanism:
    return PlainClient("alice", "w0nder")


class OtherMechanism(PlainClient):
    """A mechanism that the listener does not offer."""

    name = SCRAM


def refusal(security: ListenerSecurity | None, own: ClientLogin | None) -> UnreachableError:
    """The error of a client that logs in as `own` at such a listener."""

    async def run() -> UnreachableError:
        server = Server(ServerConfig("CLIENTS", "127.0.0.1", 0, security=security), Harness().server.dispatcher)
        await server.start()
        CURRENT_LOGIN.set(own)
        try:
            async with ClusterClient(f"127.0.0.1:{server.port}") as client:
                with pytest.raises(UnreachableError) as raised:
                    await client.metadata()
            return await explained(raised.value, own)
        finally:
            await server.stop()

    return asyncio.run(run())


def told(error: UnreachableError) -> tuple[str, str]:
    """What the listener did, and what to correct."""
    assert isinstance(error, NotLoggedInError), error
    assert str(error).startswith("cannot log in: 127.0.0.1:")
    (reason,) = error.reasons.values()
    return reason, error.way_out


def test_a_wrong_password(authority: Authority) -> None:
    error = refusal(listener(authority), login(authority, wrong_password))
    assert isinstance(error, WrongCredentialsError)
    reason, way_out = told(error)
    assert reason == "refuses the login by PLAIN: Authentication failed: Invalid username or password"
    assert way_out == "correct the user name or the password in sasl.jaas.config"


def test_a_refusal_of_scram_names_the_mechanism_and_says_where_its_users_are_listed() -> None:
    way_out = _correction(SCRAM)
    assert way_out == (
        "raftwerk users list shows an administrator who has a password for SCRAM-SHA-512; correct the user name or the "
        "password in sasl.jaas.config"
    )
    assert _correction(PLAIN) == "correct the user name or the password in sasl.jaas.config"


@pytest.mark.parametrize("mechanism", [PLAIN, SCRAM, OAUTHBEARER, GSSAPI])
def test_what_to_correct_in_the_file_stands_last_since_its_name_follows(mechanism: str) -> None:
    for way_out in (_correction(mechanism), _own_correction(mechanism)):
        clause = way_out.rpartition("; ")[2]
        assert "correct " in clause and clause.endswith("sasl.jaas.config")


def test_without_a_token_one_may_wait_or_correct_the_file_whose_name_follows() -> None:
    async def no_token() -> None:
        raise TokenError("the token endpoint answers 503")

    error = refusal(listener(None), ClientLogin(new_exchange=lambda _: OAuthBearerClient(""), prepare=no_token))
    reason, way_out = told(error)
    assert reason == "wants a login, for which there is no token: the token endpoint answers 503"
    assert way_out == "try again later, or correct sasl.oauthbearer.* or sasl.jaas.config"


def test_what_hinders_a_login_before_the_password_is_looked_at_says_nothing_about_it(
    authority: Authority, tmp_path: Path
) -> None:
    """Consoles and proxies tell their users that a password is wrong, and end their sessions, only if it is."""
    unknown = Authority(tmp_path / "other")
    for error in (
        refusal(listener(authority), login(unknown, wrong_password)),
        refusal(listener(None), login(None, lambda _: OtherMechanism("alice", "wonder"))),
        refusal(None, login(None, wrong_password)),
    ):
        assert isinstance(error, NotLoggedInError) and not isinstance(error, WrongCredentialsError), error


def test_a_mechanism_that_is_not_offered() -> None:
    reason, way_out = told(refusal(listener(None), login(None, lambda _: OtherMechanism("alice", "wonder"))))
    assert reason == "does not offer SCRAM-SHA-512; it offers PLAIN"
    assert way_out == "set sasl.mechanism, and sasl.jaas.config for it"


def test_a_login_by_sasl_where_there_is_none() -> None:
    reason, way_out = told(refusal(None, login(None, wrong_password)))
    assert (reason, way_out) == ("takes no login by SASL", "set security.protocol to SSL or PLAINTEXT")


def test_tls_without_sasl_at_a_listener_with_both(authority: Authority) -> None:
    reason, way_out = told(refusal(listener(authority), login(authority, None)))
    assert reason == "wants a login by SASL (it offers PLAIN), and there was none; TLS was set up without problems"
    assert way_out == "set security.protocol=SASL_SSL, sasl.mechanism and sasl.jaas.config"


def test_no_login_at_a_listener_with_sasl(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        reason, way_out = told(refusal(listener(None), None))
    assert reason == "wants a login by SASL (it offers PLAIN), and there was none"
    assert way_out == "set security.protocol=SASL_PLAINTEXT, sasl.mechanism and sasl.jaas.config"
    assert "not logged in: METADATA came before a login by SASL, which this listener wants" in caplog.text
    assert "is not served" not in caplog.text


def test_sasl_without_tls_at_a_listener_with_both(authority: Authority) -> None:
    reason, way_out = told(refusal(listener(authority), login(None, wrong_password)))
    assert (reason, way_out) == ("speaks TLS, and we do not", "set security.protocol=SASL_SSL")


def test_nothing_at_a_listener_with_tls(authority: Authority) -> None:
    """It may be no broker at all, so the address is not said to be right."""
    error = refusal(listener(authority, has_sasl=False), None)
    assert not isinstance(error, NotLoggedInError)
    assert "speaks TLS instead of Kafka's protocol: say how to log in there (--command-config)" in str(error)
    assert error.is_explained


def test_tls_where_there_is_none(authority: Authority) -> None:
    reason, way_out = told(refusal(None, login(authority, None)))
    assert reason.startswith("fails in the TLS handshake")
    assert way_out.startswith("set security.protocol to PLAINTEXT or SASL_PLAINTEXT if the listener has no TLS")


def test_a_certificate_of_an_unknown_authority(authority: Authority, tmp_path: Path) -> None:
    reason, way_out = told(refusal(listener(authority), login(Authority(tmp_path / "other"), wrong_password)))
    assert reason.startswith("has a certificate that is not trusted: ")
    assert way_out == "set ssl.truststore.location to a file with the certificate or its authority"


def test_a_certificate_for_another_host(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pem = authority.issue("node", "elsewhere.example").read_bytes()
    security = ListenerSecurity(tls=server_context(TlsMaterial(pem, pem), TlsOptions()))
    reason, way_out = told(refusal(security, login(authority, None)))
    assert "mismatch" in reason
    assert way_out.startswith("connect by a name of the certificate")


def test_a_listener_that_wants_a_certificate(authority: Authority) -> None:
    pem = authority.issue("node", "127.0.0.1").read_bytes()
    material = TlsMaterial(pem, pem, authorities=authority.file.read_bytes())
    security = ListenerSecurity(tls=server_context(material, TlsOptions(client_auth="required")))
    reason, way_out = told(refusal(security, login(authority, None)))
    assert "it may want a certificate of the client" in reason
    assert way_out == "set ssl.keystore.location to a certificate that the listener takes"
