"""What users may do: one node beside Apache Kafka, and a cluster of three with its clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from support.e2e.clusters import start_cluster
from support.e2e.java_tools import JavaTools
from support.security.authorization_answers import PLAIN, SETTINGS, record
from support.security.kafka_authorization import CALLS, TRANSCRIPT

from raftwerk.cluster.local.supervisor import Supervisor

USERS = ("admin", "node", "writer", "reader", "other")


def test_every_api_answers_users_as_kafka_does(tmp_path: Path) -> None:
    supervisor = start_cluster(tmp_path, 1, overrides=SETTINGS)
    try:
        port = int(supervisor.plan.bootstrap.rpartition(":")[2])
        answers = asyncio.run(record(port, CALLS))
    finally:
        supervisor.stop()
    assert answers.splitlines() == TRANSCRIPT.read_text().splitlines()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Supervisor]:
    """Three nodes that log in to each other as `node`."""
    login = f'{PLAIN} username="node" password="pw"'
    users = " ".join(f'user_{name}="pw"' for name in USERS)
    supervisor = start_cluster(
        tmp_path / "cluster",
        3,
        overrides={
            "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.plaintext.plain.sasl.jaas.config": f"{login} {users};",
            "listener.name.controller.plain.sasl.jaas.config": f'{login} user_node="pw";',
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin;User:node",
        },
    )
    yield supervisor
    supervisor.stop()


def _login(cluster: Supervisor, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.plan.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": "pw",
        "log_level": 0,
    }


def _produce(cluster: Supervisor, user: str, topic: str, count: int = 10) -> KafkaError | None:
    """The error of the records, or None when all are acknowledged."""
    errors: list[KafkaError | None] = []
    producer = Producer(_login(cluster, user) | {"acks": "all", "message.timeout.ms": 30_000})
    for number in range(count):
        producer.produce(topic, str(number).encode(), on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(40) == 0
    assert len(errors) == count
    return next((error for error in errors if error is not None), None)


def _consume(cluster: Supervisor, user: str, topic: str, group: str, count: int) -> int | KafkaError:
    """How many records a member of the group gets, at least `count`, or what it is told."""
    consumer = Consumer(_login(cluster, user) | {"group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen, deadline = 0, time.monotonic() + 60
    try:
        while seen < count:
            assert time.monotonic() < deadline, f"{seen} records of {count}"
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                seen += 1
            elif error.name().endswith("AUTHORIZATION_FAILED"):
                return error
        return seen
    finally:
        consumer.close()


def _topics(cluster: Supervisor, user: str) -> set[str]:
    return {name for name in AdminClient(_login(cluster, user)).list_topics(timeout=20).topics if name[:2] != "__"}


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, "not in time"


def _tool_settings(directory: Path) -> str:
    path = directory / "admin.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN} username="admin" password="pw";\n'
    )
    return str(path)


def test_a_cluster_with_access_control_lists(cluster: Supervisor, java_tools: JavaTools, tmp_path: Path) -> None:
    admin = AdminClient(_login(cluster, "admin"))
    for topic in ("orders", "secret"):
        admin.create_topics([NewTopic(topic, 3, 3)])[topic].result(20)
    assert _topics(cluster, "admin") == {"orders", "secret"}
    assert _topics(cluster, "writer") == set()
    refused = _produce(cluster, "writer", "orders", 1)
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    of_writer = AdminClient(_login(cluster, "writer"))
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        of_writer.create_topics([NewTopic("own", 1, 1)])["own"].result(20)

    # Kafka's tool gives the writer its right, an admin client the reader's.
    acls = ["--bootstrap-server", cluster.plan.bootstrap, "--command-config", _tool_settings(tmp_path)]
    tool = "org.apache.kafka.tools.AclCommand"
    java_tools.run(tool, *acls, "--add", "--allow-principal", "User:writer", "--producer", "--topic", "orders")
    created = admin.create_acls(
        [
            AclBinding(kind, name, pattern, "User:reader", "*", AclOperation.READ, AclPermissionType.ALLOW)
            for kind, name, pattern in (
                (ResourceType.TOPIC, "ord", ResourcePatternType.PREFIXED),
                (ResourceType.GROUP, "readers", ResourcePatternType.LITERAL),
            )
        ]
    )
    for future in created.values():
        future.result(20)
    assert "User:writer" in java_tools.run(tool, *acls, "--list", "--topic", "orders")
    _wait_until(lambda: _topics(cluster, "writer") == _topics(cluster, "reader") == {"orders"})
    assert _produce(cluster, "writer", "orders") is None
    assert _produce(cluster, "reader", "orders", 1) is not None
    assert _consume(cluster, "reader", "orders", "readers", 10) == 10
    told = _consume(cluster, "reader", "orders", "strangers", 1)
    assert isinstance(told, KafkaError)
    assert told.code() == KafkaError.GROUP_AUTHORIZATION_FAILED

    # The lists outlive nodes, and the nodes replicate with the rights of super users.
    cluster.kill(1)
    cluster.restart_node(2)
    cluster.start_node(1)
    cluster.wait_ready()
    assert _produce(cluster, "writer", "orders") is None
    refused = _produce(cluster, "writer", "secret", 1)
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert _consume(cluster, "reader", "orders", "readers", 10) == 10

    # A right that is taken away does not hold any more.
    remove = ("--remove", "--force", "--allow-principal", "User:reader")
    pattern = ("--topic", "ord", "--resource-pattern-type", "prefixed")
    java_tools.run(tool, *acls, *remove, "--operation", "Read", *pattern)
    _wait_until(lambda: _topics(cluster, "reader") == set())
    assert _topics(cluster, "other") == set()
