"""Records with schemas in both versions, beside a registry and the serializers of confluent-kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import pytest
from support.registry.registry_process import registry as registry_of
from support.rest.instances import instance, read
from support.rest.proxy import BINARY_V2, Proxy, in_base64
from support.rest.proxy import proxy as proxy_of
from support.rest.records import consume, produce

from raftwerk.testkit.process_cluster import TestCluster, unique_topic

pytestmark = pytest.mark.process

FLIGHT = json.dumps(
    {
        "type": "record",
        "name": "Flight",
        "namespace": "air",
        "fields": [{"name": "carrier", "type": "string"}, {"name": "miles", "type": ["null", "long"]}],
    }
)
FLIGHT_JSON = json.dumps({"title": "Flight", "type": "object", "required": ["carrier"]})
FLIGHT_PROTO = 'syntax = "proto3"; package air; message Flight { string carrier = 1; int32 miles = 2; }'
UA = {"carrier": "UA", "miles": {"long": 5}}
CASES = [
    pytest.param("avro", FLIGHT, UA, UA, id="avro"),
    pytest.param("jsonschema", FLIGHT_JSON, {"carrier": "UA"}, {"carrier": "UA"}, id="jsonschema"),
    pytest.param("protobuf", FLIGHT_PROTO, {"carrier": "UA"}, {"carrier": "UA", "miles": 0}, id="protobuf"),
]
AVRO_V2 = "application/vnd.kafka.avro.v2+json"


@pytest.fixture(scope="module")
def registry(cluster: TestCluster) -> Iterator[str]:
    pytest.importorskip("fastavro", reason="no fastavro: records with schemas are NOT tested")
    with registry_of(cluster) as url:
        yield url


@pytest.fixture(scope="module")
def schema_proxy(cluster: TestCluster, registry: str) -> Iterator[Proxy]:
    with proxy_of(cluster, "--registry", registry) as running:
        yield running


def registered(registry: str, subject: str, schema: str, schema_type: str = "AVRO") -> int:
    """The id of a schema that is registered beside the proxy."""
    body = json.dumps({"schema": schema, "schemaType": schema_type}).encode()
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    with urlopen(Request(f"{registry}/subjects/{subject}/versions", body, headers), timeout=60) as answer:
        return int(json.load(answer)["id"])


@pytest.mark.parametrize(("kind", "schema", "sent", "shown"), CASES)
def test_version_2_produces_and_reads(
    schema_proxy: Proxy, cluster: TestCluster, kind: str, schema: str, sent: Any, shown: Any
) -> None:
    topic, content_type = cluster.create_topic(), f"application/vnd.kafka.{kind}.v2+json"
    body = {"value_schema": schema, "records": [{"value": sent}, {"value": None}]}
    status, answer = schema_proxy.v2("POST", f"/topics/{topic}", body, sent=content_type)
    assert (status, answer["key_schema_id"]) == (200, None), answer
    schema_id = answer["value_schema_id"]
    by_id = {"value_schema_id": schema_id, "key_schema_id": schema_id, "records": [{"key": sent, "value": sent}]}
    status, answer = schema_proxy.v2("POST", f"/topics/{topic}/partitions/0", by_id, sent=content_type)
    assert (status, answer["key_schema_id"], answer["offsets"][0]["offset"]) == (200, schema_id, 2), answer
    assert (consume(cluster, topic, 1)[0].value() or b"")[:5] == b"\x00" + schema_id.to_bytes(4, "big")
    path = instance(schema_proxy, unique_topic(), format=kind)
    schema_proxy.v2("POST", f"{path}/subscription", {"topics": [topic]})
    rows = read(schema_proxy, path, 3, accept=content_type)
    assert [(one["key"], one["value"]) for one in rows] == [(None, shown), (None, None), (shown, shown)]
    assert schema_proxy.v2("GET", f"{path}/records", accept=BINARY_V2)[1]["error_code"] == 40601


def test_serializers_of_confluent_kafka_and_the_proxy_read_each_other(
    schema_proxy: Proxy, cluster: TestCluster, registry: str
) -> None:
    avro = pytest.importorskip("confluent_kafka.schema_registry.avro")
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.serialization import MessageField, SerializationContext

    topic, client = cluster.create_topic(), SchemaRegistryClient({"url": registry})
    context = SerializationContext(topic, MessageField.VALUE)
    data = avro.AvroSerializer(client, FLIGHT)({"carrier": "AA", "miles": 7}, context)
    produce(cluster, topic, [data])
    body = {"value_schema": FLIGHT, "records": [{"value": UA}]}
    assert schema_proxy.v2("POST", f"/topics/{topic}", body, sent=AVRO_V2)[0] == 200
    theirs = [avro.AvroDeserializer(client)(one.value(), context) for one in consume(cluster, topic, 2)]
    assert theirs == [{"carrier": "AA", "miles": 7}, {"carrier": "UA", "miles": 5}]
    path = instance(schema_proxy, unique_topic(), format="avro")
    schema_proxy.v2("POST", f"{path}/subscription", {"topics": [topic]})
    rows = read(schema_proxy, path, 2, accept=AVRO_V2)
    assert [one["value"] for one in rows] == [{"carrier": "AA", "miles": {"long": 7}}, UA]


def test_version_2_says_what_is_wrong(schema_proxy: Proxy, cluster: TestCluster, registry: str) -> None:
    topic = cluster.create_topic()
    of_json = registered(registry, f"{topic}-other", FLIGHT_JSON, "JSON")
    for fields, code in (
        ({"value_schema": FLIGHT, "records": [{"key": UA, "value": UA}]}, 42201),
        ({"key_schema": FLIGHT, "records": [{"key": UA, "value": UA}]}, 42202),
        ({"value_schema": FLIGHT, "records": [{"value": {"carrier": 5}}]}, 42203),
        ({"value_schema": "{", "records": [{"value": UA}]}, 42205),
        ({"value_schema_id": of_json, "records": [{"value": UA}]}, 42205),
        ({"value_schema_id": 999_999, "records": [{"value": UA}]}, 40801),
        ({"value_schema_id": 1, "value_schema": FLIGHT, "records": [{"value": UA}]}, 422),
        ({"value_schema_id": 2**31, "records": [{"value": UA}]}, 422),
    ):
        status, answer = schema_proxy.v2("POST", f"/topics/{topic}", fields, sent=AVRO_V2)
        assert (answer["error_code"], status) == (code, int(str(code)[:3])), answer
    body = {"value_schema": '"long"', "records": [{"value": 5}]}  # not compatible with what is registered
    status, answer = schema_proxy.v2("POST", f"/topics/{topic}", body, sent=AVRO_V2)
    assert answer["error_code"] == 40801 and "409" in answer["message"]


def test_records_without_a_known_schema_are_told_and_stay(schema_proxy: Proxy, cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    path = instance(schema_proxy, unique_topic(), format="avro")
    schema_proxy.v2("POST", f"{path}/assignments", {"partitions": [{"topic": topic, "partition": 0}]})
    for data, code, told in (
        (b"plain", 50002, "does not begin with the id of a schema"),
        (b"\x00\x00\x0f\xff\xff", 40801, "the registry has no schema 1048575"),
    ):
        produce(cluster, topic, [data])
        status = 200
        while status == 200:  # until the record is there
            status, answer = schema_proxy.v2("GET", f"{path}/records?timeout=2000", accept=AVRO_V2)
        assert (answer["error_code"], told in answer["message"]) == (code, True), answer
        place = {"topic": topic, "partition": 0, "offset": 1}
        assert schema_proxy.v2("POST", f"{path}/positions", {"offsets": [place]})[0] == 204


def test_without_a_registry_formats_with_schemas_are_refused(proxy: Proxy, cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    body = {"value_schema": FLIGHT, "records": [{"value": UA}]}
    status, answer = proxy.v2("POST", f"/topics/{topic}", body, sent=AVRO_V2)
    assert (status, "--registry" in answer["message"]) == (415, True)
    status, answer = proxy.v2("POST", "/consumers/g", {"format": "avro"})
    assert (answer["error_code"], "--registry" in answer["message"]) == (42204, True)
    record = {"value": {"schema_id": 1, "data": UA}}
    status, answer = proxy.v3("POST", f"/topics/{topic}/records", record)
    assert (answer["error_code"], "--registry" in answer["message"]) == (42206, True)


@pytest.mark.parametrize(("kind", "schema", "sent", "shown"), CASES)
def test_version_3_produces_by_each_choice_of_a_schema(
    schema_proxy: Proxy, cluster: TestCluster, kind: str, schema: str, sent: Any, shown: Any
) -> None:
    topic = cluster.create_topic()
    path, of_type = f"/topics/{topic}/records", kind.upper()
    status, answer = schema_proxy.v3("POST", path, {"value": {"type": of_type, "schema": schema, "data": sent}})
    assert status == 200, answer
    value, subject = answer["value"], f"{topic}-value"
    schema_id = value["schema_id"]
    expected = {"type": of_type, "subject": subject, "schema_id": schema_id, "schema_version": 1}
    assert {name: value[name] for name in expected} == expected
    for chosen in ({"schema_id": schema_id}, {"schema_version": 1}, {}, {"subject": subject}):
        status, answer = schema_proxy.v3("POST", path, {"value": {**chosen, "data": sent}})
        assert (status, answer["value"]) == (200, value), answer
    by_type = {"type": of_type, "schema": schema, "subject_name_strategy": "TOPIC_RECORD_NAME", "data": sent}
    answer = schema_proxy.v3("POST", path, {"key": by_type})[1]
    name = "Flight" if kind == "jsonschema" else "air.Flight"
    assert answer["key"]["subject"] == f"{topic}-{name}"
    records = consume(cluster, topic, 6)
    assert len({one.value() for one in records[:5]}) == 1 and records[5].key() == records[0].value()
    latest = schema_proxy.v3("POST", path, {"value": {"data": None}})[1]
    assert (latest["error_code"], latest["value"]["size"]) == (200, 0)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({"type": "AVRO", "data": UA}, 400),
        ({"schema": FLIGHT, "data": UA}, 400),
        ({"type": "AVRO", "schema": FLIGHT, "schema_id": 1, "data": UA}, 400),
        ({"schema_id": 1, "schema_version": 1, "data": UA}, 400),
        ({"subject": "s", "subject_name_strategy": "TOPIC_NAME", "data": UA}, 400),
        ({"subject_name_strategy": "RECORD_NAME", "data": UA}, 400),
        ({"subject_name_strategy": "NONE", "data": UA}, 400),
        ({"type": "JSON", "schema_id": 1, "data": UA}, 400),
        ({"type": "AVRO", "schema": FLIGHT, "data": {"carrier": "UA"}}, 400),
        ({"type": "AVRO", "schema": "{", "data": UA}, 42205),
        ({"type": "THRIFT", "schema": FLIGHT, "data": UA}, 42206),
        ({"schema_id": 999_999, "data": UA}, 42207),
        ({"subject": "nothing-of-this-name", "data": UA}, 42207),
        ({"schema_version": 99, "data": UA}, 42207),
    ],
)
def test_version_3_says_what_is_wrong(
    schema_proxy: Proxy, cluster: TestCluster, value: dict[str, Any], code: int
) -> None:
    topic = cluster.create_topic()
    status, answer = schema_proxy.v3("POST", f"/topics/{topic}/records", {"value": value})
    assert (answer["error_code"], status) == (code, int(str(code)[:3])), answer


def test_a_registry_that_does_not_answer(cluster: TestCluster) -> None:
    topic = cluster.create_topic()
    with proxy_of(cluster, "--registry", "http://127.0.0.1:1") as running:
        answer = running.v3("POST", f"/topics/{topic}/records", {"value": {"schema_id": 1, "data": 1}})[1]
        assert (answer["error_code"], "gives no answer" in answer["message"]) == (42207, True)
        body = {"value_schema_id": 1, "records": [{"value": UA}]}
        assert running.v2("POST", f"/topics/{topic}", body, sent=AVRO_V2)[1]["error_code"] == 40801
        plain = {"records": [{"value": in_base64(b"a")}]}
        assert running.v2("POST", f"/topics/{topic}", plain, sent=BINARY_V2)[0] == 200
