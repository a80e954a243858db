"""Network partitions between the nodes of a test cluster: a leader is cut off, and no acked record is lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import ClusterMetadata

from raftwerk.cluster.local.supervisor import LocalNodeError
from raftwerk.runtime.faults import fault_socket
from raftwerk.testkit.process_cluster import TestCluster

pytestmark = pytest.mark.process
SETTINGS = {
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "300",
    "controller.quorum.fetch.timeout.ms": "800",
    "controller.quorum.election.timeout.ms": "500",
    "replica.lag.time.max.ms": "2000",
}


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    with TestCluster.start(3, settings=SETTINGS) as running:
        yield running


def wait_for(what: str, condition: Callable[[], object], limit_s: float = 30.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def send(bootstrap: str, topic: str, values: range) -> list[bytes]:
    acked: list[bytes] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})

    def on_delivery(error: KafkaError | None, sent: Message) -> None:
        value = sent.value()
        if not error and value is not None:
            acked.append(value)

    for value in values:
        producer.produce(topic, b"%d" % value, on_delivery=on_delivery)
    assert producer.flush(30) == 0
    return acked


def read(bootstrap: str, topic: str) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "log_level": 0})
    end = consumer.get_watermark_offsets(TopicPartition(topic, 0), 10)[1]
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    while len(values) < end:
        values += [one.value() or b"" for one in consumer.consume(end - len(values), 5.0)]
    consumer.close()
    return values


def metadata_of(cluster: TestCluster, node: int, topic: str) -> ClusterMetadata:
    """What a client learns that knows this node only."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_of(node), "log_level": 0})
    metadata: ClusterMetadata = producer.list_topics(topic, 10)
    return metadata


def leader_as_seen_by(cluster: TestCluster, node: int, topic: str, partition: int = 0) -> int:
    return int(metadata_of(cluster, node, topic).topics[topic].partitions[partition].leader)


def test_a_leader_that_is_cut_off_acks_nothing(cluster: TestCluster) -> None:
    topic = cluster.create_topic(replicas=3)
    old = cluster.leader_of(topic)
    before = send(cluster.bootstrap_servers, topic, range(100))
    cluster.partition(old)
    others = [node for node in cluster.node_ids if node != old]
    # All others have to know it: a client that a node tells of the old leader stays there.
    wait_for("another leader", lambda: not {leader_as_seen_by(cluster, one, topic) for one in others} & {old, -1})
    for one in others:
        assert sorted(metadata_of(cluster, one, topic).brokers) == others, "no new client turns to the silent node"

    lonely = Producer({"bootstrap.servers": cluster.bootstrap_of(old), "message.timeout.ms": 1500, "log_level": 0})
    refused: list[object] = []
    lonely.produce(topic, b"lost", on_delivery=lambda error, _: refused.append(error))
    after = send(cluster.bootstrap_of(*others), topic, range(100, 200))
    lonely.flush(10)

    cluster.heal()
    wait_for("all in sync", lambda: len(cluster.describe().topic(topic).partitions[0].isr) == 3)
    values = read(cluster.bootstrap_servers, topic)
    assert [value for value in values if value != b"lost"] == [*before, *after]
    assert values.count(b"lost") in ((1,) if refused[0] is None else (0, 1))
    assert cluster.controller() in cluster.node_ids


def test_the_nodes_of_the_majority_are_asked(cluster: TestCluster) -> None:
    topic = cluster.create_topic(replicas=3)
    first = cluster.node_ids[0]
    cluster.partition(first)
    created = cluster.create_topic(partitions=3, replicas=2)
    assert cluster.describe().topic(created).partitions[2].isr
    wait_for("a leader of the majority", lambda: cluster.leader_of(topic) not in (first, -1))
    cluster.partition([first], [2], [3])  # nobody has a majority: all are asked
    assert cluster.describe().brokers


def test_after_healing_all_nodes_know_the_new_leaders(cluster: TestCluster) -> None:
    topic = cluster.create_topic(partitions=3, replicas=3)
    led = next(one for one in range(3) if cluster.leader_of(topic, one) == 1)
    cluster.partition(1)  # the node that is asked first
    wait_for("another leader", lambda: cluster.leader_of(topic, led) not in (1, -1))
    elected = cluster.leader_of(topic, led)
    cluster.heal()
    after = cluster.describe()
    assert len(after.brokers) == 3, "no node is fenced any more"
    assert after.topic(topic).partitions[led].leader == elected
    assert {leader_as_seen_by(cluster, one, topic, led) for one in (1, 2, 3)} == {elected}


def test_a_node_that_was_paused_is_not_asked_for_leaders_while_others_run(cluster: TestCluster) -> None:
    topic = cluster.create_topic(partitions=3, replicas=3)
    led = next(one for one in range(3) if cluster.leader_of(topic, one) == 1)
    cluster.pause(1)
    wait_for("another leader", lambda: cluster.leader_of(topic, led) not in (1, -1))
    elected = cluster.leader_of(topic, led)
    cluster.resume(1)
    assert cluster.leader_of(topic, led) == elected


def test_two_on_one_side_go_on(cluster: TestCluster) -> None:
    cluster.partition([1, 2], [3])
    wait_for("node 3 is fenced", lambda: len(cluster.describe().brokers) == 2 or fenced(cluster, 3))
    topic = cluster.create_topic(replicas=2)
    assert cluster.leader_of(topic) in (1, 2)
    cluster.partition([1, 2, 3])
    wait_for("node 3 is back", lambda: not fenced(cluster, 3))
    assert cluster.is_alive(3)


def test_a_controller_that_is_cut_off_is_not_the_active_one(cluster: TestCluster) -> None:
    former = cluster.controller()
    assert former is not None
    cluster.partition(former)
    wait_for("another controller", lambda: cluster.controller() not in (former, None))


def fenced(cluster: TestCluster, node: int) -> bool:
    """Whether the nodes that reach each other have last logged that the node is fenced."""
    lines = [line for one in (1, 2) for line in cluster.log_of(one).splitlines() if f"broker={node} " in line]
    told = sorted(line for line in lines if "broker-fenced" in line or "broker-unfenced" in line)
    return bool(told) and "broker-fenced" in told[-1]


def test_a_cluster_that_was_stopped_says_so() -> None:
    with TestCluster.start(1) as cluster, pytest.raises(ValueError, match="name the nodes"):
        cluster.bootstrap_of()
    with pytest.raises(LocalNodeError, match="the cluster was stopped, and its temporary directory removed"):
        cluster.start_node(1)


def test_all_nodes_are_killed_and_start_again(cluster: TestCluster) -> None:
    topic = cluster.create_topic(replicas=3)
    acked = send(cluster.bootstrap_servers, topic, range(10))
    leader = cluster.leader_of(topic)
    left, other = (one for one in cluster.node_ids if one != leader)
    cluster.kill(other)
    cluster.kill(leader)
    assert cluster.leader_of(topic) == -1, "the node that is left knows the dead leader, and none can be elected"
    cluster.kill(left)
    told = r"without controllers 2, 3 there is no majority, and no node serves: start_node\(1, 2, 3\) starts all"
    with pytest.raises(LocalNodeError, match=told):
        cluster.start_node(1)
    assert not cluster.is_alive(1)
    cluster.heal()
    for node_id in cluster.node_ids:
        cluster.kill(node_id)
    cluster.start_node(*cluster.node_ids)
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    read = [one.value() for one in consumer.consume(len(acked), 30)]
    consumer.close()
    assert read == acked


def injected(cluster: TestCluster, node: int) -> list[str]:
    """What the node has logged of the addresses that it is cut off from, each time that they changed."""
    return [line for line in cluster.log_of(node).splitlines() if "faults-injected" in line]


def wait_until_told(cluster: TestCluster, node: int, *, is_cut: bool) -> None:
    """Wait until the node has logged last that it is cut off, or that it is not; it answers before it logs."""

    def is_told() -> bool:
        lines = injected(cluster, node)
        return bool(lines) and ("cut=[]" not in lines[-1]) == is_cut

    wait_for(f"node {node} says that it is {'cut off' if is_cut else 'healed'}", is_told)


def test_a_paused_node_cuts_its_connections_when_it_is_resumed() -> None:
    with TestCluster.start(2) as cluster:
        cluster.pause(1)
        cluster.partition(1)
        assert not injected(cluster, 1), "it stands still"
        wait_until_told(cluster, 2, is_cut=True)
        cluster.resume(1)
        wait_until_told(cluster, 1, is_cut=True)
        cluster.pause(1)
        cluster.resume(1)
        assert len(injected(cluster, 1)) == 1, "it was cut off before the second pause, and nothing has changed"
        cluster.pause(1)
        cluster.partition([1, 2])
        cluster.heal()
        wait_until_told(cluster, 1, is_cut=False)


def test_a_cut_that_a_node_did_not_take_in_time_does_not_hold_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its late answer would be taken for that to the next command, such as the one that heals the node."""
    with TestCluster.start(2) as cluster:
        with open(cluster.plan.node(1).pid_file, encoding="ascii") as file:
            pid = int(file.read())
        os.kill(pid, signal.SIGSTOP)
        told = "node 1 did not take the faults: timed out"
        with monkeypatch.context() as patched, pytest.raises(LocalNodeError, match=told):
            patched.setattr(fault_socket, "_TIMEOUT_S", 0.5)
            cluster.partition(1)
        os.kill(pid, signal.SIGCONT)
        wait_for("it has heard of the cut and of its end", lambda: len(injected(cluster, 1)) == 2)
        assert "cut=[]" in injected(cluster, 1)[-1]
        cluster.partition(1)
        wait_until_told(cluster, 1, is_cut=True)
