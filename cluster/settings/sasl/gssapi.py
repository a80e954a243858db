"""How a listener accepts logins by Kerberos, and how a node or a command logs in by it, by their settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ....runtime.blocking.daemon_threads import DaemonThreads
from ....runtime.blocking.kerberos import INSTALL, KerberosError, acceptor, check_acceptor, default_realm, initiator
from ....runtime.os_errors import os_words
from ....runtime.ports import Disk
from ....runtime.tls_contexts import TlsContext
from ....security.client_login import ClientLogin
from ....security.kerberos.exchange import GSSAPI, GssapiClient, GssapiServer
from ....security.kerberos.principal_names import KerberosShortNamer
from ....security.sasl.mechanism import MechanismInThread
from ....security.sasl.session import MakeMechanism
from ..node_config import ConfigError, Problem

SERVICE_KEY, RULES_KEY = "sasl.kerberos.service.name", "sasl.kerberos.principal.to.local.rules"
_FILE_PREFIX = "FILE:"
_ANY_PRINCIPAL = "*"
THREADS = 16
"""So many tokens of a listener are evaluated at a time; each reads the key table and writes the replay cache."""


class GssapiSettings(Protocol):
    """The settings of one listener for GSSAPI, or of a client."""

    def __getitem__(self, key: str) -> Any:
        """A value, or its default."""
        ...


class GssapiListenerSettings(GssapiSettings, Protocol):
    """The settings of one listener for GSSAPI."""

    def name_of(self, key: str) -> str:
        """The name under which the value is set."""
        ...


def gssapi_server(settings: GssapiListenerSettings, jaas_key: str, options: Mapping[str, str]) -> MakeMechanism:
    """How a listener accepts logins. `options` are those of the login module. Raises `ConfigError`."""
    key_table = _key_table(options)
    if not _is_on(options, "useKeyTab"):
        raise _refused(
            jaas_key,
            "a listener accepts tickets by a key table, and it has none",
            'add useKeyTab=true keyTab="/path/kafka.keytab"',
        )
    principal = options.get("principal")
    if principal is None:
        way_out = f'add principal="kafka/host@REALM", or "{_ANY_PRINCIPAL}" for all keys of the table'
        raise _refused(jaas_key, "it does not say as which principal", way_out)
    accepting = None if principal == _ANY_PRINCIPAL else principal
    rules = settings[RULES_KEY]
    try:
        check_acceptor(key_table, accepting)
        new_context = acceptor(key_table, accepting)
        namer = KerberosShortNamer(rules, default_realm())
    except ImportError as error:
        raise _missing_library(jaas_key, error) from None
    except KerberosError as error:
        way_out = "correct keyTab and principal; klist -k shows whose keys a table has"
        raise _refused(
            jaas_key, f"{key_table or 'the key table of krb5.conf'}, {principal}: {error}", way_out
        ) from None
    except ValueError as error:
        raise ConfigError([Problem(settings.name_of(RULES_KEY), ",".join(rules), str(error), "correct it")]) from None
    threads = DaemonThreads(THREADS)
    return lambda: MechanismInThread(GssapiServer(new_context(), namer.short_name), threads)


def gssapi_login(
    tls: TlsContext | None, jaas_key: str, settings: GssapiSettings, options: Mapping[str, str], disk: Disk
) -> ClientLogin:
    """How to log in by a key table or a ticket cache. `options` are those of the login module. Raises `ConfigError`."""
    uses_key_table, principal = _is_on(options, "useKeyTab"), options.get("principal")
    key_table = _key_table(options) if uses_key_table else None
    if uses_key_table and (key_table is None or principal is None):
        raise _refused(jaas_key, "useKeyTab=true needs a file and a name", 'add keyTab="/path" principal="name@REALM"')
    ticket_cache = options.get("ticketCache")
    ticket_cache = None if ticket_cache is None else ticket_cache.removeprefix(_FILE_PREFIX)
    for path in (key_table, ticket_cache):
        _check_file(jaas_key, path, disk)
    service = _service(settings, jaas_key, options)
    try:
        new_context = initiator(service, key_table, principal, ticket_cache)
    except ImportError as error:
        raise _missing_library(jaas_key, error) from None
    return ClientLogin(tls, lambda host: GssapiClient(new_context(host)), does_block=True)


def librdkafka_kerberos(settings: GssapiSettings, jaas_key: str, options: Mapping[str, str]) -> dict[str, str]:
    """The settings by which librdkafka logs in likewise; it needs a build with Cyrus SASL. Raises `ConfigError`."""
    found = {SERVICE_KEY: _service(settings, jaas_key, options)}
    key_table = _key_table(options) if _is_on(options, "useKeyTab") else None
    if key_table is None:
        return found | {"sasl.kerberos.kinit.cmd": "true"}  # the ticket is there
    return found | {"sasl.kerberos.keytab": key_table, "sasl.kerberos.principal": options.get("principal", "")}


def _service(settings: GssapiSettings, jaas_key: str, options: Mapping[str, str]) -> str:
    """The first part of the principals of the servers."""
    set_here, of_module = settings[SERVICE_KEY], options.get("serviceName")
    if set_here and of_module and set_here != of_module:
        reason = f"it has serviceName={of_module}, and {SERVICE_KEY} is {set_here}"
        raise _refused(jaas_key, reason, "remove one of them")
    found = set_here or of_module
    if not found:
        raise ConfigError([Problem(SERVICE_KEY, None, f"{GSSAPI} needs it", "set it, usually to kafka")])
    return str(found)


def _check_file(jaas_key: str, path: str | None, disk: Disk) -> None:
    """The library does not name a file that it cannot read."""
    if path is None:
        return
    try:
        disk.read_bytes(path)
    except OSError as error:
        raise _refused(jaas_key, f"cannot read {path}: {os_words(error)}", "correct it, or get a ticket") from None


def _key_table(options: Mapping[str, str]) -> str | None:
    path = options.get("keyTab")
    return None if path is None else path.removeprefix(_FILE_PREFIX)


def _is_on(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "false").lower() == "true"


def _missing_library(jaas_key: str, error: ImportError) -> ConfigError:
    return _refused(jaas_key, f"a library for {GSSAPI} is missing ({error})", INSTALL)


def _refused(key: str, reason: str, way_out: str) -> ConfigError:
    return ConfigError([Problem(key, "", reason, way_out)])
