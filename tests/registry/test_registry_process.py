"""A registry beside a real cluster: Confluent's client and serializers, restarts, two registries, hostile requests."""

from __future__ import annotations

import asyncio
import base64
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.serialization import MessageField, SerializationContext
from support.docs.documentation import blocks
from support.e2e.command import fails
from support.registry.registry_process import registry, registry_at

from raftwerk.registry import decisions
from raftwerk.registry.decisions import NewSchema
from raftwerk.registry.protobuf.schema import parse_protobuf
from raftwerk.registry.records import SchemaVersion, schema_record
from raftwerk.registry.references import Referenced
from raftwerk.registry.schemas_topic import SchemasTopic
from raftwerk.testkit.process_cluster import TestCluster, unique_topic

pytestmark = pytest.mark.process
avro = pytest.importorskip("confluent_kafka.schema_registry.avro", reason="no httpx: serializers are NOT tested")
FLIGHT = json.dumps(
    {
        "type": "record",
        "name": "Flight",
        "fields": [{"name": "carrier", "type": "string"}, {"name": "number", "type": "int"}],
    }
)


SETTINGS = {
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    with TestCluster.start(3, settings=SETTINGS) as running:
        yield running


def ask(url: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=90) as answer:
            return answer.status, _parsed(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, _parsed(error.read())


def _parsed(text: bytes) -> Any:
    """The JSON of a body, which ends its line, so that a prompt does not follow it; a schema is as it was written."""
    assert text.endswith(b"\n") or text.startswith((b'"', b'{"type"')), text
    return json.loads(text)


def test_confluents_serializers(cluster: TestCluster) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    topic = cluster.create_topic(replicas=3)
    sent = [{"carrier": "UA", "number": number} for number in range(5)]
    with registry(cluster) as url:
        client = SchemaRegistryClient({"url": url})
        serializer = avro.AvroSerializer(client, FLIGHT)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for one in sent:
            producer.produce(topic, serializer(one, SerializationContext(topic, MessageField.VALUE)))
        assert producer.flush(30) == 0
        latest = client.get_latest_version(f"{topic}-value")
        assert (latest.version, client.get_subjects()) == (1, [f"{topic}-value"])
        assert client.get_compatibility() == "BACKWARD"
    with registry(cluster) as url:  # another process has the same
        deserializer = avro.AvroDeserializer(SchemaRegistryClient({"url": url}))
        settings = {"group.id": topic, "auto.offset.reset": "earliest"}
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, **settings})
        consumer.subscribe([topic])
        read: list[Any] = []
        while len(read) < len(sent):
            found = consumer.consume(len(sent), 1.0)
            read += [deserializer(one.value(), SerializationContext(topic, MessageField.VALUE)) for one in found]
        consumer.close()
    assert read == sent


def roundtrip(cluster: TestCluster, topic: str, serialize: Any, deserialize: Any, sent: list[Any]) -> list[Any]:
    """What is read of values that were sent to a topic, through these serializers."""
    context = SerializationContext(topic, MessageField.VALUE)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for one in sent:
        producer.produce(topic, serialize(one, context))
    assert producer.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    read: list[Any] = []
    while len(read) < len(sent):
        read += [deserialize(one.value(), context) for one in consumer.consume(len(sent), 1.0)]
    consumer.close()
    return read


def test_confluents_serializers_of_protobuf(cluster: TestCluster) -> None:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from google.protobuf import descriptor_pool, message_factory

    carrier = 'syntax = "proto3"; package air; message Carrier { string code = 1; }'
    flight = (
        'syntax = "proto3"; package air; import "air/carrier.proto"; import "google/protobuf/timestamp.proto";'
        "message Flight { Carrier carrier = 1; google.protobuf.Timestamp at = 2; message Seat { int32 row = 1; } }"
    )
    pool = descriptor_pool.DescriptorPool()
    for one in parse_protobuf(flight, [Referenced("air/carrier.proto", carrier)]).files:
        pool.Add(one)
    flight_class: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("air.Flight"))
    topic = cluster.create_topic(replicas=3)
    with registry(cluster, unique_topic("schemas")) as url:
        client = SchemaRegistryClient({"url": url})
        serializer = ProtobufSerializer(flight_class, client)
        sent = [flight_class(carrier={"code": f"U{number}"}, at={"seconds": number}) for number in range(5)]
        deserializer = ProtobufDeserializer(flight_class, schema_registry_client=client)
        assert roundtrip(cluster, topic, serializer, deserializer, sent) == sent
        assert client.get_subjects() == ["air/carrier.proto", f"{topic}-value"]
        latest = client.get_latest_version(f"{topic}-value").schema
        assert (latest.schema_type, [one.name for one in latest.references or ()]) == (
            "PROTOBUF",
            ["air/carrier.proto"],
        )
        assert "message Flight {\n  Carrier carrier = 1;" in str(latest.schema_str)
        found = client.lookup_schema(f"{topic}-value", Schema(flight, "PROTOBUF", latest.references))
        assert found.version == 1, "a text is found by its content"
        descriptor = ask(url, "GET", f"/schemas/ids/{found.schema_id}?format=serialized")[1]["schema"]
        assert b"Flight" in base64.b64decode(descriptor)
        wrong = Schema(flight.replace("Carrier carrier", "int32 carrier"), "PROTOBUF", latest.references)
        assert not client.test_compatibility(f"{topic}-value", wrong)


def test_confluents_serializers_of_json_schema(cluster: TestCluster) -> None:
    from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

    carrier = '{"title": "Carrier", "type": "string", "maxLength": 2}'
    flight = json.dumps(
        {
            "title": "Flight",
            "type": "object",
            "properties": {"carrier": {"$ref": "carrier.json"}, "number": {"type": "integer"}},
            "required": ["carrier"],
            "additionalProperties": False,
        }
    )
    topic = cluster.create_topic(replicas=3)
    with registry(cluster, unique_topic("schemas")) as url:
        client = SchemaRegistryClient({"url": url})
        client.register_schema("carrier", Schema(carrier, "JSON"))
        schema = Schema(flight, "JSON", [SchemaReference("carrier.json", "carrier", 1)])
        serializer = JSONSerializer(schema, client)
        deserializer = JSONDeserializer(None, schema_registry_client=client)
        sent = [{"carrier": "UA", "number": number} for number in range(5)]
        assert roundtrip(cluster, topic, serializer, deserializer, sent) == sent
        assert client.get_latest_version(f"{topic}-value").schema.schema_type == "JSON"
        for kind, fits in (("number", True), ("string", False)):
            new = Schema(flight.replace('"integer"', f'"{kind}"'), "JSON", schema.references)
            assert client.test_compatibility(f"{topic}-value", new, "latest") == fits


def test_confluents_client_in_a_context(cluster: TestCluster) -> None:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

    topic = cluster.create_topic(replicas=3)
    with registry(cluster, unique_topic("schemas")) as url:
        plain, blue = SchemaRegistryClient({"url": url}), SchemaRegistryClient({"url": f"{url}/contexts/.blue"})
        plain.register_schema(f"{topic}-value", Schema('"string"', "AVRO"))
        sent = [{"carrier": "UA", "number": number} for number in range(5)]
        serializer, deserializer = avro.AvroSerializer(blue, FLIGHT), avro.AvroDeserializer(blue)
        assert roundtrip(cluster, topic, serializer, deserializer, sent) == sent
        assert plain.get_contexts() == [".", ".blue"]
        assert blue.get_subjects() == [f":.blue:{topic}-value"]
        assert [one.get_latest_version(f"{topic}-value").schema_id for one in (plain, blue)] == [1, 1]


def test_the_recipe_for_kafka_python(cluster: TestCluster, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("kafka", reason="no kafka-python: its recipe is NOT tested")
    topic = cluster.create_topic(replicas=3)
    (recipe,) = [block.text for block in blocks("registry.md") if "KafkaProducer" in block.text]
    with registry(cluster, unique_topic("schemas")) as url:
        moved = {"http://localhost:8081": url, "localhost:9092": cluster.bootstrap_servers, '"flights"': f'"{topic}"'}
        for documented, here in moved.items():
            recipe = recipe.replace(documented, here)
        exec(compile(recipe, "registry.md", "exec"), {})
        assert capsys.readouterr().out == "UA\n"
        assert ask(url, "GET", "/subjects") == (200, [f"{topic}-value"])


def test_paths(cluster: TestCluster) -> None:
    with registry(cluster, unique_topic("schemas")) as url:
        named = "/subjects/a%2Fb%3Ac/versions"
        assert ask(url, "GET", "/subjects") == (200, [])
        assert ask(url, "POST", named, {"schema": '"string"'})[1]["id"] == 1
        assert ask(url, "GET", "/subjects") == (200, ["a/b:c"])
        whole = {"subject": "a/b:c", "version": 1, "id": 1, "schema": '"string"'}
        assert ask(url, "GET", f"{named}/latest") == (200, whole)
        assert ask(url, "GET", f"{named}/1/schema") == (200, "string")
        assert ask(url, "GET", "/schemas/ids/1") == (200, {"schema": '"string"'})
        assert ask(url, "GET", "/schemas/ids/1/versions") == (200, [{"subject": "a/b:c", "version": 1}])
        assert ask(url, "GET", "/schemas/types") == (200, ["JSON", "PROTOBUF", "AVRO"])
        assert ask(url, "GET", "/schemas?latestOnly=true") == (200, [whole])
        wrong = ask(url, "POST", "/compatibility/subjects/a%2Fb%3Ac/versions/latest?verbose=true", {"schema": '"int"'})
        assert wrong[0] == 200 and not wrong[1]["is_compatible"] and "TYPE_MISMATCH" in wrong[1]["messages"][0]
        assert ask(url, "POST", named, {"schema": '"int"'})[0] == 409
        assert ask(url, "PUT", "/config/a%2Fb%3Ac", {"compatibility": "NONE"}) == (200, {"compatibility": "NONE"})
        assert ask(url, "POST", named, {"schema": '"int"'})[1]["id"] == 2
        assert ask(url, "DELETE", f"{named}/2") == (200, 2)
        assert ask(url, "DELETE", "/subjects/a%2Fb%3Ac") == (200, [1])
        assert ask(url, "GET", "/subjects?deleted=true") == (200, ["a/b:c"])
        assert ask(url, "DELETE", "/subjects/a%2Fb%3Ac?permanent=true") == (200, [1, 2])
        assert ask(url, "GET", "/subjects?deleted=true") == (200, [])
        assert ask(url, "GET", "/mode") == (200, {"mode": "READWRITE"})


HALF_A_SURROGATE = {"name": "\ud800", "subject": "a", "version": 1}


def schema_of(length: int) -> str:
    """A schema whose text has so many characters, which are more in a record."""
    start, end = '{"type":"record","name":"A","doc":"', '","fields":[]}'
    return start + "x" * (length - len(start + end)) + end


def test_requests_that_cannot_be_served(cluster: TestCluster) -> None:
    with registry(cluster, unique_topic("schemas")) as url:
        for method, path, body, status, code in (
            ("GET", "/subjects/none/versions", None, 404, 40401),
            ("GET", "/schemas/ids/7", None, 404, 40403),
            ("GET", "/schemas/ids/x", None, 404, 404),
            ("GET", "/nothing", None, 404, 404),
            ("PUT", "/subjects", {}, 405, 405),
            ("POST", "/subjects/a/versions", b"{", 400, 400),
            ("POST", "/subjects/a/versions", b"[" * 100_000, 400, 400),
            ("POST", "/subjects/a/versions", b"\xff\x00", 400, 400),
            ("POST", "/subjects/a/versions", {"schema": 5}, 422, 42201),
            ("POST", "/subjects/a/versions", {"schema": "[" * 50_000}, 422, 42201),
            ("POST", "/subjects/a/versions", {"schema": '"int"', "schemaType": "JSON"}, 422, 42201),
            ("POST", "/subjects/a/versions", {"schema": "message A {", "schemaType": "PROTOBUF"}, 422, 42201),
            ("POST", "/subjects/a/versions", {"schema": '"int"', "schemaType": "XML"}, 422, 42201),
            ("POST", "/subjects/a/versions", {"schema": '{"type": 5}', "schemaType": "JSON"}, 422, 42201),
            ("POST", "/subjects/a/versions", {"schema": '"\\ud800"'}, 422, 42201),
            ("POST", "/subjects/a/versions", {"schema": "\ud800"}, 422, 42201),
            ("POST", "/subjects/a/versions", {"schema": "x" * ((1 << 20) + 1)}, 422, 42201),
            ("POST", "/subjects/a/versions", {"schema": '"int"', "references": [5]}, 422, 422),
            ("POST", "/subjects/a/versions", {"schema": '"int"', "references": [HALF_A_SURROGATE]}, 422, 422),
            ("POST", "/subjects/a/versions", {"schema": schema_of(1 << 20)}, 422, 42209),
            ("POST", "/subjects/a/versions", {"schema": "x" * (5 << 20)}, 413, 413),
            ("PUT", "/config", {"compatibility": ["FULL"]}, 422, 42203),
        ):
            answer = ask(url, method, path, body)
            assert (answer[0], answer[1]["error_code"]) == (status, code), (path, answer)
        assert ask(url, "GET", "/subjects") == (200, [])
        assert ask(url, "POST", "/subjects/a/versions", {"schema": '"int"'})[0] == 200, "no transaction is left open"


def test_writes_go_on_when_the_writer_is_killed(cluster: TestCluster) -> None:
    topic = unique_topic("schemas")
    with registry_at(cluster.bootstrap_servers, topic) as (first, process):
        assert ask(first, "POST", "/subjects/a/versions", {"schema": '"string"'})[1]["id"] == 1
        with registry(cluster, topic) as second:
            assert ask(second, "POST", "/subjects/a/versions", {"schema": '"bytes"'})[1]["id"] == 2
            assert ask(second, "GET", "/subjects/a/versions") == (200, [1, 2]), "the one that was asked has read it"
            assert ask(first, "GET", "/subjects/a/versions") == (200, [1, 2])
            process.kill()
            process.wait()
            deadline, told = time.monotonic() + 60, set()
            while True:
                status, answer = ask(second, "POST", "/subjects/b/versions", {"schema": '"int"'})
                if status == 200:
                    break
                told.add((status, answer["error_code"]))
                assert time.monotonic() < deadline, told
                time.sleep(0.1)
            assert (answer["id"], told) == (3, {(500, 50003)})
            with registry(cluster, topic) as third:
                assert ask(third, "PUT", "/config/b", {"compatibility": "NONE"})[0] == 200
                assert ask(third, "GET", "/subjects") == (200, ["a", "b"])


def test_a_registry_without_a_port_takes_nothing_over(cluster: TestCluster) -> None:
    topic = unique_topic("schemas")
    with registry(cluster, topic) as url:
        again = ("--port", url.rpartition(":")[2], "--topic", topic, "-b", cluster.bootstrap_servers)
        assert "cannot listen on 127.0.0.1:" in fails(1, "registry", *again)
        assert ask(url, "POST", "/subjects/a/versions", {"schema": '"string"'})[0] == 200


def test_a_registry_without_a_cluster_says_so() -> None:
    told = fails(1, "registry", "--port", "0", "-b", "127.0.0.1:1")
    assert told.startswith("Error: no broker answers: 127.0.0.1:1 refuses the connection; the address is from")


def test_a_leader_that_dies_loses_no_schema(cluster: TestCluster) -> None:
    topic = unique_topic("schemas")
    with registry(cluster, topic) as url:
        assert ask(url, "POST", "/subjects/a/versions", {"schema": '"string"'})[0] == 200
        cluster.kill(cluster.leader_of(topic))
        try:
            status, answer = ask(url, "POST", "/subjects/b/versions", {"schema": '"bytes"'})
            assert (status, answer.get("id")) == (200, 2), answer
        finally:
            cluster.heal()
    with registry(cluster, topic) as url:
        assert ask(url, "GET", "/subjects") == (200, ["a", "b"])


@pytest.mark.long
def test_a_write_waits_for_the_election_while_the_leader_of_the_topic_is_paused(cluster: TestCluster) -> None:
    topic = unique_topic("schemas")
    with registry(cluster, topic) as url:
        assert ask(url, "POST", "/subjects/a/versions", {"schema": '"string"'})[0] == 200
        leader = cluster.leader_of(topic)
        cluster.pause(leader)
        try:
            for number, schema in enumerate(("bytes", "long"), 2):
                status, answer = ask(url, "POST", f"/subjects/a{number}/versions", {"schema": f'"{schema}"'})
                assert (status, answer.get("id")) == (200, number), answer
        finally:
            cluster.heal()


@pytest.mark.long
def test_a_write_that_no_replicas_take_is_told_and_the_next_one_is_done(cluster: TestCluster) -> None:
    topic = unique_topic("schemas")
    with registry(cluster, topic) as url:
        assert ask(url, "POST", "/subjects/a/versions", {"schema": '"string"'})[0] == 200
        leader = cluster.leader_of(topic)
        others = [node for node in cluster.node_ids if node != leader]
        for node in others:
            cluster.kill(node)
        try:
            status, answer = ask(url, "POST", "/subjects/b/versions", {"schema": '"bytes"'})
            assert (status, answer["error_code"] in (50001, 50002)) == (500, True)
            cluster.kill(leader)
            began = time.monotonic()
            status, answer = ask(url, "POST", "/subjects/b/versions", {"schema": '"bytes"'})
            assert (status, answer["error_code"]) == (500, 50001)
            assert answer["message"].startswith(
                "no broker of the cluster answers, so nothing was written: raftwerk doctor"
            )
            assert time.monotonic() - began < 20, "librdkafka gives a commit 30 s"
            assert ask(url, "GET", "/subjects")[1] == ["a"]
        finally:
            cluster.heal()
        status, answer = ask(url, "POST", "/subjects/b/versions", {"schema": '"bytes"'})
        assert (status, answer["id"]) == (200, 2)
        assert ask(url, "GET", "/subjects")[1] == ["a", "b"]


def test_topics_that_would_lose_schemas_are_refused(cluster: TestCluster) -> None:
    at = ("-b", cluster.bootstrap_servers)
    deleting, many = cluster.create_topic(), cluster.create_topic(partitions=2)
    assert "cleanup.policy=delete, which would delete schemas" in fails(1, "registry", "--topic", deleting, *at)
    assert "must have one partition" in fails(1, "registry", "--topic", many, *at)


def test_brokers_that_do_not_know_a_new_topic_yet_are_waited_for(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to CreateTopics comes from the controller, and other brokers may learn of the topic a moment later."""
    name = unique_topic("schemas")
    monkeypatch.setattr(SchemasTopic, "_prepare", lambda _: None)

    async def main() -> None:
        topic = SchemasTopic({"bootstrap.servers": cluster.bootstrap_servers}, name)
        start = asyncio.ensure_future(topic.start())
        done, _ = await asyncio.wait([start], timeout=1.0)
        assert not done, "the topic is not there"
        await asyncio.to_thread(cluster.create_topic, name)
        await asyncio.wait_for(start, 20)
        await topic.stop()

    asyncio.run(main())


def write_versions(cluster: TestCluster, topic: str, *versions: SchemaVersion) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for one in versions:
        key, value = schema_record(one).encode()
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(30) == 0


async def register(topic: SchemasTopic, subject: str, schema: str) -> Any:
    return (await topic.change(lambda image: decisions.register(image, subject, NewSchema(schema))))["id"]


def test_a_topic_whose_first_records_were_deleted_is_read_from_where_it_begins(cluster: TestCluster) -> None:
    name = cluster.create_topic(partitions=1)
    write_versions(cluster, name, SchemaVersion("a", 1, 1, '"string"'), SchemaVersion("b", 1, 2, '"int"'))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.delete_records([TopicPartition(name, 0, 1)])[TopicPartition(name, 0)].result(30)
    compact = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[compact])
    admin.incremental_alter_configs([resource])[resource].result(30)

    async def main() -> None:
        topic = SchemasTopic({"bootstrap.servers": cluster.bootstrap_servers}, name)
        await topic.start()
        try:
            assert list(topic.image.subjects) == ["b"]
            assert await register(topic, "c", '"long"') == 3
        finally:
            await topic.stop()

    asyncio.run(main())


def test_a_topic_that_is_made_anew_is_read_anew(cluster: TestCluster) -> None:
    """The offset that would be read next is not in the new log: what the old one had is forgotten as a whole."""
    name = unique_topic("schemas")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})

    async def main() -> None:
        topic = SchemasTopic({"bootstrap.servers": cluster.bootstrap_servers}, name)
        await topic.start()
        try:
            assert [await register(topic, f"a{kind}", f'"{kind}"') for kind in ("string", "int", "long")] == [1, 2, 3]
            await asyncio.to_thread(admin.delete_topics([name])[name].result, 30)
            await asyncio.to_thread(cluster.create_topic, name, config={"cleanup.policy": "compact"})
            await asyncio.to_thread(write_versions, cluster, name, SchemaVersion("b", 1, 7, '"bytes"'))
            async with asyncio.timeout(30), topic._moved:
                await topic._moved.wait_for(lambda: list(topic.image.subjects) == ["b"])
            assert await register(topic, "c", '"float"') == 8
        finally:
            await topic.stop()

    asyncio.run(main())
