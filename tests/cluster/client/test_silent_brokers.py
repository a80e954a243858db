"""Brokers that are asked first and are silent, controllers that are taken for brokers."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from support.e2e.command import fails, raftwerk

from raftwerk.cluster.client import cluster_client
from raftwerk.cluster.client.client_errors import UnreachableError
from raftwerk.cluster.client.cluster_client import ClusterClient, ClusterView
from raftwerk.testkit.process_cluster import TestCluster

pytestmark = pytest.mark.process


@contextmanager
def silent_peer() -> Iterator[str]:
    """The address of a process that is paused: its kernel takes connections, and nobody answers."""
    with socket.socket() as paused:
        paused.bind(("127.0.0.1", 0))
        paused.listen()
        yield f"127.0.0.1:{paused.getsockname()[1]}"


async def ask(bootstrap: str, timeout_s: float = 10.0) -> ClusterView:
    async with ClusterClient(bootstrap, timeout_s=timeout_s) as client:
        return await client.metadata()


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    with TestCluster.start(1) as started:
        yield started


def test_a_silent_bootstrap_server_costs_a_second(cluster: TestCluster) -> None:
    with silent_peer() as silent:
        began = time.monotonic()
        view = asyncio.run(ask(f"{silent},{cluster.bootstrap_servers}"))
        assert time.monotonic() - began < 5
    assert [one.node_id for one in view.brokers] == [1]


def test_a_silent_bootstrap_server_is_probed_for_one_request_and_not_for_each(cluster: TestCluster) -> None:
    async def ask_thrice(bootstrap: str) -> None:
        async with ClusterClient(bootstrap) as client:
            for _ in range(3):
                await client.metadata()

    with socket.socket() as paused:
        paused.bind(("127.0.0.1", 0))
        paused.listen()
        asyncio.run(ask_thrice(f"127.0.0.1:{paused.getsockname()[1]},{cluster.bootstrap_servers}"))
        paused.setblocking(False)
        paused.accept()
        with pytest.raises(BlockingIOError):
            paused.accept()


def test_a_slow_broker_still_answers_when_no_other_does(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cluster_client, "NOTICE_AFTER_S", 0.2)
    cluster.pause(1)

    async def run() -> ClusterView:
        asyncio.get_running_loop().call_later(2.5, cluster.resume, 1)
        return await ask(f"{cluster.bootstrap_servers},127.0.0.1:1", 30)

    with caplog.at_level(logging.WARNING):
        assert [one.node_id for one in asyncio.run(run()).brokers] == [1]
    assert "has not answered for 0.2 s; waiting for up to 30 s" in caplog.text


def test_what_is_waited_for_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(cluster_client, "NOTICE_AFTER_S", 0.1)
    with silent_peer() as silent, caplog.at_level(logging.WARNING), pytest.raises(UnreachableError, match="in time"):
        asyncio.run(ask(silent, 0.5))
    assert caplog.messages == [f"{silent} has not answered for 0.1 s; waiting for up to 0.5 s"]


def test_what_many_requests_wait_for_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cluster_client, "NOTICE_AFTER_S", 0.1)

    async def run(silent: str) -> None:
        async with ClusterClient(silent, timeout_s=0.5) as client:
            found = await asyncio.gather(*(client.metadata() for _ in range(5)), return_exceptions=True)
        assert {type(one) for one in found} == {UnreachableError}

    with silent_peer() as silent, caplog.at_level(logging.WARNING):
        asyncio.run(run(silent))
    assert caplog.messages == [f"{silent} has not answered for 0.1 s; waiting for up to 0.5 s"]


def test_a_controllers_listener_is_named(cluster: TestCluster) -> None:
    at = cluster.plan.nodes[0].controller_address
    with pytest.raises(UnreachableError, match=f"{at} is the listener of a controller: name that of a broker"):
        asyncio.run(ask(str(at)))


def test_a_controllers_listener_carries_out_nothing(cluster: TestCluster) -> None:
    """It would create the topic, and the client, which asks for it next, would say that it is not there."""
    at = str(cluster.plan.nodes[0].controller_address)
    for command in ("create", "delete"):
        told = fails(1, "topics", command, "meant-for-a-broker", "-b", at)
        assert f"{at} is the listener of a controller: name that of a broker" in told
        assert "start that cluster" not in told
    told = " ".join(raftwerk("doctor", "-b", at).stdout.split())
    assert f"bootstrap address {at}: is the listener of a controller: name that of a broker" in told
    assert "start that cluster" not in told
    assert "meant-for-a-broker" not in [topic.name for topic in asyncio.run(ask(cluster.bootstrap_servers)).topics]


def test_a_controller_that_is_named_for_a_broker_does_not_stand_for_the_quorum() -> None:
    """It answers, but knows the quorum only while it leads; a broker asks the leader."""
    with TestCluster.start(3) as cluster:
        leader = cluster.controller()
        at = next(str(node.controller_address) for node in cluster.plan.nodes if node.node_id != leader)
        began = time.monotonic()
        told = fails(1, "quorum", "-b", at)
        assert f"{at} is the listener of a controller: name that of a broker" in told
        assert time.monotonic() < began + 5.0, "it is said at once"


def test_a_web_server_is_recognised_long_before_the_time_out() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        at = f"127.0.0.1:{server.server_port}"
        began = time.monotonic()
        with pytest.raises(UnreachableError, match=f"{at} speaks HTTP instead of Kafka's protocol: name the port"):
            asyncio.run(ask(at, 60.0))
        assert time.monotonic() - began < 20
        server.shutdown()
        thread.join()


def test_status_shows_the_active_controller_where_no_broker_runs() -> None:
    with TestCluster.start(1, separate=True) as cluster:
        directory = cluster.plan.directory
        cluster.kill(1)
        shown = raftwerk("status", "-d", directory)
        assert shown.returncode == 1 and "active controller" in shown.stdout
        assert f"raftwerk start -d {directory} starts all nodes" in " ".join(shown.stdout.split())
        told = fails(1, "quorum", "-d", directory)
        at = cluster.plan.node(101).controller_address
        assert f"--bootstrap-controller {at} asks the controllers themselves" in told
        assert "leader 101" in raftwerk("quorum", "--bootstrap-controller", str(at)).stdout


@pytest.mark.long
def test_status_finds_the_active_controller_while_the_first_broker_is_paused() -> None:
    with TestCluster.start(3) as cluster:
        cluster.pause(1)
        deadline = time.monotonic() + 30
        while (leader := cluster.controller()) not in (2, 3):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        for where in (("-d", cluster.plan.directory), ("-b", cluster.bootstrap_servers)):
            shown = raftwerk("status", "--json", *where)
            rows = [json.loads(line) for line in shown.stdout.splitlines()]
            assert [row["node"] for row in rows if row.get("controller")] == [leader], shown
            shown = raftwerk("status", *where)
            assert shown.returncode == 1 and "active controller" in shown.stdout, shown
            assert "no leader" not in shown.stdout.replace("without a leader", "")
        cluster.resume(1)
