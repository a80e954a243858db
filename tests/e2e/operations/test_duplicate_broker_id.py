"""A second broker with the id of a live one says why it waits; its empty directory leaves partitions offline."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from raftwerk.cluster.doctor.cluster_checks import examine_cluster
from raftwerk.cluster.doctor.findings import FAILURE
from raftwerk.cluster.local.free_ports import why_not_free
from raftwerk.cluster.local.layout import ClusterShape, find_free_base_port
from raftwerk.cluster.settings.properties import format_properties
from raftwerk.testkit.process_cluster import TestCluster

pytestmark = pytest.mark.process


def until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_a_broker_with_the_id_of_a_live_one_waits_and_says_so(tmp_path: Path) -> None:
    with TestCluster.start(2, separate=True) as cluster:
        cluster.create_topic("t", partitions=2, replicas=1)
        mine = next(one.partition for one in cluster.describe().topic("t").partitions if one.leader == 2)
        node = cluster.plan.node(2)
        port = find_free_base_port(ClusterShape(1))
        assert why_not_free("127.0.0.1", port) is None
        listener = f"PLAINTEXT://127.0.0.1:{port}"
        changes = {"listeners": listener, "advertised.listeners": listener, "log.dirs": str(tmp_path / "empty")}
        file, log = tmp_path / "second.properties", tmp_path / "second.log"
        file.write_text(format_properties({**node.properties, **changes}))
        command = [sys.executable, "-m", "raftwerk", "node", str(file), "--format", cluster.plan.cluster_id]
        with log.open("wb") as out:
            second = subprocess.Popen(command, stderr=out)
        try:
            told = (
                rf"a broker with id 2 is already registered from 127.0.0.1:{node.port}, incarnation \S+: this one waits"
            )
            until(lambda: re.search(told, log.read_text()), "the second broker says nothing")
            assert cluster.leader_of("t", mine) == 2
            cluster.stop_node(2)
            until(lambda: "to RUNNING" in log.read_text(), "the second broker does not take over")
            assert log.read_text().count("is already registered") == 1
            found = asyncio.run(examine_cluster(cluster.bootstrap_servers))
            (lost,) = [one for one in found if "without a leader" in one.what]
            assert lost.level == FAILURE and f"without a replica that may lead: t-{mine} (replicas: 2;" in lost.what
            assert "another log directory under the same node.id" in lost.way_out
            assert f"raftwerk partitions elect --unclean t-{mine} makes" in lost.way_out
        finally:
            second.terminate()
            second.wait(30)
