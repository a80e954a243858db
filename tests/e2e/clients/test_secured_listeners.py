"""Three real nodes of which every link is SASL_SSL, and clients that log in."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaProducer
from support.e2e.clusters import start_cluster
from support.e2e.command import raftwerk
from support.security.certificates import Authority

from raftwerk.cluster.local.supervisor import Supervisor

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
TOPIC = "secured"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def cluster(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    node = authority.issue("node", "localhost", "127.0.0.1")
    overrides = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": f'{PLAIN} username="node" password="n0de" user_node="n0de" '
        'user_alice="wonder";',
        "listener.name.controller.plain.sasl.jaas.config": f'{PLAIN} username="node" password="c0ntrol" '
        'user_node="c0ntrol";',
        "listener.name.plaintext.connections.max.reauth.ms": "4000",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(node),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
    }
    supervisor = start_cluster(tmp_path_factory.mktemp("cluster"), 3, overrides=overrides)
    yield supervisor
    supervisor.stop()


@pytest.fixture
def settings(cluster: Supervisor, authority: Authority) -> dict[str, Any]:
    """The settings of a client in librdkafka."""
    return {
        "bootstrap.servers": cluster.plan.bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "wonder",
        "ssl.ca.location": str(authority.file),
    }


def test_records_pass_through_three_secured_nodes(
    settings: dict[str, Any], cluster: Supervisor, authority: Authority
) -> None:
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(TOPIC, 3, 3)])[TOPIC].result(20)
    producer = Producer(settings | {"acks": "all"})
    for number in range(300):
        producer.produce(TOPIC, str(number).encode(), partition=number % 3)
    assert producer.flush(30) == 0
    other = KafkaProducer(
        bootstrap_servers=cluster.plan.bootstrap,
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_plain_username="alice",
        sasl_plain_password="wonder",
        ssl_cafile=str(authority.file),
        acks="all",
    )
    for number in range(300, 400):
        other.send(TOPIC, str(number).encode())
    other.close(timeout=30)
    consumer = Consumer(settings | {"group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    seen = _read(consumer, 400)
    consumer.close()
    assert sorted(seen) == list(range(400))


def test_kcat(settings: dict[str, Any], kcat: str) -> None:
    """Its librdkafka is older than that of confluent-kafka."""
    login = [word for name, value in settings.items() if "servers" not in name for word in ("-X", f"{name}={value}")]
    at = [kcat, "-b", settings["bootstrap.servers"], *login, "-t", "by-kcat"]
    subprocess.run([*at, "-P"], input="hello\n", text=True, check=True, timeout=60)
    read = subprocess.run([*at, "-C", "-e"], capture_output=True, text=True, check=True, timeout=60)
    assert read.stdout == "hello\n"


async def _read_with_aiokafka(bootstrap: str, authority: Authority) -> list[int]:
    consumer = AIOKafkaConsumer(
        "async",
        bootstrap_servers=bootstrap,
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_plain_username="alice",
        sasl_plain_password="wonder",
        ssl_context=create_ssl_context(cafile=str(authority.file)),
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        return [int((await consumer.getone()).value) for _ in range(100)]
    finally:
        await consumer.stop()


def test_aiokafka(settings: dict[str, Any], cluster: Supervisor, authority: Authority) -> None:
    producer = Producer(settings | {"acks": "all"})
    for number in range(100):
        producer.produce("async", str(number).encode())
    assert producer.flush(30) == 0
    seen = asyncio.run(asyncio.wait_for(_read_with_aiokafka(cluster.plan.bootstrap, authority), 60))
    assert sorted(seen) == list(range(100))


@pytest.mark.long
@pytest.mark.parametrize("mechanism", [ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512])
def test_users_with_scram_passwords(settings: dict[str, Any], mechanism: ScramMechanism) -> None:
    name = mechanism.name.replace("_", "-")
    admin = AdminClient(settings)
    change = UserScramCredentialUpsertion("carol", ScramCredentialInfo(mechanism, 8192), b"tea")
    admin.alter_user_scram_credentials([change])["carol"].result(20)
    users = admin.describe_user_scram_credentials(["carol"])
    assert isinstance(users, dict)
    described = users["carol"].result(20)
    assert (mechanism, 8192) in [(info.mechanism, info.iterations) for info in described.scram_credential_infos]
    login = settings | {"sasl.mechanism": name, "sasl.username": "carol", "sasl.password": "tea"}
    wait_until(lambda: _can_log_in(login), 20)
    assert not _can_log_in(login | {"sasl.password": "coffee"})
    admin.alter_user_scram_credentials([UserScramCredentialDeletion("carol", mechanism)])["carol"].result(20)
    wait_until(lambda: not _can_log_in(login), 20)


def wait_until(holds: Callable[[], bool], timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end, "not in time"


def _can_log_in(login: dict[str, Any]) -> bool:
    try:
        AdminClient(login | {"log_level": 0}).list_topics(timeout=4)
    except KafkaException:
        return False
    return True


@pytest.mark.long
def test_a_client_goes_on_when_its_login_has_expired(settings: dict[str, Any]) -> None:
    lost: list[KafkaError] = []
    producer = Producer(settings | {"error_cb": lost.append})
    end = time.monotonic() + 9.0
    while time.monotonic() < end:
        producer.produce("again", b"x")
        assert producer.flush(15) == 0
    assert [error for error in lost if error.code() == KafkaError._AUTHENTICATION] == []


@pytest.mark.parametrize(
    "change",
    [
        {"sasl.password": "wrong"},
        {"sasl.username": "node", "sasl.password": "c0ntrol"},
        {"sasl.mechanism": "SCRAM-SHA-256"},
    ],
)
def test_who_cannot_log_in_is_told_so(settings: dict[str, Any], change: dict[str, str]) -> None:
    seen: list[int] = []
    client = AdminClient(settings | change | {"error_cb": lambda error: seen.append(error.code())})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=3)
    client.poll(0)
    assert KafkaError._AUTHENTICATION in seen


def test_a_client_without_tls_gets_nothing(settings: dict[str, Any]) -> None:
    client = AdminClient({"bootstrap.servers": settings["bootstrap.servers"]})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=3)


def test_commands_log_in_by_the_properties_of_kafkas_tools(
    cluster: Supervisor, authority: Authority, tmp_path: Path
) -> None:
    properties = tmp_path / "client.properties"
    text = f"""security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config={PLAIN} username="alice" password="PASSWORD";
ssl.truststore.type=PEM
ssl.truststore.location={authority.file}
"""
    properties.write_text(text.replace("PASSWORD", "wonder"))
    at = ("-b", cluster.plan.bootstrap, "--command-config", str(properties))
    assert raftwerk("topics", "create", "by-command", *at).returncode == 0
    assert raftwerk("produce", "by-command", *at, text="one\n").returncode == 0
    assert raftwerk("consume", "by-command", "-e", *at).stdout == "one\n"
    assert "alice" not in raftwerk("doctor", *at).stdout
    properties.write_text(text.replace("PASSWORD", "wrong"))
    refused = raftwerk("topics", "list", *at)
    assert refused.returncode == 1
    assert "refuses the login by PLAIN: Authentication failed: Invalid username or password" in refused.stderr
    assert refused.stderr.endswith(f"; correct the user name or the password in sasl.jaas.config in {properties}\n")
    properties.write_text(text.replace("PASSWORD", "wonder").replace(str(authority.file), str(tmp_path / "none.pem")))
    assert raftwerk("topics", "list", *at).returncode == 2
    without = raftwerk("topics", "list", "-b", cluster.plan.bootstrap)
    assert "speaks TLS instead of Kafka's protocol: say how to log in there (--command-config)" in without.stderr


def test_certificates_are_exchanged_while_nodes_run(
    settings: dict[str, Any], cluster: Supervisor, authority: Authority
) -> None:
    host, _, port = cluster.plan.bootstrap.split(",")[0].rpartition(":")
    log = Path(cluster.plan.nodes[0].log_file)

    def served() -> str:
        return ssl.get_server_certificate((host, int(port)))

    producer = Producer(settings | {"acks": "all"})

    def write() -> None:
        producer.produce("exchanged", b"x")
        assert producer.flush(20) == 0

    write()
    before = served()
    path = authority.issue("node", "localhost", "127.0.0.1")
    wait_until(lambda: served() != before, 20)
    now = served()
    write()
    good = path.read_bytes()
    path.write_bytes(b"nonsense")
    wait_until(lambda: served() == now and "keeps its former certificates" in log.read_text(), 20)
    assert served() == now
    assert _can_log_in(settings)
    path.write_bytes(good)
    write()


def test_a_killed_node_comes_back_by_its_own_login(settings: dict[str, Any], cluster: Supervisor) -> None:
    producer = Producer(settings | {"acks": "all"})
    cluster.kill(1)
    producer.produce(TOPIC, b"400", partition=0)
    assert producer.flush(60) == 0
    cluster.restart_node(1)
    producer.produce(TOPIC, b"401", partition=0)
    assert producer.flush(60) == 0


def _read(consumer: Consumer, count: int) -> list[int]:
    seen: list[int] = []
    end = time.monotonic() + 60
    while len(seen) < count and time.monotonic() < end:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            seen.append(int(message.value() or b"-1"))
    return seen
