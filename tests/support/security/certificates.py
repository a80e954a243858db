"""Certificates for tests, made anew."""

from __future__ import annotations

from pathlib import Path

import trustme
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
