"""One cluster for all tests of the proxy that make no node fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.e2e.secured_node import SecuredNode
from support.rest.proxy import Proxy
from support.rest.proxy import proxy as proxy_of

from raftwerk.testkit.process_cluster import TestCluster

SETTINGS = {
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="session")
def cluster() -> Iterator[TestCluster]:
    pytest.importorskip("uvicorn", reason="no uvicorn: the REST proxy is NOT tested")
    with TestCluster.start(3, settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    pytest.importorskip("uvicorn", reason="no uvicorn: the REST proxy is NOT tested")
    with SecuredNode.start(tmp_path_factory.mktemp("secured")) as node:
        yield node


@pytest.fixture(scope="session")
def proxy(cluster: TestCluster) -> Iterator[Proxy]:
    with proxy_of(cluster) as running:
        yield running
