"""Login tokens, key stores and settings that are damaged: they are refused in a sentence, or read; nothing else."""

from __future__ import annotations

import string

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from hypothesis import given
from hypothesis import strategies as st
from support.security.certificates import Authority

from raftwerk.cluster.settings.node_config import ConfigError, load_config
from raftwerk.runtime.tls_contexts import TlsError, TlsMaterial, TlsOptions, server_context
from raftwerk.security.jaas import parse_jaas
from raftwerk.security.principals import KafkaPrincipal
from raftwerk.security.sasl.mechanism import SaslAuthenticationError
from raftwerk.security.sasl.plain import PLAIN, PlainClient, PlainServer
from raftwerk.security.sasl.scram import ScramClientExchange, ScramServer
from raftwerk.security.sasl.scram_credential import SCRAM_SHA_256, credential_of, salted
from raftwerk.security.sasl.session import MakeMechanism, SaslSession
from raftwerk.security.tls.key_stores import certificates_in, key_in, read_key_store, read_trust_store
from raftwerk.wire.errors import ErrorCode

PASSWORD, SALT = "wonder", b"salt" * 4
CREDENTIAL = credential_of(SCRAM_SHA_256, salted(SCRAM_SHA_256, PASSWORD, SALT, 4096), SALT, 4096)

damages = st.lists(
    st.tuples(st.sampled_from(["flip", "cut", "add", "swap"]), st.integers(0, 5_000), st.binary(max_size=9))
)
"""What is done to bytes: how, where, and what is put in."""


def damaged(data: bytes, done: list[tuple[str, int, bytes]]) -> bytes:
    for how, where, new in done:
        at = where % (len(data) + 1)
        if how == "flip" and at < len(data):
            data = data[:at] + bytes([data[at] ^ (1 << where % 8)]) + data[at + 1 :]
        elif how == "cut":
            data = data[:at] + data[at + len(new) :]
        elif how == "add":
            data = data[:at] + new + data[at:]
        else:
            data = data[at:] + data[:at]
    return data


def session() -> SaslSession:
    mechanisms: dict[str, MakeMechanism] = {
        PLAIN: lambda: PlainServer(lambda user, password: (user, password) == ("alice", PASSWORD)),
        SCRAM_SHA_256: lambda: ScramServer(
            SCRAM_SHA_256, lambda mechanism, user: CREDENTIAL if user == "alice" else None, "server-nonce"
        ),
    }
    return SaslSession(mechanisms, dict.fromkeys(mechanisms, 0))


@given(damages)
def test_damaged_tokens_of_plain_log_in_nobody_else(done: list[tuple[str, int, bytes]]) -> None:
    one = session()
    assert one.handshake(PLAIN) is ErrorCode.NONE
    answer = one.evaluate(damaged(PlainClient("alice", PASSWORD).first(), done))
    assert one.principal in (None, KafkaPrincipal("User", "alice"))
    assert (answer.error is ErrorCode.NONE) == (one.principal is not None)


@given(damages, damages)
def test_damaged_tokens_of_scram_log_in_nobody_else(
    first: list[tuple[str, int, bytes]], final: list[tuple[str, int, bytes]]
) -> None:
    one = session()
    assert one.handshake(SCRAM_SHA_256) is ErrorCode.NONE
    client = ScramClientExchange(SCRAM_SHA_256, "alice", PASSWORD, "client-nonce")
    answer = one.evaluate(damaged(client.first(), first))
    if answer.error is ErrorCode.NONE:
        try:
            token = client.evaluate(answer.token) or b""
        except SaslAuthenticationError:
            token = b""
        answer = one.evaluate(damaged(token, final))
    assert one.principal in (None, KafkaPrincipal("User", "alice"))
    if one.principal is None:
        assert answer.error is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert one.evaluate(b"again").error is ErrorCode.ILLEGAL_SASL_STATE


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The same certificate in PEM, and as PKCS12 with a password and without one."""
    pem = Authority(tmp_path_factory.mktemp("authority")).issue("node", "localhost").read_bytes()
    certificate = x509.load_pem_x509_certificate(certificates_in(pem))
    key = load_pem_private_key(key_in(pem), None)
    how = BestAvailableEncryption(PASSWORD.encode()), NoEncryption()
    return [pem, *(pkcs12.serialize_key_and_certificates(b"node", key, certificate, None, one) for one in how)]  # type: ignore[arg-type]


@given(st.integers(0, 2), damages, st.sampled_from([None, "PEM", "PKCS12", "JKS"]))
def test_damaged_stores_are_refused_or_read(
    stores: list[bytes], which: int, done: list[tuple[str, int, bytes]], declared: str | None
) -> None:
    data = damaged(stores[which], done)
    try:
        chain, key = read_key_store("node.store", data, declared, PASSWORD if which == 1 else None)
        server_context(TlsMaterial(chain, key), TlsOptions())
    except TlsError as error:
        assert PASSWORD not in str(error)
    try:
        read_trust_store("node.store", data, declared, PASSWORD if which == 1 else None)
    except TlsError as error:
        assert PASSWORD not in str(error)


def test_a_damaged_key_with_a_password_is_refused_without_the_password() -> None:
    key = generate_private_key(SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode())
    )
    with pytest.raises(TlsError) as refused:
        server_context(TlsMaterial(b"", key[:90] + b"AAAA" + key[94:], PASSWORD), TlsOptions())
    assert PASSWORD not in str(refused.value)


SETTINGS = b"""node.id=1
process.roles=broker,controller
listeners=SASL_SSL://localhost:9092,CONTROLLER://localhost:9093
listener.security.protocol.map=SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.voters=1@localhost:9093
sasl.enabled.mechanisms=PLAIN
super.users=User:admin;User:node
connections.max.reauth.ms=1000
log.dirs=data
listener.name.sasl_ssl.plain.sasl.jaas.config=plain.PlainLoginModule required user_alice="s3cret";
"""


@given(damages)
def test_damaged_settings_are_refused_or_read(done: list[tuple[str, int, bytes]]) -> None:
    try:
        load_config(damaged(SETTINGS, done).decode("utf-8", "replace"))
    except ConfigError as error:
        assert error.problems


@given(st.text(st.sampled_from(string.ascii_letters + ' ="\\;\n\t'), max_size=80))
def test_no_login_module_breaks_the_reader(text: str) -> None:
    try:
        parse_jaas(text)
    except ValueError:
        pass
