"""The certificate of a listener is exchanged by a dynamic setting while the node runs (KIP-226)."""

from __future__ import annotations

import signal
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from support.e2e.clusters import START_TIMEOUT_S, start_cluster
from support.e2e.java_tools import JavaTools
from support.security.certificates import Authority

from raftwerk.cluster.local.supervisor import Supervisor

PREFIX = "listener.name.plaintext."
LOCATION = f"{PREFIX}ssl.keystore.location"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@pytest.fixture
def node(authority: Authority, tmp_path: Path) -> Iterator[Supervisor]:
    overrides = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("first", "localhost", "127.0.0.1")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
    }
    with start_cluster(tmp_path / "cluster", 1, overrides=overrides) as supervisor:
        yield supervisor


def settings(node: Supervisor, authority: Authority) -> dict[str, Any]:
    return {
        "bootstrap.servers": node.plan.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.file),
    }


def change(admin: AdminClient, name: str, value: str | None) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(name, value, incremental_operation=operation)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(20)


def refusal(admin: AdminClient, name: str, value: str) -> str:
    with pytest.raises(KafkaException) as refused:
        change(admin, name, value)
    error = refused.value.args[0]
    assert error.code() == KafkaError.INVALID_REQUEST
    return str(error.str())


def served_name(node: Supervisor) -> bytes:
    """The certificate that a new connection is shown."""
    host, _, port = node.plan.bootstrap.partition(":")
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, int(port)), timeout=10))


def wait_for(node: Supervisor, name: bytes) -> None:
    end = time.monotonic() + 20
    while name not in served_name(node):
        assert time.monotonic() < end, "the other certificate is not served"
        time.sleep(0.05)


def test_new_connections_get_the_new_certificate(node: Supervisor, authority: Authority) -> None:
    second = authority.issue("second", "localhost", "127.0.0.1")
    admin, producer = AdminClient(settings(node, authority)), Producer(settings(node, authority))
    producer.produce("t", b"before")
    assert producer.flush(20) == 0
    assert b"first" in served_name(node)
    change(admin, LOCATION, str(second))
    wait_for(node, b"second")
    producer.produce("t", b"on the former connection")
    assert producer.flush(20) == 0

    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    described = admin.describe_configs([resource])[resource].result(20)[LOCATION]
    assert (described.value, described.source, described.is_read_only) == (str(second), 2, False)

    node.kill(1, signal.SIGTERM)
    node.children[1].process.wait(60)
    node.restart_node(1, START_TIMEOUT_S)
    wait_for(node, b"second")
    change(AdminClient(settings(node, authority)), LOCATION, None)
    wait_for(node, b"first")


def test_what_cannot_be_used_is_refused(node: Supervisor, authority: Authority, tmp_path: Path) -> None:
    admin = AdminClient(settings(node, authority))
    failed = "Validation of dynamic config update failed: listener PLAINTEXT: "
    missing = str(tmp_path / "missing.pem")
    assert refusal(admin, LOCATION, missing) == f"{failed}cannot read {missing}: no such file or directory"
    assert refusal(admin, LOCATION, str(authority.file)).startswith(failed)
    other = LOCATION.replace("plaintext", "inside")
    assert "is of no listener with TLS here: they are listener.name.plaintext." in refusal(admin, other, missing)
    only = "These security configs can be dynamically updated only per-listener using the listener prefix"
    assert refusal(admin, "ssl.keystore.location", missing) == f"{only}: ssl.keystore.location"
    wait_for(node, b"first")


@pytest.mark.java
def test_kafka_configs(node: Supervisor, authority: Authority, java_tools: JavaTools, tmp_path: Path) -> None:
    client = tmp_path / "client.properties"
    client.write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={authority.file}\n"
        "ssl.endpoint.identification.algorithm=\n"
    )
    second = authority.issue("second", "localhost", "127.0.0.1")
    at = ("--bootstrap-server", node.plan.bootstrap, "--command-config", str(client))
    named = ("--entity-type", "brokers", "--entity-name", "1")
    tool = "kafka.admin.ConfigCommand"
    java_tools.run(tool, *at, "--alter", *named, "--add-config", f"{LOCATION}={second}")
    wait_for(node, b"second")
    assert f"{LOCATION}={second}" in java_tools.run(tool, *at, "--describe", *named)
