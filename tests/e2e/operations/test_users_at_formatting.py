"""Three nodes whose brokers and controllers log in to each other by SCRAM, from their first start on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.e2e.command import raftwerk
from support.e2e.dynamic_nodes import Nodes

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
IDS = (1, 2, 3)
ADD = ("--add-scram", "SCRAM-SHA-512=[name=node,password=n0de]", "-S", "SCRAM-SHA-512=[name=admin,password=tea]")


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    found = Nodes(tmp_path)
    yield found
    found.kill_all()


def jaas(user: str, password: str) -> str:
    return f'{SCRAM} username="{user}" password="{password}";'


def start(nodes: Nodes) -> None:
    pipes = {node_id: nodes.start(node_id) for node_id in IDS}
    for node_id, pipe in pipes.items():
        nodes.wait_ready(node_id, pipe)


@pytest.mark.long
def test_a_cluster_whose_every_link_is_scram_starts_from_nothing(nodes: Nodes, tmp_path: Path) -> None:
    voters = ",".join(f"{node_id}@{nodes.controller(node_id)}" for node_id in IDS)
    own = {
        "listener_security_protocol_map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
        "sasl_enabled_mechanisms": "SCRAM-SHA-512",
        "sasl_mechanism_inter_broker_protocol": "SCRAM-SHA-512",
        "sasl_mechanism_controller_protocol": "SCRAM-SHA-512",
        "listener.name.plaintext.scram-sha-512.sasl.jaas.config": jaas("node", "n0de"),
        "listener.name.controller.scram-sha-512.sasl.jaas.config": jaas("node", "n0de"),
        "controller_quorum_voters": voters,
        "controller_quorum_bootstrap_servers": "",
    }
    for node_id in IDS:
        nodes.format(node_id, *ADD, **own)
    start(nodes)
    client = tmp_path / "client.properties"

    def as_admin(password: str) -> tuple[str, ...]:
        lines = f"sasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={jaas('admin', password)}\n"
        client.write_text(f"security.protocol=SASL_PLAINTEXT\n{lines}")
        return "-b", nodes.bootstrap(IDS), "--command-config", str(client)

    assert raftwerk("topics", "create", "t", *as_admin("tea")).returncode == 0
    assert raftwerk("topics", "list", *as_admin("coffee")).returncode == 1
    listed = raftwerk("users", "list", *as_admin("tea")).stdout
    assert "node" in listed and "admin" in listed
    assert "n0de" not in "".join((tmp_path / f"n{node_id}.log").read_text() for node_id in IDS)

    # All start again, with a password that was changed: what controllers know without metadata followed it.
    changed = raftwerk("users", "password", "node", *as_admin("tea"), text="changed\n")
    assert changed.returncode == 0, changed.stderr
    for node_id in IDS:
        nodes.stop(node_id)
        path = nodes.properties(node_id)
        path.write_text(path.read_text().replace("n0de", "changed"))
    start(nodes)
    assert "t" in raftwerk("topics", "list", *as_admin("tea")).stdout
