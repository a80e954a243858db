"""How a command logs in: the client's properties of Kafka's own tools (`--command-config`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...controller.configs.security_configs import JAAS_CONFIG, LISTENER_CONFIGS
from ...runtime.os_errors import os_words
from ...runtime.ports import Runtime, environment
from ...runtime.tls_contexts import TlsError, client_context
from ...security.client_login import ClientLogin
from ...security.delegation_token import logs_in_by_token
from ...security.jaas import parse_jaas
from ...security.kerberos.exchange import GSSAPI
from ...security.oauthbearer.exchange import OAUTHBEARER
from ...wire.config_def import ConfigKey, InvalidValue, shown
from .client_configs import CLIENT_CONFIGS, suspicious_lines
from .listener_security import (
    SERVER_MECHANISMS,
    check_mechanism,
    endpoint_material,
    sasl_login,
    tls_material,
    tls_options,
    uses_sasl,
    uses_tls,
)
from .node_config import ConfigError
from .properties import decode_properties, parse_properties


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
    properties = read_properties(path, runtime)
    warnings = list(suspicious_lines(properties))
    try:
        return ClientProperties(login_of(properties, runtime), [f"{path}: {sentence}" for sentence in warnings])
    except ClientPropertiesError as error:
        causes = "".join(f"{sentence}; " for sentence in warnings)  # such a line is often why another is wrong
        raise ClientPropertiesError(f"{path}: {causes}{error}") from None


def read_properties(path: str, runtime: Runtime) -> dict[str, str]:
    """The properties in the file, with what its config providers know. Raises `ClientPropertiesError`."""
    try:
        properties = parse_properties(decode_properties(runtime.disk.read_bytes(path)))
        if "config.providers" in properties:
            from .config_providers.resolve import resolve  # most files have none

            properties = resolve(properties, runtime.disk.read_bytes, environment())
        return dict(properties)
    except OSError as error:
        raise ClientPropertiesError(f"cannot read {path}: {os_words(error)}") from None
    except ValueError as error:
        raise ClientPropertiesError(f"{path}: {error}") from None


def relative_paths(path: str, runtime: Runtime) -> dict[str, str]:
    """The settings in the file that name a file by a relative path. Raises `ClientPropertiesError`."""
    found = read_properties(path, runtime)
    return {name: value for name, value in found.items() if name.endswith(".location") and not value.startswith("/")}


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
        mechanism, options = _mechanism(values), _options(values)
        found |= {"sasl.mechanism": mechanism}
        if mechanism == OAUTHBEARER:
            return found | _librdkafka_token(values, options, runtime)
        if mechanism == GSSAPI:
            from .sasl.gssapi import librdkafka_kerberos  # its imports take memory

            return found | librdkafka_kerberos(values, JAAS_CONFIG.name, options)
        if logs_in_by_token(options):
            raise ClientPropertiesError("librdkafka cannot log in by a delegation token: take a name and a password")
        found |= {"sasl.username": options.get("username", ""), "sasl.password": options.get("password", "")}
    return found


def _librdkafka_token(values: _Values, options: Mapping[str, str], runtime: Runtime) -> dict[str, str]:
    from .sasl.oauthbearer_client import client_credentials  # its imports take memory

    credentials = client_credentials(values, options, None)
    if credentials is None:
        reason = "librdkafka takes tokens of a token endpoint only: set sasl.oauthbearer.token.endpoint.url to http(s)"
        raise ClientPropertiesError(reason)
    found = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": credentials.endpoint,
        "sasl.oauthbearer.client.id": credentials.client_id,
        "sasl.oauthbearer.client.secret": credentials.client_secret,
    }
    if credentials.scope:
        found["sasl.oauthbearer.scope"] = credentials.scope
    authorities = endpoint_material(options, runtime.disk).authorities
    if authorities:
        found["https.ca.pem"] = authorities.decode("ascii")
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
    if values["sasl.mechanism"] is None and values["sasl.kerberos.service.name"] is None:
        offered = ", ".join(SERVER_MECHANISMS)
        reason = "sasl.mechanism is not set, and its default GSSAPI needs sasl.kerberos.service.name"
        raise ClientPropertiesError(f"{reason}; set one of {offered}")
    mechanism = _mechanism(values)
    check_mechanism("sasl.mechanism", mechanism)
    return sasl_login(tls, JAAS_CONFIG.name, mechanism, values, _options(values), runtime)


def _mechanism(values: _Values) -> str:
    return str(values["sasl.mechanism"] or GSSAPI)


def _options(values: _Values) -> Mapping[str, str]:
    """The options of the login module. Kerberos needs none, since a ticket may be there."""
    jaas, mechanism = values[JAAS_CONFIG.name], _mechanism(values)
    if jaas is None and mechanism == GSSAPI:
        return {}
    if jaas is None:
        holds = "it names OAuthBearerLoginModule" if mechanism == OAUTHBEARER else "it has the user's name and password"
        raise ClientPropertiesError(f"sasl.jaas.config is not set; {holds}")
    try:
        return parse_jaas(jaas).options
    except ValueError as error:
        raise ClientPropertiesError(f"sasl.jaas.config: {error}") from None
