"""The changes in a micro-batch as rows of Spark: what is in it, and the last change of each row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import PipelineError
from ..lakehouse.columns import Columns, is_wider
from ..lakehouse.partition_fields import quoted
from .avro_parts import avro_parts
from .change_event import DELETE, TOMBSTONE, TRUNCATE, UPSERT, NotAChangeError, read_change

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

OPERATION, LOG_POSITION, POSITION, UNAVAILABLE = "_operation", "_log_position", "_position", "_unavailable"
"""Columns beside those of a row: what is done with it, its place in the database's log, the place that the row keeps in
the table, and columns to be kept.

A snapshot's row keeps no place. Its own is where the log ended when the snapshot was taken, and a transaction that was
open then has changed rows at earlier places, although it was committed later, and its changes are sent later. A row of
an incremental snapshot has none to be compared with others either: it is as new as the topic is where it stands.
"""
TIMESTAMP = "_timestamp"
"""When the record of the change was written."""
OWN_COLUMNS = (OPERATION, LOG_POSITION, POSITION, UNAVAILABLE, TIMESTAMP, "_deleted_at", "_truncated", "_damage")
_OF_ROWS = (UPSERT, DELETE, TOMBSTONE)
_KAFKA_ORDER = ("topic", "partition", "offset")
_DAMAGE = "_damage"
_CHANGE = (
    "operation STRING, key ARRAY<STRING>, row STRING, columns STRING, position STRING, kept_position STRING, "
    "is_incremental BOOLEAN, unavailable ARRAY<STRING>, damage STRING"
)


@dataclass(frozen=True, slots=True)
class BatchContent:
    """What the changes of a micro-batch have in common.

    `columns` is None where the records carry no schema. `truncated_at` is the position of the last TRUNCATE.
    """

    operations: frozenset[str]
    key: tuple[str, ...]
    columns: Columns | None
    truncated_at: str | None
    has_unavailable: bool


def read_changes(records: DataFrame, *, by_log: bool = True, registry_url: str | None = None) -> DataFrame:
    """The changes in records: the columns of `ChangeEvent`, or `damage`, beside the place of the record.

    Without `by_log` positions are places in the topic, and rows keep none. With the URL of a registry, keys and values
    are in Avro.
    """
    from pyspark.sql import functions as f

    def read(key: Any, value: Any) -> tuple[Any, ...]:
        try:
            part = None if registry_url is None else avro_parts(registry_url).part
            one = read_change(None if key is None else bytes(key), None if value is None else bytes(value), part)
        except NotAChangeError as error:
            return (*(None,) * 8, str(error))
        kept = "" if one.is_of_snapshot else one.position
        places = one.position, kept, one.is_incremental
        return (one.operation, one.key, one.row, one.columns, *places, one.unavailable, None)

    # Said explicitly: PySpark 4.1 would warn that the function's types do not tell it.
    change = f.udf(read, _CHANGE, useArrow=False)(records["key"], records["value"]).alias("change")
    changes = records.select(*_KAFKA_ORDER, "timestamp", change).select(*_KAFKA_ORDER, "timestamp", "change.*")
    if by_log:
        return changes
    place = f.format_string("%010d-%020d", "partition", "offset")
    return changes.withColumns({"position": place, "kept_position": f.lit("")})


def content_of(changes: DataFrame) -> BatchContent:
    """What is in a micro-batch. `PipelineError` for a record that is no change, and for keys and types that differ."""
    from pyspark.sql import functions as f

    groups = changes.groupBy("operation", "key", "columns").agg(
        f.max("position").alias("position"),
        f.max(f.size("unavailable")).alias("unavailable"),
        f.min(f.when(f.col("damage").isNotNull(), f.struct(*_KAFKA_ORDER, "damage"))).alias("damaged"),
    )
    found = groups.collect()
    for group in found:
        if group["damaged"] is not None:
            topic, partition, offset, damage = group["damaged"]
            raise PipelineError(
                f"the record at {topic}-{partition} offset {offset} is no change of Debezium's: {damage}."
            )
    keys = {tuple(group["key"]) for group in found if group["key"]}
    if len(keys) > 1:
        shown = " and of ".join(sorted(", ".join(key) for key in keys))
        raise PipelineError(f"rows have keys of {shown}: a table has one key, so begin an output for each.")
    of_rows = [group for group in found if group["operation"] in _OF_ROWS]
    known = [[(name, kind) for name, kind in json.loads(one["columns"])] for one in of_rows if one["columns"]]
    return BatchContent(
        frozenset(group["operation"] for group in found),
        next(iter(keys), ()),
        united_columns(known) if len(known) == len(of_rows) else None,
        max((group["position"] for group in found if group["operation"] == TRUNCATE), default=None),
        any(group["unavailable"] > 0 for group in of_rows),
    )


def united_columns(all_columns: Iterable[Columns]) -> Columns:
    """The columns that hold the rows of each of these schemas, of the wider type. `PipelineError` if there is none."""
    united: dict[str, str] = {}
    for columns in all_columns:
        for name, kind in columns:
            other = united.setdefault(name, kind)
            if is_wider(kind, other):
                united[name] = kind
            elif kind != other and not is_wider(other, kind):
                raise PipelineError(
                    f"column {name} is {other} in some records and {kind} in others, and neither type holds both: "
                    "begin another output with --starting-offsets after the change of the type."
                )
    return list(united.items())


def ddl_of_columns(columns: Columns | None) -> str | None:
    """Spark's DDL for columns; None for none."""
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in columns) if columns else None


def last_changes(changes: DataFrame, row_type: StructType, content: BatchContent) -> DataFrame:
    """The last change of each row, with the row's columns and those that this module names.

    The order is that of the log; but a row of a snapshot is later than all that stands before it in the topic, and
    earlier than all that stands behind it.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    rows = _typed(changes.where(f.col("operation").isin(*_OF_ROWS)), row_type)
    key = [f.col(f"row.{quoted(name)}") for name in content.key]
    if TOMBSTONE in content.operations:
        rows = _without_repeated_deletions(rows, key)
    if content.truncated_at is not None:
        rows = rows.where(f.col("position").isNull() | (f.col("position") >= content.truncated_at))
    rows = _with_snapshots(rows, key)
    in_order = Window.partitionBy(*key).orderBy("snapshots", f.col("kept_position").asc_nulls_first(), *_KAFKA_ORDER)
    columns = {field.name: f.col(f"row.{quoted(field.name)}") for field in row_type.fields}
    unavailable: Column = f.col("unavailable")
    if content.has_unavailable:
        filled = {name: _last_available(name, column, in_order) for name, column in columns.items()}
        unavailable = f.filter("unavailable", lambda name: ~f.array_contains(_found(filled), name))
        columns = {name: f.coalesce(columns[name], last.getField(name)) for name, last in filled.items()}
    backwards = Window.partitionBy(*key).orderBy(
        f.col("snapshots").desc(),
        f.col("kept_position").desc_nulls_last(),
        *(f.col(name).desc() for name in _KAFKA_ORDER),
    )
    return (
        rows.select(
            *(column.alias(name) for name, column in columns.items()),
            f.when(f.col("operation") == UPSERT, UPSERT).otherwise(DELETE).alias(OPERATION),
            f.when(~f.col("is_incremental"), f.col("position")).alias(LOG_POSITION),
            f.col("kept_position").alias(POSITION),
            unavailable.alias(UNAVAILABLE),
            f.col("timestamp").alias(TIMESTAMP),
            f.row_number().over(backwards).alias("_number"),
        )
        .where("_number = 1")
        .drop("_number")
    )


def merge_clauses(columns: Sequence[str], content: BatchContent) -> str:
    """The clauses of the MERGE of the last changes, `u`, into the table, `t`.

    A row that was changed later than this change is left as it is: a connector that starts again after a crash sends
    once more what it had sent. Columns whose value is unavailable keep the one that they have.
    """
    is_newer = f"(u.{LOG_POSITION} IS NULL OR t.{POSITION} IS NULL OR u.{LOG_POSITION} >= t.{POSITION})"
    names = [quoted(name) for name in columns]
    kept = f"CASE WHEN array_contains(u.{UNAVAILABLE}, {{text}}) THEN t.{{name}} ELSE u.{{name}} END"
    values = [
        kept.format(text=sql_text(name), name=quoted(name)) if content.has_unavailable else f"u.{quoted(name)}"
        for name in columns
    ]
    updates = ", ".join(f"t.{name} = {value}" for name, value in zip(names, values, strict=True))
    inserted = ", ".join(f"u.{name}" for name in names)
    clauses = (
        f"WHEN MATCHED AND u.{OPERATION} = '{DELETE}' AND {is_newer} THEN DELETE "
        f"WHEN MATCHED AND u.{OPERATION} = '{UPSERT}' AND {is_newer} "
        f"THEN UPDATE SET {updates}, t.{POSITION} = u.{POSITION} "
        f"WHEN NOT MATCHED AND u.{OPERATION} = '{UPSERT}' "
        f"THEN INSERT ({', '.join(names)}, {POSITION}) VALUES ({inserted}, u.{POSITION})"
    )
    if content.truncated_at is None:
        return clauses
    return f"{clauses} WHEN NOT MATCHED BY SOURCE AND t.{POSITION} < {sql_text(content.truncated_at)} THEN DELETE"


def _typed(changes: DataFrame, row_type: StructType) -> DataFrame:
    """The changes whose row has its columns. One that does not fit them fails its task with a sentence."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructType

    parsed_type = StructType(row_type.fields).add(_DAMAGE, StringType())
    how = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _DAMAGE}
    rows = changes.withColumn("row", f.from_json("row", parsed_type, how))
    sentence = f.concat(
        f.lit("the record at "),
        *(f.col("topic"), f.lit("-"), f.col("partition"), f.lit(" offset "), f.col("offset")),
        f.lit(" does not fit the columns of the table: "),
        f.substring(f.col(f"row.{_DAMAGE}"), 1, 120),
        f.lit(" - name columns that fit with --schema, and another output."),
    )
    is_damaged = f.col(f"row.{_DAMAGE}").isNotNull()
    return rows.where(f.when(is_damaged, f.raise_error(sentence).cast("boolean")).otherwise(f.lit(True)))


def _without_repeated_deletions(rows: DataFrame, key: list[Column]) -> DataFrame:
    """Without the tombstones after deletions. Others, which compaction leaves, stand where the record before stood."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    as_sent = Window.partitionBy(*key).orderBy(*_KAFKA_ORDER)
    before = f.lag("operation").over(as_sent)
    is_tombstone = f.col("operation") == TOMBSTONE
    marked = rows.withColumn("_repeats", is_tombstone & f.coalesce(before.isin(DELETE, TOMBSTONE), f.lit(False)))
    for name in ("position", "kept_position"):
        marked = marked.withColumn(name, f.when(is_tombstone, f.lag(name).over(as_sent)).otherwise(f.col(name)))
    return marked.where("NOT _repeats").drop("_repeats")


def _with_snapshots(rows: DataFrame, key: list[Column]) -> DataFrame:
    """The rows with the number of rows of snapshots up to each of them, `snapshots`, that are of the same key.

    Without rows of snapshots that are older than a change before them: their key has come from another partition.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    as_sent = Window.partitionBy(*key).orderBy(*_KAFKA_ORDER)
    is_of_snapshot = f.col("kept_position") == ""
    is_older = ~f.col("is_incremental") & (f.col("position") < f.max("kept_position").over(as_sent))
    marked = rows.withColumn("_is_older", f.coalesce(is_of_snapshot & is_older, f.lit(False))).where("NOT _is_older")
    return marked.drop("_is_older").withColumn("snapshots", f.count(f.when(is_of_snapshot, 1)).over(as_sent))


def _last_available(name: str, column: Column, in_order: Any) -> Column:
    """The value of a column, in a struct, in the last change of the row that has it; null if none has."""
    from pyspark.sql import functions as f

    has_it = (f.col("operation") == UPSERT) & ~f.array_contains("unavailable", name)
    return f.last(f.when(has_it, f.struct(column.alias(name))), ignorenulls=True).over(in_order)


def _found(filled: dict[str, Column]) -> Column:
    from pyspark.sql import functions as f

    names = (f.when(last.isNotNull(), f.lit(name)) for name, last in filled.items())
    return f.array_compact(f.array(*names))


def sql_text(text: str) -> str:
    """The text as a literal of Spark's SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
