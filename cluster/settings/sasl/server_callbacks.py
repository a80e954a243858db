"""Which class of the operator knows the users of a listener's mechanism, by `sasl.server.callback.handler.class`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ....security.kerberos.exchange import GSSAPI
from ....security.oauthbearer.exchange import OAUTHBEARER
from ....security.sasl.plain import PLAIN
from ....security.sasl.scram_credential import MECHANISM_NUMBERS
from ....security.sasl.server_callbacks import ServerCallback
from ...node.policies import PolicyError, loaded_class, made
from ..node_config import ConfigError, Problem

HANDLER_KEY = "sasl.server.callback.handler.class"
_PACKAGE = "org.apache.kafka.common.security."
_METHODS = {
    PLAIN: "authenticate(user, password)",
    **dict.fromkeys(MECHANISM_NUMBERS, "credential(user)"),
    OAUTHBEARER: "validate(token)",
}
_OF_KAFKA = {
    PLAIN: f"{_PACKAGE}plain.internals.PlainServerCallbackHandler",
    **dict.fromkeys(MECHANISM_NUMBERS, f"{_PACKAGE}scram.internals.ScramServerCallbackHandler"),
    GSSAPI: f"{_PACKAGE}authenticator.SaslServerCallbackHandler",
}
"""Kafka's own classes, which stand for what there is without a class. Those of OAUTHBEARER are chosen elsewhere."""


class MechanismSettings(Protocol):
    """The settings of one listener for one mechanism."""

    def __getitem__(self, key: str) -> Any:
        """A value, or its default."""
        ...

    def name_of(self, key: str) -> str:
        """The name under which the value is set."""
        ...


def server_callback(
    settings: MechanismSettings, mechanism: str, properties: Mapping[str, str]
) -> ServerCallback | None:
    """What asks the class; None where the node knows the users itself. Raises `ConfigError`.

    `properties` are all lines of server.properties, for the class to read its own.
    """
    name, key = settings[HANDLER_KEY], settings.name_of(HANDLER_KEY)
    if name is None or name == _OF_KAFKA.get(mechanism):
        return None
    if mechanism == OAUTHBEARER and name.rpartition(".")[0].startswith(_PACKAGE):
        return None
    method = _METHODS.get(mechanism)
    if method is None:
        raise ConfigError([Problem(key, name, f"{mechanism} asks no class", "remove it")])
    try:
        handler = made(loaded_class(name, method), properties)
    except PolicyError as error:
        way_out = f"name a class that this Python can import, with a method {method}"
        raise ConfigError([Problem(key, name, str(error), way_out)]) from None
    return ServerCallback(name, getattr(handler, method.partition("(")[0]))
