"""Batch and streaming writes of the data source, through librdkafka's idempotent producer.

A task sends its rows and returns when every one is acknowledged by all in-sync replicas. Within one attempt of a task a
record is written once, whatever brokers do meanwhile. When Spark runs a task, or a whole micro-batch, again after a
failure, its records are written again: at least once, as by Spark's own Kafka connector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
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
from .python_worker import prepare_worker

_DEFAULTS = {
    "acks": "all",
    "enable.idempotence": "true",
    "linger.ms": "20",
    "partitioner": "murmur2_random",
    "log_level": "0",  # What fails is told by the error, not on a worker's standard error.
}
_FLUSH_TIMEOUT_S = 300.0
_NO_HEADERS: dict[str, Any] = {}
_TEXT = (StringType, BinaryType)
_COLUMNS: Mapping[str, tuple[tuple[type[DataType], ...], str]] = {
    "key": (_TEXT, "string or binary"),
    "value": (_TEXT, "string or binary"),
    "topic": ((StringType,), "string"),
    "partition": ((IntegerType,), "int"),
    "headers": ((ArrayType,), "array<struct<key:string,value:binary>>"),
}


@dataclass
class TaskResult(WriterCommitMessage):
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


class TaskProducer:
    """One producer of one task."""

    def __init__(self, options: WriteOptions) -> None:
        try:
            from confluent_kafka import KafkaException, Producer
        except ImportError:
            raise PipelineError("writing needs confluent-kafka: pip install 'raftwerk[spark]'.") from None
        self._topic = options.topic
        self._bootstrap = options.bootstrap
        self._error: Any = None
        self._sent = 0
        try:
            settings = {**_DEFAULTS, **options.producer, "bootstrap.servers": options.bootstrap, **self._reports()}
            self._producer = Producer(settings, logger=None)
        except KafkaException as error:
            raise PipelineError(f"the producer refuses its kafka.* options: {error.args[0].str()}.") from None
        self._produce: Callable[..., None] = self._producer.produce

    def send(self, rows: pa.RecordBatch) -> None:
        """Hand over rows; waits when too much is under way."""
        count = rows.num_rows
        topics = _values(rows, "topic") if self._topic is None else [self._topic] * count
        if None in topics:
            raise PipelineError("a row has a null topic: set the option topic, or fill the column.")
        partitions = _values(rows, "partition")
        headers = _values(rows, "headers")
        for topic, key, value, partition, pairs in zip(
            topics, _values(rows, "key"), _values(rows, "value"), partitions, headers
        ):
            more = [] if partition is None else [partition]
            named = {"headers": [(one["key"], one["value"]) for one in pairs]} if pairs else _NO_HEADERS
            while True:
                try:
                    self._produce(topic, value, key, *more, **named)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        self._sent += count
        self._producer.poll(0)
        self._check()

    def finish(self) -> TaskResult:
        """Wait for every acknowledgement."""
        left = self._producer.flush(_FLUSH_TIMEOUT_S)
        self._check()
        if left:
            raise PipelineError(f"{left} records are not acknowledged after {_FLUSH_TIMEOUT_S:g} s.")
        return TaskResult(self._sent)

    def _reports(self) -> dict[str, Any]:
        """A record that is acknowledged costs no call: only what fails is told."""
        return {"on_delivery": self._on_delivery, "delivery.report.only.error": True}

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None and self._error is None:
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

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        """Send a task's rows."""
        prepare_worker()
        sender = TaskProducer(self.options)
        for batch in iterator:
            sender.send(batch)
        return sender.finish()


class StreamWriter(BatchWriter, DataSourceStreamWriter):
    """`df.writeStream.format("raftwerk")`. Spark hands Arrow batches to this too, since it is an Arrow writer."""

    def commit(  # type: ignore[override]
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Everything was acknowledged already."""

    def abort(  # type: ignore[override]
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """What was acknowledged stays; Spark runs the batch again."""


def _values(rows: pa.RecordBatch, name: str) -> list[Any]:
    """A column's values, or nulls where there is no such column; text as its bytes, which is what is sent."""
    if name not in rows.schema.names:
        return [None] * rows.num_rows
    column = rows.column(name)
    values: list[Any] = (column.cast(pa.binary()) if name in ("key", "value") else column).to_pylist()
    return values
