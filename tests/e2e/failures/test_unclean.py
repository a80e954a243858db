"""Elections of a replica that lacks records: asked for with Kafka's tool or ours, or allowed by the topic's setting."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from support.confluent import collect_errors
from support.e2e import helpers
from support.e2e.in_process import ok
from support.e2e.java_tools import JavaTools

from raftwerk.cluster.local.supervisor import Supervisor

pytestmark = pytest.mark.java
WHOLE, MISSED = 100, 50
TOPICS = ("by-tool", "by-command", "by-setting")
ELECT = "LeaderElectionCommand"


def produce(bootstrap: str, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, **helpers.PRODUCER})
    failed: list[str] = []
    for number in range(first, first + count):
        producer.produce(topic, b"%d" % number, on_delivery=collect_errors(failed))
    assert producer.flush(30) == 0
    assert not failed


def numbers(bootstrap: str, topic: str) -> list[int]:
    return [int(value) for value in helpers.read_all(bootstrap, topic)[0]]


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def isr_of(bootstrap: str, topic: str) -> list[int]:
    return sorted(helpers.describe(bootstrap, topic).topic(topic).partitions[0].isr)


@pytest.fixture
def cluster_without_leaders(new_cluster: Callable[..., Supervisor]) -> Supervisor:
    """Broker 1 had all 150 records of each topic and is dead; 2 lives and has the first 100; 3 has none."""
    supervisor = new_cluster(3, separate=True)
    bootstrap = supervisor.plan.bootstrap
    for topic in TOPICS:
        helpers.create_on(bootstrap, topic, [[1, 2]], "1")
        produce(bootstrap, topic, 0, WHOLE)
    supervisor.kill(2)
    until(lambda: all(isr_of(bootstrap, topic) == [1] for topic in TOPICS), "2 leaves the ISRs")
    for topic in TOPICS:
        produce(bootstrap, topic, WHOLE, MISSED)
    supervisor.kill(1)
    supervisor.start_node(2)
    supervisor.wait_ready([2])
    until(lambda: all(helpers.leader_of(bootstrap, topic) == -1 for topic in TOPICS), "nobody leads")
    return supervisor


def log_of(supervisor: Supervisor, node_id: int) -> str:
    return Path(next(node.log_file for node in supervisor.plan.nodes if node.node_id == node_id)).read_text()


def test_what_an_unclean_leader_lacks_is_lost_and_that_is_told(
    cluster_without_leaders: Supervisor, java_tools: JavaTools
) -> None:
    supervisor = cluster_without_leaders
    bootstrap = supervisor.plan.bootstrap
    by_tool, by_command, by_setting = TOPICS
    at = ("--bootstrap-server", bootstrap)
    told = java_tools.run("TopicCommand", *at, "--describe", "--unavailable-partitions")
    assert [topic in told for topic in TOPICS] == [True] * 3
    one = ("--topic", by_tool, "--partition", "0")
    told = java_tools.run(ELECT, *at, "--election-type", "preferred", *one, fails=True)
    assert "PreferredLeaderNotAvailable" in told
    assert helpers.leader_of(bootstrap, by_tool) == -1, "nothing is lost before somebody asks for it"

    told = java_tools.run(ELECT, *at, "--election-type", "unclean", *one)
    assert f"Successfully completed leader election (UNCLEAN) for partitions {by_tool}-0" in told
    assert f"{by_command}-0 elected" in ok("partitions", "elect", f"{by_command}-0", "--unclean", "-b", bootstrap)
    assert helpers.leader_of(bootstrap, by_setting) == -1
    allow = ("--alter", "--add-config", "unclean.leader.election.enable=true")
    java_tools.run("kafka.admin.ConfigCommand", *at, *allow, "--entity-type", "topics", "--entity-name", by_setting)

    until(lambda: all(helpers.leader_of(bootstrap, topic) == 2 for topic in TOPICS), "2 leads")
    for topic in TOPICS:
        assert numbers(bootstrap, topic) == list(range(WHOLE)), "50 acked records are gone"
        produce(bootstrap, topic, 1000, 10)
    supervisor.start_node(1)
    supervisor.wait_ready([1])
    until(lambda: all(isr_of(bootstrap, topic) == [1, 2] for topic in TOPICS), "1 comes back")
    for topic in TOPICS:
        assert numbers(bootstrap, topic) == [*range(WHOLE), *range(1000, 1010)]
        elected = re.search(rf"unclean-election topic={topic} partition=0 leader=2", log_of(supervisor, 2))
        assert elected, "the new leader says so"
        cut = rf"truncated topic={topic} partition=0 to={WHOLE} end={WHOLE + MISSED}"
        assert re.search(cut, log_of(supervisor, 1)), "and who had more says what is gone"
