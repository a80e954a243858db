"""TLS contexts out of certificates and keys in PEM. OpenSSL reads keys from files, so they pass through memory."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

TlsContext: TypeAlias = ssl.SSLContext
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
TLS_PROTOCOLS = tuple(_VERSIONS)
REQUIRED, REQUESTED, NONE = "required", "requested", "none"
CLIENT_AUTH = {REQUIRED: ssl.CERT_REQUIRED, REQUESTED: ssl.CERT_OPTIONAL, NONE: ssl.CERT_NONE}
"""The values of ssl.client.auth."""

CERTIFICATE_WAY_OUT = "set ssl.keystore.location to a certificate that the listener takes"
"""What to correct where a server wants a certificate of the client."""
_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "BAD_RECORD_TYPE")
"""How OpenSSL calls bytes that are no TLS, by its versions."""
_HOST_MISMATCHES = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""


class TlsError(Exception):
    """Certificates or keys that cannot be used. The text names the cause and has no secret."""


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """Who we are and whom we trust, in PEM."""

    chain: bytes = b""
    """Our certificate and those above it; empty for a client without one."""
    key: bytes = b""
    key_password: str | None = None
    authorities: bytes | None = None
    """The certificates that we trust; None for those of the system."""

    def __repr__(self) -> str:
        return f"TlsMaterial(chain of {len(self.chain)} bytes)"


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """`protocols` are those of TLS_PROTOCOLS; `ciphers` are of TLS 1.2, by OpenSSL's or IANA's names, empty for all."""

    protocols: Sequence[str] = TLS_PROTOCOLS
    ciphers: Sequence[str] = ()
    client_auth: str = NONE
    checks_host: bool = True


def server_context(material: TlsMaterial, options: TlsOptions) -> TlsContext:
    """The context of a listener. Raises `TlsError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _configure(context, material, options)
    if not material.chain:
        raise TlsError("a listener with TLS needs a certificate and its key (ssl.keystore.*)")
    context.verify_mode = CLIENT_AUTH[options.client_auth]
    return context


def choose_for_each_client(context: TlsContext, current: Callable[[], TlsContext]) -> None:
    """Let a listener's context answer each client by the certificates of `current()`, which must not raise."""

    def choose(connection: ssl.SSLObject, _: str | None, __: TlsContext) -> None:
        connection.context = current()

    context.sni_callback = choose


def report_failed_handshakes(context: TlsContext, tell: Callable[[str], object]) -> None:
    """Let `tell` have what a client of a listener did when its TLS handshake failed, which asyncio tells nobody."""

    class Reporting(ssl.SSLObject):
        def do_handshake(self) -> None:
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                tell(_clients_failure(error))
                raise

    context.sslobject_class = Reporting


def _clients_failure(error: ssl.SSLError) -> str:
    reason = error.reason or ""
    if reason in _NOT_TLS:
        return "it speaks without TLS (security.protocol has to be SSL or SASL_SSL)"
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return f"it does not take the certificate of this listener ({_words(reason)})"
    return f"it {tls_failure(error)}"


def client_context(material: TlsMaterial, options: TlsOptions) -> TlsContext:
    """The context of connections that we open. The server's certificate is always checked. Raises `TlsError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = options.checks_host
    _configure(context, material, options)
    return context


def tls_failure(error: BaseException) -> str | None:
    """What a peer did in a TLS handshake that failed, in words that follow its address; None for other errors."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"has a certificate that is not trusted: {error.verify_message} (ssl.truststore.*)"
    if isinstance(error, ssl.SSLError):
        return f"fails in the TLS handshake: {_words(error.reason or 'no TLS')}"
    if _is_closed_in_handshake(error):
        return "fails in the TLS handshake: it closes the connection"
    return None


def _words(reason: str) -> str:
    return reason.replace("_", " ").lower()


def tls_way_out(error: BaseException) -> str | None:
    """What to correct in the settings of a client whose TLS handshake failed; None for other errors."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _HOST_MISMATCHES:
            return "connect by a name of the certificate, or set ssl.endpoint.identification.algorithm to nothing"
        return "set ssl.truststore.location to a file with the certificate or its authority"
    if not isinstance(error, ssl.SSLError) and not _is_closed_in_handshake(error):
        return None
    reason = getattr(error, "reason", None) or ""
    if "CERTIFICATE" in reason or "HANDSHAKE_FAILURE" in reason:
        return CERTIFICATE_WAY_OUT
    return "set security.protocol to PLAINTEXT or SASL_PLAINTEXT if the listener has no TLS, else ssl.enabled.protocols"


def _is_closed_in_handshake(error: BaseException) -> bool:
    """asyncio raises this error itself, without an error number of the operating system."""
    return isinstance(error, ConnectionResetError) and error.errno is None


def tls_greeting() -> bytes:
    """The first bytes of a client with TLS, to which every server with TLS answers in TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    sent = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), sent).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return sent.read()


def _configure(context: ssl.SSLContext, material: TlsMaterial, options: TlsOptions) -> None:
    versions = [_VERSIONS[name] for name in options.protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if options.ciphers:
        try:
            context.set_ciphers(":".join(_openssl_names(context, options.ciphers)))
        except ssl.SSLError:
            raise TlsError(f"ssl.cipher.suites: none of {', '.join(options.ciphers)} is known here") from None
    if material.authorities is None:
        context.load_default_certs(
            ssl.Purpose.SERVER_AUTH if context.protocol is ssl.PROTOCOL_TLS_CLIENT else ssl.Purpose.CLIENT_AUTH
        )
    else:
        try:
            context.load_verify_locations(cadata=material.authorities.decode("ascii"))
        except (ssl.SSLError, UnicodeDecodeError, ValueError):
            raise TlsError("the trust store (ssl.truststore.*) has no certificate that can be read") from None
    if material.chain:
        _load_chain(context, material)


def _openssl_names(context: ssl.SSLContext, names: Sequence[str]) -> list[str]:
    """Java's tools call cipher suites by IANA's names. TLS 1.3 has suites of its own, which are always there."""
    found = []
    for name in names:
        if name.startswith("TLS_") and "_WITH_" in name:
            exchange, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
            cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "")
            cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305")
            parts = [part.replace("_", "-") for part in (exchange, cipher) if part != "RSA"]
            found.append("-".join(parts))
        elif not name.startswith("TLS_"):
            found.append(name)
    return found or [cipher["name"] for cipher in context.get_ciphers()]


def _load_chain(context: ssl.SSLContext, material: TlsMaterial) -> None:
    with _memory_file(material.chain) as chain, _memory_file(material.key) as key:
        try:
            # A password that is not given must not be asked for at the terminal.
            context.load_cert_chain(chain, key, lambda: material.key_password or "")
        except ssl.SSLError as error:
            reason = error.reason or ""
            if "MISMATCH" in reason:
                text = "the key is not the one of the certificate (ssl.keystore.*)"
            elif b"ENCRYPTED" in material.key:
                text = "the key cannot be decrypted: is ssl.key.password right?"
            else:
                text = f"the certificate and key (ssl.keystore.*) cannot be read: {reason or 'no PEM'}"
            raise TlsError(text) from None


@contextmanager
def _memory_file(content: bytes) -> Iterator[str]:
    number = os.memfd_create("tls")
    try:
        os.write(number, content)
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)
