"""What stands in deploy/: settings are known, rules hold, panels ask for metrics that nodes have."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from raftwerk.cluster.metrics.catalog import CATALOG
from raftwerk.cluster.settings.node_config import load_config

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
METRIC = re.compile(r"\b(?:kafka|raftwerk)_[a-z_]+\b")
DASHBOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))


def known_metrics() -> set[str]:
    names = {spec.name for spec in CATALOG}
    return names | {name + suffix for name in names for suffix in ("_count", "_sum")}


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_every_panel_asks_for_metrics_that_nodes_have(path: Path) -> None:
    panels = json.loads(path.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        for target in panel["targets"]:
            unknown = [name for name in METRIC.findall(target["expr"]) if name not in known_metrics()]
            assert not unknown, f"{panel['title']}: {unknown}"


def test_alerts_ask_for_metrics_that_nodes_have_and_say_what_to_do() -> None:
    text = (DEPLOY / "prometheus" / "alerts.yml").read_text()
    expressions = re.findall(r"expr: (.*)", text)
    assert len(expressions) == text.count("- alert:") == text.count("action:")
    for expression in expressions:
        assert [name for name in METRIC.findall(expression) if name not in known_metrics()] == []


def test_alert_rules_by_promtool() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: the alert rules are NOT tested")
    for arguments in (["check", "config", "prometheus.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run([promtool, *arguments], cwd=DEPLOY / "prometheus", capture_output=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def script_with_files_in(tmp_path: Path, name: str) -> str:
    """A script of the image that looks for the mounted server.properties in this directory."""
    return (DEPLOY / name).read_text().replace("/mnt/shared/config/", f"{tmp_path}/")


def run_script(tmp_path: Path, **environ: str) -> list[str]:
    """What deploy/run would execute, and the settings it hands on."""
    stub = tmp_path / "raftwerk"
    stub.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\nenv | grep ^KAFKA_ | sort\n')
    stub.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    script = ["bash", "-c", script_with_files_in(tmp_path, "run")]
    done = subprocess.run(script, env={"PATH": path, **environ}, capture_output=True, text=True, check=True)
    return done.stdout.split("\n")[:-1]


def test_a_container_without_settings_is_one_node(tmp_path: Path) -> None:
    lines = run_script(tmp_path)
    assert lines[:3] == ["node", "/etc/kafka/docker/server.properties", "--env"]
    assert lines[-2:] == ["KAFKA_LOG_DIRS=/var/lib/kafka/data", "KAFKA_METRICS_PORT=9404"]
    config = load_config(
        (DEPLOY / "server.properties").read_text(), environ=dict(line.split("=", 1) for line in lines[-2:])
    )
    assert config.is_broker and config.is_controller and config.log_dirs == ("/var/lib/kafka/data",)
    assert config["metrics.port"] == 9404


def test_a_container_with_variables_has_those_alone(tmp_path: Path) -> None:
    lines = run_script(
        tmp_path,
        KAFKA_NODE_ID="1",
        KAFKA_PROCESS_ROLES="broker",
        KAFKA_LOG_DIRS="/elsewhere",
        KAFKA_METRICS_PORT="",
        CLUSTER_ID="4L6g3nShT-eMCtK--X86sw",
    )
    assert lines[:4] == ["node", "--env", "--format", "4L6g3nShT-eMCtK--X86sw"]
    assert lines[-3:] == ["KAFKA_LOG_DIRS=/elsewhere", "KAFKA_NODE_ID=1", "KAFKA_PROCESS_ROLES=broker"]


def test_a_container_takes_directories_and_metrics_port_of_a_mounted_file(tmp_path: Path) -> None:
    """A variable would win over the file, so the image sets none for what the file says."""
    file = tmp_path / "server.properties"
    file.write_text("node.id=1\nlog.dirs=/elsewhere\nmetrics.port=9500\n")
    assert run_script(tmp_path)[:3] == ["node", str(file), "--env"]
    assert [line for line in run_script(tmp_path) if line.startswith("KAFKA_")] == []
    assert run_script(tmp_path, KAFKA_METRICS_PORT="9600")[-1] == "KAFKA_METRICS_PORT=9600"
    file.write_text("node.id=1\n")
    assert run_script(tmp_path)[-2:] == ["KAFKA_LOG_DIRS=/var/lib/kafka/data", "KAFKA_METRICS_PORT=9404"]


@pytest.mark.parametrize(
    ("line", "environ"),
    [("metrics.port={}", {}), ("metrics.port : {}", {}), ("metrics.port=1", {"KAFKA_METRICS_PORT": "{}"})],
)
@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_health_check_asks_the_port_of_the_metrics(
    tmp_path: Path, line: str, environ: dict[str, str], status: int, code: int
) -> None:
    """That of a variable, or of the mounted file."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        (tmp_path / "server.properties").write_text(f"node.id=1\n{line.format(port)}\n")
        variables = {name: text.format(port) for name, text in environ.items()}
        with subprocess.Popen(
            ["bash", "-c", script_with_files_in(tmp_path, "healthcheck")], env={"PATH": os.environ["PATH"], **variables}
        ) as check:
            listener.settimeout(20)
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(100).startswith(b"GET /health/ready ")
                connection.sendall(b"HTTP/1.0 %d Some\r\n\r\n" % status)
            assert check.wait(20) == code


def test_the_advertised_address_of_the_single_node_can_be_replaced() -> None:
    """As docs/recipes.md does for Testcontainers in Python."""
    advertised = {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:32768", "KAFKA_LOG_DIRS": "/data"}
    config = load_config((DEPLOY / "server.properties").read_text(), environ=advertised)
    assert [(one.name, one.host, one.port) for one in config.advertised] == [("PLAINTEXT", "localhost", 32768)]


def test_the_environment_that_testcontainers_gives_is_a_valid_node() -> None:
    config = load_config(
        None,
        environ={
            "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,BROKER://0.0.0.0:9093,CONTROLLER://0.0.0.0:9094",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:32768,BROKER://a1b2c3:9093",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_NODE_ID": "1",
            "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
            "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
            "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
            "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
            "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
            "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        },
    )
    assert config.node_id == 1
    assert not any("unknown" in warning for warning in config.warnings)
