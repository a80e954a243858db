"""Batch and streaming writes of the data source, through librdkafka's idempotent producer.

A task sends its rows and returns when every one is acknowledged by all in-sync replicas. Within one attempt of a task a
record is written once, whatever brokers do meanwhile. When Spark runs a task, or a whole micro-batch, again after a
failure, its records are written again: at least once, as by Spark's own Kafka connector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from ..errors import PipelineError
from .options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

_DEFAULTS = {
    "acks": "all",
    "enable.idempotence": "true",
    "linger.ms": "20",
    "partitioner": "murmur2_random",
    "log_level": "0",  # What fails is told by the error, not on a worker's standard error.
}
_FLUSH_TIMEOUT_S = 300.0
_TEXT = (StringType, BinaryType)
_COLUMNS: Mapping[str, tuple[tuple[type[DataType], ...], str]] = {
    "key": (_TEXT, "string or binary"),
    "value": (_TEXT, "string or binary"),
    "topic": ((StringType,), "string"),
    "partition": ((IntegerType,), "int"),
    "headers": ((ArrayType,), "array<struct<key:string,value:binary>>"),
}


@dataclass
class Written(WriterCommitMessage):
    """How many records a task has written."""

    records: int


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """`PipelineError` unless the rows have a value, a topic to go to, and columns of the types that are written.

    Columns of other names are passed over, so that what was read from one topic goes to another as it is.
    """
    names = schema.fieldNames()
    if "value" not in names:
        raise PipelineError(
            f"there is no column value among {', '.join(names)}: name what is written so, or cast to it."
        )
    if options.topic is None and "topic" not in names:
        raise PipelineError("no topic is said: set the option topic, or give the rows a column topic.")
    for field in schema.fields:
        _check_column(field)


def _check_column(field: StructField) -> None:
    if field.name not in _COLUMNS:
        return
    types, words = _COLUMNS[field.name]
    fits = isinstance(field.dataType, types)
    if isinstance(field.dataType, ArrayType):
        element = field.dataType.elementType
        kinds = [(one.name, type(one.dataType)) for one in element.fields] if isinstance(element, StructType) else []
        fits = field.name == "headers" and kinds == [("key", StringType), ("value", BinaryType)]
    if not fits:
        raise PipelineError(f"column {field.name} is {field.dataType.simpleString()}, and must be {words}: cast it.")


class Sender:
    """One producer of one task."""

    def __init__(self, options: WriteOptions) -> None:
        try:
            from confluent_kafka import KafkaException, Producer
        except ImportError:
            raise PipelineError("writing needs confluent-kafka: pip install 'raftwerk[spark]'.") from None
        self._topic = options.topic
        self._bootstrap = options.bootstrap
        self._error: Any = None
        self._acked = 0
        try:
            settings = {**_DEFAULTS, **options.producer, "bootstrap.servers": options.bootstrap}
            self._producer = Producer(settings, logger=None)
        except KafkaException as error:
            raise PipelineError(f"the producer refuses its kafka.* options: {error.args[0].str()}.") from None

    def send(self, columns: Mapping[str, list[Any]], count: int) -> None:
        """Hand over rows by column; waits when too much is under way."""
        nothing = [None] * count
        produce: Callable[..., None] = self._producer.produce
        rows = zip(
            nothing if self._topic is not None else columns["topic"],
            columns.get("key", nothing),
            columns["value"],
            columns.get("partition", nothing),
            columns.get("headers", nothing),
        )
        for topic, key, value, partition, headers in rows:
            target = self._topic if self._topic is not None else topic
            if target is None:
                raise PipelineError("a row has a null topic: set the option topic, or fill the column.")
            chosen: dict[str, Any] = {} if partition is None else {"partition": partition}
            if headers:
                chosen["headers"] = [(one["key"], one["value"]) for one in headers]
            while True:
                try:
                    produce(target, value, key, on_delivery=self._on_delivery, **chosen)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self._check()
        self._producer.poll(0)

    def finish(self) -> Written:
        """Wait for every acknowledgement."""
        left = self._producer.flush(_FLUSH_TIMEOUT_S)
        self._check()
        if left:
            raise PipelineError(f"{left} records are not acknowledged after {_FLUSH_TIMEOUT_S:g} s.")
        return Written(self._acked)

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is None:
            self._acked += 1
        elif self._error is None:
            self._error = PipelineError(
                f"topic {message.topic()} of {self._bootstrap} does not take a record: {error.str()}; what this task "
                "sent before may be there."
            )

    def _check(self) -> None:
        if self._error is not None:
            self._producer.purge()
            raise self._error


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("raftwerk")`."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send a task's rows."""
        sender = Sender(self.options)
        for batch in iterator:
            columns = {name: batch.column(name).to_pylist() for name in batch.schema.names if name in _COLUMNS}
            sender.send(columns, batch.num_rows)
        return sender.finish()


_ROWS_AT_ONCE = 1000


class StreamWriter(DataSourceStreamWriter):
    """`df.writeStream.format("raftwerk")`."""

    def __init__(self, options: WriteOptions, names: list[str]) -> None:
        self.options = options
        self.names = names

    def write(self, iterator: Iterator[Any]) -> Written:
        """Send a task's rows."""
        sender = Sender(self.options)
        held: list[Any] = []
        for row in iterator:
            held.append(row)
            if len(held) == _ROWS_AT_ONCE:
                self._send(sender, held)
                held = []
        self._send(sender, held)
        return sender.finish()

    def _send(self, sender: Sender, rows: list[Any]) -> None:
        if rows:
            columns = {name: _plain(column) for name, column in zip(self.names, zip(*rows)) if name in _COLUMNS}
            sender.send(columns, len(rows))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Everything was acknowledged already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What was acknowledged stays; Spark runs the batch again."""


def _plain(column: tuple[Any, ...]) -> list[Any]:
    """Spark's rows hold binary as bytearray, which the producer does not take."""
    return [bytes(one) if isinstance(one, bytearray) else one for one in column]
