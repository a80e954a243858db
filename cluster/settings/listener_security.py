"""What the settings say of TLS and SASL, for each listener of a node and for its connections to other nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from ...broker.network.listener_security import ListenerSecurity
from ...controller.configs.security_configs import JAAS_CONFIG, LISTENER_CONFIGS
from ...runtime.os_errors import os_words
from ...runtime.ports import Disk, Runtime
from ...runtime.tls_contexts import TlsContext, TlsError, TlsMaterial, TlsOptions, client_context, server_context
from ...security.client_login import ClientLogin
from ...security.jaas import LoginModule, parse_jaas
from ...security.principals import PrincipalMapper
from ...security.sasl.mechanism import ClientMechanism
from ...security.sasl.plain import PLAIN, PlainClient, PlainServer, passwords_of
from ...security.sasl.scram_credential import MECHANISM_NUMBERS, FindCredential
from ...security.sasl.session import MakeMechanism
from ...security.tls.key_stores import certificates_in, key_in, read_key_store, read_trust_store
from .node_config import ConfigError, Listener, NodeConfig, Problem

SERVER_MECHANISMS = (PLAIN, *MECHANISM_NUMBERS)


class ListenerSettings:
    """The values of one listener: those of `listener.name.<name>.` before those of the node."""

    def __init__(self, config: NodeConfig, listener_name: str) -> None:
        self._config = config
        self.prefix = f"listener.name.{listener_name.lower()}."

    def __getitem__(self, key: str) -> Any:
        text = self._config.properties.get(self.prefix + key)
        return self._config[key] if text is None else LISTENER_CONFIGS[key].parse(text)

    def name_of(self, key: str) -> str:
        """The name under which the value is set."""
        return self.prefix + key if self.prefix + key in self._config.properties else key

    def jaas_key(self, mechanism: str) -> str:
        """The name of `sasl.jaas.config` for one mechanism."""
        return f"{self.prefix}{mechanism.lower()}.{JAAS_CONFIG.name}"

    def jaas(self, mechanism: str) -> str | None:
        """`sasl.jaas.config` for one mechanism. Without a mechanism it has no effect, as in Apache Kafka."""
        return self._config.properties.get(self.jaas_key(mechanism))


def uses_tls(protocol: str) -> bool:
    """Whether a security protocol encrypts."""
    return protocol.endswith("SSL")


def uses_sasl(protocol: str) -> bool:
    """Whether peers of a security protocol log in."""
    return protocol.startswith("SASL_")


def listener_security(
    config: NodeConfig, listener: Listener, runtime: Runtime, find_credential: FindCredential
) -> ListenerSecurity | None:
    """The security of one listener; None for PLAINTEXT. Raises `ConfigError`."""
    if listener.protocol == "PLAINTEXT":
        return None
    settings = ListenerSettings(config, listener.name)
    tls = _tls(settings, runtime.disk, server_context) if uses_tls(listener.protocol) else None
    rules = settings["ssl.principal.mapping.rules"]
    try:
        mapper = PrincipalMapper(rules)
    except ValueError as error:
        raise _problem(settings.name_of("ssl.principal.mapping.rules"), rules, str(error), "correct it") from None
    return ListenerSecurity(
        tls=tls,
        mechanisms=_server_mechanisms(settings, runtime, find_credential) if uses_sasl(listener.protocol) else None,
        mapper=mapper,
        max_receive_bytes=settings["sasl.server.max.receive.size"],
        max_reauth_ms=settings["connections.max.reauth.ms"],
        failure_delay_s=settings["connection.failed.authentication.delay.ms"] / 1000,
    )


def login_to_brokers(config: NodeConfig, runtime: Runtime) -> ClientLogin | None:
    """How this broker's connections to other brokers log in; None for PLAINTEXT. Raises `ConfigError`."""
    name = config.inter_broker_listener_name
    return _login(config, name, "sasl.mechanism.inter.broker.protocol", runtime)


def login_to_controllers(config: NodeConfig, runtime: Runtime) -> ClientLogin | None:
    """How this node's connections to controllers log in; None for PLAINTEXT. Raises `ConfigError`."""
    names = config.controller_listener_names
    return _login(config, names[0], "sasl.mechanism.controller.protocol", runtime) if names else None


def _login(config: NodeConfig, listener_name: str, mechanism_key: str, runtime: Runtime) -> ClientLogin | None:
    protocol = config.protocols.get(listener_name, "PLAINTEXT")
    if protocol == "PLAINTEXT":
        return None
    settings = ListenerSettings(config, listener_name)
    tls = _tls(settings, runtime.disk, client_context) if uses_tls(protocol) else None
    if not uses_sasl(protocol):
        return ClientLogin(tls)
    return ClientLogin(tls, _client_mechanism(settings, mechanism_key, config[mechanism_key], runtime))


def _server_mechanisms(
    settings: ListenerSettings, runtime: Runtime, find_credential: FindCredential
) -> Mapping[str, MakeMechanism]:
    found: dict[str, MakeMechanism] = {}
    for name in settings["sasl.enabled.mechanisms"]:
        check_mechanism(settings.name_of("sasl.enabled.mechanisms"), name)
        found[name] = (
            _plain_server(settings) if name == PLAIN else _scram_server(settings, name, runtime, find_credential)
        )
    return found


def _plain_server(settings: ListenerSettings) -> MakeMechanism:
    is_valid = passwords_of(_module(settings, PLAIN, 'user_alice="..."').options)
    return lambda: PlainServer(is_valid)


def _scram_server(settings: ListenerSettings, mechanism: str, runtime: Runtime, find: FindCredential) -> MakeMechanism:
    scram = _scram(settings.name_of("sasl.enabled.mechanisms"), mechanism)
    return lambda: scram.ScramServer(mechanism, find, scram.new_nonce(runtime.secret_bytes))


def _scram(key: str, mechanism: str) -> ModuleType:
    """The module is imported only where a listener uses SCRAM, since its library is optional."""
    try:
        from ...security.sasl import scram
    except ImportError:
        way_out = "pip install 'raftwerk[security]'"
        raise _problem(key, mechanism, "a library for SCRAM is missing", way_out) from None
    return scram


def _client_mechanism(
    settings: ListenerSettings, key: str, mechanism: str, runtime: Runtime
) -> Callable[[], ClientMechanism]:
    check_mechanism(key, mechanism)
    options = _module(settings, mechanism, 'username="..." password="..."').options
    return client_exchange(settings.jaas_key(mechanism), mechanism, options, runtime)


def client_exchange(
    key: str, mechanism: str, options: Mapping[str, str], runtime: Runtime
) -> Callable[[], ClientMechanism]:
    """What makes the exchanges of a client, by the options of its login module.

    `key` is the configuration that has them. Raises `ConfigError`.
    """
    user, password = options.get("username"), options.get("password")
    if user is None or password is None:
        raise _problem(key, "", "it has no credentials to log in with", 'add username="..." password="..." to it')
    if mechanism == PLAIN:
        return lambda: PlainClient(user, password)
    scram = _scram(key, mechanism)
    return lambda: scram.ScramClientExchange(mechanism, user, password, scram.new_nonce(runtime.secret_bytes))


def check_mechanism(key: str, mechanism: str) -> None:
    """Raise `ConfigError` for a SASL mechanism that is not served. `key` is the configuration that names it."""
    if mechanism not in SERVER_MECHANISMS:
        raise _problem(key, mechanism, f"{mechanism} is not served", f"choose among {', '.join(SERVER_MECHANISMS)}")


def _module(settings: ListenerSettings, mechanism: str, example: str) -> LoginModule:
    key, text = settings.jaas_key(mechanism), settings.jaas(mechanism)
    if text is None:
        way_out = f"set it, for example: {_MODULES[mechanism]} required {example};"
        raise _problem(key, None, f"{mechanism} needs it", way_out)
    try:
        return parse_jaas(text)
    except ValueError as error:
        raise _problem(key, text, str(error), "correct it") from None


_MODULES = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    **dict.fromkeys(MECHANISM_NUMBERS, "org.apache.kafka.common.security.scram.ScramLoginModule"),
}


def _tls(
    settings: ListenerSettings, disk: Disk, make_context: Callable[[TlsMaterial, TlsOptions], TlsContext]
) -> TlsContext:
    try:
        return make_context(tls_material(settings, disk), tls_options(settings))
    except TlsError as error:
        way_out = "correct the ssl.* settings of this listener"
        raise _problem(settings.prefix + "ssl.*", "", str(error), way_out) from None


def tls_options(settings: Any) -> TlsOptions:
    """What the settings say of protocols, cipher suites and certificates of peers."""
    return TlsOptions(
        protocols=settings["ssl.enabled.protocols"],
        ciphers=settings["ssl.cipher.suites"],
        client_auth=settings["ssl.client.auth"],
        checks_host=bool(settings["ssl.endpoint.identification.algorithm"]),
    )


def tls_material(settings: Any, disk: Disk) -> TlsMaterial:
    """The certificates and keys that the settings name, by Kafka's keys. Raises `TlsError`."""
    chain, key = b"", b""
    if settings["ssl.keystore.location"]:
        path = settings["ssl.keystore.location"]
        password = settings["ssl.keystore.password"] or settings["ssl.key.password"]
        chain, key = read_key_store(path, _read(disk, path), settings["ssl.keystore.type"], password)
    elif settings["ssl.keystore.key"]:
        chain = certificates_in((settings["ssl.keystore.certificate.chain"] or "").encode())
        key = key_in(settings["ssl.keystore.key"].encode())
        if not chain or not key:
            raise TlsError("ssl.keystore.key and ssl.keystore.certificate.chain must each hold PEM")
    authorities: bytes | None = None
    if settings["ssl.truststore.location"]:
        path = settings["ssl.truststore.location"]
        data = _read(disk, path)
        authorities = read_trust_store(path, data, settings["ssl.truststore.type"], settings["ssl.truststore.password"])
    elif settings["ssl.truststore.certificates"]:
        authorities = certificates_in(settings["ssl.truststore.certificates"].encode())
    return TlsMaterial(chain, key, settings["ssl.key.password"], authorities)


def _read(disk: Disk, path: str) -> bytes:
    try:
        return disk.read_bytes(path)
    except OSError as error:
        raise TlsError(f"cannot read {path}: {os_words(error)}") from None


def _problem(key: str, value: str | None, reason: str, way_out: str) -> ConfigError:
    return ConfigError([Problem(key, value, reason, way_out)])
