"""The pytest plugin `raftwerk`: clusters of real processes as fixtures.

Its entry point loads it in every project that has Raftwerk installed, so it imports nothing of Raftwerk until a fixture
is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .process_cluster import TestCluster


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `raftwerk_nodes` to pytest's ini file, and `--raftwerk-nodes` to its options."""
    parser.addini("raftwerk_nodes", "Nodes of the session's Raftwerk cluster.", default="1")
    group = parser.getgroup("raftwerk", "Kafka-compatible clusters for tests")
    group.addoption("--raftwerk-nodes", type=int, default=None, help="nodes of the session's cluster (default: 1)")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a wrong number before any test runs."""
    if config.getoption("--raftwerk-nodes") is not None:
        _nodes_of(config)


@pytest.fixture(scope="session")
def raftwerk_cluster(request: pytest.FixtureRequest) -> Iterator[TestCluster]:
    """The session's cluster; each xdist worker has its own. To kill nodes, use `raftwerk_factory` instead."""
    from .process_cluster import TestCluster

    with TestCluster.start(_nodes_of(request.config)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def raftwerk_secure_cluster(request: pytest.FixtureRequest) -> Iterator[TestCluster]:
    """A cluster of the session whose clients log in: `client_config()` has the settings. It has as many nodes."""
    from .process_cluster import TestCluster

    with TestCluster.start(_nodes_of(request.config), secure=True) as cluster:
        yield cluster


def _nodes_of(config: pytest.Config) -> int:
    """The nodes of the session's cluster. Raises `pytest.UsageError` for what is no number of nodes."""
    from ..cluster.local.layout import NODES_MAX

    given = config.getoption("--raftwerk-nodes")
    where = "raftwerk_nodes in pytest's ini file" if given is None else "--raftwerk-nodes"
    text = str(config.getini("raftwerk_nodes") if given is None else given).strip()
    if not text.isdecimal() or not 1 <= int(text) <= NODES_MAX:
        raise pytest.UsageError(f"{where} is {text!r}: a cluster has 1 to {NODES_MAX} nodes")
    return int(text)


@pytest.fixture
def raftwerk_factory() -> Iterator[Callable[..., TestCluster]]:
    """`raftwerk_factory(nodes=3, settings={...})` starts a cluster for one test, which is stopped at the test's end.

    With `secure=True` its clients log in.
    """
    from .process_cluster import TestCluster

    running: list[TestCluster] = []

    def make(
        nodes: int = 3,
        *,
        settings: Mapping[str, object] | None = None,
        separate: bool = False,
        secure: bool = False,
        **unknown: object,
    ) -> TestCluster:
        __tracebackhide__ = True
        if unknown:
            wrong = " and ".join(unknown)
            raise TypeError(f"raftwerk_factory has no parameter {wrong}; it has nodes, settings, separate and secure")
        cluster = TestCluster.start(nodes, settings=settings, separate=separate, secure=secure)
        running.append(cluster)
        return cluster

    yield make
    for cluster in running:
        cluster.stop()


@pytest.fixture
def raftwerk_topic(request: pytest.FixtureRequest, raftwerk_cluster: TestCluster) -> Iterator[str]:
    """The name of a topic for one test in the session's cluster. The topic is deleted afterwards, if it is there."""
    from .process_cluster import unique_topic

    name = raftwerk_cluster.create_topic(unique_topic(request.node.name))
    yield name
    if any(topic.name == name for topic in raftwerk_cluster.describe().topics):
        raftwerk_cluster.delete_topic(name)


@pytest.fixture(scope="session")
def raftwerk_bootstrap_servers(raftwerk_cluster: TestCluster) -> str:
    """`bootstrap.servers` of the session's cluster."""
    return raftwerk_cluster.bootstrap_servers
