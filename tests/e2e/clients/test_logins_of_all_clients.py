"""Every client library by every way in: TLS, certificates of clients, PLAIN, SCRAM and tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from support.e2e import secured_clients
from support.e2e.java_tools import JavaTools
from support.e2e.secured_node import WAYS, SecuredNode


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with SecuredNode.start(tmp_path_factory.mktemp("secured")) as node:
        yield node


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "exchange",
    [
        secured_clients.confluent_kafka,
        secured_clients.kafka_python,
        secured_clients.aiokafka,
        # Compiling it takes longer than all else, so one process of the tests does it.
        pytest.param(secured_clients.of_go, marks=[pytest.mark.long, pytest.mark.xdist_group("franz-go")]),
    ],
    ids=lambda exchange: exchange.__name__,
)
def test_libraries(exchange: secured_clients.Exchange, way: str, node: SecuredNode) -> None:
    topic = f"{exchange.__name__}-{way}"
    assert exchange(node.logins[way], topic, f"by {way}") == f"by {way}"


@pytest.mark.parametrize("way", WAYS[:3])
def test_kcat(way: str, node: SecuredNode, kcat: str) -> None:
    """The kcat of Debian 12 has a librdkafka without OIDC, whose SCRAM sends a nonce that is refused."""
    assert secured_clients.kcat(node.logins[way], f"kcat-{way}", f"by {way}", kcat) == f"by {way}"


@pytest.mark.parametrize("way", WAYS)
def test_commands(way: str, node: SecuredNode, tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    assert secured_clients.commands(node.logins[way], f"commands-{way}", f"by {way}", properties) == f"by {way}"


@pytest.fixture(scope="module")
def tools(java_command: list[str], node: SecuredNode) -> Iterator[JavaTools]:
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={node.provider.token_url}"
    tools = JavaTools([java_command[0], allowed, *java_command[1:]])
    yield tools
    tools.close()


@pytest.mark.java
@pytest.mark.parametrize("way", WAYS)
def test_kafkas_tools(way: str, node: SecuredNode, tools: JavaTools, tmp_path: Path) -> None:
    payload = tmp_path / "payload"
    payload.write_text(f"by {way}\n")
    login, topic = node.logins[way], f"java-{way}"
    at = (
        "--bootstrap-server",
        login.bootstrap,
        "--command-config",
        login.properties_file(tmp_path / "client.properties"),
    )
    size = ("--payload-file", str(payload), "--num-records", "1", "--throughput", "-1")
    tools.run("ProducerPerformance", *at, "--topic", topic, *size)
    read = tools.run("consumer.ConsoleConsumer", *at, "--topic", topic, "--from-beginning", "--max-messages", "1")
    assert read.splitlines()[0] == f"by {way}"


def test_without_a_certificate_nobody_comes_in(node: SecuredNode) -> None:
    with pytest.raises(KafkaException):
        AdminClient(replace(node.logins["certificate"], identity=None).librdkafka() | {"log_level": 0}).list_topics(
            timeout=3
        )


def test_the_name_in_the_certificate_is_who_may_do_something(node: SecuredNode) -> None:
    assert secured_clients.confluent_kafka(node.logins["certificate"], "of-alice", "x") == "x"
    bob = replace(node.logins["certificate"], identity=node.authority.issue("bob", "bob.example"))
    admin = AdminClient(bob.librdkafka())
    assert "of-alice" not in admin.list_topics(timeout=10).topics
    seen = admin.list_topics("of-alice", timeout=10).topics["of-alice"].error
    assert seen is not None
    assert seen.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
