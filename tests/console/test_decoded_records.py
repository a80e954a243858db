"""Records of Confluent's serializers, decoded by the console with the schemas of a registry beside the cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.serialization import MessageField, SerializationContext
from support.console.console_process import ask, console
from support.registry.registry_process import registry

from raftwerk.registry.protobuf.schema import parse_protobuf
from raftwerk.testkit.process_cluster import TestCluster

pytestmark = pytest.mark.process
avro = pytest.importorskip("confluent_kafka.schema_registry.avro", reason="no httpx: serializers are NOT tested")
FLIGHT = {"type": "record", "name": "Flight", "fields": [{"name": "carrier", "type": "string"}]}
PROTO = 'syntax = "proto3"; message Other {} message Flight { string carrier = 1; int32 number = 2; }'


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    with TestCluster.start(3, settings={"min.insync.replicas": "2"}) as running:
        yield running


@pytest.fixture(scope="module")
def schemas(cluster: TestCluster) -> Iterator[str]:
    with registry(cluster) as url:
        yield url


def produce(cluster: TestCluster, serializer: Callable[..., Any], value: Any) -> str:
    topic = cluster.create_topic(partitions=1, replicas=3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(topic, serializer(value, SerializationContext(topic, MessageField.VALUE)))
    assert producer.flush(30) == 0
    return topic


def test_values_of_all_types_of_schemas_are_read(cluster: TestCluster, schemas: str) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from google.protobuf import descriptor_pool, message_factory

    client = SchemaRegistryClient({"url": schemas})
    pool = descriptor_pool.DescriptorPool()
    for file in parse_protobuf(PROTO).files:
        pool.AddSerializedFile(file.SerializeToString())
    flight_class: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("Flight"))
    title = {"title": "Flight", "type": "object"}
    wanted = {
        produce(cluster, avro.AvroSerializer(client, json.dumps(FLIGHT)), {"carrier": "UA"}): (
            "AVRO",
            {"carrier": "UA"},
        ),
        produce(cluster, JSONSerializer(json.dumps(title), client), {"n": [1]}): ("JSON", {"n": [1]}),
        produce(cluster, ProtobufSerializer(flight_class, client), flight_class(carrier="UA", number=7)): (
            "PROTOBUF",
            {"carrier": "UA", "number": 7},
        ),
    }
    with console(cluster, "--registry", schemas) as url:
        for topic, (kind, value) in wanted.items():
            status, found = ask(url, f"/api/topics/{topic}/records?from=earliest")
            assert status == 200
            (record,) = found["records"]
            assert json.loads(record["value"]["text"]) == value
            assert record["value"]["how"].startswith(f"{kind}, schema ")
    with console(cluster, "--registry", "http://127.0.0.1:1") as url:
        _, found = ask(url, f"/api/topics/{next(iter(wanted))}/records?from=earliest")
        assert "the registry gives no answer" in found["records"][0]["value"]["note"]


def test_a_registry_that_is_no_url_is_refused(cluster: TestCluster) -> None:
    command = [sys.executable, "-m", "raftwerk", "console", "-b", cluster.bootstrap_servers, "--port", "0"]
    done = subprocess.run([*command, "--registry", "here"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2 and "--registry" in done.stderr and "http" in done.stderr
