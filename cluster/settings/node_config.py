"""A node's configuration: server.properties in, checked values out.

Everything is checked when the configuration is built, also the relations between values. Each problem names the key,
its value, the reason and the way out. All problems are reported at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

from ...controller.configs.broker_configs import BROKER_CONFIGS
from ...controller.configs.security_configs import SECURITY_PROTOCOLS, listener_config
from ...runtime.files.real_disk import RealDisk
from ...runtime.ports import environment
from ...wire.config_def import HIDDEN, ConfigKey, InvalidValue, SecretText, shown
from .properties import decode_properties, parse_properties, properties_from_env
from .relations import check_values_together, relation_warnings
from .setting_names import is_unknown, misspelt_names, nearest_name

_LISTENER = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)://(?P<host>\[[0-9A-Fa-f:.]*\]|[^:/\[\]]*):(?P<port>-?\d+)")
_VOTER = re.compile(r"(?P<id>\d+)@(?P<host>\[[0-9A-Fa-f:.]+\]|[^:/@\[\]]+):(?P<port>\d+)")
_SERVER = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:/@\[\]]+):(?P<port>\d+)")


_OF_NO_NODE: Mapping[str, Any] = {"node.id": -1, "process.roles": ()}
"""What required settings are taken for, where they are wrong, so that the others can be checked."""
_BETWEEN_LISTENERS = {
    "listeners",
    "advertised.listeners",
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
}
_OF_LISTENERS = _BETWEEN_LISTENERS | {"process.roles", "listener.security.protocol.map", "controller.listener.names"}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and how to correct it."""

    key: str
    value: str | None
    reason: str
    way_out: str
    is_of_file: bool = False
    """Whether `key` is a file, which cannot be read as settings."""

    def __str__(self) -> str:
        what = f"{self.key} is not set" if self.value is None else f"{self.key}={shown(self.key, self.value)}"
        what = self.key if self.is_of_file or self.key.endswith("*") else what  # several settings
        return f"{what}: {self.reason}; {self.way_out}"


class ConfigError(Exception):
    """The configuration cannot be used; `problems` has every reason."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


@dataclass(frozen=True, slots=True)
class Listener:
    """A named endpoint; an empty host listens on every interface."""

    name: str
    host: str
    port: int
    protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Voter:
    """A controller of the quorum."""

    node_id: int
    host: str
    port: int


@dataclass(frozen=True)
class NodeConfig:
    """The checked configuration of one node; `from_properties` builds it."""

    values: Mapping[str, Any]
    properties: Mapping[str, str]
    listeners: tuple[Listener, ...]
    advertised: tuple[Listener, ...]
    voters: tuple[Voter, ...]
    warnings: tuple[str, ...] = ()
    bootstrap: tuple[tuple[str, int], ...] = ()
    """`controller.quorum.bootstrap.servers` as host and port."""
    advertised_controller: tuple[Listener, ...] = ()
    """Where other controllers reach this one's listeners, in the order of `controller.listener.names`."""
    protocols: Mapping[str, str] = field(default_factory=dict)
    """The security protocol of each listener's name."""
    file: str | None = None
    """The file that it was read from, so that advice can name it; None if it came from the environment alone."""

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> NodeConfig:
        """Parse and check each value, then the relations between values. Raises `ConfigError`."""
        return _Builder(properties).build()

    @property
    def node_id(self) -> int:
        """`node.id`."""
        return int(self.values["node.id"])

    @property
    def is_broker(self) -> bool:
        """Whether `process.roles` has the broker."""
        return "broker" in self.values["process.roles"]

    @property
    def is_controller(self) -> bool:
        """Whether `process.roles` has the controller."""
        return "controller" in self.values["process.roles"]

    @property
    def controller_listener_names(self) -> tuple[str, ...]:
        """`controller.listener.names`."""
        return tuple(self.values["controller.listener.names"])

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The directories of partitions: `log.dirs`, or else `log.dir`."""
        paths = self.values["log.dirs"] or (part.strip() for part in self.values["log.dir"].split(","))
        return tuple(map(_plain_path, paths))

    @property
    def metadata_log_dir(self) -> str:
        """The directory of the metadata log."""
        return _plain_path(self.values["metadata.log.dir"]) or self.log_dirs[0]

    @property
    def all_dirs(self) -> tuple[str, ...]:
        """The directories of partitions, then that of the metadata log, each once."""
        return tuple(dict.fromkeys((*self.log_dirs, self.metadata_log_dir)))

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        """The listeners for clients and brokers."""
        return tuple(one for one in self.listeners if one.name not in self.controller_listener_names)

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        """The listeners for controllers."""
        return tuple(one for one in self.listeners if one.name in self.controller_listener_names)

    @property
    def inter_broker_listener_name(self) -> str:
        """The listener between brokers: `inter.broker.listener.name`, else that of `security.inter.broker.protocol`.

        Where neither is set it is PLAINTEXT, else the first listener for brokers.
        """
        named = self.values["inter.broker.listener.name"]
        if "security.inter.broker.protocol" in self.properties:
            named = named or self.values["security.inter.broker.protocol"]
        if named or not self.broker_listeners:
            return str(named)
        return next(
            (one.name for one in self.broker_listeners if one.name == "PLAINTEXT"), self.broker_listeners[0].name
        )

    def with_default_host(self, host: str) -> NodeConfig:
        """This, with `host` advertised for listeners without a host. Kafka advertises the name of the machine."""
        advertised = tuple(replace(one, host=one.host or host) for one in self.advertised)
        controller = tuple(replace(one, host=one.host or host) for one in self.advertised_controller)
        return replace(self, advertised=advertised, advertised_controller=controller)

    @property
    def has_static_voters(self) -> bool:
        """Whether `controller.quorum.voters` names the quorum."""
        return bool(self.voters)

    def __getitem__(self, key: str) -> Any:
        return self.values[key]


def _plain_path(path: str) -> str:
    """The path without needless slashes, so that a directory has one name. `..` stays: it may follow a link."""
    plain = re.sub("/+", "/", path)
    return plain.rstrip("/") or plain


def _text_of(content: bytes, file: str) -> str:
    try:
        return decode_properties(content)
    except ValueError as error:
        raise ConfigError([Problem(file, None, str(error), "name a file of settings", is_of_file=True)]) from None


def load_config(
    content: str | bytes | None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Iterable[str] = (),
    file: str = "server.properties",
) -> NodeConfig:
    """The content of server.properties, then `KAFKA_*` variables, then `key=value` overrides; later values count.

    `file` is where the content is from. Raises `ConfigError`; an override whose name is not known is an error, too,
    since it is probably misspelt.
    """
    properties: dict[str, str] = {}
    if content is not None:
        text = _text_of(content, file) if isinstance(content, bytes) else content
        try:
            properties.update(parse_properties(text))
        except ValueError as error:
            raise ConfigError([Problem(file, None, str(error), "correct it", is_of_file=True)]) from None
    properties.update(properties_from_env(environ or {}))
    overridden = []
    problems: list[Problem] = []
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key.strip():
            problems.append(Problem("--override", override, "it is no key=value", "write --override key=value"))
            continue
        properties[key.strip()] = value.strip()
        overridden.append(key.strip())
    resolved = _resolved(properties)
    problems += _misspelt_among([name for name in overridden if name in resolved], resolved)
    try:
        config = NodeConfig.from_properties(resolved)
    except ConfigError as error:
        raise ConfigError([*problems, *(_without_secrets(one, resolved) for one in error.problems)]) from None
    if problems:
        raise ConfigError(problems)
    return config


def _resolved(properties: Mapping[str, str]) -> Mapping[str, str]:
    """The properties with what config providers say. Raises `ConfigError`."""
    if "config.providers" not in properties:
        return properties
    from .config_providers.resolve import ConfigProviderError, resolve  # most nodes have none

    try:
        return resolve(properties, RealDisk().read_bytes, environment())
    except ConfigProviderError as error:
        raise ConfigError([Problem(error.key, properties.get(error.key), error.reason, error.way_out)]) from None


def _without_secrets(problem: Problem, properties: Mapping[str, str]) -> Problem:
    """The problem without the values that are from config providers, and without the items of such lists."""
    reason = problem.reason
    for value in properties.values():
        if isinstance(value, SecretText):
            parts = sorted(
                (part for part in (value, *value.split(",")) if len(part.strip()) > 1), key=len, reverse=True
            )
            for part in parts:
                reason = reason.replace(part.strip(), HIDDEN)
    return replace(problem, reason=reason)


def check_names(given: Iterable[str], properties: Mapping[str, str]) -> None:
    """Raise `ConfigError` when a name among `given` is probably misspelt. `properties` have all settings."""
    misspelt = _misspelt_among(given, properties)
    if misspelt:
        raise ConfigError(misspelt)


def _misspelt_among(given: Iterable[str], properties: Mapping[str, str]) -> list[Problem]:
    return [_misspelt(name, properties[name]) for name in misspelt_names(given, properties)]


def _misspelt(name: str, value: str) -> Problem:
    near = nearest_name(name)
    way_out = f"did you mean {near}?" if near else "raftwerk settings lists them"
    return Problem(name, value, "no setting has this name", way_out)


class _Builder:
    """Builds a `NodeConfig`, and collects problems instead of stopping at the first."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties = properties
        self.values: dict[str, Any] = {}
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self.without_effect: list[str] = []

    def build(self) -> NodeConfig:
        """The configuration. Raises `ConfigError` with all problems."""
        self._read_values()
        protocols = self._read_protocol_map()
        listeners = self._read_listeners("listeners", self.values["listeners"], protocols)
        advertised = self._read_listeners("advertised.listeners", self.values["advertised.listeners"], protocols)
        voters, bootstrap = self._read_voters(), self._read_bootstrap()
        config = NodeConfig(self.values, self.properties, listeners, advertised, voters, (), bootstrap)
        wrong = {"node.id" if one.key == "broker.id" else one.key for one in self.problems}
        self.problems += [one for one in check_relations(config, self.properties) if not _may_follow(one, wrong)]
        if self.problems:
            raise ConfigError(self.problems)
        self.warnings += relation_warnings(config)
        if self.without_effect:
            names = ", ".join(self.without_effect)
            self.warnings.append(f"accepted for Kafka's sake, without effect in this version: {names}")
        return replace(
            config,
            advertised=_advertised(config),
            advertised_controller=_advertised_controller(config),
            protocols=protocols,
            warnings=tuple(self.warnings),
        )

    def refuse(self, key: str, reason: str, way_out: str) -> None:
        """Note a problem."""
        self.problems.append(Problem(key, self.properties.get(key), reason, way_out))

    def _read_values(self) -> None:
        for name, given in self.properties.items():
            if name not in BROKER_CONFIGS:
                self._read_unknown(name, given)
            elif not BROKER_CONFIGS[name].is_served:
                self.without_effect.append(name)
        if "broker.id" in self.properties and "node.id" not in self.properties:
            self.refuse("broker.id", "the node's id is called node.id", "rename the key to node.id")
        for key in BROKER_CONFIGS.values():
            text = self.properties.get(key.name)
            if text is not None:
                self._read_value(key, text)
            elif key.is_required and not (key.name == "node.id" and "broker.id" in self.properties):
                self.refuse(key.name, "it is required", f"{key.name} is {key.doc[0].lower()}{key.doc[1:].rstrip('.')}")
            if key.name not in self.values:  # it is not set, or refused
                self.values[key.name] = _OF_NO_NODE.get(key.name, key.default_value)

    def _read_unknown(self, name: str, text: str) -> None:
        of_listener = listener_config(name)
        if of_listener is not None:
            try:
                of_listener.parse(text)
            except InvalidValue as error:
                self.refuse(name, error.reason, error.way_out)
            return
        if not is_unknown(name):
            self.without_effect.append(name)
            return
        if not misspelt_names([name], self.properties):
            return
        near = nearest_name(name)
        hint = f"did you mean {near}?" if near else "no setting has this name"
        self.warnings.append(f"{name}={shown(name, text)}: unknown, and has no effect; {hint}")

    def _read_value(self, key: ConfigKey, text: str) -> None:
        try:
            self.values[key.name] = key.parse(text)
        except InvalidValue as error:
            self.refuse(key.name, error.reason, error.way_out)

    def _read_protocol_map(self) -> dict[str, str]:
        key = "listener.security.protocol.map"
        result: dict[str, str] = {}
        for entry in self.values[key]:
            name, colon, protocol = entry.partition(":")
            if not colon or protocol.upper() not in SECURITY_PROTOCOLS:
                self.refuse(key, f"{entry!r} is no NAME:PROTOCOL", f"the protocols are {', '.join(SECURITY_PROTOCOLS)}")
            elif name in result:
                self.refuse(key, f"listener {name} is mapped twice", "keep one of the two")
            else:
                result[name] = protocol.upper()
        if not self.values[key]:
            result = {protocol: protocol for protocol in SECURITY_PROTOCOLS}
            for name in self.values["controller.listener.names"]:
                result.setdefault(name, "PLAINTEXT")
        return result

    def _read_listeners(self, key: str, entries: Iterable[str], protocols: Mapping[str, str]) -> tuple[Listener, ...]:
        result: list[Listener] = []
        for entry in entries:
            match = _LISTENER.fullmatch(entry)
            if match is None:
                self.refuse(key, f"{entry!r} is no NAME://host:port", "write for example PLAINTEXT://localhost:9092")
                continue
            name, port = match["name"], int(match["port"])
            protocol = protocols.get(name)
            if port > 65535 or port < 0:
                self.refuse(key, f"port {port} of {name} is outside 0 to 65535", "choose a free port")
            elif protocol is None:
                named = name if name in SECURITY_PROTOCOLS else "PLAINTEXT"
                way_out = f"add {name}:{named} to listener.security.protocol.map"
                self.refuse(key, f"listener {name} has no security protocol", way_out)
            elif any(one.name == name for one in result):
                self.refuse(key, f"the name {name} comes twice", "give each listener a name of its own")
            else:
                result.append(Listener(name, match["host"].strip("[]"), port, protocol))
        return tuple(result)

    def _read_voters(self) -> tuple[Voter, ...]:
        key = "controller.quorum.voters"
        result: list[Voter] = []
        for entry in self.values[key]:
            match = _VOTER.fullmatch(entry)
            if match is None or not 0 < int(match["port"]) <= 65535:
                self.refuse(key, f"{entry!r} is no id@host:port", "write for example 1@localhost:9093")
            elif any(voter.node_id == int(match["id"]) for voter in result):
                self.refuse(key, f"node {match['id']} is named twice", "name every controller once")
            else:
                result.append(Voter(int(match["id"]), match["host"].strip("[]"), int(match["port"])))
        return tuple(result)

    def _read_bootstrap(self) -> tuple[tuple[str, int], ...]:
        key = "controller.quorum.bootstrap.servers"
        result: list[tuple[str, int]] = []
        for entry in self.values[key]:
            match = _SERVER.fullmatch(entry)
            if match is None or not 0 < int(match["port"]) <= 65535:
                self.refuse(key, f"{entry!r} is no host:port", "write for example localhost:9093")
            else:
                result.append((match["host"].strip("[]"), int(match["port"])))
        return tuple(result)


def _advertised(config: NodeConfig) -> tuple[Listener, ...]:
    """The listeners that are registered for clients: `advertised.listeners`, or else `listeners`."""
    if config.advertised:
        return tuple(one for one in config.advertised if one.name not in config.controller_listener_names)
    return config.broker_listeners


def _advertised_controller(config: NodeConfig) -> tuple[Listener, ...]:
    """The listeners that are registered for other controllers (KIP-853).

    One that listens on all interfaces is registered without a host; `with_default_host` fills it in.
    """
    advertised = {one.name: one for one in config.advertised}
    names = config.controller_listener_names
    ordered = sorted(config.controller_listeners, key=lambda one: names.index(one.name))
    found = (advertised.get(one.name, one) for one in ordered)
    return tuple(replace(one, host="" if one.host in ("0.0.0.0", "::") else one.host) for one in found)


def _may_follow(problem: Problem, wrong: Set[str]) -> bool:
    """Whether a problem between values may be gone when the settings `wrong` are corrected."""
    said = f"{problem.reason} {problem.way_out}"
    of_listeners = problem.key in _BETWEEN_LISTENERS and not wrong.isdisjoint(_OF_LISTENERS)
    return problem.key in wrong or of_listeners or any(name in said for name in sorted(wrong))


def check_relations(config: NodeConfig, properties: Mapping[str, str]) -> list[Problem]:
    """What is wrong between values that are each valid by themselves."""
    problems: list[Problem] = []

    def refuse(key: str, reason: str, way_out: str) -> None:
        value = properties.get(key)
        default = BROKER_CONFIGS[key].default if key in BROKER_CONFIGS else None
        if value is None and default:
            value = f"{default} (the default)"
        problems.append(Problem(key, value, reason, way_out))

    check_values_together(config, refuse)
    return problems
