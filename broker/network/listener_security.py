"""How the peers of one listener authenticate themselves, and whether their bytes are encrypted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...runtime.tls_contexts import TlsContext
from ...security.principals import ANONYMOUS, KafkaPrincipal, PrincipalMapper, distinguished_name
from ...security.sasl.session import MakeMechanism, SaslSession

TLS_HANDSHAKE_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """The security of one listener, for its server and its connections."""

    tls: TlsContext | None = None
    """The context of listeners with TLS. New certificates are loaded into it while the listener runs."""
    mechanisms: Mapping[str, MakeMechanism] | None = None
    """The SASL mechanisms of listeners with SASL."""
    mapper: PrincipalMapper = field(default_factory=PrincipalMapper)
    max_receive_bytes: int = 524_288
    """`sasl.server.max.receive.size`: the largest frame before the login."""
    max_reauth_ms: int = 0
    """`connections.max.reauth.ms`: how long a login holds; 0 for ever."""
    failure_delay_s: float = 0.1
    """`connection.failed.authentication.delay.ms`: when a failed login is answered."""

    def server_options(self) -> dict[str, Any]:
        """The options for `loop.create_server`."""
        return {} if self.tls is None else {"ssl": self.tls, "ssl_handshake_timeout": TLS_HANDSHAKE_TIMEOUT_S}

    def new_session(self) -> SaslSession | None:
        """The SASL state of a new connection; None on listeners without SASL."""
        if self.mechanisms is None:
            return None
        return SaslSession(self.mechanisms, self.max_reauth_ms, self.failure_delay_s)

    def principal_of(self, transport: asyncio.BaseTransport) -> KafkaPrincipal:
        """The principal of a connection by its certificate. Raises ValueError when no mapping rule fits."""
        connection = transport.get_extra_info("ssl_object")
        certificate = connection.getpeercert() if connection is not None else None
        if not certificate:
            return ANONYMOUS
        return self.mapper.principal(distinguished_name(certificate["subject"]))
