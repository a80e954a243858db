"""Records that Connect's AvroConverter wrote: the same changes as in JSON."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal

import pytest
from support.pipeline.debezium_avro import SCHEMAS, encoded, event

from raftwerk.pipeline.change_data.avro_parts import AvroParts, connect_schema_of
from raftwerk.pipeline.change_data.change_event import DELETE, UNAVAILABLE, UPSERT, NotAChangeError, read_change
from raftwerk.pipeline.change_data.connect_schema import UnknownSchemaError, column_type
from raftwerk.pipeline.errors import PipelineError
from raftwerk.registry.data.frame import framed
from raftwerk.registry.data.schema_client import SchemaClient
from raftwerk.runtime.http.client import HttpAnswer, HttpError, HttpRequest

URL = "http://alice:secret@registry"


class Registry:
    """Answers with these schemas, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_gone = False

    async def fetch(self, request: HttpRequest) -> HttpAnswer:
        self.asked += 1
        if self.is_gone:
            raise HttpError("http://registry cannot be reached")
        schema_id = int(request.url.rpartition("/")[2])
        if schema_id == 3:
            return HttpAnswer(200, json.dumps({"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"}).encode())
        if schema_id not in SCHEMAS:
            return HttpAnswer(404, b'{"error_code": 40403}')
        return HttpAnswer(200, json.dumps({"schema": json.dumps(SCHEMAS[schema_id])}).encode())

    def parts(self) -> AvroParts:
        return AvroParts(SchemaClient(URL, self.fetch), URL)


KEY_7 = encoded(1, {"id": 7})


def test_a_row_has_the_types_of_the_database() -> None:
    row = {"id": 7, "price": Decimal("-12.50"), "day": 19_000, "at": 1, "small": 3, "note": None, "raw": b"\0\xff"}
    row |= {"seen": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), "tags": ["a", None]}
    registry = Registry()
    parts = registry.parts()
    for _ in range(2):
        one = read_change(KEY_7, event("c", row), parts.part)
    assert registry.asked == 2
    assert (one.operation, one.key, one.position, one.unavailable) == (UPSERT, ("id",), "00000000000000000005", ())
    assert json.loads(one.row or "") == {
        "id": 7,
        "price": "-12.50",
        "day": "2022-01-08",
        "at": "1970-01-01T00:00:00.000001Z",
        "seen": "2024-01-01 00:00:00+00:00",
        "small": 3,
        "note": None,
        "raw": "AP8=",
        "tags": ["a", None],
    }
    assert dict(json.loads(one.columns or "")) == {
        "id": "bigint",
        "price": "decimal(10,2)",
        "day": "date",
        "at": "timestamp",
        "seen": "timestamp",
        "small": "smallint",
        "note": "string",
        "raw": "binary",
        "tags": "array<string>",
    }


def test_deletions_tombstones_and_values_that_were_not_logged() -> None:
    read = Registry().parts().part
    assert read_change(KEY_7, event("d", None), read).operation == DELETE
    assert read_change(KEY_7, None, read).row == '{"id": 7}'
    row = {"id": 7, "price": None, "day": None, "at": None, "seen": None, "small": None, "tags": None}
    one = read_change(KEY_7, event("u", {**row, "note": UNAVAILABLE, "raw": UNAVAILABLE.encode()}), read)
    assert one.unavailable == ("note", "raw")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b'{"op": "c"}', "does not begin with the id of a registry's schema"),
        (framed(9, b""), "the registry has no schema 9"),
        (framed(3, b""), "schema 3 is PROTOBUF; Avro and JSON are read"),
        (framed(2, b"\x09"), "it is not of its schema"),
        (KEY_7, "no op of Debezium's"),
    ],
)
def test_what_is_no_change_is_said(value: bytes, said: str) -> None:
    with pytest.raises(NotAChangeError) as caught:
        read_change(KEY_7, value, Registry().parts().part)
    assert said in str(caught.value)


def test_a_registry_that_does_not_answer_fails_the_batch_and_its_login_is_not_told() -> None:
    registry = Registry()
    registry.is_gone = True
    with pytest.raises(PipelineError) as caught:
        registry.parts().part(KEY_7)
    assert str(caught.value).startswith("http://registry: ") and "secret" not in str(caught.value)


def test_types_of_avro() -> None:
    enum = {"type": "enum", "name": "E", "symbols": ["A"], "connect.name": "io.debezium.data.Enum"}
    assert column_type(connect_schema_of(json.dumps(enum))).spark == "string"
    assert column_type(connect_schema_of('{"type": "map", "values": "double"}')).spark == "map<string,double>"
    long = {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2}
    assert column_type(connect_schema_of(json.dumps(long))).spark == "string"
    node = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
    for text in ('["int", "string"]', json.dumps(node), "{", '"unknown"'):
        with pytest.raises(UnknownSchemaError):
            connect_schema_of(text)
