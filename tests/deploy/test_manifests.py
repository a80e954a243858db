"""Kubernetes' manifests, the unit, the compose file: well formed, and settings of nodes that find each other."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from raftwerk.cli.console import console
from raftwerk.cluster.settings.node_config import load_config

ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes.yml"


def resources() -> dict[tuple[str, str], dict[str, Any]]:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: the manifests are NOT tested")
    rows = list(yaml.safe_load_all(KUBERNETES.read_text()))
    return {(row["kind"], row["metadata"]["name"]): row for row in rows}


def test_kubernetes_nodes_are_voters_that_know_each_other() -> None:
    stateful = resources()["StatefulSet", "raftwerk"]
    (container,) = stateful["spec"]["template"]["spec"]["containers"]
    script = container["command"][2].replace("exec /etc/kafka/docker/run", "env | grep ^KAFKA_")
    given = {row["name"]: row["value"] for row in container["env"]}
    for ordinal in range(stateful["spec"]["replicas"]):
        environ = {"PATH": os.environ["PATH"], "HOSTNAME": f"raftwerk-{ordinal}", **given}
        done = subprocess.run(["bash", "-c", script], env=environ, capture_output=True, text=True, check=True)
        config = load_config(None, environ=dict(line.split("=", 1) for line in done.stdout.splitlines()))
        assert (config.node_id, config.is_broker, config.is_controller) == (ordinal + 1, True, True)
        assert f"{config.node_id}@raftwerk-{ordinal}.raftwerk-nodes:9093" in given["KAFKA_CONTROLLER_QUORUM_VOTERS"]
        assert f"PLAINTEXT://raftwerk-{ordinal}.raftwerk-nodes:9092" in done.stdout


def test_kubernetes_names_and_ports_fit_together() -> None:
    found = resources()
    stateful = found["StatefulSet", "raftwerk"]
    template = stateful["spec"]["template"]
    (container,) = template["spec"]["containers"]
    ports = {row["name"]: row["containerPort"] for row in container["ports"]}
    headless = found["Service", stateful["spec"]["serviceName"]]
    assert headless["spec"]["clusterIP"] == "None" and headless["spec"]["publishNotReadyAddresses"]
    for service in (headless, found["Service", "raftwerk"]):
        assert service["spec"]["selector"] == template["metadata"]["labels"]
        assert all(ports[row.get("targetPort", row["name"])] == row["port"] for row in service["spec"]["ports"])
    (claim,) = stateful["spec"]["volumeClaimTemplates"]
    assert [row["name"] for row in container["volumeMounts"]] == [claim["metadata"]["name"]]


def test_kubernetes_schemas() -> None:
    validate = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed: the manifests' schemas are NOT checked"
    )
    for resource in resources().values():
        validate.validate(resource, validate.latest_version(), strict=True)


def test_the_unit_by_systemd(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed: the unit is NOT checked")
    text = (ROOT / "deploy" / "raftwerk.service").read_text()
    unit = tmp_path / "raftwerk.service"  # with a program and a user that are on this machine
    unit.write_text(re.sub(r"(?m)^(User|Group)=.*", r"\1=root", re.sub(r"ExecStart=\S+", "ExecStart=/bin/true", text)))
    done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, "raftwerk.service" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize("command", [["docker-compose"], ["docker", "compose"]], ids=["v1", "v2"])
def test_the_compose_file_by_compose(command: list[str]) -> None:
    if (
        shutil.which(command[0]) is None
        or subprocess.run([*command, "version"], capture_output=True, check=False).returncode
    ):
        pytest.skip(f"there is no `{' '.join(command)}`: the compose file is NOT checked by it")
    for profiles in ([], ["spark"], ["chaos", "combined"]):
        options = [word for profile in profiles for word in ("--profile", profile)]
        done = subprocess.run([*command, *options, "config"], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "controller-3" in done.stdout and all(one in done.stdout for one in profiles if one != "combined")


def test_the_console_of_the_compose_file_is_a_command_that_there_is() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: the compose file is NOT read")
    service = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["console"]
    program, command, *options = service["command"].split()
    with console.make_context(command, [*options, "-b", service["environment"]["RAFTWERK_BOOTSTRAP"]]) as context:
        assert (program, command, context.params["host"]) == ("raftwerk", "console", "0.0.0.0")
    (published,) = service["ports"]
    assert published.startswith("127.0.0.1:") and published.endswith(f":{context.params['port']}")
    assert "console" in re.findall(r"/src\[(.*)\]", (ROOT / "deploy" / "Dockerfile").read_text())[0].split(",")
