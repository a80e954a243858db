"""A lake of values that serializers of a registry have written, while their schemas change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from support.pipeline.topics import Sent, send
from support.registry.registry_process import registry

from raftwerk.pipeline.errors import PipelineError
from raftwerk.pipeline.jobs.job_command import ReadSettings
from raftwerk.pipeline.jobs.lake import Lake, LakeOptions
from raftwerk.pipeline.jobs.windows import parse
from raftwerk.pipeline.lakehouse.open_table import read_table
from raftwerk.pipeline.running_query import Metrics, ProgressLog
from raftwerk.pipeline.topics import Topics
from raftwerk.pipeline.typed_values.registry_values import registered_columns
from raftwerk.pipeline.typed_values.spark_types import ddl_of
from raftwerk.registry.data.frame import framed
from raftwerk.registry.data.json_conversion import conversion_of

FIELDS: list[dict[str, Any]] = [
    {"name": "number", "type": "long"},
    {"name": "carrier", "type": ["null", "string"]},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "delays", "type": {"type": "array", "items": "double"}},
    {"name": "raw", "type": "bytes"},
]
ADDED = {"name": "seats", "type": "int", "default": 0}
AT = datetime(2013, 1, 1, 5, 15, 0, 250_000, UTC)
ROW = {
    "number": 2**53 + 1,
    "carrier": None,
    "day": date(2013, 1, 1),
    "at": AT,
    "price": Decimal("1234567.89"),
    "delays": [1.5, float("inf")],
    "raw": b"\x00\xff",
}
PROTOBUF = """syntax = "proto3";
message Flight { int64 number = 1; string carrier = 2; map<string, uint64> seats = 3; repeated sint64 delays = 4; }
"""


def avro(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Flight", "fields": fields})


@pytest.fixture(scope="module")
def url(cluster: Any) -> Iterator[str]:
    with registry(cluster, "schemas-of-lakes") as address:
        yield address


def produce(url: str, bootstrap: str, topic: str, text: str, *rows: dict[str, Any]) -> None:
    serializer = AvroSerializer(SchemaRegistryClient({"url": url}), text)
    context = SerializationContext(topic, MessageField.VALUE)
    send(bootstrap, topic, [Sent(0, None, serializer(row, context)) for row in rows])


def lake(spark: Any, url: str, bootstrap: str, topic: str, out: Path, *, rejects: bool = False) -> Lake:
    columns = ddl_of(registered_columns(url, [topic]))
    options = LakeOptions(
        str(out), "registry", columns, ("topic",), rejects=rejects, registry_url=url, schema_is_registered=True
    )
    return Lake(spark, Topics(bootstrap, (topic,)), options)


def run(job: Lake) -> None:
    job.start(ReadSettings(once=True), ProgressLog(quiet=True), Metrics("lake", None)).follow()


def test_rows_follow_the_schemas_of_the_registry(
    spark: Any, cluster: Any, url: str, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    Topics(bootstrap, (topic,)).create(1, {})
    produce(url, bootstrap, topic, avro(*FIELDS), ROW)
    out = tmp_path / "lake"
    first = lake(spark, url, bootstrap, topic, out)
    run(first)
    (row,) = read_table(spark, str(out)).drop("topic", "partition", "offset", "timestamp", "date", "key").collect()
    assert row.asDict() == {**ROW, "at": AT.replace(tzinfo=None), "raw": bytearray(b"\x00\xff")}
    produce(url, bootstrap, topic, avro(*FIELDS, ADDED), {**ROW, "seats": 7})
    with pytest.raises(PipelineError, match=r"have more fields \(seats\): start the job again"):
        run(first)
    run(lake(spark, url, bootstrap, topic, out))
    assert [one[0] for one in read_table(spark, str(out)).select("seats").orderBy("offset").collect()] == [None, 7]


def test_what_is_of_no_schema_does_not_fit(
    spark: Any, cluster: Any, url: str, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    Topics(bootstrap, (topic,)).create(1, {})
    produce(url, bootstrap, topic, avro(*FIELDS), ROW)
    others = [b"text", framed(999_999, b"of no schema"), framed(1, b"\xff"), None]
    send(bootstrap, topic, [Sent(0, None, value) for value in others])
    with pytest.raises(PipelineError, match=rf"the record at {topic}-0 offset [123] does not fit the schema"):
        run(lake(spark, url, bootstrap, topic, tmp_path / "strict"))
    run(lake(spark, url, bootstrap, topic, tmp_path / "lake", rejects=True))
    rows = read_table(spark, str(tmp_path / "lake")).select("number", "rejected").orderBy("offset").collect()
    kept = [None if one["rejected"] is None else bytes(one["rejected"]) for one in rows]
    assert kept == [None, *others] and [one["number"] for one in rows] == [ROW["number"], None, None, None, None]


def test_protobuf(spark: Any, cluster: Any, url: str, bootstrap: str, topic: str, tmp_path: Path) -> None:
    Topics(bootstrap, (topic,)).create(1, {})
    schema_id = SchemaRegistryClient({"url": url}).register_schema(f"{topic}-value", Schema(PROTOBUF, "PROTOBUF"))
    values = [{"number": str(2**60), "seats": {"first": str(2**64 - 1)}, "delays": ["-3"]}, {"carrier": "UA"}]
    conversion = conversion_of("PROTOBUF", PROTOBUF)
    send(bootstrap, topic, [Sent(0, None, framed(schema_id, conversion.to_bytes(value))) for value in values])
    run(lake(spark, url, bootstrap, topic, tmp_path / "lake"))
    columns = ("number", "carrier", "seats", "delays")
    rows = read_table(spark, str(tmp_path / "lake")).select(*columns).orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [
        (2**60, "", {"first": Decimal(2**64 - 1)}, [-3]),
        (0, "UA", {}, []),
    ]


def test_a_registry_that_is_gone_fails_the_batch(
    spark: Any, cluster: Any, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    Topics(bootstrap, (topic,)).create(1, {})
    with registry(cluster, "schemas-for-a-while") as address:
        produce(address, bootstrap, topic, avro(*FIELDS), ROW)
        job = lake(spark, address, bootstrap, topic, tmp_path / "lake", rejects=True)
    with pytest.raises(PipelineError, match="the registry gives no answer"):
        run(job)


def test_windows_read_flights_by_their_schema(spark: Any, cluster: Any, url: str, bootstrap: str, topic: str) -> None:
    Topics(bootstrap, (topic,)).create(1, {})
    fields = [{"name": "carrier", "type": "string"}, FIELDS[3] | {"name": "event_time"}]
    produce(url, bootstrap, topic, avro(*fields), {"carrier": "UA", "event_time": AT})
    (flight,) = parse(Topics(bootstrap, (topic,)).read(spark), url).collect()
    assert (flight["carrier"], flight["event_time"]) == ("UA", AT.replace(tzinfo=None))


def test_columns_that_differ_between_topics_are_told(cluster: Any, url: str, bootstrap: str, topic: str) -> None:
    client = SchemaRegistryClient({"url": url})
    client.register_schema(f"{topic}-value", Schema(avro(*FIELDS), "AVRO"))
    client.register_schema(f"{topic}-2-value", Schema(avro(FIELDS[0]), "AVRO"))
    with pytest.raises(PipelineError, match=rf"values of {topic} and {topic}-2 have other columns"):
        registered_columns(url, [topic, f"{topic}-2"])
    with pytest.raises(PipelineError, match=f"the registry has no version latest of {topic}-3-value"):
        registered_columns(url, [f"{topic}-3"])
    client.register_schema(f"{topic}-4-value", Schema('"string"', "AVRO"))
    with pytest.raises(PipelineError, match="describes no record with fields: name them with --schema"):
        registered_columns(url, [f"{topic}-4"])
