"""How the peers of one listener authenticate themselves, and whether their bytes are encrypted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ...runtime.tls_contexts import TlsContext
from ...security.principal_builder import PrincipalContext
from ...security.principals import ANONYMOUS, KafkaPrincipal, PrincipalMapper
from ...security.sasl.session import MakeMechanism, SaslSession
from ...security.tls.distinguished_names import distinguished_name


class BackgroundWork(Protocol):
    """Work that goes on while a listener runs."""

    async def start(self) -> None:
        """Begin. The listener opens when this returns."""
        ...

    def stop(self) -> None:
        """End; ending twice is harmless."""
        ...


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """The security of one listener, for its server and its connections."""

    tls: TlsContext | None = None
    """The context of listeners with TLS. It answers each client by the certificates of the moment."""
    mechanisms: Mapping[str, MakeMechanism] | None = None
    """The SASL mechanisms of listeners with SASL."""
    mapper: PrincipalMapper = field(default_factory=PrincipalMapper)
    max_receive_bytes: int = 524_288
    """`sasl.server.max.receive.size`: the largest frame before the login."""
    max_reauth_ms: Mapping[str, int] = field(default_factory=dict)
    """`connections.max.reauth.ms` of each mechanism: how long a login holds; 0 for ever."""
    failure_delay_s: float = 0.1
    """`connection.failed.authentication.delay.ms`: when a failed login is answered."""

    build_principal: Callable[[PrincipalContext], KafkaPrincipal] | None = None
    """`principal.builder.class`: raises ValueError."""
    background: Sequence[BackgroundWork] = ()
    """What goes on while the listener runs, such as reading keys again."""

    async def start(self) -> None:
        """Begin the work in the background."""
        for work in self.background:
            await work.start()

    def stop(self) -> None:
        """End the work in the background."""
        for work in self.background:
            work.stop()

    def new_session(self) -> SaslSession | None:
        """The SASL state of a new connection; None on listeners without SASL."""
        if self.mechanisms is None:
            return None
        return SaslSession(self.mechanisms, self.max_reauth_ms, self.failure_delay_s)

    def principal_of(
        self, transport: asyncio.BaseTransport, listener_name: str, host: str, sasl: SaslSession | None
    ) -> KafkaPrincipal:
        """The principal of a connection, by its login if it has one, else by its certificate.

        Raises ValueError when no mapping rule fits, or the operator's class makes none.
        """
        by_sasl = None if sasl is None else sasl.principal
        if by_sasl is not None and self.build_principal is None:
            return by_sasl
        name = _certificate_name(transport)
        principal = by_sasl or (ANONYMOUS if name is None else self.mapper.principal(name))
        if self.build_principal is None:
            return principal
        mechanism = None if sasl is None else sasl.mechanism
        return self.build_principal(PrincipalContext(principal, listener_name, host, name, mechanism))


def _certificate_name(transport: asyncio.BaseTransport) -> str | None:
    connection = transport.get_extra_info("ssl_object")
    certificate = connection.getpeercert(binary_form=True) if connection is not None else None
    return distinguished_name(certificate) if certificate else None
