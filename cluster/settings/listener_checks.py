"""What would be wrong with TLS and SASL when a node with these settings started, and when its certificates expire."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

from ...runtime.ports import Runtime
from ...runtime.tls_contexts import TlsError
from ...security.delegation_token import no_tokens
from .current_config import CurrentConfig
from .listener_security import (
    ListenerSettings,
    listener_security,
    login_to_brokers,
    login_to_controllers,
    tls_material,
    uses_tls,
)
from .node_config import ConfigError, Listener, NodeConfig, Problem

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_TIME_FORMATS = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
"""ASN.1's UTCTime and GeneralizedTime, as RFC 5280 has them in certificates."""
_CONTEXT_0 = 0xA0
_SOON = timedelta(days=30)


def refused_security(config: NodeConfig, runtime: Runtime) -> list[Problem]:
    """Why listeners could not be secured as the settings say, or logins to other nodes be made.

    A node with these settings ends at its start. Key stores are read with their passwords, and the libraries that SCRAM
    and PKCS12 need are imported.
    """
    current = CurrentConfig(config)
    made: list[Callable[[], object]] = [
        partial(listener_security, current, one, runtime, lambda mechanism, user: None, no_tokens)
        for one in config.listeners
    ]
    made += [partial(login_to_brokers, current, runtime)] * config.is_broker
    made.append(partial(login_to_controllers, current, runtime))
    found: dict[Problem, None] = {}
    for make in made:
        try:
            make()
        except ConfigError as error:
            found |= dict.fromkeys(error.problems)
    return list(found)


def security_problems(config: NodeConfig, runtime: Runtime) -> tuple[list[Problem], list[Problem]]:
    """What keeps a node or its peers from connecting as the settings say, now, and what soon will."""
    found = refused_security(config, runtime)
    now = datetime.fromtimestamp(runtime.clock.wall_ms() / 1000, UTC)
    ended: list[Problem] = []
    soon: list[Problem] = []
    for one, end in _certificate_ends(config, runtime):
        if end - now < _SOON:
            (ended if end <= now else soon).append(certificate_problem(one.name, end, now))
    return [*found, *ended], soon


def certificate_problem(listener: str, end: datetime, now: datetime) -> Problem:
    """What to say of a certificate that has expired, or soon will."""
    is_over = end <= now
    told = f"expired on {end:%Y-%m-%d}, and peers refuse it" if is_over else f"expires in {(end - now).days} days"
    way_out = "put a new one in its key store; a node that runs takes it up by itself"
    return Problem("ssl.keystore.*", "", f"the certificate of listener {listener} {told}", way_out)


def _certificate_ends(config: NodeConfig, runtime: Runtime) -> Iterator[tuple[Listener, datetime]]:
    """When the certificate of each listener with TLS expires; listeners whose key store cannot be read are left out."""
    for one in config.listeners:
        if not uses_tls(one.protocol):
            continue
        try:
            chain = tls_material(ListenerSettings(config, one.name), runtime.disk).chain
        except TlsError:
            continue
        if chain:
            yield one, certificate_end(chain)


def certificate_end(chain: bytes) -> datetime:
    """When the first of the certificates of a chain in PEM expires."""
    return min(_end_of(base64.b64decode(body)) for body in _CERTIFICATE.findall(chain))


def _end_of(der: bytes) -> datetime:
    """`notAfter` of a certificate: Certificate, TBSCertificate, then version, serial, algorithm, issuer, validity."""
    _, certificate, _ = _element(der, 0)
    _, fields, _ = _element(certificate, 0)
    tag, _, at = _element(fields, 0)
    for _ in range(3 if tag == _CONTEXT_0 else 2):
        _, _, at = _element(fields, at)
    _, validity, _ = _element(fields, at)
    _, _, at = _element(validity, 0)
    tag, text, _ = _element(validity, at)
    return datetime.strptime(text.decode("ascii"), _TIME_FORMATS[tag]).replace(tzinfo=UTC)


def _element(data: bytes, at: int) -> tuple[int, bytes, int]:
    """The tag and content of the DER element at a position, and where the next one begins."""
    tag, length, at = data[at], data[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length, at = int.from_bytes(data[at : at + size], "big"), at + size
    return tag, data[at : at + length], at + length
