"""Key stores and trust stores as Kafka's settings name them: PEM (KIP-651) and PKCS12.

A Java key store (JKS) is refused with the command that converts it.
"""

from __future__ import annotations

from ...runtime.tls_contexts import TlsError

PEM, PKCS12, JKS = "PEM", "PKCS12", "JKS"
_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_BEGIN_CERTIFICATE, _END_CERTIFICATE = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"


def store_type(data: bytes, declared: str | None) -> str:
    """The type of a store, by what it is. Kafka's default is JKS, and Java reads PKCS12 under that name, too."""
    if data.startswith(_JKS_MAGIC):
        return JKS
    if b"-----BEGIN" in data:
        return PEM
    return PKCS12 if declared in (None, JKS, PKCS12) else str(declared)


def read_key_store(path: str, data: bytes, declared: str | None, password: str | None) -> tuple[bytes, bytes]:
    """The chain and the key of a key store, in PEM. Raises `TlsError`."""
    is_pem = _readable(path, data, declared) == PEM
    chain, key = (certificates_in(data), key_in(data)) if is_pem else _read_pkcs12(path, data, password)
    if not chain or not key:
        raise TlsError(f"{path} has no {'private key' if chain else 'certificate'}{' in PEM' if is_pem else ''}")
    return chain, key


def read_trust_store(path: str, data: bytes, declared: str | None, password: str | None) -> bytes:
    """The certificates of a trust store, in PEM. Raises `TlsError`."""
    found = certificates_in(data) if _readable(path, data, declared) == PEM else _read_pkcs12(path, data, password)[0]
    if not found:
        raise TlsError(f"{path} has no certificate")
    return found


def certificates_in(data: bytes) -> bytes:
    """All certificates of a PEM text."""
    found = []
    for part in data.split(_BEGIN_CERTIFICATE)[1:]:
        body, end, _ = part.partition(_END_CERTIFICATE)
        if end:
            found.append(_BEGIN_CERTIFICATE + body + _END_CERTIFICATE + b"\n")
    return b"".join(found)


def key_in(data: bytes) -> bytes:
    """The private key of a PEM text; empty where there is none."""
    for line in data.splitlines():
        label = line.strip()
        if label.startswith(b"-----BEGIN") and label.endswith(b"PRIVATE KEY-----"):
            end = label.replace(b"BEGIN", b"END")
            start = data.index(label)
            stop = data.find(end, start)
            return data[start : stop + len(end)] + b"\n" if stop >= 0 else b""
    return b""


def _readable(path: str, data: bytes, declared: str | None) -> str:
    kind = store_type(data, declared)
    if kind == JKS:
        raise TlsError(
            f"{path} is a Java key store (JKS); convert it: keytool -importkeystore -srckeystore {path} "
            f"-destkeystore {path}.p12 -deststoretype PKCS12"
        )
    return kind


def _read_pkcs12(path: str, data: bytes, password: str | None) -> tuple[bytes, bytes]:
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise TlsError(f"{path} is PKCS12, for which a library is missing: pip install 'raftwerk[security]'") from None
    try:
        store = pkcs12.load_pkcs12(data, (password or "").encode() or None)
    except ValueError:
        raise TlsError(f"{path} cannot be read as PKCS12: is its password right?") from None
    certificates = [one.certificate for one in (store.cert, *store.additional_certs) if one is not None]
    chain = b"".join(one.public_bytes(Encoding.PEM) for one in certificates)
    if store.key is None:
        return chain, b""
    return chain, store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
