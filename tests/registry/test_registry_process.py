"""A registry beside a real cluster: Confluent's client and serializers, restarts, two registries, hostile requests."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.serialization import MessageField, SerializationContext
from support.e2e.command import fails

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
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    with TestCluster.start(3, settings=SETTINGS) as running:
        yield running


@contextmanager
def registry(cluster: TestCluster, topic: str = "_schemas") -> Iterator[str]:
    """A registry's process; gives its URL."""
    command = [sys.executable, "-m", "raftwerk", "registry", "--port", "0", "--topic", topic]
    command += ["-b", cluster.bootstrap_servers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            line = process.stdout.readline()  # the test's limit of time ends it if nothing comes
            assert line.startswith("schema registry at http://127.0.0.1:"), process.stderr.read()
            yield line.split()[3].rstrip(",")
        finally:
            process.terminate()
            _, told = process.communicate(timeout=30)
            assert "Traceback" not in told
            assert process.returncode == 0, told


def ask(url: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=90) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


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
        assert ask(url, "GET", "/schemas/types") == (200, ["AVRO"])
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
            ("POST", "/subjects/a/versions", {"schema": '"int"', "references": [5]}, 422, 422),
            ("POST", "/subjects/a/versions", {"schema": "x" * (5 << 20)}, 413, 413),
            ("PUT", "/config", {"compatibility": ["FULL"]}, 422, 42203),
        ):
            answer = ask(url, method, path, body)
            assert (answer[0], answer[1]["error_code"]) == (status, code), (path, answer)
        assert ask(url, "GET", "/subjects") == (200, [])


def test_the_registry_that_was_started_last_writes(cluster: TestCluster) -> None:
    topic = unique_topic("schemas")
    with registry(cluster, topic) as first:
        assert ask(first, "POST", "/subjects/a/versions", {"schema": '"string"'})[0] == 200
        with registry(cluster, topic) as second:
            status, answer = ask(first, "POST", "/subjects/a/versions", {"schema": '"bytes"'})
            assert (status, answer["error_code"]) == (500, 50004) and "has taken over the writing" in answer["message"]
            assert ask(second, "POST", "/subjects/a/versions", {"schema": '"bytes"'})[1]["id"] == 2
            deadline = time.monotonic() + 30
            while ask(first, "GET", "/subjects/a/versions")[1] != [1, 2]:
                assert time.monotonic() < deadline
                time.sleep(0.02)


def test_a_registry_without_a_port_takes_nothing_over(cluster: TestCluster) -> None:
    topic = unique_topic("schemas")
    with registry(cluster, topic) as url:
        again = ("--port", url.rpartition(":")[2], "--topic", topic, "-b", cluster.bootstrap_servers)
        assert "cannot listen on 127.0.0.1:" in fails(1, "registry", *again)
        assert ask(url, "POST", "/subjects/a/versions", {"schema": '"string"'})[0] == 200


def test_a_leader_that_dies_loses_no_schema(cluster: TestCluster) -> None:
    topic = unique_topic("schemas")
    with registry(cluster, topic) as url:
        assert ask(url, "POST", "/subjects/a/versions", {"schema": '"string"'})[0] == 200
        cluster.kill(cluster.leader_of(topic))
        try:
            assert ask(url, "POST", "/subjects/b/versions", {"schema": '"bytes"'})[1]["id"] == 2
        finally:
            cluster.heal()
    with registry(cluster, topic) as url:
        assert ask(url, "GET", "/subjects") == (200, ["a", "b"])


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
