"""How a command logs in: the client's properties of Kafka's own tools (`--command-config`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...controller.configs.security_configs import LISTENER_CONFIGS
from ...runtime.os_errors import os_words
from ...runtime.ports import Runtime
from ...runtime.tls_contexts import TlsError, client_context
from ...security.client_login import ClientLogin
from ...security.jaas import parse_jaas
from ...wire.config_def import ConfigKey, InvalidValue, shown
from .client_configs import CLIENT_CONFIGS, suspicious_lines
from .listener_security import (
    SERVER_MECHANISMS,
    check_mechanism,
    client_exchange,
    tls_material,
    tls_options,
    uses_sasl,
    uses_tls,
)
from .node_config import ConfigError
from .properties import parse_properties


class ClientPropertiesError(Exception):
    """The file of a client's properties cannot be used; the text says why, and shows no secret."""


@dataclass(frozen=True, slots=True)
class ClientProperties:
    """How a command logs in, None for PLAINTEXT, and a sentence for each line of the file that is probably wrong."""

    login: ClientLogin | None
    warnings: Sequence[str]


class _Values:
    """The parsed values of the file, with defaults."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._values = {
            name: _parsed(CLIENT_CONFIGS[name], text) for name, text in properties.items() if name in CLIENT_CONFIGS
        }

    def __getitem__(self, key: str) -> Any:
        if key in self._values:
            return self._values[key]
        known = CLIENT_CONFIGS.get(key) or LISTENER_CONFIGS[key]
        return known.default_value


def load_properties(path: str, runtime: Runtime) -> ClientProperties:
    """Read the file. Raises `ClientPropertiesError`, also for values of settings that do nothing here."""
    warnings: list[str] = []
    try:
        properties = parse_properties(runtime.disk.read_bytes(path).decode())
        warnings = list(suspicious_lines(properties))
        return ClientProperties(login_of(properties, runtime), [f"{path}: {sentence}" for sentence in warnings])
    except OSError as error:
        raise ClientPropertiesError(f"cannot read {path}: {os_words(error)}") from None
    except UnicodeDecodeError:
        raise ClientPropertiesError(f"{path} is not a text file") from None
    except (ClientPropertiesError, ValueError) as error:
        causes = "".join(f"{sentence}; " for sentence in warnings)  # such a line is often why another is wrong
        raise ClientPropertiesError(f"{path}: {causes}{error}") from None


def login_of(properties: Mapping[str, str], runtime: Runtime) -> ClientLogin | None:
    """How a client with these properties logs in; None for PLAINTEXT. Raises `ClientPropertiesError`."""
    try:
        return _login(_Values(properties), runtime)
    except (ValueError, TlsError, ConfigError) as error:
        raise ClientPropertiesError(str(error)) from None


def librdkafka_login(properties: Mapping[str, str], runtime: Runtime) -> dict[str, str]:
    """The settings by which librdkafka logs in as a client with these properties does; empty for PLAINTEXT.

    Certificates and keys are in the values, so the files are needed only here. Raises `ClientPropertiesError`.
    """
    login_of(properties, runtime)  # it checks all values
    values = _Values(properties)
    protocol = values["security.protocol"]
    found = {} if protocol == "PLAINTEXT" else {"security.protocol": protocol}
    if uses_tls(protocol):
        material = tls_material(values, runtime.disk)
        pem = {"ssl.ca.pem": material.authorities, "ssl.certificate.pem": material.chain, "ssl.key.pem": material.key}
        found |= {name: data.decode("ascii") for name, data in pem.items() if data}
        found |= {"ssl.key.password": material.key_password} if material.key_password else {}
        found |= {} if tls_options(values).checks_host else {"ssl.endpoint.identification.algorithm": "none"}
    if uses_sasl(protocol):
        options = parse_jaas(values["sasl.jaas.config"]).options
        found |= {"sasl.mechanism": values["sasl.mechanism"]}
        found |= {"sasl.username": options.get("username", ""), "sasl.password": options.get("password", "")}
    return found


def _parsed(key: ConfigKey, text: str) -> Any:
    try:
        return key.parse(text.upper() if key.name == "security.protocol" else text)
    except InvalidValue as error:
        what = f"{key.name}={shown(key.name, text)}"
        raise ClientPropertiesError(f"{what}: {error.reason}; {error.way_out}") from None


def _login(values: _Values, runtime: Runtime) -> ClientLogin | None:
    protocol = values["security.protocol"]
    if protocol == "PLAINTEXT":
        return None
    tls = client_context(tls_material(values, runtime.disk), tls_options(values)) if uses_tls(protocol) else None
    if not uses_sasl(protocol):
        return ClientLogin(tls)
    mechanism = values["sasl.mechanism"]
    if mechanism is None:
        offered = ", ".join(SERVER_MECHANISMS)
        raise ClientPropertiesError(f"sasl.mechanism is not set, and its default GSSAPI is not served; set {offered}")
    check_mechanism("sasl.mechanism", mechanism)
    jaas = values["sasl.jaas.config"]
    if jaas is None:
        raise ClientPropertiesError("sasl.jaas.config is not set; it has the user's name and password")
    try:
        options = parse_jaas(jaas).options
    except ValueError as error:
        raise ClientPropertiesError(f"sasl.jaas.config: {error}") from None
    return ClientLogin(tls, client_exchange("sasl.jaas.config", mechanism, options, runtime))
