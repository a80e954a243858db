"""The data source `raftwerk`: the options and the schema of Spark's Kafka connector, in Python alone.

from raftwerk.pipeline.source import RaftwerkDataSource

spark.dataSource.register(RaftwerkDataSource)
spark.read.format("raftwerk").option("kafka.bootstrap.servers", ...).option("subscribe", "flights").load()

Spark makes a data source in processes that plan, carry out and end a query, each of which imports this module anew. So
it imports what reads and what writes when it is asked for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ..errors import PipelineError
from .options import parse_read, parse_write
from .python_worker import end_quietly_with_query, ends_batches, plans_query, prepare_worker

if TYPE_CHECKING:
    from .exactly_once.transactional_writer import TransactionalStreamWriter
    from .reader import BatchReader, StreamReader
    from .writer import BatchWriter, StreamWriter

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_COLUMNS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", ArrayType(_HEADER)),
    ]
)
"""Every column of the Kafka connector. `headers` is included on request (`includeHeaders`)."""


class RaftwerkDataSource(DataSource):
    """Kafka topics, for `spark.dataSource.register`. Options are those of Spark's Kafka connector (docs/spark.md)."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "raftwerk"

    def schema(self) -> StructType:
        """The Kafka connector's schema. A query with `.schema(...)` reads only the columns that it names."""
        prepare_worker()
        with_headers = str(self.options.get("includeHeaders", "false")).strip().lower() == "true"
        return StructType(_COLUMNS.fields if with_headers else _COLUMNS.fields[:-1])

    def reader(self, schema: StructType) -> BatchReader:
        """The reader of `spark.read`."""
        from .reader import BatchReader

        prepare_worker()
        return BatchReader(parse_read(self.options, streaming=False), _columns(schema))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        """The reader of `spark.readStream`."""
        from .reader import StreamReader

        prepare_worker()
        if plans_query():
            end_quietly_with_query()
        return StreamReader(parse_read(self.options, streaming=True), _columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """The writer of `df.write`."""
        from .writer import BatchWriter, check_columns

        prepare_worker()
        if overwrite:
            raise PipelineError("a topic cannot be overwritten: say mode append.")
        options = parse_write(self.options, streaming=False)
        check_columns(schema, options)
        return BatchWriter(options)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> StreamWriter | TransactionalStreamWriter:
        """The writer of `df.writeStream`, of which Spark makes one before each batch, and another to end it."""
        from .writer import StreamWriter, check_columns

        prepare_worker()
        if overwrite:
            raise PipelineError("a topic cannot be overwritten: say outputMode append or update.")
        options = parse_write(self.options, streaming=True)
        check_columns(schema, options)
        if options.transactional_id is None:
            return StreamWriter(options)
        from .exactly_once.transactional_writer import TransactionalStreamWriter

        writer = TransactionalStreamWriter(options, options.transactional_id)
        if not ends_batches():
            writer.begin_batch()
        return writer


def _columns(schema: StructType) -> list[str]:
    there = {field.name: field.dataType for field in _COLUMNS.fields}
    for field in schema.fields:
        if there.get(field.name) != field.dataType:
            known = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in _COLUMNS.fields)
            raise PipelineError(
                f"the schema has {field.name} {field.dataType.simpleString()}, and a topic has {known}: take columns "
                "of these, and parse value in the query."
            )
    return schema.fieldNames()
