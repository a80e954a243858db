"""The options of the data source: names, meanings and defaults of Spark's Kafka connector, checked as a query is made.

Options that begin with `kafka.` are for the client. Those that this client knows are used; tuning of the Java client is
ignored; those that would change the result and are not supported are refused.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from ...wire.types import TopicPartition
from ..errors import WrongOptionError
from ..login import check_security, is_of_security, producer_login

T = TypeVar("T")

EARLIEST, LATEST = -2, -1
"""The offsets that stand for the first and the end of a log, in options and in ListOffsets requests."""

READ_OPTIONS = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "failOnDataLoss",
    "includeHeaders",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
)
WRITE_OPTIONS = ("topic", "includeHeaders")
# Options of the connector that have no meaning here, and those that Spark adds.
_IGNORED = ("fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "useDeprecatedOffsetFetching", "path")
_SPARK_OPTIONS = ("checkpointLocation", "queryName", "outputMode")
_REFUSED = {
    "auto.offset.reset": "say startingOffsets instead",
    "key.deserializer": "keys are bytes; cast them in the query",
    "value.deserializer": "values are bytes; cast them in the query",
    "key.serializer": "keys are strings or bytes; cast them in the query",
    "value.serializer": "values are strings or bytes; cast them in the query",
    "enable.auto.commit": "offsets are in the checkpoint, and committed for the group after each batch",
    "interceptor.classes": "interceptors are Java",
}
_TRANSACTIONAL_ID, _TRANSACTION_TIMEOUT = "transactional.id", "transaction.timeout.ms"
TRANSACTION_TIMEOUT_MS = 900_000
"""The longest that brokers allow without `transaction.max.timeout.ms`: a batch may wait for a restart."""
_UNITS_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class StrategyKind(Enum):
    """How a query selects topics."""

    SUBSCRIBE = "subscribe"
    PATTERN = "subscribePattern"
    ASSIGN = "assign"


@dataclass(frozen=True, slots=True)
class ConsumerStrategy:
    """The topics of a query: names, a pattern, or partitions by topic. Spark's connector has the same name for it."""

    kind: StrategyKind
    names: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()

    def includes(self, topic: str) -> bool:
        """Whether the query reads a topic of this name."""
        if self.kind is StrategyKind.PATTERN:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.names

    def __str__(self) -> str:
        return self.pattern if self.kind is StrategyKind.PATTERN else ",".join(self.names)


@dataclass(frozen=True, slots=True)
class OffsetRangeLimit:
    """Where a read starts or ends: an offset or a timestamp in milliseconds, for all partitions or by partition.

    `option` is the name of the option that says so. `latest_if_none`: a timestamp after the last record means the end.
    """

    option: str
    for_all: int | None = None
    by_partition: Mapping[TopicPartition, int] | None = None
    is_timestamp: bool = False
    latest_if_none: bool = False


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Options of the client. Times are in milliseconds; isolation level 1 is read_committed."""

    bootstrap: str
    client_id: str = "raftwerk-spark"
    timeout_ms: int = 30_000
    isolation_level: int = 0
    fetch_max_bytes: int = 8 * 1024 * 1024
    fetch_max_wait_ms: int = 500
    poll_timeout_ms: int = 120_000
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The Java client's properties that say how it logs in, with secrets."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """How many records a batch of a stream reads; None for no limit. `max_delay_ms` ends the wait for the minimum."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 15 * 60_000


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """All options of a reader."""

    client: ClientOptions
    strategy: ConsumerStrategy
    starting: OffsetRangeLimit
    ending: OffsetRangeLimit
    min_partitions: int | None
    max_records_per_partition: int | None
    read_limits: ReadLimits
    fail_on_data_loss: bool
    include_headers: bool
    group_id: str


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """All options of a writer. `producer` is librdkafka's configuration, which may have secrets.

    With a `transactional_id` a stream is written exactly once.
    """

    client: ClientOptions
    topic: str | None
    producer: Mapping[str, str] = field(repr=False)
    transactional_id: str | None = None
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS


def is_common_option(name: str) -> bool:
    """Whether an option means the same to Spark's connector and to this reader. How one logs in is no such option."""
    if name.lower().startswith("kafka."):
        return not is_of_security(name.lower().removeprefix("kafka."))
    return name.lower() in (known.lower() for known in READ_OPTIONS)


def parse_read(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """The options of `spark.read` or `spark.readStream`. `WrongOptionError` names an option that is wrong."""
    given = _OptionMap(options, READ_OPTIONS)
    strategy = _consumer_strategy(given)
    if streaming:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if given.get(name) is not None:
                raise WrongOptionError(f"{name} is for batch reads: a stream has no end; leave it out.")
    starting = _position(given, "starting", LATEST if streaming else EARLIEST)
    ending = _position(given, "ending", LATEST)
    if not streaming and _names_offset(starting, LATEST):
        raise WrongOptionError("startingOffsets cannot be latest in a batch read: nothing is after it.")
    if _names_offset(ending, EARLIEST):
        raise WrongOptionError("endingOffsets cannot be earliest: nothing is before it.")
    prefix = given.get("groupIdPrefix") or "raftwerk-spark"
    return ReadOptions(
        client=_client(given),
        strategy=strategy,
        starting=starting,
        ending=ending,
        min_partitions=given.parse("minPartitions", _positive),
        max_records_per_partition=given.parse("maxRecordsPerPartition", _positive),
        read_limits=ReadLimits(
            given.parse("maxOffsetsPerTrigger", _positive),
            given.parse("minOffsetsPerTrigger", _positive),
            given.parse("maxTriggerDelay", _duration_ms) or ReadLimits().max_delay_ms,
        ),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        include_headers=given.flag("includeHeaders", False),
        group_id=given.get("kafka.group.id") or f"{prefix}-{strategy}",
    )


def parse_write(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """The options of a writer. `WrongOptionError` names an option that is wrong."""
    given = _OptionMap(options, WRITE_OPTIONS)
    transactional_id = given.get(f"kafka.{_TRANSACTIONAL_ID}") or None
    if transactional_id is not None and not streaming:
        raise WrongOptionError(
            f"kafka.{_TRANSACTIONAL_ID} is for streams, whose batches have numbers: leave it out, and what a repeated "
            "task writes may be there twice."
        )
    producer = {
        name.removeprefix("kafka."): value
        for name, value in given.items()
        if name.startswith("kafka.")
        and name.removeprefix("kafka.") not in ("bootstrap.servers", _TRANSACTIONAL_ID, _TRANSACTION_TIMEOUT)
        and not is_of_security(name.removeprefix("kafka."))
    }
    client = _client(given)
    timeout_ms = given.parse(f"kafka.{_TRANSACTION_TIMEOUT}", _positive) or TRANSACTION_TIMEOUT_MS
    settings = {**producer, **producer_login(client.security)}
    return WriteOptions(client, given.get("topic"), settings, transactional_id, timeout_ms)


# -- one option


class _OptionMap:
    """Options by name. Case is ignored, since Spark passes names in lower case."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        names = {name.lower(): name for name in (*READ_OPTIONS, *WRITE_OPTIONS, *_IGNORED, *_SPARK_OPTIONS)}
        for name in self._values:
            if name.startswith("kafka."):
                _check_client_option(name.removeprefix("kafka."))
            elif name not in names:
                close = difflib.get_close_matches(name, [one.lower() for one in known], 1)
                hint = f"; did you mean {names[close[0]]}?" if close else f"; known are {', '.join(known)} and kafka.*."
                raise WrongOptionError(f"option {name} is not known{hint}")

    def items(self) -> list[tuple[str, str]]:
        return sorted(self._values.items())

    def get(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def parse(self, name: str, parser: Callable[[str], T]) -> T | None:
        """The parsed value. A `ValueError` of the parser becomes a `WrongOptionError` that names the option."""
        text = self.get(name)
        if text is None:
            return None
        try:
            return parser(text.strip())
        except ValueError as error:
            raise WrongOptionError(f"{name} is {text!r}, and must be {error}.") from None

    def flag(self, name: str, default: bool) -> bool:
        value = self.parse(name, _boolean)
        return default if value is None else value


def _check_client_option(name: str) -> None:
    if name in _REFUSED:
        raise WrongOptionError(f"kafka.{name} cannot be set: {_REFUSED[name]}.")


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise ValueError("a whole number above 0")
    return int(text)


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _duration_ms(text: str) -> int:
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.lower())
    if found is None or found.group(2) not in _UNITS_MS:
        raise ValueError("a time such as 500ms, 30s or 15m")
    return int(found.group(1)) * _UNITS_MS[found.group(2)]


def _isolation(text: str) -> int:
    levels = ("read_uncommitted", "read_committed")
    if text not in levels:
        raise ValueError(" or ".join(levels))
    return levels.index(text)


# -- groups of options


def _client(given: _OptionMap) -> ClientOptions:
    bootstrap = given.get("kafka.bootstrap.servers")
    if not bootstrap:
        raise WrongOptionError("kafka.bootstrap.servers is missing: say which brokers to ask first, as host:port.")
    default = ClientOptions(bootstrap)
    properties = {name.removeprefix("kafka."): value for name, value in given.items() if name.startswith("kafka.")}
    security = {name: value for name, value in properties.items() if is_of_security(name)}
    check_security(security)
    return ClientOptions(
        bootstrap,
        given.get("kafka.client.id") or default.client_id,
        given.parse("kafka.default.api.timeout.ms", _positive) or default.timeout_ms,
        given.parse("kafka.isolation.level", _isolation) or 0,
        given.parse("kafka.fetch.max.bytes", _positive) or default.fetch_max_bytes,
        given.parse("kafka.fetch.max.wait.ms", _positive) or default.fetch_max_wait_ms,
        given.parse("kafkaConsumer.pollTimeoutMs", _positive) or default.poll_timeout_ms,
        security,
    )


def _consumer_strategy(given: _OptionMap) -> ConsumerStrategy:
    chosen = [kind for kind in StrategyKind if given.get(kind.value) is not None]
    if len(chosen) != 1:
        said = f"{' and '.join(one.value for one in chosen)} are given" if chosen else "none is given"
        raise WrongOptionError(f"say one of subscribe, subscribePattern and assign: {said}.")
    (kind,) = chosen
    text = given.get(kind.value) or ""
    if kind is StrategyKind.SUBSCRIBE:
        names = tuple(name.strip() for name in text.split(",") if name.strip())
        if not names:
            raise WrongOptionError("subscribe is empty: say topics, with commas between them.")
        return ConsumerStrategy(kind, names)
    if kind is StrategyKind.PATTERN:
        try:
            re.compile(text)
        except re.error as error:
            raise WrongOptionError(f"subscribePattern {text!r} is no regular expression: {error}.") from None
        return ConsumerStrategy(kind, pattern=text)
    partitions = given.parse("assign", _assigned) or ()
    return ConsumerStrategy(kind, tuple(dict.fromkeys(one.topic for one in partitions)), partitions=partitions)


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    form = 'JSON such as {"topic": [0, 1]}'
    found = []
    for topic, numbers in _json_object(text, form).items():
        if not isinstance(numbers, list) or not all(isinstance(one, int) and one >= 0 for one in numbers):
            raise ValueError(form)
        found += [TopicPartition(topic, one) for one in numbers]
    if not found:
        raise ValueError(form)
    return tuple(found)


def _position(given: _OptionMap, side: str, default: int) -> OffsetRangeLimit:
    """The limit at one side, in the connector's order: a timestamp for all, timestamps by partition, then offsets."""
    strategy = given.parse("startingOffsetsByTimestampStrategy", _strategy) if side == "starting" else "latest"
    latest_if_none = strategy == "latest"
    moment = given.parse(f"{side}Timestamp", _timestamp)
    if moment is not None:
        return OffsetRangeLimit(f"{side}Timestamp", moment, None, True, latest_if_none)
    name = f"{side}OffsetsByTimestamp"
    moments = given.parse(name, _numbers)
    if moments is not None:
        return OffsetRangeLimit(name, None, moments, True, latest_if_none)
    name = f"{side}Offsets"
    text = given.get(name)
    if text is None:
        return OffsetRangeLimit(name, default)
    if text.strip().lower() in ("earliest", "latest"):
        return OffsetRangeLimit(name, EARLIEST if text.strip().lower() == "earliest" else LATEST)
    return OffsetRangeLimit(name, None, given.parse(name, _numbers))


def _strategy(text: str) -> str:
    if text.lower() not in ("error", "latest"):
        raise ValueError("error or latest")
    return text.lower()


def _timestamp(text: str) -> int:
    if not text.isdigit():
        raise ValueError("a timestamp in milliseconds")
    return int(text)


def _numbers(text: str) -> dict[TopicPartition, int]:
    form = 'earliest, latest, or JSON such as {"topic": {"0": 23, "1": -2}}'
    found = {}
    for topic, partitions in _json_object(text, form).items():
        if not isinstance(partitions, dict):
            raise ValueError(form)
        for partition, number in partitions.items():
            if not partition.isdigit() or not isinstance(number, int) or number < EARLIEST:
                raise ValueError(form)
            found[TopicPartition(topic, int(partition))] = number
    return found


def _json_object(text: str, form: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        raise ValueError(form) from None
    if not isinstance(value, dict):
        raise ValueError(form)
    return value


def _names_offset(position: OffsetRangeLimit, offset: int) -> bool:
    if position.is_timestamp:
        return False
    return position.for_all == offset or offset in (position.by_partition or {}).values()
