"""A class of the operator that says who a peer is, by what it has proved: `principal.builder.class`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from .principals import KafkaPrincipal, parse_principal


class PrincipalContext(NamedTuple):
    """What a peer has proved."""

    principal: KafkaPrincipal
    """Who it is without the class: by SASL, by `ssl.principal.mapping.rules`, or User:ANONYMOUS."""
    listener_name: str
    host: str
    """Its IP address."""
    certificate_name: str | None
    """The distinguished name in its certificate, as RFC 2253 writes it; None without one."""
    sasl_mechanism: str | None
    """The mechanism by which it has logged in; None without SASL."""


class PrincipalBuilder(Protocol):
    """Kafka's KafkaPrincipalBuilder. Its method is called on the event loop, so it must not wait for anything."""

    def build(self, context: PrincipalContext) -> KafkaPrincipal | str:
        """The principal, or its text, such as User:alice. An error closes the connection."""
        ...


def checked_builder(
    name: str, build: Callable[[PrincipalContext], KafkaPrincipal | str]
) -> Callable[[PrincipalContext], KafkaPrincipal]:
    """The method `build` of the class of that name, of which every error is a ValueError for the log.

    A principal by a delegation token stays one.
    """

    def checked(context: PrincipalContext) -> KafkaPrincipal:
        try:
            found = build(context)
            made = found if isinstance(found, KafkaPrincipal) else parse_principal(found)
        except Exception as error:
            raise ValueError(
                f"{name} makes no principal of {context.principal}: {type(error).__name__}: {error}"
            ) from error
        return made._replace(is_token_authenticated=context.principal.is_token_authenticated)

    return checked
