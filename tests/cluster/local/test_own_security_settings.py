"""A local cluster that settings of one's own secure, with certificates for clients, too: commands by its directory."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from support.e2e.clusters import start_cluster
from support.e2e.command import ok, raftwerk
from support.security.certificates import Authority

from raftwerk.cluster.local.supervisor import Supervisor

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def cluster(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    overrides = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:SSL",
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("node", "localhost", "127.0.0.1")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
    }
    supervisor = start_cluster(tmp_path_factory.mktemp("cluster"), 3, overrides=overrides)
    yield supervisor
    supervisor.stop()


@pytest.fixture(scope="module")
def properties(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> str:
    """How a client logs in by its certificate."""
    file = tmp_path_factory.mktemp("client") / "client.properties"
    stores = {"keystore": authority.issue("client", "localhost"), "truststore": authority.file}
    lines = [f"ssl.{name}.type=PEM\nssl.{name}.location={path}\n" for name, path in stores.items()]
    file.write_text("".join(["security.protocol=SSL\n", *lines]))
    return str(file)


def test_status_names_the_node_that_is_down(
    cluster: Supervisor, properties: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = cluster.plan.directory
    ok("topics", "create", "t", "--replicas", "3", "-d", directory, "--command-config", properties)
    cluster.kill(3)
    without = raftwerk("status", "-d", directory)
    assert without.returncode == 1 and re.search(r"^ +3 .* down$", without.stdout, re.MULTILINE)
    told = " ".join(without.stdout.split())
    assert "although nodes 1, 2 are up: " in told and "say how to log in there (--command-config)" in told
    for words in (("--command-config", properties), ()):
        if not words:  # the cluster needs a login, and the environment has one
            monkeypatch.setenv("RAFTWERK_COMMAND_CONFIG", properties)
        status = raftwerk("status", "-d", directory, *words)
        assert status.returncode == 1 and "active controller" in status.stdout, status.stdout
        assert re.search(r"^ +3 .* 0/1  down$", status.stdout, re.MULTILINE), status.stdout
        assert "1 partition, 1 under-replicated, 0 without a leader" in status.stdout
        doctor = raftwerk("doctor", "-d", directory, *words)
        assert "broker 3 advertises itself as " in doctor.stdout and "ok    brokers 1, 2 advertise" in doctor.stdout
    cluster.restart_node(3)


def test_shrink_logs_in_as_the_command_is_told(cluster: Supervisor, properties: str) -> None:
    directory = cluster.plan.directory
    refused = raftwerk("shrink", "-n", "2", "--yes", "-d", directory)
    assert refused.returncode == 1 and "say how to log in there (--command-config)" in refused.stderr
    told = ok("shrink", "-n", "2", "--yes", "-d", directory, "--command-config", properties)
    assert "The cluster has 2 nodes now" in told
