"""What the settings say of TLS and SASL, for each listener of a node and for its connections to other nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ...broker.network.listener_security import BackgroundWork, ListenerSecurity
from ...controller.configs.security_configs import (
    CERTIFICATE_CONFIGS,
    JAAS_CONFIG,
    LISTENER_CONFIGS,
    MECHANISM_CONFIGS,
    certificate_config,
)
from ...runtime.os_errors import os_words
from ...runtime.ports import Disk, Runtime
from ...runtime.tls_contexts import (
    TlsContext,
    TlsError,
    TlsMaterial,
    TlsOptions,
    choose_for_each_client,
    client_context,
    server_context,
)
from ...security.client_login import ClientLogin
from ...security.delegation_token import FindToken, logs_in_by_token
from ...security.jaas import LoginModule, parse_jaas
from ...security.kerberos.exchange import GSSAPI
from ...security.oauthbearer.exchange import OAUTHBEARER
from ...security.oauthbearer.token_callback import tokens_by_callback
from ...security.principals import PrincipalMapper
from ...security.sasl.mechanism import ClientMechanism
from ...security.sasl.plain import PLAIN, PlainClient, PlainServer, passwords_of
from ...security.sasl.scram import ScramClientExchange, ScramServer, new_nonce
from ...security.sasl.scram_callback import scram_by_callback
from ...security.sasl.scram_credential import MECHANISM_NUMBERS, FindCredential
from ...security.sasl.server_callbacks import ServerCallback, plain_by_callback
from ...security.sasl.session import MakeMechanism
from ...security.tls.key_stores import certificates_in, key_in, read_key_store, read_trust_store
from ...security.tls.renewal import RenewedContext
from .current_config import CurrentConfig
from .node_config import ConfigError, Listener, NodeConfig, Problem
from .sasl.principal_builder_class import principal_builder
from .sasl.server_callbacks import server_callback

SERVER_MECHANISMS = (PLAIN, *MECHANISM_NUMBERS, OAUTHBEARER, GSSAPI)


STORE_BYTES_MAX = 4 * 1024 * 1024
"""The size of a key store or trust store; those of the system's authorities have some hundred kilobytes."""


class ListenerSettings:
    """The values of one listener: those of `listener.name.<name>.` before those of the node.

    With a mechanism, those of `listener.name.<name>.<mechanism>.` come first.
    """

    def __init__(self, config: NodeConfig, listener_name: str, mechanism: str | None = None) -> None:
        self._config = config
        self._listener_name = listener_name
        self._mechanism = mechanism
        self.prefix = f"listener.name.{listener_name.lower()}."

    @property
    def properties(self) -> Mapping[str, str]:
        """All lines of the node's settings."""
        return self._config.properties

    def of_mechanism(self, mechanism: str) -> ListenerSettings:
        """The values of one mechanism."""
        return ListenerSettings(self._config, self._listener_name, mechanism)

    def __getitem__(self, key: str) -> Any:
        name = self.name_of(key)
        if name == key:
            return self._config[key]
        return (LISTENER_CONFIGS.get(key) or MECHANISM_CONFIGS[key]).parse(self._config.properties[name])

    def name_of(self, key: str) -> str:
        """The name under which the value is set."""
        names = [self.prefix + key]
        if self._mechanism is not None:
            names.insert(0, f"{self.prefix}{self._mechanism.lower()}.{key}")
        return next((name for name in names if name in self._config.properties), key)

    def jaas_key(self, mechanism: str) -> str:
        """The name of `sasl.jaas.config` for one mechanism."""
        return f"{self.prefix}{mechanism.lower()}.{JAAS_CONFIG.name}"

    def jaas(self, mechanism: str) -> str | None:
        """`sasl.jaas.config` for one mechanism. Without a mechanism it has no effect, as in Apache Kafka."""
        return self._config.properties.get(self.jaas_key(mechanism))


KEY_STORES = "ssl.*"
"""How problems with the certificates and keys of a listener name the settings, behind the listener's prefix."""


def uses_tls(protocol: str) -> bool:
    """Whether a security protocol encrypts."""
    return protocol.endswith("SSL")


def uses_sasl(protocol: str) -> bool:
    """Whether peers of a security protocol log in."""
    return protocol.startswith("SASL_")


def listener_security(
    current: CurrentConfig,
    listener: Listener,
    runtime: Runtime,
    find_credential: FindCredential,
    find_token: FindToken,
) -> ListenerSecurity | None:
    """The security of one listener; None for PLAINTEXT. Raises `ConfigError`."""
    config = current.config
    if listener.protocol == "PLAINTEXT":
        return None
    settings = ListenerSettings(config, listener.name)
    rules = settings["ssl.principal.mapping.rules"]
    try:
        mapper = PrincipalMapper(rules)  # before the key stores, which may not be there yet
    except ValueError as error:
        raise _problem(settings.name_of("ssl.principal.mapping.rules"), rules, str(error), "correct it") from None
    tls: TlsContext | None = None
    if uses_tls(listener.protocol):
        tls = _tls(settings, runtime.disk, server_context)
        choose_for_each_client(tls, _renewed(current, listener.name, runtime.disk, server_context).current)
    security = ListenerSecurity(
        tls=tls,
        mapper=mapper,
        max_receive_bytes=settings["sasl.server.max.receive.size"],
        failure_delay_s=settings["connection.failed.authentication.delay.ms"] / 1000,
        build_principal=principal_builder(settings, settings.properties),
    )
    if not uses_sasl(listener.protocol):
        return security
    mechanisms, background = _server_mechanisms(settings, runtime, find_credential, find_token)
    max_reauth_ms = {name: settings.of_mechanism(name)["connections.max.reauth.ms"] for name in mechanisms}
    return replace(security, mechanisms=mechanisms, max_reauth_ms=max_reauth_ms, background=background)


def certificates_complaint(current: CurrentConfig, dynamic: Mapping[str, str], runtime: Runtime) -> str | None:
    """Why a listener could not use the certificates of these dynamic settings, or None."""
    config = current.with_dynamic(dynamic)
    secured = [listener for listener in config.listeners if uses_tls(listener.protocol)]
    prefixes = tuple(f"listener.name.{listener.name.lower()}." for listener in secured)
    for name in dynamic:
        if certificate_config(name) is not None and not name.startswith(prefixes):
            return f"{name} is of no listener with TLS here: they are {', '.join(prefixes) or 'none'}"
    for listener in secured:
        settings = ListenerSettings(config, listener.name)
        try:
            server_context(tls_material(settings, runtime.disk), tls_options(settings))
        except (TlsError, ValueError) as error:
            return f"listener {listener.name}: {error}"
    return None


def login_to_brokers(current: CurrentConfig, runtime: Runtime) -> ClientLogin | None:
    """How this broker's connections to other brokers log in; None for PLAINTEXT. Raises `ConfigError`."""
    name = current.config.inter_broker_listener_name
    return _login(current, name, "sasl.mechanism.inter.broker.protocol", runtime)


def login_to_controllers(current: CurrentConfig, runtime: Runtime) -> ClientLogin | None:
    """How this node's connections to controllers log in; None for PLAINTEXT. Raises `ConfigError`."""
    names = current.config.controller_listener_names
    return _login(current, names[0], "sasl.mechanism.controller.protocol", runtime) if names else None


def _login(current: CurrentConfig, listener_name: str, mechanism_key: str, runtime: Runtime) -> ClientLogin | None:
    config = current.config
    protocol = config.protocols.get(listener_name, "PLAINTEXT")
    if protocol == "PLAINTEXT":
        return None
    settings = ListenerSettings(config, listener_name)
    tls: TlsContext | None = None
    current_tls: Callable[[], TlsContext] | None = None
    if uses_tls(protocol):
        tls = _tls(settings, runtime.disk, client_context)
        current_tls = _renewed(current, listener_name, runtime.disk, client_context).current
    if not uses_sasl(protocol):
        return ClientLogin(tls, current_tls=current_tls)
    mechanism = config[mechanism_key]
    check_mechanism(mechanism_key, mechanism)
    options = _module(settings, mechanism, _EXAMPLES.get(mechanism, 'username="..." password="..."')).options
    of_mechanism = settings.of_mechanism(mechanism)
    login = sasl_login(tls, settings.jaas_key(mechanism), mechanism, of_mechanism, options, runtime)
    return replace(login, current_tls=current_tls)


def _server_mechanisms(
    settings: ListenerSettings, runtime: Runtime, find_credential: FindCredential, find_token: FindToken
) -> tuple[Mapping[str, MakeMechanism], tuple[BackgroundWork, ...]]:
    found: dict[str, MakeMechanism] = {}
    background: list[BackgroundWork] = []
    for name in settings["sasl.enabled.mechanisms"]:
        check_mechanism(settings.name_of("sasl.enabled.mechanisms"), name)
        callback = server_callback(settings.of_mechanism(name), name, settings.properties)
        if name == PLAIN:
            found[name] = _plain_server(settings) if callback is None else partial(plain_by_callback, callback)
        elif name == OAUTHBEARER and callback is not None:
            found[name] = partial(tokens_by_callback, callback, runtime.clock.wall_ms)
        elif name == OAUTHBEARER:
            found[name], keys = _oauthbearer_server(settings, runtime)
            background += [] if keys is None else [keys]
        elif name == GSSAPI:
            found[name] = _gssapi_server(settings)
        else:
            found[name] = _scram_server(name, runtime, (find_credential, find_token), callback)
    return found, tuple(background)


def _oauthbearer_server(settings: ListenerSettings, runtime: Runtime) -> tuple[MakeMechanism, BackgroundWork | None]:
    try:
        from .sasl.oauthbearer_server import oauthbearer_server  # its library is optional
    except ImportError:
        key, way_out = settings.name_of("sasl.enabled.mechanisms"), "pip install 'raftwerk[security]'"
        raise _problem(key, OAUTHBEARER, f"a library for {OAUTHBEARER} is missing", way_out) from None
    # Kafka asks for a login module that says nothing where keys verify tokens.
    options = {} if settings.jaas(OAUTHBEARER) is None else _module(settings, OAUTHBEARER, "").options
    tls = _endpoint_tls(settings.jaas_key(OAUTHBEARER), options, runtime)
    return oauthbearer_server(settings.of_mechanism(OAUTHBEARER), options, runtime, tls)


def _gssapi_server(settings: ListenerSettings) -> MakeMechanism:
    from .sasl.gssapi import gssapi_server  # its imports take memory

    options = _module(settings, GSSAPI, _EXAMPLES[GSSAPI]).options
    return gssapi_server(settings.of_mechanism(GSSAPI), settings.jaas_key(GSSAPI), options)


def _endpoint_tls(jaas_key: str, options: Mapping[str, str], runtime: Runtime) -> Callable[[], TlsContext]:
    """The TLS of connections to an identity provider, by the options ssl.* of the login module, as in Apache Kafka."""

    def make() -> TlsContext:
        try:
            return client_context(endpoint_material(options, runtime.disk), tls_options(_OptionValues(options)))
        except (TlsError, ValueError) as error:
            raise _problem(jaas_key, "", str(error), "correct its options ssl.*") from None

    return make


def endpoint_material(options: Mapping[str, str], disk: Disk) -> TlsMaterial:
    """The certificates and keys for an identity provider that the options ssl.* of a login module name.

    Raises `TlsError`, and `ValueError` for an option with a wrong value.
    """
    return tls_material(_OptionValues(options), disk)


class _OptionValues:
    """The options ssl.* of a login module, with the defaults of the settings of these names."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def __getitem__(self, key: str) -> Any:
        text = self._options.get(key)
        return LISTENER_CONFIGS[key].default_value if text is None else LISTENER_CONFIGS[key].parse(text)


def _plain_server(settings: ListenerSettings) -> MakeMechanism:
    is_valid = passwords_of(_module(settings, PLAIN, 'user_alice="..."').options)
    return lambda: PlainServer(is_valid)


def _scram_server(
    mechanism: str, runtime: Runtime, known: tuple[FindCredential, FindToken], callback: ServerCallback | None
) -> MakeMechanism:
    find, find_token = known

    def make(find: FindCredential) -> ScramServer:
        return ScramServer(mechanism, find, new_nonce(runtime.secret_bytes), find_token)

    return partial(make, find) if callback is None else partial(scram_by_callback, callback, make)


def sasl_login(
    tls: TlsContext | None, key: str, mechanism: str, settings: Any, options: Mapping[str, str], runtime: Runtime
) -> ClientLogin:
    """How a client logs in by SASL, by its settings and the options of its login module.

    `key` is the configuration that has the options. Raises `ConfigError`.
    """
    if mechanism == OAUTHBEARER:
        from .sasl.oauthbearer_client import oauthbearer_login  # its imports take memory

        return oauthbearer_login(key, settings, options, runtime, (tls, _endpoint_tls(key, options, runtime)))
    if mechanism == GSSAPI:
        from .sasl.gssapi import gssapi_login  # its imports take memory

        return gssapi_login(tls, key, settings, options, runtime.disk)
    user, password = options.get("username"), options.get("password")
    if user is None or password is None:
        raise _problem(key, "", "it has no credentials to log in with", 'add username="..." password="..." to it')
    if mechanism == PLAIN:
        return ClientLogin(tls, lambda _: PlainClient(user, password))
    is_token = logs_in_by_token(options)

    def new_exchange(_: str) -> ClientMechanism:
        return ScramClientExchange(mechanism, user, password, new_nonce(runtime.secret_bytes), is_token=is_token)

    return ClientLogin(tls, new_exchange, scram_user=None if is_token else (mechanism, user), is_by_token=is_token)


def check_mechanism(key: str, mechanism: str) -> None:
    """Raise `ConfigError` for a SASL mechanism that is not served. `key` is the configuration that names it."""
    if mechanism not in SERVER_MECHANISMS:
        raise _problem(key, mechanism, f"{mechanism} is not served", f"choose among {', '.join(SERVER_MECHANISMS)}")


def _module(settings: ListenerSettings, mechanism: str, example: str) -> LoginModule:
    key, text = settings.jaas_key(mechanism), settings.jaas(mechanism)
    if text is None:
        way_out = f"set it, for example: {_MODULES[mechanism]} required {example};"
        if mechanism == GSSAPI:
            way_out += " or choose another mechanism by sasl.enabled.mechanisms and sasl.mechanism.*.protocol"
        raise _problem(key, None, f"{mechanism} needs it", way_out)
    try:
        return parse_jaas(text)
    except ValueError as error:
        raise _problem(key, text, str(error), "correct it") from None


_MODULES = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    **dict.fromkeys(MECHANISM_NUMBERS, "org.apache.kafka.common.security.scram.ScramLoginModule"),
    OAUTHBEARER: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
    GSSAPI: "com.sun.security.auth.module.Krb5LoginModule",
}
_EXAMPLES = {
    OAUTHBEARER: 'clientId="..." clientSecret="..."',
    GSSAPI: 'useKeyTab=true storeKey=true keyTab="/path/kafka.keytab" principal="kafka/host@REALM"',
}
"""Options of login modules by which a node logs in, and by Kerberos those of a listener."""


def _tls(
    settings: ListenerSettings, disk: Disk, make_context: Callable[[TlsMaterial, TlsOptions], TlsContext]
) -> TlsContext:
    try:
        return make_context(tls_material(settings, disk), tls_options(settings))
    except TlsError as error:
        way_out = "correct the ssl.* settings of this listener"
        raise _problem(settings.prefix + KEY_STORES, "", str(error), way_out) from None


def _renewed(
    current: CurrentConfig,
    listener_name: str,
    disk: Disk,
    make_context: Callable[[TlsMaterial, TlsOptions], TlsContext],
) -> RenewedContext:
    """The context that follows a listener's certificates: their settings, and the files that these name.

    Raises `TlsError`.
    """

    def read() -> list[bytes]:
        settings = ListenerSettings(current.config, listener_name)
        paths = [path for key in ("ssl.keystore.location", "ssl.truststore.location") if (path := settings[key])]
        material = [disk.read_bytes(path, size_bytes_max=STORE_BYTES_MAX) for path in paths]
        return [*(str(settings[key]).encode() for key in CERTIFICATE_CONFIGS), *material]

    def make() -> TlsContext:
        settings = ListenerSettings(current.config, listener_name)
        return make_context(tls_material(settings, disk), tls_options(settings))

    return RenewedContext(f"listener.name.{listener_name.lower()}", read, make)


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
        return disk.read_bytes(path, size_bytes_max=STORE_BYTES_MAX)
    except OSError as error:
        raise TlsError(f"cannot read {path}: {os_words(error)}") from None


def _problem(key: str, value: str | None, reason: str, way_out: str) -> ConfigError:
    return ConfigError([Problem(key, value, reason, way_out)])
