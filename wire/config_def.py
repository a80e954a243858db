"""How a configuration is declared: its name, its type, its default, its range and its meaning.

Values of configurations are texts, in server.properties, in requests and in metadata records. A `ConfigKey` says which
texts are values and what they mean. Validation, defaults, DescribeConfigs and docs/configuration.md all read the same
rows. The tables are `log.topic_configs.TOPIC_CONFIGS`, `controller.configs.broker_configs.BROKER_CONFIGS` (all that
server.properties may hold), and `GROUP_CONFIGS` and `CLIENT_METRICS_CONFIGS` beside it.

Source: `ConfigDef` of Apache Kafka. What is wrong with a value is said twice: in Kafka's words for clients, and in a
sentence with the way out for the operator of a node.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Protocol

from .errors import ErrorCode, ProtocolError

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

# Python's int() and float() take more than Kafka does: 1_000, digits of other scripts, "inf".
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER = re.compile(r"[+-]?(Infinity|([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?)")


class ConfigType(IntEnum):
    """The types of values, as DescribeConfigs numbers them."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


BOOLEAN, STRING, SHORT, INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.SHORT, ConfigType.INT
LONG, DOUBLE, LIST, PASSWORD = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST, ConfigType.PASSWORD
_BITS = {SHORT: 16, INT: 32, LONG: 64}


class ConfigSource(IntEnum):
    """Where a value comes from, as DescribeConfigs numbers it."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class UpdateMode(Enum):
    """Whether a configuration of a broker may change while the broker runs ("Dynamic Update Mode" in Kafka's docs)."""

    READ_ONLY = "read-only"
    """server.properties alone sets it."""
    PER_BROKER = "per-broker"
    """It may be set for one broker."""
    CLUSTER_WIDE = "cluster-wide"
    """It may be set for one broker or for all brokers."""


class InvalidValue(ValueError):
    """A text that is no value of a configuration.

    `kafka_words` say so to clients, `reason` and `way_out` to the operator of the node.
    """

    def __init__(self, kafka_words: str, reason: str, way_out: str) -> None:
        super().__init__(reason)
        self.kafka_words = kafka_words
        self.reason = reason
        self.way_out = way_out


class Validator(Protocol):
    """The range of a configuration. `str()` gives the range as docs/configuration.md shows it."""

    @property
    def requirement(self) -> str:
        """What a value must be, to follow the words "it must be"; empty when the complaint says it all."""
        ...

    def complaint(self, value: Any) -> str | None:
        """What is wrong with a parsed value, in Kafka's words; None when it is in range."""
        ...


@dataclass(frozen=True, slots=True)
class Between:
    """A range of numbers, ends included."""

    low: float
    high: float | None = None

    @property
    def requirement(self) -> str:
        """The range in words."""
        return f"at least {self.low}" if self.high is None else f"between {self.low} and {self.high}"

    def complaint(self, value: Any) -> str | None:
        """Refuse numbers outside of the range."""
        if value < self.low:
            return f"Value must be at least {self.low}"
        if self.high is not None and value > self.high:
            return f"Value must be no more than {self.high}"
        return None

    def __str__(self) -> str:
        return f"[{self.low},{'...' if self.high is None else self.high}]"


@dataclass(frozen=True, slots=True)
class OneOf:
    """Some texts; of a list, each item must be one of them."""

    choices: tuple[str, ...]

    @property
    def requirement(self) -> str:
        """The choices in words."""
        return f"one of {', '.join(self.choices)}"

    def complaint(self, value: Any) -> str | None:
        """Refuse every other text."""
        chosen = value if isinstance(value, tuple) else (value,)
        wrong = any(item not in self.choices for item in chosen)
        return f"String must be one of: {', '.join(self.choices)}" if wrong else None

    def __str__(self) -> str:
        return f"[{', '.join(self.choices)}]"


@dataclass(frozen=True, slots=True)
class Anything:
    """All values of the type."""

    requirement: str = ""

    def complaint(self, value: Any) -> str | None:
        """Refuse nothing."""
        return None

    def __str__(self) -> str:
        return ""


def at_least(low: int) -> Between:
    """A range without an upper end."""
    return Between(low)


def one_of(*choices: str) -> OneOf:
    """These texts only."""
    return OneOf(choices)


HIDDEN = "[hidden]"
"""What stands in place of a secret, as in Apache Kafka."""


class SecretText(str):
    """A value that is shown to nobody, whatever its name is, since it is from a config provider (KIP-297)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN


POSITIVE = at_least(1)
NOT_NEGATIVE = at_least(0)
ANYTHING = Anything()


@dataclass(frozen=True, slots=True)
class Synonym:
    """A configuration of the broker that gives topics or groups their default."""

    name: str
    unit_ms: int = 1
    """For times: the length of the broker's unit in milliseconds."""
    shares_default: bool = True
    """False when the broker's configuration has no default, because one in a larger unit has it."""


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One configuration. `default` is a text, or None when there is no default."""

    name: str
    type: ConfigType
    default: str | None
    doc: str
    valid: Validator = ANYTHING
    synonyms: tuple[Synonym, ...] = ()
    """Of a topic's or a group's: the configurations of the broker behind it. The first one that is set counts."""
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    """Of a broker's: whether it may change while the broker runs."""
    is_required: bool = False
    is_served: bool = True
    """False when the node accepts the configuration, because Kafka has it, and does not act on it."""

    @property
    def broker_name(self) -> str:
        """The broker's configuration of the same unit, empty when there is none."""
        return self.synonyms[0].name if self.synonyms else ""

    @property
    def default_value(self) -> Any:
        """The default as a value of the type, or None."""
        return None if self.default is None else self.parse(self.default)

    def parse(self, text: str) -> Any:
        """The value of a text: a bool, str, int, float or tuple of str, by the type. Raises `InvalidValue`."""
        value = _parse(self.type, text.strip())
        if isinstance(text, SecretText) and isinstance(value, str):
            value = SecretText(value)
        complaint = self.valid.complaint(value)
        if complaint is not None:
            requirement = self.valid.requirement
            reason = f"it must be {requirement}" if requirement else complaint
            way_out = "change the value" if self.is_required else "change the value, or remove the line for the default"
            raise InvalidValue(complaint, reason, way_out)
        return value

    def parse_for_client(self, text: str) -> Any:
        """As `parse`; raises `ProtocolError(INVALID_CONFIG)` with Kafka's words."""
        try:
            return self.parse(text)
        except InvalidValue as error:
            message = f"Invalid value {shown(self.name, text)} for configuration {self.name}: {error.kafka_words}"
            raise ProtocolError(ErrorCode.INVALID_CONFIG, message) from None


def is_secret(name: str) -> bool:
    """Whether values of a configuration of this name are shown to nobody."""
    ends = ("jaas.config", "keystore.key", "certificate.chain", "truststore.certificates")
    return "password" in name or "secret" in name or name.endswith(ends)


def shown(name: str, value: str) -> str:
    """The value of a configuration for logs and messages."""
    return HIDDEN if is_secret(name) or isinstance(value, SecretText) else value


def _parse(config_type: ConfigType, text: str) -> Any:
    if config_type is BOOLEAN:
        if text.lower() not in ("true", "false"):
            words = "Expected value to be either true or false"
            raise InvalidValue(words, "it is neither true nor false", "write true or false")
        return text.lower() == "true"
    if config_type is LIST:
        return tuple(item.strip() for item in text.split(",")) if text else ()
    if config_type in (STRING, PASSWORD):
        return text
    return _parse_double(text) if config_type is DOUBLE else _parse_integer(config_type, text)


def _parse_double(text: str) -> float:
    if _NUMBER.fullmatch(text) is None:
        raise InvalidValue("Not a number of type DOUBLE", "it is no number", "write a number, for example 0.5")
    return float(text)


def _parse_integer(config_type: ConfigType, text: str) -> int:
    words = f"Not a number of type {config_type.name}"
    if _WHOLE_NUMBER.fullmatch(text) is None:
        raise InvalidValue(words, "it is no whole number", "write a whole number, for example 1000")
    number = int(text)
    bits = _BITS[config_type]
    limit = 2 ** (bits - 1) - 1
    if not -limit - 1 <= number <= limit:
        raise InvalidValue(words, f"it does not fit in {bits} bits", "write a smaller number")
    return number
