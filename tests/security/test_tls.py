"""Key stores in the formats that Kafka takes, and the contexts that are made of them."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from support.security.certificates import Authority

from raftwerk.runtime.tls_contexts import TlsError, TlsMaterial, TlsOptions, client_context, server_context
from raftwerk.security.tls.key_stores import certificates_in, key_in, read_key_store, read_trust_store


@pytest.fixture(scope="module")
def pem(authority: Authority) -> bytes:
    return authority.issue("node", "localhost").read_bytes()


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost") -> ssl.SSLObject:
    """The server's side after a handshake in memory. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = server.wrap_bio(to_server, to_client, server_side=True)
    other = client.wrap_bio(to_client, to_server, server_hostname=host)
    for _ in range(4):
        for side in (other, one):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
    return one


def test_pem(authority: Authority, pem: bytes) -> None:
    chain, key = read_key_store("x.pem", pem, "PEM", None)
    trusted = read_trust_store("ca.pem", authority.file.read_bytes(), "PEM", None)
    server = server_context(TlsMaterial(chain, key, None, trusted), TlsOptions())
    assert handshake(server, client_context(TlsMaterial(authorities=trusted), TlsOptions())).version() == "TLSv1.3"


def test_pkcs12_with_a_password(authority: Authority, pem: bytes) -> None:
    certificate = x509.load_pem_x509_certificate(certificates_in(pem))
    key = load_pem_private_key(key_in(pem), None)
    store = pkcs12.serialize_key_and_certificates(
        b"node",
        key,  # type: ignore[arg-type]
        certificate,
        None,
        BestAvailableEncryption(b"changeit"),
    )
    chain, read = read_key_store("x.p12", store, "PKCS12", "changeit")
    assert chain == certificate.public_bytes(Encoding.PEM)
    server_context(TlsMaterial(chain, read), TlsOptions())
    assert read_key_store("x.p12", store, "JKS", "changeit")[0] == chain
    with pytest.raises(TlsError, match="is its password right"):
        read_key_store("x.p12", store, None, "wrong")


def test_a_key_with_a_password(pem: bytes) -> None:
    key = load_pem_private_key(key_in(pem), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hush"))
    chain = certificates_in(pem)
    server_context(TlsMaterial(chain, locked, "hush"), TlsOptions())
    for password in (None, "wrong"):
        with pytest.raises(TlsError, match=r"ssl\.key\.password"):
            server_context(TlsMaterial(chain, locked, password), TlsOptions())


def test_a_java_key_store_is_refused_with_the_way_out() -> None:
    with pytest.raises(TlsError, match="keytool -importkeystore"):
        read_key_store("x.jks", b"\xfe\xed\xfe\xed\0\0", "JKS", "changeit")


def test_a_key_store_that_lacks_a_part_is_named(pem: bytes) -> None:
    for data, missing in (
        (b"nonsense", "certificate"),
        (key_in(pem), "certificate"),
        (certificates_in(pem), "private key"),
    ):
        with pytest.raises(TlsError, match=f"^node.pem has no {missing} in PEM$"):
            read_key_store("node.pem", data, "PEM", None)


def test_the_key_of_another_certificate_is_refused(authority: Authority, pem: bytes) -> None:
    other = authority.issue("other", "localhost").read_bytes()
    with pytest.raises(TlsError, match="not the one of the certificate"):
        server_context(TlsMaterial(certificates_in(pem), key_in(other)), TlsOptions())


def test_a_listener_without_a_certificate_is_refused() -> None:
    with pytest.raises(TlsError, match="needs a certificate"):
        server_context(TlsMaterial(), TlsOptions())


@pytest.mark.parametrize("data", [b"", b"-----BEGIN CERTIFICATE-----", b"garbage", b"-----BEGIN X-----"])
def test_what_is_no_store_is_refused(data: bytes) -> None:
    with pytest.raises(TlsError):
        read_trust_store("x", data, None, None)
    with pytest.raises(TlsError):
        server_context(TlsMaterial(*read_key_store("x", data, None, None)), TlsOptions())


def test_client_certificates(authority: Authority, pem: bytes, tmp_path: Path) -> None:
    trusted = authority.file.read_bytes()
    client = authority.issue("alice").read_bytes()
    with_certificate = TlsMaterial(certificates_in(client), key_in(client), None, trusted)
    material = TlsMaterial(certificates_in(pem), key_in(pem), None, trusted)
    required = server_context(material, TlsOptions(client_auth="required", protocols=("TLSv1.2",)))
    seen = handshake(required, client_context(with_certificate, TlsOptions())).getpeercert()
    assert seen is not None
    assert (("commonName", "alice"),) in seen["subject"]
    with pytest.raises(ssl.SSLError):
        handshake(required, client_context(TlsMaterial(authorities=trusted), TlsOptions()))
    stranger = Authority(tmp_path).issue("alice").read_bytes()
    forged = TlsMaterial(certificates_in(stranger), key_in(stranger), None, trusted)
    with pytest.raises(ssl.SSLError):
        handshake(required, client_context(forged, TlsOptions()))


def test_the_host_is_checked_unless_it_is_switched_off(authority: Authority, pem: bytes) -> None:
    trusted = authority.file.read_bytes()
    server = server_context(TlsMaterial(certificates_in(pem), key_in(pem)), TlsOptions())
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, client_context(TlsMaterial(authorities=trusted), TlsOptions()), "elsewhere")
    handshake(server, client_context(TlsMaterial(authorities=trusted), TlsOptions(checks_host=False)), "elsewhere")


def test_protocols_and_cipher_suites(authority: Authority, pem: bytes) -> None:
    suites = ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384")
    material = TlsMaterial(certificates_in(pem), key_in(pem))
    server = server_context(material, TlsOptions(protocols=("TLSv1.2",), ciphers=suites))
    chosen = handshake(server, client_context(TlsMaterial(authorities=authority.file.read_bytes()), TlsOptions()))
    assert chosen.version() == "TLSv1.2"
    assert (chosen.cipher() or ("",))[0].endswith("AES256-GCM-SHA384")
    with pytest.raises(TlsError, match=r"ssl\.cipher\.suites"):
        server_context(material, TlsOptions(ciphers=("NO-SUCH-SUITE",)))
