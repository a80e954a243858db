"""What is read from a record of Debezium's, without Spark."""

from __future__ import annotations

import base64
import datetime
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pipeline.debezium import COLUMNS, event, key_of

from raftwerk.pipeline.change_data.change_event import (
    DELETE,
    NOTHING,
    TOMBSTONE,
    TRUNCATE,
    UNAVAILABLE,
    UPSERT,
    NotAChangeError,
    read_change,
)
from raftwerk.pipeline.change_data.connect_schema import UnknownSchemaError, column_type, iso_date, iso_timestamp
from raftwerk.pipeline.change_data.source_position import source_position

KEY = key_of(id=7)


def columns_of(found: str | None) -> dict[str, str]:
    return {} if found is None else dict(json.loads(found))


@pytest.mark.parametrize("op", ["c", "r", "u"])
def test_a_row_that_is_there_afterwards(op: str) -> None:
    row = {"id": 7, "name": 'a "payload": b,"payload":{', "amount": None}
    one = read_change(KEY, event(op, row, 99))
    assert (one.operation, one.key, one.position) == (UPSERT, ("id",), "00000000000000000099")
    assert json.loads(one.row or "") == row
    assert columns_of(one.columns) == {"id": "int", "name": "string", "amount": "int"}


def test_a_deletion_has_the_key_alone_and_a_tombstone_no_position() -> None:
    one = read_change(KEY, event("d", None, 99))
    assert (one.operation, one.row, one.position) == (DELETE, '{"id": 7}', "00000000000000000099")
    assert columns_of(one.columns) == {"id": "int"}
    for value in (None, b"null", b'{"schema":null,"payload":null}'):
        one = read_change(KEY, value)
        assert (one.operation, one.row, one.position) == (TOMBSTONE, '{"id": 7}', None)


def test_a_truncation_and_a_message_need_no_key() -> None:
    one = read_change(None, event("t", None, 5))
    assert (one.operation, one.position) == (TRUNCATE, "00000000000000000005")
    assert read_change(None, event("m", None, 5)).operation == NOTHING


def test_records_without_a_schema() -> None:
    one = read_change(key_of(COLUMNS, False, id=7), event("u", {"id": 7, "name": "x"}, 1, schemas=False))
    assert (one.operation, one.key, one.columns) == (UPSERT, ("id",), None)
    assert json.loads(one.row or "") == {"id": 7, "name": "x"}


def test_values_that_postgresql_has_not_logged_are_not_values() -> None:
    columns = [*COLUMNS, {"type": "bytes", "optional": True, "field": "picture"}]
    columns += [{"type": "array", "items": {"type": "string"}, "optional": True, "field": "tags"}]
    hidden = base64.b64encode(UNAVAILABLE.encode()).decode()
    row = {"id": 7, "name": UNAVAILABLE, "amount": 3, "picture": hidden, "tags": [UNAVAILABLE]}
    one = read_change(KEY, event("u", row, 1, columns))
    assert one.unavailable == ("name", "picture", "tags")
    assert json.loads(one.row or "") == {"id": 7, "amount": 3}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "array", "items": {"type": "int32"}}, list(UNAVAILABLE.encode())),
        ({"type": "array", "items": {"type": "int64"}}, list(UNAVAILABLE.encode())),
        (
            {"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}},
            {UNAVAILABLE: UNAVAILABLE},
        ),
        (
            {"type": "array", "items": {"type": "string", "name": "io.debezium.data.Uuid"}},
            ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
        ),
    ],
    ids=["int[]", "bigint[]", "hstore", "uuid[]"],
)
def test_arrays_and_maps_that_postgresql_has_not_logged_are_not_values(schema: dict[str, Any], value: Any) -> None:
    """Debezium fills them with its text as far as their type lets it: its bytes, or a UUID of it."""
    columns = [*COLUMNS, {**schema, "optional": True, "field": "large"}]
    one = read_change(KEY, event("u", {"id": 7, "name": "x", "amount": 3, "large": value}, 1, columns))
    assert one.unavailable == ("large",)
    shorter = value[:-1] if isinstance(value, list) else {}
    one = read_change(KEY, event("u", {"id": 7, "name": "x", "amount": 3, "large": shorter}, 1, columns))
    assert one.unavailable == () and json.loads(one.row or "")["large"] == shorter


def test_rows_of_a_snapshot_are_told_from_changes() -> None:
    row = {"id": 7, "name": "x", "amount": 1}
    found = [
        read_change(KEY, event(op, row, 9, source={"snapshot": snapshot}))
        for op, snapshot in (("c", "false"), ("u", "last"), ("r", "true"), ("r", "incremental"))
    ]
    assert [one.is_of_snapshot for one in found] == [False, False, True, True]
    assert [one.is_incremental for one in found] == [False, False, False, True]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (KEY, b"\xff", "it is not JSON"),
        (KEY, b"[" * 100_000, "it is not JSON"),
        (KEY, b'"text"', "no op of Debezium's"),
        (KEY, b'{"id": 7}', "no op of Debezium's"),
        (KEY, b'{"schema":{"a":1},"payload":7}', "no op of Debezium's"),
        (KEY, event("z", {}, 1), "no op of Debezium's"),
        (KEY, event("c", None, 1), "no row `after`"),
        (None, event("c", {"id": 7}, 1), "no key with columns"),
        (b'"7"', event("c", {"id": 7}, 1), "no key with columns"),
        (b"{}", event("d", None, 1), "no key with columns"),
        (key_of(other=7), event("c", {"id": 7}, 1), "no column other, which is in its key"),
        (KEY, b'{"schema":{"type":"struct"},"payload":{"op":"c","after":{"id":7}}}', "describes no row `after`"),
        (KEY, event("c", {"id": 7}, 1, [{"type": "int7", "field": "id"}]), "none of Connect's (the type 'int7')"),
        (KEY, event("c", {"id": 7}, 1, [{"field": "id"}]), "none of Connect's"),
    ],
)
def test_what_is_no_change_is_said(key: bytes | None, value: bytes, said: str) -> None:
    with pytest.raises(NotAChangeError) as caught:
        read_change(key, value)
    assert said in str(caught.value)


def named(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "name": name, **more}


def decimal(scale: int, precision: int | None = None) -> dict[str, Any]:
    parameters = {"scale": str(scale)} | ({} if precision is None else {"connect.decimal.precision": str(precision)})
    return named("org.apache.kafka.connect.data.Decimal", "bytes", parameters=parameters)


@pytest.mark.parametrize(
    ("schema", "value", "kind", "converted"),
    [
        ({"type": "float"}, 1.5, "float", 1.5),
        ({"type": "bytes"}, "AP8=", "binary", "AP8="),
        (named("io.debezium.time.Date", "int32"), 19_000, "date", "2022-01-08"),
        (named("io.debezium.time.Timestamp", "int64"), 1_001, "timestamp", "1970-01-01T00:00:01.001000Z"),
        (named("io.debezium.time.MicroTimestamp", "int64"), -1, "timestamp", "1969-12-31T23:59:59.999999Z"),
        (named("io.debezium.time.NanoTimestamp", "int64"), 1_999, "timestamp", "1970-01-01T00:00:00.000001Z"),
        (
            named("io.debezium.time.ZonedTimestamp", "string"),
            "2020-01-01T00:00:00Z",
            "timestamp",
            "2020-01-01T00:00:00Z",
        ),
        (named("io.debezium.time.MicroTime", "int64"), 3_661_000_001, "string", "01:01:01.000001"),
        (named("io.debezium.data.Uuid", "string"), "u", "string", "u"),
        (
            decimal(2, 10),
            base64.b64encode((-12345).to_bytes(3, "big", signed=True)).decode(),
            "decimal(10,2)",
            "-123.45",
        ),
        (decimal(0), "AA==", "decimal(38,0)", "0"),
        (decimal(2, 50), "AQ==", "string", "0.01"),
        (
            named("io.debezium.data.VariableScaleDecimal", "struct", fields=[]),
            {"scale": 3, "value": "/w=="},
            "string",
            "-0.001",
        ),
        (
            {"type": "array", "items": named("io.debezium.time.Date", "int32")},
            [0, None],
            "array<date>",
            ["1970-01-01", None],
        ),
        (
            {"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}},
            {"a": "b"},
            "map<string,string>",
            {"a": "b"},
        ),
        (
            {"type": "map", "keys": {"type": "int32"}, "values": named("io.debezium.time.Date", "int32")},
            [[1, 0]],
            "map<string,date>",
            {"1": "1970-01-01"},
        ),
        (
            {"type": "struct", "fields": [{"type": "bytes", "field": "wkb"}, {**decimal(1, 3), "field": "of`all"}]},
            {"wkb": "AA==", "of`all": "AQ=="},
            "struct<`wkb`:binary,`of``all`:decimal(3,1)>",
            {"wkb": "AA==", "of`all": "0.1"},
        ),
    ],
)
def test_types_of_connect(schema: dict[str, Any], value: Any, kind: str, converted: Any) -> None:
    found = column_type(schema)
    assert (found.spark, found.value(value), found.value(None)) == (kind, converted, None)


def test_a_value_that_is_not_of_its_schema_is_said() -> None:
    columns = [COLUMNS[0], {**decimal(2, 4), "field": "price"}]
    with pytest.raises(NotAChangeError, match="a value is not of its schema"):
        read_change(KEY, event("c", {"id": 7, "price": 12}, 1, columns))
    with pytest.raises(UnknownSchemaError):
        column_type({"type": "map", "keys": {"type": "x"}, "values": {"type": "int8"}})


@given(st.dates())
def test_days_are_those_of_the_calendar(day: datetime.date) -> None:
    assert iso_date((day - datetime.date(1970, 1, 1)).days) == day.isoformat()


def test_days_before_and_after_those_of_python() -> None:
    assert (iso_date(-719_529), iso_date(2_932_897)) == ("-0001-12-31", "+10000-01-01")
    assert iso_timestamp(9_223_372_036_825_200_000) == "+294247-01-10T04:00:25.200000Z"


def _sql_server(commit_lsn: str, change_lsn: str | None, serial_no: int = 1) -> dict[str, Any]:
    """The source of an event of SQL Server; a row of a snapshot has no place of a change."""
    times = {"ts_ms": 1729238029104, "ts_us": 1729238029104000}
    serial = None if change_lsn is None else serial_no
    return {**times, "commit_lsn": commit_lsn, "change_lsn": change_lsn, "event_serial_no": serial}


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ({"lsn": 9}, {"lsn": 10}),
        ({"file": "bin.000009", "pos": 500, "row": 1}, {"file": "bin.000010", "pos": 4, "row": 0}),
        ({"file": "bin.000009", "pos": 99, "row": 1}, {"file": "bin.000009", "pos": 100, "row": 0}),
        ({"file": "bin.000009", "pos": 99, "row": 1}, {"file": "bin.000009", "pos": 99, "row": 2}),
        ({"change_lsn": "00000027:00000758:0003"}, {"change_lsn": "00000027:00000758:0005"}),
        (_sql_server("00000025:00000448:0003", None), _sql_server("00000027:00000758:0006", "00000027:00000758:0005")),
        (_sql_server("00000027:00000758:0006", None), _sql_server("00000027:00000758:0006", "00000027:00000758:0005")),
        (
            _sql_server("00000027:00000758:0006", "00000027:00000758:0005"),
            _sql_server("00000027:00000760:0002", "00000027:00000757:0001"),
        ),
        (
            _sql_server("00000027:00000758:0006", "00000027:00000758:0005", 9),
            _sql_server("00000027:00000758:0006", "00000027:00000758:0005", 10),
        ),
        ({"scn": "99"}, {"scn": "100"}),
        ({"ts_ms": 99}, {"ts_ms": 100}),
        ({}, {"lsn": 0}),
    ],
)
def test_positions_sort_as_the_log_does(earlier: dict[str, Any], later: dict[str, Any]) -> None:
    assert source_position(earlier) < source_position(later)
