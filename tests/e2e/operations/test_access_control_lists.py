"""Three nodes that log in to each other, with access control lists: who may, who may not, and through a kill."""

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
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from support.e2e.clusters import start_cluster
from support.e2e.command import fails, ok
from support.e2e.java_tools import JavaTools

from raftwerk.cluster.local.supervisor import Supervisor
from raftwerk.security.client_login import ClientLogin
from raftwerk.security.principal_serde import serialize
from raftwerk.security.principals import KafkaPrincipal
from raftwerk.security.sasl.plain import PlainClient
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.client import connect
from raftwerk.wire.codec import encode_request
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.frames import RequestHeader
from raftwerk.wire.frames import encode_request as encode_frame

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = " ".join(f'user_{name}="{name}"' for name in ("node", "admin", "alice", "bob", "dora", "mallory"))
NODE = f'{PLAIN} username="node" password="node" {USERS};'
TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    overrides = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": NODE,
        "listener.name.controller.plain.sasl.jaas.config": NODE,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:node;User:admin",
    }
    supervisor = start_cluster(tmp_path_factory.mktemp("cluster"), 3, overrides=overrides)
    yield supervisor
    supervisor.stop()


def settings(cluster: Supervisor, user: str) -> dict[str, Any]:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": user}
    return {"bootstrap.servers": cluster.plan.bootstrap, "security.protocol": "SASL_PLAINTEXT", **login}


def allow(cluster: Supervisor, user: str, kind: ResourceType, name: str, *operations: AclOperation) -> None:
    permit(cluster, AclPermissionType.ALLOW, user, kind, name, *operations)


def permit(
    cluster: Supervisor,
    permission: AclPermissionType,
    user: str,
    kind: ResourceType,
    name: str,
    *operations: AclOperation,
) -> None:
    admin = AdminClient(settings(cluster, "admin"))
    wanted = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", one, permission) for one in operations
    ]
    for done in admin.create_acls(wanted, request_timeout=20).values():
        done.result(20)


def produced(cluster: Supervisor, user: str, topic: str, value: bytes) -> KafkaError | None:
    """What came of one record."""
    outcome: list[KafkaError | None] = []
    producer = Producer(settings(cluster, user) | {"acks": "all", "enable.idempotence": False})
    producer.produce(topic, value, on_delivery=lambda error, message: outcome.append(error))
    assert producer.flush(20) == 0
    return outcome[0]


def read(cluster: Supervisor, user: str, topic: str, group: str) -> bytes | int:
    """The first record of the topic, or the error code."""
    consumer = Consumer(settings(cluster, user) | {"group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            message = consumer.poll(0.2)
            error = message.error() if message is not None else None
            if error is not None:
                return int(error.code())
            if message is not None:
                return message.value() or b""
        raise AssertionError("neither a record nor an error")
    finally:
        consumer.close()


def until(holds: Callable[[], bool]) -> None:
    """Other brokers hear of a change a moment later."""
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def may_write(cluster: Supervisor, user: str, topic: str) -> bool:
    error = produced(cluster, user, topic, b"hello")
    assert error is None or error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    return error is None


def test_producers_and_consumers_may_what_the_lists_allow_and_no_more(cluster: Supervisor) -> None:
    admin = AdminClient(settings(cluster, "admin"))
    admin.create_topics([NewTopic("flights", 3, 3)])["flights"].result(20)
    for user in ("alice", "bob"):
        client = AdminClient(settings(cluster, user))
        with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
            client.delete_topics(["flights"])["flights"].result(20)
    assert not may_write(cluster, "alice", "flights")
    allow(cluster, "alice", ResourceType.TOPIC, "flights", AclOperation.WRITE)
    until(lambda: may_write(cluster, "alice", "flights"))
    assert not may_write(cluster, "bob", "flights")
    assert read(cluster, "bob", "flights", "readers") in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    )
    allow(cluster, "bob", ResourceType.TOPIC, "flights", AclOperation.READ)
    allow(cluster, "bob", ResourceType.GROUP, "readers", AclOperation.READ)
    until(lambda: read(cluster, "bob", "flights", "readers") == b"hello")
    permit(cluster, AclPermissionType.DENY, "*", ResourceType.TOPIC, "flights", AclOperation.WRITE)
    until(lambda: not may_write(cluster, "alice", "flights"))
    one = AclBindingFilter(
        *(ResourceType.TOPIC, "flights", ResourcePatternType.LITERAL, "User:*", "*"),
        *(AclOperation.WRITE, AclPermissionType.DENY),
    )
    (removed,) = admin.delete_acls([one]).values()
    assert len(removed.result(20)) == 1
    until(lambda: may_write(cluster, "alice", "flights"))
    assert not may_write(cluster, "bob", "flights")


def at_cluster(cluster: Supervisor, directory: Path, *arguments: str, user: str) -> str:
    """What a command prints that logs in as this user."""
    return ok(*arguments, *_login_options(cluster, directory, user))


def refused(cluster: Supervisor, directory: Path, *arguments: str, user: str) -> str:
    """What a command says that fails as this user."""
    return fails(1, *arguments, *_login_options(cluster, directory, user))


def _login_options(cluster: Supervisor, directory: Path, user: str) -> tuple[str, ...]:
    return ("-b", cluster.plan.bootstrap, "--command-config", str(_as(directory, user)))


def test_our_commands_read_as_a_group_with_the_rights_that_the_page_names(cluster: Supervisor, tmp_path: Path) -> None:
    at_cluster(cluster, tmp_path, "topics", "create", "letters", user="admin")
    assert produced(cluster, "admin", "letters", b"hello") is None
    rights = ("dora", "consume", "--topic", "letters", "--group", "postmen")
    at_cluster(cluster, tmp_path, "acls", "allow", *rights, user="admin")
    told = at_cluster(cluster, tmp_path, "consume", "letters", "-n", "1", "--group", "postmen", user="dora")
    assert "hello" in told


def test_who_may_create_a_topic_need_not_be_allowed_to_describe_it(cluster: Supervisor, tmp_path: Path) -> None:
    """Where its leaders cannot be seen, they are not waited for."""
    at_cluster(cluster, tmp_path, "acls", "allow", "dora", "create", "--topic", "secret", user="admin")
    assert "secret" in at_cluster(cluster, tmp_path, "topics", "create", "secret", "-p", "2", user="dora")
    assert "secret" in at_cluster(cluster, tmp_path, "topics", "list", user="admin")


def test_refusals_of_our_commands_name_the_missing_right(cluster: Supervisor, tmp_path: Path) -> None:
    """The right that the command needs, not only the first that a broker asked for: Read and not Describe."""
    at_cluster(cluster, tmp_path, "topics", "create", "closed", user="admin")
    for arguments, right in (
        (("consume", "closed", "-n", "1"), "Read on topic closed"),
        (("topics", "create", "another"), "Create on topic another"),
        (("topics", "delete", "closed"), "Delete on topic closed"),
        (("topics", "offsets", "closed"), "Describe on topic closed"),
        (("groups", "describe", "watchers"), "Describe on group watchers"),
        (("acls", "list"), "Describe on the cluster"),
    ):
        told = refused(cluster, tmp_path, *arguments, user="mallory")
        assert f"; the right {right} is missing, which an administrator gives by raftwerk acls allow " in told
    assert "the right Describe on the cluster is missing" in at_cluster(cluster, tmp_path, "doctor", user="mallory")


def test_lists_hold_through_a_kill_and_a_restart(cluster: Supervisor) -> None:
    admin = AdminClient(settings(cluster, "admin"))
    admin.create_topics([NewTopic("killed", 3, 3)])["killed"].result(20)
    allow(cluster, "alice", ResourceType.TOPIC, "killed", AclOperation.WRITE)
    until(lambda: may_write(cluster, "alice", "killed"))
    for victim in (1, 2, 3):
        cluster.kill(victim)
        until(lambda: may_write(cluster, "alice", "killed"))
        assert not may_write(cluster, "mallory", "killed")
        cluster.restart_node(victim)
    assert may_write(cluster, "alice", "killed")
    assert not may_write(cluster, "mallory", "killed")


def test_who_is_no_node_may_not_speak_for_others_at_a_controller(cluster: Supervisor) -> None:
    fields = {"topics": [{"name": "forged", "num_partitions": 1, "replication_factor": 1}], "timeout": 5_000}
    header = RequestHeader(ApiKey.CREATE_TOPICS, 7, 1, "forger")
    inner = b"".join(encode_frame(header, encode_request(ApiKey.CREATE_TOPICS, 7, fields)))[4:]
    envelope = {
        "request_data": inner,
        "request_principal": serialize(KafkaPrincipal("User", "admin")),
        "client_host_address": bytes([127, 0, 0, 1]),
    }
    fetched = {"max_wait": 1, "max_bytes": 1000, "topics": []}

    async def ask(user: str) -> list[tuple[int, int]]:
        codes = []
        for plan in cluster.plan.nodes:
            host, _, port = (plan.controller_address or "").rpartition(":")
            login = ClientLogin(new_exchange=lambda _: PlainClient(user, user))
            connection = await connect(host, int(port), login=login)
            forged = await connection.request(ApiKey.ENVELOPE, 0, envelope, timeout_s=20)
            fetch = await connection.request(ApiKey.FETCH, 17, fetched, timeout_s=20)
            codes.append((forged.error_code, fetch.error_code))
            connection.close()
        return codes

    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert asyncio.run(ask("mallory")) == [(denied, denied)] * 3
    admin = AdminClient(settings(cluster, "admin"))
    assert "forged" not in admin.list_topics(timeout=20).topics
    assert sorted(code for code, _ in asyncio.run(ask("node"))) == [
        0,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_CONTROLLER,
    ]


@pytest.mark.java
@pytest.mark.parametrize("asked", ["brokers", "controllers"])
def test_kafka_acls(cluster: Supervisor, java_tools: JavaTools, tmp_path: Path, asked: str) -> None:
    controllers = ",".join(one.controller_address or "" for one in cluster.plan.nodes)
    brokers = ("--bootstrap-server", cluster.plan.bootstrap)
    at = brokers if asked == "brokers" else ("--bootstrap-controller", controllers)
    login = ("--command-config", str(_as(tmp_path, "admin")))

    def acls(*arguments: str) -> str:
        return java_tools.run("AclCommand", *at, *login, *arguments)

    def listed(*arguments: str) -> set[str]:
        return {line.strip() for line in acls("--list", *arguments).splitlines() if "permissionType" in line}

    who = ("--allow-principal", "User:carol")
    acls("--add", *who, "--producer", "--topic", "orders", "--transactional-id", "tx")
    acls("--add", *who, "--consumer", "--topic", "or", "--group", "g", "--resource-pattern-type", "prefixed")
    acls("--add", "--deny-principal", "User:*", "--deny-host", "192.0.2.7", "--operation", "All", "--cluster")
    until(lambda: "CREATE" in acls("--list", "--topic", "orders") and bool(listed("--cluster")))
    told = acls("--list", "--topic", "orders", "--resource-pattern-type", "match")
    assert "resourceType=TOPIC, name=or, patternType=PREFIXED" in told
    assert "(principal=User:carol, host=*, operation=CREATE, permissionType=ALLOW)" in told
    assert listed("--cluster") == {"(principal=User:*, host=192.0.2.7, operation=ALL, permissionType=DENY)"}
    acls("--remove", *who, "--operation", "Create", "--topic", "orders", "--force")
    until(lambda: "CREATE" not in acls("--list", "--topic", "orders"))
    assert "operation=WRITE" in acls("--list", "--topic", "orders")
    for resource in (
        ("--topic", "orders", "--transactional-id", "tx"),
        ("--topic", "or", "--group", "g", "--resource-pattern-type", "prefixed"),
        ("--cluster",),
    ):
        acls("--remove", *resource, "--force")
    until(lambda: not listed("--principal", "User:carol") and not listed("--cluster"))
    refused = java_tools.run(
        *("AclCommand", *at, "--command-config", str(_as(tmp_path, "mallory")), "--list"), fails=True
    )
    assert "ClusterAuthorizationException" in refused


def _as(tmp_path: Path, user: str) -> Path:
    path = tmp_path / f"{user}.properties"
    login = f'{PLAIN} username="{user}" password="{user}";'
    path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n")
    return path
