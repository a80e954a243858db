"""A certificate authority of one cluster, and the certificates that it issues, by the library cryptography.

Keys are of the curve P-256, which makes handshakes quick. Certificates serve both ends of a connection.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .client_files import AUTHORITY_FILE, write_secret

AUTHORITY_KEY = "ca.key"
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
"""What each certificate holds for: names of the machine where it is."""
_RENEW_BEFORE = timedelta(days=30)
_AUTHORITY_VALID = timedelta(days=3650)
_NODE_VALID = timedelta(days=730)
_CLOCKS_DIFFER = timedelta(hours=1)
"""Certificates begin so much earlier, for machines whose clocks are behind."""


class CertificateAuthority:
    """What signs the certificates of a cluster's nodes. With `key_pem` anybody can sign others."""

    def __init__(self, key: EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def new(cls, name: str) -> CertificateAuthority:
        """A new one, for ten years."""
        key = generate_private_key(SECP256R1())
        subject = _name(name)
        builder = _builder(subject, subject, key, _AUTHORITY_VALID, key)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_key_usage(of_authority=True), critical=True)
        return cls(key, builder.sign(key, hashes.SHA256()))

    @classmethod
    def load(cls, key_pem: bytes, certificate_pem: bytes) -> CertificateAuthority:
        """The one of these files. Raises ValueError when they are not those of an authority of ours."""
        key = load_pem_private_key(key_pem, None)
        if not isinstance(key, EllipticCurvePrivateKey):
            raise ValueError("the key is of another kind")
        return cls(key, x509.load_pem_x509_certificate(certificate_pem))

    @property
    def certificate_pem(self) -> bytes:
        """What peers trust."""
        return self._certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The secret key."""
        return _key_pem(self._key)

    def issue(self, name: str, hosts: Iterable[str]) -> bytes:
        """A new key and its certificate for two years, in PEM. `hosts` are the names and addresses of its machine."""
        key = generate_private_key(SECP256R1())
        builder = _builder(_name(name), self._certificate.subject, key, _NODE_VALID, self._key)
        names = [_general_name(host) for host in dict.fromkeys(hosts)]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(of_authority=False), critical=True)
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return _key_pem(key) + certificate.public_bytes(Encoding.PEM)


def make_certificates(directory: str, authority_name: str, wanted: Mapping[str, Sequence[str]]) -> list[str]:
    """Make the certificates `wanted`, hosts by name, that are not in the directory; return the paths of what is new.

    `NAME.pem` has the key and the certificate. The authority, `ca.crt` and `ca.key`, is made first if it is not there.
    A certificate that lacks a host, or that expires within 30 days, is made again. Raises `OSError`, and ValueError
    when the authority is of another kind.
    """
    os.makedirs(directory, mode=0o700, exist_ok=True)
    key_file, certificate_file = (os.path.join(directory, name) for name in (AUTHORITY_KEY, AUTHORITY_FILE))
    made = []
    if os.path.exists(certificate_file):
        authority = CertificateAuthority.load(_bytes_of(key_file), _bytes_of(certificate_file))
    else:
        authority = CertificateAuthority.new(authority_name)
        write_secret(key_file, authority.key_pem)
        write_secret(certificate_file, authority.certificate_pem)
        made += [certificate_file, key_file]
    for name, others in wanted.items():
        path, hosts = os.path.join(directory, f"{name}.pem"), [*LOCAL_HOSTS, *others]
        if not os.path.exists(path) or not _still_serves(_bytes_of(path), hosts):
            write_secret(path, authority.issue(name, hosts))
            made.append(path)
    return made


def _still_serves(certificate_pem: bytes, hosts: Sequence[str]) -> bool:
    is_long = end_of(certificate_pem) - datetime.now(UTC) > _RENEW_BEFORE
    return is_long and hosts_of(certificate_pem).issuperset(hosts)


def hosts_of(certificate_pem: bytes) -> set[str]:
    """The names and addresses of the first certificate of a file."""
    found = x509.load_pem_x509_certificate(certificate_pem)
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(one.value) for one in names}


def end_of(certificate_pem: bytes) -> datetime:
    """When the first certificate of a file expires."""
    return x509.load_pem_x509_certificate(certificate_pem).not_valid_after_utc


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: EllipticCurvePrivateKey,
    valid: timedelta,
    signing_key: EllipticCurvePrivateKey,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    by_issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + valid)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(by_issuer, critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, of_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=of_authority,
        crl_sign=of_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _bytes_of(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
