"""SASL/GSSAPI from token to token with real tickets, on both sides, and what no token may do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.broker.broker_harness import Harness
from support.security.kerberos import REALM, KeyDistributionCentre, key_distribution_centre

from raftwerk.broker.network.listener_security import ListenerSecurity
from raftwerk.broker.network.server import Server, ServerConfig
from raftwerk.runtime.blocking.daemon_threads import DaemonThreads
from raftwerk.runtime.blocking.kerberos import KerberosError, acceptor, check_acceptor, default_realm, initiator
from raftwerk.security.client_login import ClientLogin
from raftwerk.security.kerberos.exchange import GSSAPI, GssapiClient, GssapiServer
from raftwerk.security.kerberos.principal_names import KerberosShortNamer
from raftwerk.security.principals import KafkaPrincipal
from raftwerk.security.sasl.mechanism import Authenticated, MechanismInThread, SaslAuthenticationError
from raftwerk.security.sasl.session import SaslSession
from raftwerk.wire.client import connect
from raftwerk.wire.errors import ErrorCode

ALICE = Authenticated(KafkaPrincipal("User", "alice"))
SERVICE = "kafka/localhost"

damages = st.lists(
    st.tuples(st.sampled_from(["flip", "cut", "add"]), st.integers(0, 5_000), st.binary(max_size=9)), max_size=3
)


def damaged(data: bytes, done: list[tuple[str, int, bytes]]) -> bytes:
    for how, where, new in done:
        at = where % (len(data) + 1)
        if how == "flip" and at < len(data):
            data = data[:at] + bytes([data[at] ^ (1 << where % 8)]) + data[at + 1 :]
        elif how == "cut":
            data = data[:at] + data[at + len(new) :]
        else:
            data = data[:at] + new + data[at:]
    return data


@pytest.fixture(scope="module")
def centre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyDistributionCentre]:
    with key_distribution_centre(tmp_path_factory.mktemp("kdc")) as centre:
        yield centre


@pytest.fixture(scope="module")
def service_keys(centre: KeyDistributionCentre) -> Path:
    return centre.key_table(SERVICE)


@pytest.fixture(scope="module")
def new_server(service_keys: Path) -> Callable[[], GssapiServer]:
    make = acceptor(str(service_keys), f"{SERVICE}@{REALM}")
    namer = KerberosShortNamer(["DEFAULT"], default_realm())
    return lambda: GssapiServer(make(), namer.short_name)


@pytest.fixture(scope="module")
def new_client(centre: KeyDistributionCentre) -> Callable[[], GssapiClient]:
    make = initiator("kafka", str(centre.key_table("alice")), f"alice@{REALM}", None)
    return lambda: GssapiClient(make("localhost"))


def converse(client: GssapiClient, server: GssapiServer) -> int:
    """Let them talk to the end; returns how many tokens the client sent."""
    token: bytes | None = client.first()
    count = 0
    while token is not None:
        count += 1
        token = client.evaluate(server.evaluate(token))
    return count


def test_both_sides(new_client: Callable[[], GssapiClient], new_server: Callable[[], GssapiServer]) -> None:
    server = new_server()
    assert converse(new_client(), server) == 3
    assert server.result == ALICE
    with pytest.raises(SaslAuthenticationError):
        server.evaluate(b"")


def test_all_keys_of_a_table(service_keys: Path, new_client: Callable[[], GssapiClient]) -> None:
    server = GssapiServer(acceptor(str(service_keys), None)(), lambda name: name.partition("@")[0])
    converse(new_client(), server)
    assert server.result == ALICE


def test_a_ticket_of_a_cache(
    centre: KeyDistributionCentre, new_server: Callable[[], GssapiServer], tmp_path: Path
) -> None:
    cache = tmp_path / "tickets"
    centre.get_ticket("bob", centre.key_table("bob"), cache)
    server = new_server()
    converse(GssapiClient(initiator("kafka", None, None, str(cache))("localhost")), server)
    assert server.result == Authenticated(KafkaPrincipal("User", "bob"))


def test_a_token_that_was_overheard_serves_no_second_time(
    new_client: Callable[[], GssapiClient], new_server: Callable[[], GssapiServer]
) -> None:
    token = new_client().first()
    new_server().evaluate(token)
    with pytest.raises(SaslAuthenticationError) as refused:
        new_server().evaluate(token)
    assert "replay" in refused.value.reason


def test_a_client_that_wants_a_layer_is_refused(
    centre: KeyDistributionCentre, new_server: Callable[[], GssapiServer]
) -> None:
    server = new_server()
    context = initiator("kafka", str(centre.key_table("carol")), f"carol@{REALM}", None)("localhost")
    context.step(server.evaluate(context.step(None)))
    assert context.unwrap(server.evaluate(b"")) == bytes([1, 0, 0, 0])
    with pytest.raises(SaslAuthenticationError) as refused:
        server.evaluate(context.wrap(bytes([4, 0, 0, 0])))
    assert "security layer" in refused.value.reason
    assert server.result is None


def test_a_name_to_act_as_has_no_effect(centre: KeyDistributionCentre, new_server: Callable[[], GssapiServer]) -> None:
    """kafka-python and aiokafka send the name of the service there."""
    server = new_server()
    context = initiator("kafka", str(centre.key_table("dave")), f"dave@{REALM}", None)("localhost")
    context.step(server.evaluate(context.step(None)))
    context.unwrap(server.evaluate(b""))
    server.evaluate(context.wrap(bytes([1, 0, 0, 0]) + b"alice@EXAMPLE.COM"))
    assert server.result == Authenticated(KafkaPrincipal("User", "dave"))


def test_who_fits_no_rule_is_refused(service_keys: Path, new_client: Callable[[], GssapiClient]) -> None:
    namer = KerberosShortNamer(["RULE:[2:$1]"], REALM)
    server = GssapiServer(acceptor(str(service_keys), None)(), namer.short_name)
    with pytest.raises(SaslAuthenticationError) as refused:
        converse(new_client(), server)
    assert "no rule of sasl.kerberos.principal.to.local.rules (RULE:[2:$1]) fits" in refused.value.reason
    assert "alice" not in str(refused.value)
    assert server.result is None


def test_key_tables_that_do_not_serve(centre: KeyDistributionCentre, service_keys: Path, tmp_path: Path) -> None:
    with pytest.raises(KerberosError, match="not found"):
        check_acceptor(str(tmp_path / "none.keytab"), f"{SERVICE}@{REALM}")
    with pytest.raises(KerberosError, match=r"[Nn]o key table entry|not found"):
        check_acceptor(str(service_keys), f"kafka/elsewhere@{REALM}")


def test_a_client_with_a_wrong_key_or_an_unknown_name_has_no_ticket(centre: KeyDistributionCentre) -> None:
    keys = centre.key_table("erin")
    with pytest.raises(SaslAuthenticationError):
        GssapiClient(initiator("kafka", str(keys), f"nobody@{REALM}", None)("localhost")).first()
    with pytest.raises(SaslAuthenticationError, match="not found in Kerberos database"):
        GssapiClient(initiator("other", str(keys), f"erin@{REALM}", None)("localhost")).first()
    centre.remove("erin")
    with pytest.raises(SaslAuthenticationError, match="not found in Kerberos database"):
        GssapiClient(initiator("kafka", str(keys), f"erin@{REALM}", None)("localhost")).first()


def test_a_key_table_without_the_newest_key_refuses(centre: KeyDistributionCentre) -> None:
    keys = centre.key_table("kafka/renewed")
    centre.renew("kafka/renewed")
    server = GssapiServer(acceptor(str(keys), f"kafka/renewed@{REALM}")(), lambda name: name)
    client = GssapiClient(initiator("kafka", str(centre.key_table("heidi")), f"heidi@{REALM}", None)("renewed"))
    with pytest.raises(SaslAuthenticationError) as refused:
        server.evaluate(client.first())
    assert "kvno" in refused.value.reason


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damages, damages, damages)
def test_damaged_tokens_log_in_nobody_else(
    new_client: Callable[[], GssapiClient],
    new_server: Callable[[], GssapiServer],
    first: list[tuple[str, int, bytes]],
    second: list[tuple[str, int, bytes]],
    third: list[tuple[str, int, bytes]],
) -> None:
    client, server = new_client(), new_server()
    try:
        token: bytes | None = client.first()
        for how in (first, second, third):
            assert token is not None
            token = client.evaluate(server.evaluate(damaged(token, how)))
    except SaslAuthenticationError:
        pass
    assert server.result in (None, ALICE)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=80), min_size=1, max_size=4))
def test_no_tokens_break_a_session(new_server: Callable[[], GssapiServer], tokens: list[bytes]) -> None:
    async def run() -> None:
        threads = DaemonThreads(2)
        session = SaslSession({GSSAPI: lambda: MechanismInThread(new_server(), threads)})
        assert session.handshake(GSSAPI) is ErrorCode.NONE
        for token in tokens:
            if not session.is_awaited:
                break
            answer = await session.evaluate_soon(token)
        assert answer.error is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert session.principal is None

    asyncio.run(run())


def test_a_client_logs_in_again_before_its_session_ends(
    centre: KeyDistributionCentre, new_server: Callable[[], GssapiServer], new_client: Callable[[], GssapiClient]
) -> None:
    """KIP-368, over a real connection, by the same ticket."""

    async def run() -> None:
        threads = DaemonThreads(2)
        begun = asyncio.Semaphore(0)

        def make() -> MechanismInThread:
            begun.release()
            return MechanismInThread(new_server(), threads)

        security = ListenerSecurity(mechanisms={GSSAPI: make}, max_reauth_ms={GSSAPI: 1200})
        server = Server(ServerConfig("SASL", "127.0.0.1", 0, security=security), Harness().server.dispatcher)
        await server.start()
        try:
            login = ClientLogin(new_exchange=lambda _: new_client(), does_block=True)
            client = await connect("127.0.0.1", server.port, login=login)
            async with asyncio.timeout(30):
                for _ in range(3):
                    await begun.acquire()
            assert not client.is_closed
            assert [connection.principal for connection in server.connections] == [ALICE.principal]
            client.close()
        finally:
            await server.stop()

    asyncio.run(run())
