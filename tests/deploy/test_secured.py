"""The secured variants of the manifests: their settings make nodes that find and trust each other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.e2e.command import ok, raftwerk

from raftwerk.cluster.local.certificates import make_certificates
from raftwerk.cluster.local.layout import ClusterShape, find_free_base_port
from raftwerk.cluster.settings.listener_checks import security_problems
from raftwerk.cluster.settings.node_config import load_config
from raftwerk.runtime.loop import real_runtime

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: the manifests are NOT tested")
DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
PASSWORDS = {"NODE_PASSWORD": "n0de", "ADMIN_PASSWORD": "4dmin"}
NODES = 3


def compose() -> dict[str, Any]:
    """The compose file with its variables, as Compose reads it."""
    text = (DEPLOY / "docker-compose-secured.yml").read_text()
    text = re.sub(r"\$\{(\w+):\?[^}]*\}", r"${\1}", text)
    text = re.sub(r"(?<!\$)\$\{(\w+)(?::-([^}]*))?\}", lambda found: PASSWORDS.get(found[1]) or found[2], text)
    document: dict[str, Any] = yaml.safe_load(text.replace("$$", "$"))
    return document


@pytest.mark.process
def test_the_nodes_of_the_compose_file_serve_who_logs_in(tmp_path: Path) -> None:
    services = compose()["services"]
    certificates = tmp_path / "certificates"
    line = services["certificates"]["command"].split()
    assert line[:3] == ["raftwerk", "certificates", "/mnt/shared/config/certificates"]
    ok("certificates", str(certificates), *line[3:])
    base = find_free_base_port(ClusterShape(NODES))
    ports = {"19092": base, "9093": base + 1001}

    def here(text: str, number: int) -> str:
        """A setting of one node, for ports and files of this test; the listener for the host is left out."""
        text = re.sub(r",HOST://[^,]*", "", text).replace("/mnt/shared/config", str(tmp_path))
        for inside, outside in ports.items():
            text = re.sub(rf"node-(\d):{inside}", lambda at: f"localhost:{outside + int(at[1]) - 1}", text)  # noqa: B023
            text = text.replace(f"://:{inside}", f"://localhost:{outside + number - 1}")
        return text

    started = []
    try:
        for number in range(1, NODES + 1):
            given = services[f"node-{number}"]["environment"]
            environ = {name: here(str(value), number) for name, value in given.items()}
            environ |= {"KAFKA_LOG_DIRS": str(tmp_path / f"data-{number}"), "PATH": os.environ["PATH"]}
            command = [sys.executable, "-m", "raftwerk", "node", "--env", "--format", environ["CLUSTER_ID"]]
            log = (tmp_path / f"{number}.log").open("w")
            started.append(subprocess.Popen(command, env=environ, stdout=log, stderr=log))
            log.close()
        admin = services["admin"]
        script = admin["entrypoint"][2].replace("/mnt/shared/config", str(tmp_path))
        script = script.replace("/tmp/admin", f"{tmp_path}/admin").replace(
            "exec raftwerk", f"{sys.executable} -m raftwerk"
        )
        environ = {**os.environ, "ADMIN_PASSWORD": admin["environment"]["ADMIN_PASSWORD"]}
        environ |= {"RAFTWERK_BOOTSTRAP": here(admin["environment"]["RAFTWERK_BOOTSTRAP"], 1)}
        environ |= {"RAFTWERK_COMMAND_CONFIG": f"{tmp_path}/admin.properties"}

        def run(*arguments: str) -> str:
            words = ["bash", "-c", script, "raftwerk", *arguments]
            done = subprocess.run(
                words, env=environ, input="tea", capture_output=True, text=True, check=False, timeout=60
            )
            return done.stdout + done.stderr

        while "Created topic orders" not in (told := run("topics", "create", "orders", "--replicas", "3")):
            assert all(one.poll() is None for one in started), told
        assert run("users", "add", "alice") == "Added alice for SCRAM-SHA-512.\n"
        assert raftwerk("topics", "list", "-b", environ["RAFTWERK_BOOTSTRAP"]).returncode == 1
    finally:
        for one in started:
            one.terminate()
        for one in started:
            one.wait(30)


def container() -> dict[str, Any]:
    """The container of kubernetes.yml with the patch, merged as kubectl merges: lists by their rows' names."""
    rows = yaml.safe_load_all((DEPLOY / "kubernetes.yml").read_text())
    (plain,) = (row for row in rows if row["kind"] == "StatefulSet")
    patch = yaml.safe_load((DEPLOY / "kubernetes-secured.yml").read_text())
    assert (patch["kind"], patch["metadata"]["name"]) == ("StatefulSet", plain["metadata"]["name"])
    (before,) = plain["spec"]["template"]["spec"]["containers"]
    (change,) = patch["spec"]["template"]["spec"]["containers"]
    assert before["name"] == change["name"]
    env = {row["name"]: row for row in [*before["env"], *change["env"]]}
    return {**before, **change, "env": list(env.values()), "volumes": patch["spec"]["template"]["spec"]["volumes"]}


def test_kubernetes_nodes_have_certificates_and_passwords(tmp_path: Path) -> None:
    found = container()
    told = (DEPLOY / "kubernetes-secured.yml").read_text()
    (line,) = re.findall(r"(?m)^#   raftwerk certificates certificates (.*)$", told)
    hosts, _, also = line.partition(" --also ")
    made = make_certificates(str(tmp_path), "test", {host: [host, also] for host in hosts.split()})
    kept = [path for path in made if not path.endswith("ca.key")]
    (secret,) = re.findall(r"(?m)^#   kubectl create secret generic raftwerk-certificates (.*)$", told)
    assert secret.replace("--from-file=certificates/", "").split() == [os.path.basename(path) for path in kept]
    assert found["volumes"][0]["secret"]["secretName"] == "raftwerk-certificates"
    given = {row["name"]: row.get("value") or PASSWORDS[row["name"]] for row in found["env"]}
    script = found["command"][2].replace("exec /etc/kafka/docker/run", "env | grep ^KAFKA_")
    for ordinal in range(NODES):
        environ = {"PATH": os.environ["PATH"], "HOSTNAME": f"raftwerk-{ordinal}", **given}
        done = subprocess.run(["bash", "-c", script], env=environ, capture_output=True, text=True, check=True)
        lines = done.stdout.replace("/etc/raftwerk/certificates", str(tmp_path)).splitlines()
        config = load_config(None, environ=dict(line.split("=", 1) for line in lines))
        assert security_problems(config, real_runtime()) == ([], [])
        assert set(config.protocols.values()) == {"SASL_SSL"}
        assert not [one for one in config.warnings if "super.users" in one]


def test_the_kustomization_names_files_that_are_there() -> None:
    found = yaml.safe_load((DEPLOY / "kustomization.yml").read_text())
    for name in (*found["resources"], *(row["path"] for row in found["patches"])):
        assert (DEPLOY / name).exists()
