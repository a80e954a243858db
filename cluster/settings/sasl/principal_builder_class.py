"""Which class of the operator says who peers are, by `principal.builder.class`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ....controller.configs.security_configs import DEFAULT_PRINCIPAL_BUILDER
from ....security.principal_builder import PrincipalContext, checked_builder
from ....security.principals import KafkaPrincipal
from ...node.policies import PolicyError, loaded_class, made
from ..node_config import ConfigError, Problem
from .server_callbacks import MechanismSettings

_KEY = "principal.builder.class"
_METHOD = "build(context)"


def principal_builder(
    settings: MechanismSettings, properties: Mapping[str, str]
) -> Callable[[PrincipalContext], KafkaPrincipal] | None:
    """What makes the principals of a listener; None where Kafka's rules do. Raises `ConfigError`."""
    name = settings[_KEY]
    if name in ("", DEFAULT_PRINCIPAL_BUILDER):
        return None
    try:
        return checked_builder(name, made(loaded_class(name, _METHOD), properties).build)
    except PolicyError as error:
        way_out = f"name a class that this Python can import, with a method {_METHOD}, or {DEFAULT_PRINCIPAL_BUILDER}"
        raise ConfigError([Problem(settings.name_of(_KEY), name, str(error), way_out)]) from None
