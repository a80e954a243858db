"""A running cluster goes from PLAINTEXT to SASL_SSL, node by node, under load: clients, and links between brokers."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from support.e2e.clusters import START_TIMEOUT_S, start_cluster
from support.e2e.helpers import create_topic

from raftwerk.cluster.local.certificates import make_certificates
from raftwerk.cluster.local.layout import ClusterShape, NodePlan, find_free_base_port, write_node_properties
from raftwerk.cluster.local.supervisor import Supervisor

TOPIC, PARTITIONS = "orders", 3
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
JAAS = f'{PLAIN} username="node" password="n0de" user_node="n0de" user_alice="wonder";'


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Supervisor]:
    supervisor = start_cluster(tmp_path / "cluster", 3, overrides={"min.insync.replicas": "2"})
    yield supervisor
    supervisor.stop()


class Load:
    """An idempotent producer in a thread; every number that is acknowledged is kept."""

    def __init__(self, settings: Mapping[str, str], first: int) -> None:
        self.acked: list[int] = []
        self.failed: list[str] = []
        self._producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 5, "log_level": 0})
        self._next = first
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(0.005):
            number, self._next = self._next, self._next + 1
            self._producer.produce(TOPIC, b"%d" % number, on_delivery=self._on_delivery)
            self._producer.poll(0)
        if self._producer.flush(60):
            self.failed.append("not all was acknowledged")

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is None:
            self.acked.append(int(message.value()))
        else:
            self.failed.append(str(error))

    def stop(self) -> list[int]:
        self._is_over.set()
        self._thread.join(90)
        assert self.failed == []
        assert self.acked
        return self.acked


class Steps:
    """The settings of each node, step by step."""

    def __init__(self, cluster: Supervisor, directory: Path) -> None:
        self._cluster = cluster
        base = find_free_base_port(ClusterShape(3))
        self._secure = {node.node_id: base + node.node_id for node in cluster.plan.nodes}
        make_certificates(str(directory), "test", {"node": ["localhost"]})
        self._common = {
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(directory / "node.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(directory / "ca.crt"),
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
        }

    @property
    def bootstrap(self) -> str:
        """The secured listeners."""
        return ",".join(f"127.0.0.1:{port}" for port in self._secure.values())

    def take(self, listeners: str, between_brokers: str) -> None:
        """Restart the nodes one by one with these listeners."""
        for node in self._cluster.plan.nodes:
            write_node_properties(replace(node, properties=self._settings(node, listeners, between_brokers)))
            self._cluster.kill(node.node_id, signal.SIGTERM)
            self._cluster.children[node.node_id].process.wait(60)
            self._cluster.restart_node(node.node_id, START_TIMEOUT_S)

    def _settings(self, node: NodePlan, listeners: str, between_brokers: str) -> dict[str, str]:
        at = {"PLAINTEXT": node.port, "SASL_SSL": self._secure[node.node_id]}
        advertised = ",".join(f"{name}://127.0.0.1:{at[name]}" for name in listeners.split(","))
        return {
            **node.properties,
            **self._common,
            "listeners": f"{advertised},CONTROLLER://{node.controller_address}",
            "advertised.listeners": advertised,
            "inter.broker.listener.name": between_brokers,
        }


@pytest.mark.long
def test_nothing_is_lost_on_the_way(cluster: Supervisor, tmp_path: Path) -> None:
    create_topic(cluster.plan.bootstrap, TOPIC, PARTITIONS)
    steps = Steps(cluster, tmp_path / "certificates")
    plain = {"bootstrap.servers": cluster.plan.bootstrap}
    secured = {
        "bootstrap.servers": steps.bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "wonder",
        "ssl.ca.location": str(tmp_path / "certificates" / "ca.crt"),
    }
    before = Load(plain, 0)
    steps.take("PLAINTEXT,SASL_SSL", "PLAINTEXT")
    after = Load(secured, 1_000_000)
    steps.take("PLAINTEXT,SASL_SSL", "SASL_SSL")
    acked = before.stop()
    steps.take("SASL_SSL", "SASL_SSL")
    acked += after.stop()
    with pytest.raises(KafkaException):
        AdminClient({**plain, "log_level": 0}).list_topics(timeout=2)
    assert sorted(read(secured, len(acked))) == sorted(acked)


def read(settings: Mapping[str, str], count: int) -> list[int]:
    """Records until there are so many, and until nothing more comes."""
    consumer = Consumer({**settings, "group.id": "check", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    found: list[int] = []
    silent = 0
    while silent < (3 if len(found) >= count else 30):
        messages = consumer.consume(1000, 1.0)
        found += [int(one.value() or b"-1") for one in messages if not one.error()]
        silent = 0 if messages else silent + 1
    consumer.close()
    return found
