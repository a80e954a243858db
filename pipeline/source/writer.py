"""Batch and streaming writes of the data source, through librdkafka's idempotent producer.

A task sends its rows and returns when all in-sync replicas have acknowledged each of them. One attempt of a task writes
a record once, even while brokers fail. When Spark repeats a task or a micro-batch after a failure, the records are
written again: the guarantee is at least once, as with Spark's own Kafka connector. A stream with a transactional id is
written exactly once (`exactly_once`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
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

from ...cluster.command_line.extras import not_installed
from ...cluster.command_line.plural import counted
from ..errors import PipelineError
from .options import WriteOptions
from .python_worker import prepare_worker

_DEFAULTS = {
    "acks": "all",
    "enable.idempotence": "true",
    "linger.ms": "20",
    "partitioner": "murmur2_random",
    "log_level": "0",  # An error is raised; librdkafka need not print it in the worker too.
}
_FLUSH_TIMEOUT_S = 300.0
_FLUSH_SLICE_S = 1.0
_QUEUE_WAIT_S = 0.1
_ANY_PARTITION = -1
"""The partition of a record that the partitioner places."""
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
    """The number of records that a task has written."""

    records: int


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """`PipelineError` unless the rows have a value and a topic, and the written columns have the right types.

    Other columns are ignored, so the rows that were read from one topic can be written to another unchanged.
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
    """The producer of one task."""

    def __init__(self, options: WriteOptions) -> None:
        try:
            from confluent_kafka import KafkaError, KafkaException, Producer
        except ImportError:
            raise PipelineError(not_installed(["confluent-kafka"], "spark")) from None
        self._refusal = KafkaException
        self._is_no_login = frozenset((KafkaError._AUTHENTICATION, KafkaError._SSL))
        self._fenced = KafkaError._FENCED
        self._no_partition = KafkaError._UNKNOWN_PARTITION
        self._topic = options.topic
        self._bootstrap = options.client.bootstrap
        self._error: Any = None
        self._failed: list[tuple[Any, Any]] = []
        """The errors and messages of the records that were not delivered."""
        self._sent = 0
        try:
            settings = {
                **_DEFAULTS,
                **options.producer,
                "bootstrap.servers": options.client.bootstrap,
                **self._reports(),
            }
            self._producer = Producer(settings, logger=None)
        except KafkaException as error:
            raise PipelineError(f"the producer refuses its kafka.* options: {error.args[0].str()}.") from None
        self._produce: Callable[..., None] = self._producer.produce

    def send(self, rows: pa.RecordBatch) -> None:
        """Produce rows. The call blocks while librdkafka's queue is full."""
        produce = self._produce_with_headers if "headers" in rows.schema.names else self._produce
        for arguments in zip(*self._arguments(rows)):
            try:
                produce(*arguments)
            except (BufferError, self._refusal) as error:
                self._produce_again(produce, arguments, error)
        self._sent += rows.num_rows
        self._serve(self._producer.poll, 0)
        self._check()

    def _arguments(self, rows: pa.RecordBatch) -> list[Iterable[Any]]:
        """The columns that the rows have, in the order of `produce`: an argument costs time for each record."""
        topics = _values(rows, "topic") if self._topic is None else [self._topic] * rows.num_rows
        if None in topics:
            raise PipelineError("a row has a null topic: set the option topic, or fill the column.")
        columns: list[Iterable[Any]] = [topics, _values(rows, "value"), _values(rows, "key")]
        if "partition" in rows.schema.names or "headers" in rows.schema.names:
            columns.append(_ANY_PARTITION if one is None else one for one in _values(rows, "partition"))
        if "headers" in rows.schema.names:
            columns.append(_values(rows, "headers"))
        return columns

    def _produce_with_headers(self, topic: str, value: Any, key: Any, partition: int, pairs: Any) -> None:
        self._produce(topic, value, key, partition, headers=[(one["key"], one["value"]) for one in pairs or ()])

    def _produce_again(self, produce: Callable[..., None], arguments: tuple[Any, ...], error: Exception) -> None:
        """Produce a record that was refused, as soon as the queue has space. Any other refusal is raised."""
        while isinstance(error, BufferError):
            self._serve(self._producer.poll, _QUEUE_WAIT_S)
            self._check()
            try:
                produce(*arguments)
            except (BufferError, self._refusal) as again:
                error = again
            else:
                return
        self._serve(self._producer.poll, _QUEUE_WAIT_S)  # a fatal error is told there
        # librdkafka knows already that there is no such partition.
        self._refuse(arguments[0], arguments[3] if len(arguments) > 3 else _ANY_PARTITION, error.args[0])
        self._check()

    def finish(self) -> TaskResult:
        """Wait for all acknowledgements."""
        end = time.monotonic() + _FLUSH_TIMEOUT_S
        left = 1
        while left and time.monotonic() < end:
            left = self._serve(self._producer.flush, _FLUSH_SLICE_S)
            self._check()
        if left:
            raise PipelineError(f"{counted(left, 'record')} without an acknowledgement after {_FLUSH_TIMEOUT_S:g} s.")
        return TaskResult(self._sent)

    def _reports(self) -> dict[str, Any]:
        """Delivery reports for failures only, so that an acknowledged record costs no call."""
        append = self._failed.append

        # After a fatal error it is called with that exception pending, under which it could not find a method.
        def on_delivery(error: Any, message: Any) -> None:
            append((error, message))

        return {"on_delivery": on_delivery, "delivery.report.only.error": True, "error_cb": self._on_error}

    def _serve(self, wait: Callable[[float], int], timeout_s: float) -> int:
        """Wait in librdkafka, which then reports failures. `PipelineError` after a fatal one."""
        try:
            return wait(timeout_s)
        except (self._refusal, SystemError) as error:
            fatal = error.__cause__ if isinstance(error, SystemError) else error
            if not isinstance(fatal, self._refusal):
                raise
            raise self._ended(fatal.args[0]) from None

    def _ended(self, error: Any) -> PipelineError:
        """What to say of a fatal error, after which the producer takes no record."""
        if error.code() == self._fenced:
            return PipelineError(
                f"the task was fenced by a newer producer of its transactional id at {self._bootstrap}, as by a late "
                "task of a query that was stopped: start this query again, unless another one has its id."
            )
        return PipelineError(f"the producer cannot go on writing to {self._bootstrap}: {error.str()}.")

    def _on_error(self, error: Any) -> None:
        """A login that fails ends the task, as in Java; librdkafka would try again until the records are too old."""
        if error.code() in self._is_no_login and self._error is None:
            self._error = PipelineError(f"no login at {self._bootstrap}: {error.str()}")

    def _refuse(self, topic: str, partition: int, error: Any) -> None:
        why = error.str()
        if error.code() == self._no_partition:
            why = (
                f"it has no partition {partition}, which is in the column partition of a row: drop or change that "
                "column, or give the topic more partitions"
            )
        self._error = self._error or PipelineError(
            f"topic {topic} of {self._bootstrap} does not take a record: {why}; what this task sent before may "
            "be there."
        )

    def _check(self) -> None:
        if self._failed:
            error, message = self._failed[0]
            self._refuse(message.topic(), message.partition(), error)
        if self._error is not None:
            self._producer.purge()
            raise self._error


class BatchWriter(DataSourceArrowWriter):
    """The writer of `df.write.format("raftwerk")`."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        """Send a task's rows."""
        prepare_worker()
        sender = TaskProducer(self.options)
        for batch in iterator:
            sender.send(batch)
        return sender.finish()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing but prepare the process in which Spark ends each write: all records are acknowledged already."""
        prepare_worker()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """As `commit`: acknowledged records stay, and Spark says that the write has failed."""
        prepare_worker()


class StreamWriter(BatchWriter, DataSourceStreamWriter):
    """The writer of `df.writeStream.format("raftwerk")`. Spark passes Arrow batches, since it is an Arrow writer."""

    def commit(  # type: ignore[override]
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Do nothing: all records are acknowledged already."""

    def abort(  # type: ignore[override]
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Do nothing: acknowledged records stay, and Spark repeats the batch."""


def _values(rows: pa.RecordBatch, name: str) -> list[Any]:
    """A column's values, or nulls when there is no such column. Keys and values are converted to bytes."""
    if name not in rows.schema.names:
        return [None] * rows.num_rows
    column = rows.column(name)
    values: list[Any] = (column.cast(pa.binary()) if name in ("key", "value") else column).to_pylist()
    return values
