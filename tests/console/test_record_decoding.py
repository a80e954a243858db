"""Records in words, with a registry that a table of schemas stands for."""

from __future__ import annotations

import asyncio
import json
import struct
from typing import Any

import pytest

from raftwerk.broker.groups.records.offset_and_classic_records import OffsetAndMetadata, offset_record
from raftwerk.cluster.client.consumer import Consumed
from raftwerk.console.records.record_decoding import SCHEMAS_MAX, RecordDecoder
from raftwerk.registry.data.schema_client import SchemaClient
from raftwerk.runtime.http.client import HttpAnswer, HttpRequest
from raftwerk.wire.records import Record
from raftwerk.wire.types import TopicPartition

pytest.importorskip("fastavro", reason="no fastavro: data of Avro is NOT tested")
SCHEMAS = {
    1: {"schema": '"string"'},
    2: {"schema": '{"type": "object"}', "schemaType": "JSON"},
    3: {"schema": "no schema"},
}
asked: list[str] = []


async def fetch(request: HttpRequest) -> HttpAnswer:
    asked.append(request.url)
    found = SCHEMAS.get(int(request.url.rpartition("/")[2]))
    return HttpAnswer(404, b"{}") if found is None else HttpAnswer(200, json.dumps(found).encode())


def framed(schema_id: int, data: bytes) -> bytes:
    return b"\x00" + struct.pack(">I", schema_id) + data


def rows(*values: bytes | None, topic: str = "t", key: bytes | None = None, url: str | None = "http://r") -> list[Any]:
    asked.clear()
    decoder = RecordDecoder(None if url is None else SchemaClient(url, fetch))
    records = [Consumed(0, Record(at, 1000, key, value, (("h", b"\xff"),))) for at, value in enumerate(values)]
    return asyncio.run(decoder.rows(topic, records))


def test_values_are_decoded_by_the_schemas_that_they_name() -> None:
    first, second, third = rows(framed(1, b"\x04UA"), framed(2, b'{"a": "\xc3\xa4"}'), framed(1, b"\x02x"))
    assert first["value"] == {"text": '"UA"', "size": 8, "how": "AVRO, schema 1"}
    assert second["value"] == {"text": '{"a": "ä"}', "size": 16, "how": "JSON, schema 2"}
    assert third["value"]["text"] == '"x"'
    assert first["headers"] == [["h", {"base64": "/w==", "size": 1}]]
    assert sorted(asked) == ["http://r/schemas/ids/1", "http://r/schemas/ids/2"]


def test_what_cannot_be_decoded_is_shown_as_it_is_with_the_reason() -> None:
    unknown, broken, short = (one["value"] for one in rows(framed(9, b"\xff"), framed(3, b"\xff"), framed(1, b"\x0ax")))
    assert unknown == {"base64": "AAAAAAn/", "size": 6, "note": "the registry has no schema 9"}
    assert broken["note"].startswith("schema 3: ") and broken["base64"]
    assert "it is not of its schema" in short["note"]


def test_texts_and_nulls_are_not_asked_for() -> None:
    text, null = rows(b"plain", None, key=b"k")
    assert (text["key"], text["value"]) == ({"text": "k", "size": 1}, {"text": "plain", "size": 5})
    assert null["value"] is None and asked == []
    (unasked,) = rows(framed(1, b"\x04UA"), url=None)
    assert unasked["value"] == {"text": "\x00\x00\x00\x00\x01\x04UA", "size": 8}


def test_bytes_that_look_like_the_ids_of_many_schemas_ask_for_few() -> None:
    found = rows(*(framed(one, b"x") for one in range(100, 100 + SCHEMAS_MAX + 5)))
    assert len(asked) == SCHEMAS_MAX
    assert "only 20 schemas" in found[-1]["value"]["note"]


def test_internal_topics_need_no_registry() -> None:
    key, value = offset_record("g", TopicPartition("t", 3), OffsetAndMetadata(17))
    found, strange = rows(value, None, topic="__consumer_offsets", key=key, url=None)
    assert json.loads(found["key"]["text"])["group"] == "g" and found["key"]["how"] == "__consumer_offsets"
    assert json.loads(found["value"]["text"])["offset"] == 17
    assert strange["value"] is None
    (unknown,) = rows(b"\xff", topic="__consumer_offsets", key=b"\x00\x63", url=None)
    assert unknown["value"] == {"base64": "/w==", "size": 1}
