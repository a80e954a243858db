"""Partitions with data are moved under load and throttle, while nodes that matter to the move are killed one by one."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from support.e2e import helpers
from support.e2e.in_process import ok
from support.e2e.load_process import LoadProcess

from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.cluster.client.reassignment import (
    Move,
    OngoingMove,
    ProgressMeter,
    reassign,
    reassignments,
    throttle,
    unthrottle,
    wait_for_moves,
)
from raftwerk.cluster.local.supervisor import Supervisor

PARTITIONS = 4
DATA_BYTES = 8_000_000
"""In each partition."""
THROTTLE = 2_000_000
LIMIT_S = 60.0
TARGETS = ((4, 1, 2), (2, 4, 3), (3, 4, 1), (1, 2, 4))


class Scene:
    """Four nodes; a topic on 1, 2 and 3, of which each partition shall give one of its replicas to 4."""

    def __init__(self, supervisor: Supervisor, topic: str) -> None:
        self.supervisor = supervisor
        self.bootstrap = supervisor.plan.bootstrap
        self.topic = topic
        self.moves = [Move(topic, index, replicas) for index, replicas in enumerate(TARGETS)]

    def under_way(self) -> list[OngoingMove]:
        return helpers.ask(self.bootstrap, reassignments)

    def kill_while_moving(self, victim: int) -> None:
        assert self.under_way(), f"nothing moves any more when node {victim} is to be killed"
        self.supervisor.kill(victim)
        time.sleep(0.7)
        self.supervisor.start_node(victim)
        self.supervisor.wait_ready([victim])

    def start_moves(self) -> None:
        async def begin(client: ClusterClient) -> None:
            await throttle(client, self.moves, THROTTLE)
            await reassign(client, self.moves)

        helpers.ask(self.bootstrap, begin)

    def end_moves(self) -> None:
        helpers.ask(self.bootstrap, unthrottle)
        helpers.ask(self.bootstrap, lambda client: wait_for_moves(client, self.moves, LIMIT_S))

    def check_places(self) -> None:
        """Each partition is where it should be, in sync, and nothing is left of the move."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            found = helpers.describe(self.bootstrap, self.topic).topic(self.topic).partitions
            places = [(tuple(one.replicas), sorted(one.isr)) for one in found]
            if places == [(replicas, sorted(replicas)) for replicas in TARGETS]:
                break
            assert time.monotonic() < deadline, places
            time.sleep(0.05)
        assert self.under_way() == []


@pytest.mark.long
def test_moves_under_load_while_the_leader_the_new_replica_and_the_controller_are_killed(
    new_cluster: Callable[..., Supervisor], topic: str
) -> None:
    scene = Scene(new_cluster(4), topic)
    bootstrap = scene.bootstrap
    first = [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 2, 3]]
    helpers.create_on(bootstrap, topic, first)
    count = PARTITIONS * DATA_BYTES // 10_000
    ok("perf", "produce", topic, "-b", bootstrap, "--records", str(count), "--record-size", "10000")
    before = ends(bootstrap, topic)
    load = LoadProcess(bootstrap, topic, PARTITIONS, 300)
    try:
        scene.start_moves()
        scene.kill_while_moving(helpers.leader_of(bootstrap, topic))
        scene.kill_while_moving(4)
        scene.kill_while_moving(helpers.active_controller(bootstrap))
        scene.end_moves()
        told = load.finish()
    except BaseException:
        load.kill()
        raise
    scene.check_places()
    assert (told["failed"], told["left"]) == ([], 0)
    read = helpers.read_all(bootstrap, topic, PARTITIONS)
    for acked, values, old in zip(told["acked"], read, before, strict=True):
        numbers = [int(value) for value in values[old:]]
        assert len(acked) > 100
        assert numbers == sorted(acked), "each acked record is there once, in order, and nothing else"
    print(f"{sum(map(len, told['acked']))} acked, longest gap {told['longest_gap_s']:.2f} s")


def test_a_throttle_holds_while_acks_all_go_on_and_progress_is_told(
    new_cluster: Callable[..., Supervisor], topic: str
) -> None:
    """8 MB at 2 MB/s take four seconds; a produce beside it takes no longer than before."""
    bootstrap = new_cluster(4).plan.bootstrap
    helpers.create_on(bootstrap, topic, [[1, 2, 3]])
    ok("perf", "produce", topic, "-b", bootstrap, "--records", str(DATA_BYTES // 10_000), "--record-size", "10000")
    began = time.monotonic()
    at = ("-b", bootstrap)
    told = ok("partitions", "reassign", f"{topic}-0=1,2,4", "--throttle", str(THROTTLE), *at)
    assert "The throttle stays in place" in told
    described = ok("topics", "describe", topic, *at)
    assert described.endswith("  adding 4\n") and "under-replicated" not in described
    stream = helpers.Load(bootstrap, topic, rate=100)
    meter, seen = ProgressMeter([Move(topic, 0, (1, 2, 4))]), []
    while helpers.ask(bootstrap, reassignments):
        seen.append(helpers.ask(bootstrap, meter.measure))
        stream.run(0.2)
    taken_s = time.monotonic() - began
    stream.finish()
    assert DATA_BYTES / THROTTLE * 0.7 < taken_s < DATA_BYTES / THROTTLE * 3
    assert stream.longest_gap_s() < 2
    copied = [one.copied_bytes for one in seen]
    assert copied == sorted(copied)
    assert sum(0 < size < DATA_BYTES for size in dict.fromkeys(copied)) >= 3, "it can be seen how it goes on"
    assert f"{topic}, broker 1, broker 2, broker 3, broker 4" in ok("partitions", "unthrottle", *at)
    assert "Nothing was throttled" in ok("partitions", "unthrottle", *at)
    ok("partitions", "reassign", f"{topic}-0=1,2,3", "--throttle", "50000000", "--wait", *at)
    assert "Nothing was throttled" in ok("partitions", "unthrottle", *at), "who waits takes it off"


def test_throttles_are_removed_while_a_broker_is_down(new_cluster: Callable[..., Supervisor], topic: str) -> None:
    cluster = new_cluster(3)
    at = ("-b", cluster.plan.bootstrap)
    helpers.create_on(cluster.plan.bootstrap, topic, [[1, 2]])
    ok("configs", "set", "--topic", topic, "leader.replication.throttled.replicas=*", *at)
    ok("partitions", "reassign", f"{topic}-0=1,3", "--throttle", str(THROTTLE), *at)
    cluster.kill(3)
    told = ok("partitions", "unthrottle", *at)
    assert f"Removed the throttles of: {topic}, broker 1, broker 2.\n" in told.replace(", all brokers", "")
    assert "Removed what throttles there were of broker 3, which cannot be asked now." in told
    cluster.start_node(3)
    cluster.wait_ready([3])
    assert "Nothing was throttled" in ok("partitions", "unthrottle", *at)


def ends(bootstrap: str, topic: str) -> list[int]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
    try:
        return [helpers.end_of(consumer, TopicPartition(topic, index)) for index in range(PARTITIONS)]
    finally:
        consumer.close()
