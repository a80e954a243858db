"""Certificates for tests, made anew."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


class Authority:
    """A certificate authority; its certificates are files in `directory`."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._ca = trustme.CA()
        self._directory = directory
        self.file = directory / f"{name}.pem"
        self.file.write_bytes(self._ca.cert_pem.bytes())

    def issue(self, name: str, *hosts: str) -> Path:
        """The file with the key and the certificate of `name`, for these hosts, in PEM: PKCS #8, as Java wants it."""
        issued = self._ca.issue_cert(*(hosts or (f"{name}.example",)), common_name=name)
        chain = b"".join(part.bytes() for part in issued.cert_chain_pems)
        path = self._directory / f"{name}.pem"
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + chain)
        return path


def certificate_named(*parts: Sequence[x509.NameAttribute[str]]) -> bytes:
    """A certificate with this subject, which it has signed itself, in DER."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(map(x509.RelativeDistinguishedName, parts))
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    validity = datetime(2026, 1, 1, tzinfo=UTC), datetime(2036, 1, 1, tzinfo=UTC)
    dated = builder.not_valid_before(validity[0]).not_valid_after(validity[1])
    return dated.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)
