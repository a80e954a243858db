"""Changes that are merged into tables: against a model of the database, repeated, late, with new columns."""

from __future__ import annotations

import datetime
import itertools
import random
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from support.pipeline import debezium_avro
from support.pipeline.debezium import COLUMNS, event, key_of
from support.pipeline.topics import Sent, send

from raftwerk.pipeline.change_data.change_event import UNAVAILABLE
from raftwerk.pipeline.change_data.change_rows import POSITION
from raftwerk.pipeline.change_data.changed_table import ChangedTable, ChangeSettings, apart_from_tables
from raftwerk.pipeline.errors import PipelineError, explain
from raftwerk.pipeline.jobs.changes import Changes, ChangesOptions
from raftwerk.pipeline.jobs.job_command import ReadSettings
from raftwerk.pipeline.lakehouse.iceberg_table import IcebergTable
from raftwerk.pipeline.lakehouse.open_table import open_maintained
from raftwerk.pipeline.lakehouse.partition_fields import PartitionField
from raftwerk.pipeline.lakehouse.table import StreamBatch
from raftwerk.pipeline.lakehouse.table_maintenance import MaintenanceSettings
from raftwerk.pipeline.running_query import Metrics, ProgressLog
from raftwerk.pipeline.topics import Topics

Record = tuple[bytes | None, bytes | None]
TOPIC = "orders"
_OTHER_TYPE = [COLUMNS[0], {**COLUMNS[1], "field": "amount"}]
_TAKEN_NAME = [COLUMNS[0], {"type": "int8", "field": POSITION}]
_SCHEMA = "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY"


class Applied:
    """A table with what was applied to it. `partitions` are those of the topics that it is made from."""

    def __init__(
        self,
        spark: Any,
        root: Path,
        table_format: str = "iceberg",
        partitions: Mapping[str, int] | None = None,
        **settings: Any,
    ) -> None:
        self.spark = spark
        self.table = open_maintained(spark, str(root / "orders"), table_format)
        self.deleted = open_maintained(spark, str(root / "orders" / "_job" / "deleted"), table_format)
        self.said: list[str] = []
        self._partitions = partitions or {TOPIC: 1}
        self._settings = settings
        self._numbers = itertools.count()
        self._offsets = itertools.count()
        self.open()

    def open(self, **more: Any) -> None:
        """As a job does that starts."""
        settings = ChangeSettings(**self._settings, **more)
        tables = self.table, self.deleted
        self._changed = ChangedTable(self.spark, *tables, settings, self.said.append, lambda: self._partitions)

    def batch(self, *records: Record, again: bool = False, partition: int = 0) -> None:
        number = next(self._numbers)
        rows = self.spark.createDataFrame(
            [(TOPIC, partition, next(self._offsets), None, key, value) for key, value in records], _SCHEMA
        ).selectExpr("* except (timestamp)", "timestamp_seconds(offset) AS timestamp")
        for _ in range(1 + again):
            self._changed.apply(rows, StreamBatch("query", number))

    def rows(self) -> list[dict[str, Any]]:
        rows = self.table.read().drop(POSITION).orderBy("id").collect()
        return [row.asDict() for row in rows]


def test_what_is_merged_names_no_table(spark: Any, tmp_path: Path) -> None:
    """Spark 4.1 has no plan for Iceberg's tables in it, once they have been written to."""
    applied = Applied(spark, tmp_path)
    applied.batch(insert(1, id=1, name="one", amount=1))
    rows = apart_from_tables(applied.table.read().where("id = 1").persist())
    plan = rows._jdf.queryExecution().analyzed().toString()
    assert "LogicalRDD" in plan and "orders" not in plan, plan
    assert [row["name"] for row in rows.collect()] == ["one"]


def read(lsn: int, snapshot: str = "true", **row: Any) -> Record:
    """A row of a snapshot."""
    return key_of(id=row["id"]), event("r", row, lsn, source={"snapshot": snapshot})


def insert(lsn: int, **row: Any) -> Record:
    return key_of(id=row["id"]), event("c", row, lsn)


def update(lsn: int, **row: Any) -> Record:
    return key_of(id=row["id"]), event("u", row, lsn)


def delete(lsn: int, key: int) -> Record:
    return key_of(id=key), event("d", None, lsn)


def truncate(lsn: int) -> Record:
    return None, event("t", None, lsn)


def tombstone(key: int) -> Record:
    return key_of(id=key), None


def history(seed: int, length: int) -> tuple[list[Record], list[dict[int, dict[str, Any]]]]:
    """The records of changes at random, and the rows that the database had after each of them."""
    rng = random.Random(seed)
    records: list[Record] = []
    rows: dict[int, dict[str, Any]] = {}
    states: list[dict[int, dict[str, Any]]] = []
    for lsn in range(1, length + 1):
        key = rng.randrange(6)
        there = rows.get(key)
        if there is None:
            rows[key] = {"id": key, "name": f"n{lsn}", "amount": lsn}
            records.append((key_of(id=key), event(rng.choice("cr"), rows[key], lsn)))
        elif rng.random() < 0.4:
            del rows[key]
            records += [delete(lsn, key), tombstone(key)]
            states.append(dict(rows))
        elif rng.random() < 0.1:
            rows.clear()
            records.append(truncate(lsn))
        else:
            name = rng.choice([there["name"], None, f"n{lsn}"])
            rows[key] = {"id": key, "name": name, "amount": lsn}
            sent = UNAVAILABLE if name == there["name"] and name is not None and rng.random() < 0.5 else name
            records.append((key_of(id=key), event("u", {**rows[key], "name": sent}, lsn)))
        states.append(dict(rows))
    return records, states


@pytest.mark.parametrize(("table_format", "seed", "length"), [("iceberg", 1, 40), ("delta", 3, 15)])
def test_the_table_is_as_the_database_was(
    spark: Any, tmp_path: Path, table_format: str, seed: int, length: int
) -> None:
    """Batches are repeated, and the connector sends once more what it had sent: the rows do not go back."""
    records, states = history(seed, length)
    applied = Applied(spark, tmp_path, table_format)
    rng = random.Random(seed)
    done = sent = 0
    while done < len(records):
        again = rng.randrange(0, 12) if done else 0
        upto = min(len(records), sent + rng.randrange(5, 20))
        applied.batch(*records[max(0, sent - again) : upto], again=rng.random() < 0.3)
        done = max(done, upto)
        sent = upto
        if rng.random() < 0.3:
            applied.open()
        assert applied.rows() == [states[upto - 1][key] for key in sorted(states[upto - 1])], (done, upto)


def test_what_is_sent_once_more_after_a_deletion_or_an_update_changes_nothing(spark: Any, tmp_path: Path) -> None:
    applied = Applied(spark, tmp_path)
    applied.batch(insert(10, id=1, name="a", amount=1), insert(11, id=2, name="b", amount=1))
    applied.batch(update(20, id=2, name="c", amount=2), delete(21, 1), tombstone(1))
    applied.batch(insert(10, id=1, name="a", amount=1), insert(11, id=2, name="b", amount=1))
    assert applied.rows() == [{"id": 2, "name": "c", "amount": 2}]
    applied.batch(insert(30, id=1, name="new", amount=3))
    applied.batch(delete(21, 1))
    assert [row["name"] for row in applied.rows()] == ["new", "c"]


def test_deletions_are_forgotten_after_their_time(spark: Any, tmp_path: Path) -> None:
    applied = Applied(spark, tmp_path, remember=timedelta(seconds=1))
    applied.batch(insert(1, id=1, name="a", amount=1), delete(2, 1), delete(3, 2), insert(4, id=3, name="c", amount=1))
    assert applied.deleted.read().count() == 2
    applied._numbers = itertools.count(100)
    applied.batch(delete(5, 3))
    assert [row["id"] for row in applied.deleted.read().collect()] == [3]


def test_columns_come_and_widen(spark: Any, tmp_path: Path) -> None:
    applied = Applied(spark, tmp_path)
    applied.batch(insert(1, id=1, name="a", amount=1))
    wider = [COLUMNS[0], COLUMNS[1], {**COLUMNS[2], "type": "int64"}, {"type": "double", "field": "price of one"}]
    row = {"id": 2, "name": "b", "amount": 2**40, "price of one": 0.5}
    applied.batch(insert(2, id=3, name="c", amount=3), (key_of(id=2), event("c", row, 3, wider)))
    assert applied.rows() == [
        {"id": 1, "name": "a", "amount": 1, "price of one": None},
        row,
        {"id": 3, "name": "c", "amount": 3, "price of one": None},
    ]
    assert applied.said == ["price of one double is added, amount becomes bigint"]
    fewer = [COLUMNS[0], COLUMNS[2]]
    applied.batch((key_of(id=1), event("u", {"id": 1, "amount": 7}, 4, fewer)))
    assert applied.rows()[0] == {"id": 1, "name": None, "amount": 7, "price of one": None}


def test_values_that_were_not_logged_stay(spark: Any, tmp_path: Path) -> None:
    applied = Applied(spark, tmp_path)
    applied.batch(insert(1, id=1, name="long", amount=1), insert(2, id=2, name="other", amount=1))
    applied.batch(
        update(3, id=1, name=UNAVAILABLE, amount=2),
        update(4, id=2, name=None, amount=2),
        update(5, id=2, name=UNAVAILABLE, amount=3),
        insert(6, id=3, name="third", amount=1),
        update(7, id=3, name=UNAVAILABLE, amount=2),
    )
    rows = [(1, "long", 2), (2, None, 3), (3, "third", 2)]
    assert [tuple(row.values()) for row in applied.rows()] == rows
    with pytest.raises(PipelineError, match="the row with id 4 has no value of name, which PostgreSQL did not log"):
        applied.batch(delete(8, 3), insert(8, id=4, name=UNAVAILABLE, amount=4))
    assert [tuple(row.values()) for row in applied.rows()] == rows
    applied.open(unlogged_is_null=True)
    applied.batch(delete(8, 3), insert(8, id=4, name=UNAVAILABLE, amount=4))
    assert [tuple(row.values()) for row in applied.rows()] == [*rows[:2], (4, None, 4)]
    columns = [*COLUMNS, {"type": "array", "items": {"type": "int32"}, "optional": True, "field": "numbers"}]
    for lsn, numbers in ((9, [1, 2]), (10, list(UNAVAILABLE.encode()))):
        row = {"id": 1, "name": "long", "amount": lsn, "numbers": numbers}
        applied.batch((key_of(id=1), event("u", row, lsn, columns)))
    assert tuple(applied.rows()[0].values()) == (1, "long", 10, [1, 2])


def test_tombstones_alone_delete(spark: Any, tmp_path: Path) -> None:
    """Compaction leaves the tombstone of a deletion."""
    applied = Applied(spark, tmp_path)
    applied.batch(insert(1, id=1, name="a", amount=1), insert(2, id=2, name="b", amount=1))
    applied.batch(tombstone(1))
    applied.batch(update(3, id=2, name="c", amount=1), tombstone(2), insert(4, id=3, name="d", amount=1))
    assert [row["id"] for row in applied.rows()] == [3]


@pytest.mark.parametrize("together", [False, True], ids=["in batches of their own", "in one batch"])
def test_a_transaction_that_was_open_over_the_snapshot_is_applied(spark: Any, tmp_path: Path, together: bool) -> None:
    """PostgreSQL's places are those of changes: they are before the snapshot's, and the commit is behind it."""
    applied = Applied(spark, tmp_path)
    snapshot = [read(100, id=key, name="old", amount=1) for key in (1, 2, 3)]
    changes = [update(90, id=1, name="new", amount=2), delete(91, 2), tombstone(2)]
    for batch in [[*snapshot, *changes]] if together else [snapshot, changes]:
        applied.batch(*batch)
    assert [(row["id"], row["name"]) for row in applied.rows()] == [(1, "new"), (3, "old")]
    applied.batch(update(90, id=1, name="new", amount=2), update(120, id=3, name="later", amount=3))
    applied.batch(update(110, id=3, name="earlier", amount=2))
    assert [(row["id"], row["name"]) for row in applied.rows()] == [(1, "new"), (3, "later")]


@pytest.mark.parametrize("together", [False, True], ids=["in batches of their own", "in one batch"])
def test_a_snapshot_s_row_that_is_older_than_a_change_before_it_is_left_out(
    spark: Any, tmp_path: Path, together: bool
) -> None:
    """It is in another partition, which the topic has got since, and which is read later."""
    applied = Applied(spark, tmp_path)
    changes = [update(120, id=1, name="new", amount=2), insert(121, id=2, name="x", amount=1), delete(122, 2)]
    snapshot = [read(100, id=1, name="old", amount=1), read(100, id=2, name="gone", amount=1)]
    for batch in [[*changes, *snapshot]] if together else [changes, snapshot]:
        applied.batch(*batch)
    assert [(row["id"], row["name"]) for row in applied.rows()] == [(1, "new")]


@pytest.mark.parametrize("together", [False, True], ids=["in batches of their own", "in one batch"])
def test_a_row_of_an_incremental_snapshot_is_as_new_as_the_topic(spark: Any, tmp_path: Path, together: bool) -> None:
    """Its place is that of the last change that was sent, of any row: a transaction may have made it long before."""
    applied = Applied(spark, tmp_path)
    changes = [update(120, id=1, name="as sent", amount=2), delete(121, 2)]
    snapshot = [read(50, "incremental", id=1, name="read", amount=2), read(50, "incremental", id=2, name="b", amount=1)]
    for batch in [[*changes, *snapshot]] if together else [changes, snapshot]:
        applied.batch(*batch)
    assert [(row["id"], row["name"]) for row in applied.rows()] == [(1, "read"), (2, "b")]
    applied.batch(update(60, id=1, name="committed after it", amount=3))
    assert [row["name"] for row in applied.rows()] == ["committed after it", "b"]


def test_rows_of_sql_server_s_snapshot_are_updated_and_deleted(spark: Any, tmp_path: Path) -> None:
    def change(op: str, commit_lsn: str, change_lsn: str | None, **row: Any) -> Record:
        source = {"commit_lsn": commit_lsn, "change_lsn": change_lsn, "ts_us": 1729238029104000}
        return key_of(id=row["id"]), event(op, None if op == "d" else row, None, source=source)

    applied = Applied(spark, tmp_path)
    snapshot = "00000025:00000448:0003"
    applied.batch(*(change("r", snapshot, None, id=key, name="old", amount=1) for key in (1, 2)))
    applied.batch(
        change("u", "00000027:00000758:0006", "00000027:00000758:0005", id=1, name="new", amount=2),
        change("d", "00000027:00000760:0006", "00000027:00000760:0005", id=2),
    )
    applied.batch(change("r", snapshot, None, id=1, name="old", amount=1))
    assert applied.rows() == [{"id": 1, "name": "new", "amount": 2}]


@pytest.mark.parametrize("together", [False, True], ids=["in batches of their own", "in one batch"])
def test_a_truncation_in_the_order_of_the_topic(spark: Any, tmp_path: Path, together: bool) -> None:
    applied = Applied(spark, tmp_path, by_log=False)
    records = [insert(5, id=1, name="a", amount=1), truncate(6), insert(7, id=2, name="b", amount=1)]
    for batch in [records] if together else [[one] for one in records]:
        applied.batch(*batch)
    assert [row["id"] for row in applied.rows()] == [2]


@pytest.mark.parametrize(
    ("partitions", "by_log", "said"),
    [
        ({TOPIC: 1, "b.orders": 1}, True, "the rows of 2 topics are together in this output, .* an output for each"),
        ({TOPIC: 2}, False, "several partitions does not tell which of its rows are earlier"),
    ],
    ids=["shards", "partitions in the order of the topic"],
)
def test_a_truncation_of_nobody_knows_which_rows_is_said(
    spark: Any, tmp_path: Path, partitions: Mapping[str, int], by_log: bool, said: str
) -> None:
    applied = Applied(spark, tmp_path, partitions=partitions, by_log=by_log)
    applied.batch(insert(1, id=1, name="a", amount=1))
    with pytest.raises(PipelineError, match=said):
        applied.batch(truncate(20))
    assert [row["id"] for row in applied.rows()] == [1]


@pytest.mark.parametrize("alone", [False, True])
def test_a_change_before_a_truncation_that_is_read_after_it_is_left_out(
    spark: Any, tmp_path: Path, alone: bool
) -> None:
    """The partition of the row is read more slowly than that of the truncation."""
    applied = Applied(spark, tmp_path, partitions={TOPIC: 2})
    applied.batch(*([] if alone else [insert(1, id=1, name="a", amount=1)]), truncate(10), again=True)
    applied.open()
    behind = insert(5, id=2, name="truncated", amount=1), read(8, id=4, name="truncated", amount=1)
    applied.batch(*behind, insert(11, id=3, name="c", amount=1), partition=1)
    assert [row["id"] for row in applied.rows()] == [3]
    applied.batch(delete(12, 3), truncate(13))
    applied.batch(insert(12, id=3, name="c", amount=1), insert(14, id=5, name="d", amount=1))
    assert [row["id"] for row in applied.rows()] == [5]


@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
def test_deletions_before_the_first_row_of_a_partitioned_table(spark: Any, tmp_path: Path, table_format: str) -> None:
    """They have the columns of the key alone, and the table is partitioned by another."""
    applied = Applied(spark, tmp_path, table_format, partition_by=(PartitionField("name"),))
    applied.batch(delete(5, 1), tombstone(3))
    assert not applied.table.exists()
    applied.batch(insert(4, id=1, name="a", amount=1), insert(6, id=2, name="b", amount=1))
    assert applied.rows() == [{"id": 2, "name": "b", "amount": 1}]


def test_rows_whose_key_has_a_null(spark: Any, tmp_path: Path) -> None:
    """Debezium's message.key.columns may name such columns."""
    key = key_of(id=1, name=None)
    applied = Applied(spark, tmp_path)
    large = [*COLUMNS, {"type": "string", "optional": True, "field": "note"}]
    applied.batch((key, event("c", {"id": 1, "name": None, "amount": 1, "note": "long"}, 1, large)))
    applied.batch((key, event("u", {"id": 1, "name": None, "amount": 2, "note": UNAVAILABLE}, 2, large)))
    assert applied.rows() == [{"id": 1, "name": None, "amount": 2, "note": "long"}]
    applied.batch((key, event("d", None, 3)))
    applied.batch((key, event("c", {"id": 1, "name": None, "amount": 1, "note": "long"}, 1, large)))
    assert applied.rows() == []


def test_the_order_of_the_topic_where_positions_do_not_compare(spark: Any, tmp_path: Path) -> None:
    applied = Applied(spark, tmp_path, by_log=False)
    applied.batch(insert(900, id=1, name="old server", amount=1), delete(901, 1), insert(902, id=1, name="x", amount=2))
    applied.batch(update(5, id=1, name="new server", amount=3))
    assert [row["name"] for row in applied.rows()] == ["new server"]


def test_records_without_a_schema_take_the_columns_that_are_named(spark: Any, tmp_path: Path) -> None:
    applied = Applied(spark, tmp_path, columns="id BIGINT, amount INT")
    key = key_of(COLUMNS, False, id=1)
    applied.batch((key, event("c", {"id": 1, "amount": 5, "more": 1}, 1, schemas=False)))
    assert applied.rows() == [{"id": 1, "amount": 5}]
    with pytest.raises(Exception, match="the record at orders-0 offset 1 does not fit the columns") as caught:
        applied.batch((key, event("u", {"id": 1, "amount": "many"}, 2, schemas=False)))
    assert "name columns that fit with --schema" in str(explain(caught.value))
    assert applied.rows() == [{"id": 1, "amount": 5}]


def test_records_in_avro(spark: Any, tmp_path: Path) -> None:
    seen = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    row = {"id": 1, "price": Decimal("-12.50"), "day": 19_000, "at": 1_500_000, "seen": seen, "small": 3, "tags": ["a"]}
    key = debezium_avro.encoded(1, {"id": 1})
    with debezium_avro.serving_schemas() as url:
        applied = Applied(spark, tmp_path, registry_url=url)
        applied.batch((key, debezium_avro.event("c", {**row, "note": "n", "raw": b"r"})))
    (found,) = applied.table.read().selectExpr("*", "unix_micros(at) AS micros", "unix_seconds(seen) AS s").collect()
    assert (found["price"], found["day"], found["raw"]) == (Decimal("-12.50"), datetime.date(2022, 1, 8), b"r")
    assert (found["micros"], found["s"], found["tags"]) == (1_500_000, seen.timestamp(), ["a"])


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([(key_of(id=1), b"{}")], "the record at orders-0 offset 0 is no change of Debezium's: the value has no op"),
        ([(key_of(COLUMNS, False, id=1), event("c", {"id": 1}, 1, schemas=False))], "carry no schema: name the col"),
        ([insert(1, id=1, name="a", amount=1), (key_of(name="a"), None)], "rows have keys of id and of name"),
        (
            [insert(1, id=1, name="a", amount=1), (key_of(id=1), event("u", {"id": 1}, 2, _OTHER_TYPE))],
            "column amount is (int|string) in some records and (string|int) in others",
        ),
        ([(key_of(id=1), event("c", {"id": 1}, 1, _TAKEN_NAME))], "a column _position"),
    ],
)
def test_what_cannot_be_applied_is_said(spark: Any, tmp_path: Path, records: Sequence[Record], said: str) -> None:
    applied = Applied(spark, tmp_path)
    with pytest.raises(PipelineError, match=said):
        applied.batch(*records)
    assert not applied.table.is_written()


def test_files_are_merged_between_two_batches(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A MERGE of rows fails when the files that it reads are replaced meanwhile, and with it the query."""
    topics = Topics(bootstrap, (topic,))
    topics.create(1, {})
    changes = [insert(number, id=number, name="n", amount=number) for number in range(1, 7)]
    send(bootstrap, topic, [Sent(0, key, value) for key, value in changes])
    steps: list[str] = []
    merge, compact = IcebergTable.merge, IcebergTable.compact

    def noted_merge(table: IcebergTable, *arguments: Any) -> None:
        steps.append("merge")
        merge(table, *arguments)
        steps.append("merged")

    def noted_compact(table: IcebergTable, small_bytes: int) -> int:
        steps.append("compact, in the job's thread" if threading.current_thread() is main else "compact")
        return compact(table, small_bytes)

    main = threading.current_thread()
    monkeypatch.setattr(IcebergTable, "merge", noted_merge)
    monkeypatch.setattr(IcebergTable, "compact", noted_compact)
    options = ChangesOptions(str(tmp_path / "orders"), maintenance=MaintenanceSettings(1))
    settings = ReadSettings(once=True, max_offsets=2)
    job = Changes(spark, topics, options).start(settings, ProgressLog(quiet=True), Metrics("changes", None))
    job.follow()
    assert steps[:3] == ["merge", "merged", "compact"] and steps.count("merge") == 3
    assert set(steps) == {"merge", "merged", "compact"}
    assert open_maintained(spark, options.out, "iceberg").row_count() == 6
