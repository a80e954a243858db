"""A real node whose users a Python class knows, and clients that log in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from support.e2e.clusters import start_cluster

from raftwerk.cluster.local.supervisor import Supervisor

SOURCE = """
import asyncio, time
from raftwerk.security.sasl.scram_credential import credential_of, salted

class Directory:
    async def authenticate(self, user, password):
        await asyncio.sleep(0.01)
        if user == "broken":
            raise RuntimeError(password)
        return password == f"pass-of-{user}"

class Table:
    def credential(self, user):
        time.sleep(0.01)
        salt, mechanism = b"0123456789abcdef", "SCRAM-SHA-256"
        return credential_of(mechanism, salted(mechanism, f"pass-of-{user}", salt, 4096), salt, 4096)

class Tokens:
    async def validate(self, token):
        return ("alice", round(time.time() * 1000) + 60_000) if token == "good" else None
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    directory = tmp_path_factory.mktemp("house")
    (directory / "house_directory.py").write_text(SOURCE)
    overrides = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="node" password="pass-of-node";'
        ),
    } | {
        f"listener.name.plaintext.{mechanism}.sasl.server.callback.handler.class": f"house_directory:{name}"
        for mechanism, name in (("plain", "Directory"), ("scram-sha-256", "Table"), ("oauthbearer", "Tokens"))
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(directory), prepend=":")
        supervisor = start_cluster(directory / "c", 1, overrides=overrides)
        yield supervisor
        supervisor.stop()


def can_log_in(cluster: Supervisor, settings: dict[str, Any]) -> bool:
    own = {"bootstrap.servers": cluster.plan.bootstrap, "security.protocol": "SASL_PLAINTEXT"}
    client = AdminClient(own | settings)
    client.poll(0)
    try:
        return bool(client.list_topics(timeout=3).brokers)
    except KafkaException:
        return False


def by_password(mechanism: str, user: str, password: str) -> dict[str, Any]:
    return {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_passwords(cluster: Supervisor, mechanism: str) -> None:
    assert can_log_in(cluster, by_password(mechanism, "alice", "pass-of-alice"))
    assert not can_log_in(cluster, by_password(mechanism, "alice", "pass-of-bob"))


@pytest.mark.parametrize(("token", "is_good"), [("good", True), ("bad", False)])
def test_tokens(cluster: Supervisor, token: str, is_good: bool) -> None:
    given = {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: (token, time.time() + 60)}
    assert can_log_in(cluster, given) is is_good


def test_a_class_that_fails_is_told_without_the_password(cluster: Supervisor) -> None:
    assert not can_log_in(cluster, by_password("PLAIN", "broken", "hush-hush"))
    log = Path(cluster.plan.nodes[0].log_file).read_text()
    assert "house_directory:Directory failed: RuntimeError in house_directory.py, line 9" in log
    assert "hush-hush" not in log
