"""Real clusters of real processes on free ports, for tests with real clients."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.e2e.clusters import start_cluster
from support.e2e.consumers import fill
from support.e2e.java_tools import JavaTools

from raftwerk.cluster.local.supervisor import Supervisor

HERE = Path(__file__).parent
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.process)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    """Three combined nodes that nobody kills."""
    with start_cluster(tmp_path_factory.mktemp("cluster")) as supervisor:
        yield supervisor


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[Callable[..., Supervisor]]:
    """Makes clusters of the test's own, stopped at its end."""
    running: list[Supervisor] = []

    def make(brokers: int = 3, **shape: Any) -> Supervisor:
        supervisor = start_cluster(tmp_path / f"c{len(running)}", brokers, **shape)
        running.append(supervisor)
        return supervisor

    yield make
    for supervisor in running:
        supervisor.stop()


@pytest.fixture
def bootstrap(cluster: Supervisor) -> str:
    return cluster.plan.bootstrap


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name nobody else uses."""
    return f"t-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def filled(bootstrap: str, topic: str) -> str:
    """A topic of six partitions with 300 numbers in it."""
    fill(bootstrap, topic)
    return topic


@pytest.fixture(scope="session")
def kcat() -> str:
    path = shutil.which("kcat") or shutil.which("kafkacat")
    if path is None:
        pytest.skip("kcat is not installed: this client is NOT tested")
    return path


@pytest.fixture(scope="session")
def java_tools(java_command: list[str]) -> Iterator[JavaTools]:
    """Kafka's tools in one JVM for the whole run."""
    tools = JavaTools(java_command)
    yield tools
    tools.close()
