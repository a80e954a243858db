"""Bytes on a node's disk change or are gone, on real processes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from support.e2e.consumers import PARTITIONS, fill

from raftwerk.cluster.local.supervisor import LocalNodeError
from raftwerk.testkit.process_cluster import TestCluster

SCRUB = {"log.scrub.interval.ms": "100", "log.scrub.io.max.bytes.per.second": "1e9"}
T = TypeVar("T")
SEGMENT = "00000000000000000000.log"


def until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    give_up_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up_s, "it never came to pass"
        time.sleep(0.05)


def content(file: Path) -> bytes:
    """Empty while the file is not there, as when a segment is replaced."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""


def test_a_damaged_replica_is_mended_from_another() -> None:
    with TestCluster.start(3, settings=SCRUB) as cluster:
        topic = "flights"
        cluster.create_topic(topic, partitions=PARTITIONS, replicas=3)
        fill(cluster.bootstrap_servers, topic, create=False)
        leader = cluster.leader_of(topic)
        files = {node.node_id: Path(node.data_dir) / f"{topic}-0" / SEGMENT for node in cluster.plan.nodes}
        until(lambda: bool(content(files[leader])) and len({content(file) for file in files.values()}) == 1)
        sound = files[leader].read_bytes()
        with files[leader].open("r+b") as file:
            file.seek(len(sound) // 2)
            file.write(bytes([sound[len(sound) // 2] ^ 1]))
        until(lambda: content(files[leader]) == sound)
        assert "flights-0 is damaged from offset" in cluster.log_of(leader)
        until(lambda: len(cluster.describe().topic(topic).partitions[0].isr) == 3)


def test_a_node_that_is_killed_and_started_fetches_what_was_damaged_before_it_was_fsynced() -> None:
    with TestCluster.start(3) as cluster:
        topic = "flights"
        cluster.create_topic(topic, partitions=PARTITIONS, replicas=3)
        fill(cluster.bootstrap_servers, topic, create=False)
        killed = next(node for node in cluster.plan.nodes if node.node_id != cluster.leader_of(topic))
        file = Path(killed.data_dir) / f"{topic}-0" / SEGMENT
        led = Path(cluster.plan.node(cluster.leader_of(topic)).data_dir) / f"{topic}-0" / SEGMENT
        until(lambda: bool(content(led)) and content(led) == content(file))
        cluster.kill(killed.node_id)
        with file.open("r+b") as damaged:
            damaged.seek(len(content(file)) // 2)
            damaged.write(bytes([content(led)[len(content(file)) // 2] ^ 1]))
        cluster.start_node(killed.node_id)
        until(lambda: content(file) == content(led))
        assert "; cut from " in cluster.log_of(killed.node_id)
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


def committing(cluster: TestCluster, group: str) -> Consumer:
    """A consumer that only commits and asks for what is committed."""
    return Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})


def when_loaded(request: Callable[[], T]) -> T:
    """The answer to the request, asked again while the group's coordinator moves or is loaded."""
    waits = KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR, KafkaError._WAIT_COORD
    answers: list[T] = []

    def is_answered() -> bool:
        try:
            answers.append(request())
        except KafkaException as refused:
            assert refused.args[0].code() in waits, refused
        return bool(answers)

    until(is_answered)
    return answers[0]


def commit(consumer: Consumer, topic: str, offset: int) -> None:
    offsets = [TopicPartition(topic, 0, offset)]
    when_loaded(lambda: consumer.commit(offsets=offsets, asynchronous=False))


def committed(consumer: Consumer, topic: str) -> int:
    (found,) = when_loaded(lambda: consumer.committed([TopicPartition(topic, 0)], timeout=30))
    return int(found.offset)


def flip_bit(file: Path, at: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        byte = opened.read(1)
        opened.seek(at)
        opened.write(bytes([byte[0] ^ 0x40]))


@pytest.mark.long
@pytest.mark.parametrize("nodes", [1, 3])
def test_groups_outlive_damage_of_their_log(nodes: int) -> None:
    """One node passes over the damaged commit; of three, the others still have it."""
    settings = {"offsets.topic.num.partitions": "1", "leader.imbalance.check.interval.seconds": "1"}
    with TestCluster.start(nodes, settings=settings) as cluster:
        cluster.create_topic("flights", partitions=1, replicas=nodes)
        for offset in (3, 7):
            consumer = committing(cluster, f"group-{offset}")
            commit(consumer, "flights", offset)
            consumer.close()
        leader = cluster.leader_of("__consumer_offsets")
        cluster.stop_node(leader)
        data = Path(next(node.data_dir for node in cluster.plan.nodes if node.node_id == leader))
        flip_bit(data / "__consumer_offsets-0" / SEGMENT, 70)
        cluster.start_node(leader)
        until(lambda: cluster.leader_of("__consumer_offsets") == leader or "is mended from" in cluster.log_of(leader))
        for offset in (3, 7):
            consumer = committing(cluster, f"group-{offset}")
            if (nodes, offset) != (1, 3):
                assert committed(consumer, "flights") == offset
            commit(consumer, "flights", offset + 1)
            assert committed(consumer, "flights") == offset + 1
            consumer.close()
        lines = cluster.log_of(leader)
        if nodes == 1:
            assert lines.count("is passed over") == 1
        else:
            until(lambda: "__consumer_offsets-0: the segment at 0 is mended from" in cluster.log_of(leader))
            assert "is passed over" not in cluster.log_of(leader)
