"""Bytes on a node's disk change or are gone, on real processes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.e2e.consumers import PARTITIONS, fill

from raftwerk.cluster.local.supervisor import LocalNodeError
from raftwerk.cluster.testing.cluster import TestCluster

SCRUB = {"log.scrub.interval.ms": "100", "log.scrub.io.max.bytes.per.second": "1e9"}
SEGMENT = "00000000000000000000.log"


def until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    give_up_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up_s, "it never came to pass"
        time.sleep(0.05)


def test_a_damaged_replica_is_mended_from_another() -> None:
    with TestCluster.start(3, settings=SCRUB) as cluster:
        topic = "flights"
        cluster.create_topic(topic, partitions=PARTITIONS, replicas=3)
        fill(cluster.bootstrap_servers, topic, create=False)
        leader = cluster.leader_of(topic)
        files = {node.node_id: Path(node.data_dir) / f"{topic}-0" / SEGMENT for node in cluster.plan.nodes}
        until(lambda: len({file.read_bytes() for file in files.values()}) == 1)
        sound = files[leader].read_bytes()
        with files[leader].open("r+b") as file:
            file.seek(len(sound) // 2)
            file.write(bytes([sound[len(sound) // 2] ^ 1]))
        until(lambda: files[leader].read_bytes() == sound)
        assert "flights-0 is damaged from offset" in cluster.log_of(leader)
        until(lambda: len(cluster.describe().topic(topic).partitions[0].isr) == 3)


def test_a_controller_that_lost_its_log_does_not_vote() -> None:
    with TestCluster.start(3) as cluster:
        damaged = cluster.plan.nodes[1]
        cluster.stop_node(damaged.node_id)
        log = Path(damaged.data_dir) / "__cluster_metadata-0" / SEGMENT
        log.write_bytes(log.read_bytes()[:-100])
        with pytest.raises(LocalNodeError, match=r"__cluster_metadata-0 has lost what this voter must know"):
            cluster.start_node(damaged.node_id)
        shutil.rmtree(damaged.data_dir)
        cluster.start_node(damaged.node_id)
        assert cluster.controller() is not None
