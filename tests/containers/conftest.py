"""The image, and compose projects of it. Run by `make test-containers`; needs a Docker engine."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent

from support.containers.compose import ROOT, Compose, docker  # noqa: E402
from support.ports import free_ports  # noqa: E402

IMAGE = "raftwerk-under-test"
PROMETHEUS_IMAGE = "raftwerk-test-prometheus"
BASE_IMAGE = "python:3.11-slim"
COMPOSE_COMMANDS = {"v1": ["docker-compose"], "v2": ["docker", "compose"]}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.containers)


@pytest.fixture(scope="session")
def engine() -> None:
    if shutil.which("docker") is None or docker("info").returncode:
        pytest.skip("no Docker engine answers: the containers are NOT tested")


@pytest.fixture(scope="session")
def image(engine: None) -> str:
    """The image of this tree."""
    built = docker("build", "--network", "host", "-f", "deploy/Dockerfile", "-t", IMAGE, ".", timeout_s=600)
    if built.returncode and docker("image", "inspect", BASE_IMAGE).returncode:
        pytest.skip(f"{BASE_IMAGE} cannot be pulled: the containers are NOT tested")
    assert built.returncode == 0, built.stdout
    return IMAGE


@pytest.fixture(scope="session")
def prometheus_image(engine: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Prometheus' own image, or where it cannot be pulled, Debian's binary of this machine in our base image."""
    official = "prom/prometheus:v2.55.1"
    if docker("pull", "-q", official, timeout_s=120).returncode == 0:
        return official
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip(f"{official} cannot be pulled, and no prometheus is installed: its alerts are NOT tested")
    context = tmp_path_factory.mktemp("prometheus")
    shutil.copy(binary, context / "prometheus")
    (context / "Dockerfile").write_text(
        f'FROM {BASE_IMAGE}\nCOPY prometheus /bin/prometheus\nWORKDIR /prometheus\nENTRYPOINT ["/bin/prometheus"]\n'
    )
    built = docker("build", "-t", PROMETHEUS_IMAGE, str(context))
    assert built.returncode == 0, built.stdout
    return PROMETHEUS_IMAGE


@pytest.fixture(scope="session")
def spark_image(image: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The job's image, on a base whose Java trusts what this machine's does."""
    base, trusted = BASE_IMAGE, Path("/etc/ssl/certs/java/cacerts")
    if trusted.exists():
        context = tmp_path_factory.mktemp("java")
        shutil.copy(trusted, context / "cacerts")
        trust = "JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=/opt/cacerts"
        (context / "Dockerfile").write_text(f"FROM {BASE_IMAGE}\nCOPY cacerts /opt/cacerts\nENV {trust}\n")
        base = "raftwerk-test-java-base"
        assert docker("build", "-t", base, str(context)).returncode == 0
    options = ["--network", "host", "--build-arg", f"BASE={base}", "-f", "deploy/spark/Dockerfile"]
    built = docker("build", *options, "-t", "raftwerk-test-spark", ".", timeout_s=900)
    assert built.returncode == 0, built.stdout
    return "raftwerk-test-spark"


@pytest.fixture(params=list(COMPOSE_COMMANDS))
def compose(request: pytest.FixtureRequest, image: str, tmp_path: Path) -> Iterator[Callable[..., Compose]]:
    """`compose(file, **environment)` gives a project of its own, taken down with its volumes at the end."""
    command = COMPOSE_COMMANDS[request.param]
    asked = shutil.which(command[0]) and subprocess.run([*command, "version"], check=False, capture_output=True)
    if not asked or asked.returncode:
        pytest.skip(f"there is no `{' '.join(command)}`: Compose {request.param} is NOT tested")
    projects: list[Compose] = []

    def make(file: Path = ROOT / "docker-compose.yml", **environ: str) -> Compose:
        first, second, third, console, prometheus, grafana = free_ports(6)
        ports = {"PORT_1": first, "PORT_2": second, "PORT_3": third}
        ports |= {"CONSOLE_PORT": console, "PROMETHEUS_PORT": prometheus, "GRAFANA_PORT": grafana}
        settings = {"RAFTWERK_IMAGE": image, **{name: str(port) for name, port in ports.items()}, **environ}
        project = Compose(command, file, f"raftwerk-test-{uuid.uuid4().hex[:8]}", settings)
        projects.append(project)
        return project

    yield make
    for project in projects:
        project.run(
            "--profile", "chaos", "--profile", "combined", "--profile", "spark", "down", "-v", "-t", "5", check=False
        )
