"""How a command logs in: the client's properties of Kafka's own tools (`--command-config`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...controller.configs.security_configs import LISTENER_CONFIGS, SECURITY_PROTOCOLS
from ...runtime.ports import Runtime
from ...runtime.tls_contexts import TlsError, client_context
from ...security.client_login import ClientLogin
from ...security.jaas import parse_jaas
from ...wire.config_def import InvalidValue
from .listener_security import check_mechanism, client_exchange, tls_material, tls_options, uses_sasl, uses_tls
from .node_config import ConfigError
from .properties import parse_properties


class ClientPropertiesError(Exception):
    """The file of a client's properties cannot be used; the text says why, and shows no secret."""


class _Values:
    """The values of the file, with the defaults of nodes where they are the same."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties

    def __getitem__(self, key: str) -> Any:
        text = self._properties.get(key)
        try:
            return LISTENER_CONFIGS[key].default_value if text is None else LISTENER_CONFIGS[key].parse(text)
        except InvalidValue as error:
            raise ClientPropertiesError(f"{key}: {error.reason}; {error.way_out}") from None


def load_login(path: str, runtime: Runtime) -> ClientLogin | None:
    """The login that the file asks for; None for PLAINTEXT. Raises `ClientPropertiesError`."""
    try:
        properties = parse_properties(runtime.disk.read_bytes(path).decode())
        return _login(properties, runtime)
    except OSError as error:
        raise ClientPropertiesError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ClientPropertiesError(f"{path} is not a text file") from None
    except (ClientPropertiesError, ValueError, TlsError, ConfigError) as error:
        raise ClientPropertiesError(f"{path}: {error}") from None


def _login(properties: Mapping[str, str], runtime: Runtime) -> ClientLogin | None:
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in SECURITY_PROTOCOLS:
        raise ClientPropertiesError(f"security.protocol={protocol}: it must be one of {', '.join(SECURITY_PROTOCOLS)}")
    if protocol == "PLAINTEXT":
        return None
    values = _Values(properties)
    tls = client_context(tls_material(values, runtime.disk), tls_options(values)) if uses_tls(protocol) else None
    if not uses_sasl(protocol):
        return ClientLogin(tls)
    jaas = properties.get("sasl.jaas.config")
    if jaas is None:
        raise ClientPropertiesError("sasl.jaas.config is not set; it has the user's name and password")
    mechanism = properties.get("sasl.mechanism", "GSSAPI")
    check_mechanism("sasl.mechanism", mechanism)
    return ClientLogin(tls, client_exchange("sasl.jaas.config", mechanism, parse_jaas(jaas).options, runtime))
