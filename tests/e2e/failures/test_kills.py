"""SIGKILL of leader, controller, both, all: nothing acked is lost or doubled, and writes go on within a second."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from support.e2e import helpers

from raftwerk.cluster.local.supervisor import Supervisor

GAP_LIMIT_S = 1.0
"""The longest gap between two acks that is promised after a kill. A broker's session has nine seconds."""
CLEAN_STOP_GAP_LIMIT_S = 5.0
"""The client's own rests after old metadata make up the gaps of a rolling restart; a session would be waited out."""
ATTEMPTS_MAX = 3
"""A machine that is busy with other tests may stand still itself, so a longer gap is looked at again."""
MakeCluster = Callable[..., Supervisor]


@pytest.fixture
def load(new_cluster: MakeCluster, topic: str) -> tuple[Supervisor, helpers.Load]:
    supervisor = new_cluster()
    helpers.create_topic(supervisor.plan.bootstrap, topic, min_insync_replicas="2")
    return supervisor, helpers.Load(supervisor.plan.bootstrap, topic)


def shortest_gap_s(
    supervisor: Supervisor, stream: helpers.Load, replicas: int, victims: Callable[[], tuple[int, ...]]
) -> float:
    """Kill the victims under load and start them again, until the gap is as promised or the attempts are used up."""
    gaps = []
    for _ in range(ATTEMPTS_MAX):
        helpers.wait_in_sync(stream.bootstrap, stream.topic, replicas)
        stream.run(1)
        since = len(stream.ack_times)
        killed = victims()
        for victim in killed:
            supervisor.kill(victim)
        stream.run(2.5)
        gaps.append(stream.longest_gap_since_s(since))
        for victim in killed:
            supervisor.start_node(victim)
        stream.run(1)
        supervisor.wait_ready()
        if gaps[-1] <= GAP_LIMIT_S:
            break
    return min(gaps)


@pytest.mark.parametrize("what", ["leader", "controller"])
def test_one_killed_under_load(load: tuple[Supervisor, helpers.Load], what: str) -> None:
    supervisor, stream = load

    def victims() -> tuple[int, ...]:
        if what == "leader":
            return (helpers.leader_of(stream.bootstrap, stream.topic),)
        return (helpers.active_controller(stream.bootstrap),)

    gap_s = shortest_gap_s(supervisor, stream, 3, victims)
    stream.finish()
    stream.check()
    assert gap_s <= GAP_LIMIT_S


@pytest.mark.long
def test_two_of_five_killed_at_once(new_cluster: MakeCluster, topic: str) -> None:
    """The leader and the active controller die together; the other three go on."""
    supervisor = new_cluster(5)
    bootstrap = supervisor.plan.bootstrap
    helpers.create_topic(bootstrap, topic, replicas=5, min_insync_replicas="2")
    stream = helpers.Load(bootstrap, topic)

    def victims() -> tuple[int, ...]:
        leader, controller = helpers.leader_of(bootstrap, topic), helpers.active_controller(bootstrap)
        other = next(node for node in (1, 2, 3, 4, 5) if node != controller)
        return (leader, controller) if leader != controller else (leader, other)

    gap_s = shortest_gap_s(supervisor, stream, 5, victims)
    stream.finish()
    stream.check()
    assert gap_s <= GAP_LIMIT_S


def test_leader_and_controller_of_three_killed_at_once(load: tuple[Supervisor, helpers.Load]) -> None:
    """One of three is left: no majority until they are back; then everything goes on."""
    supervisor, stream = load
    stream.run(1.5)
    leader = helpers.leader_of(stream.bootstrap, stream.topic)
    controller = helpers.active_controller(stream.bootstrap)
    victims = {leader, controller} if leader != controller else {leader, leader % 3 + 1}
    for victim in sorted(victims):
        supervisor.kill(victim)
    stream.run(1)
    for victim in sorted(victims):
        supervisor.start_node(victim)
    stream.run(3)
    supervisor.wait_ready()
    stream.finish()
    stream.check()


def test_all_three_killed_and_restarted(load: tuple[Supervisor, helpers.Load]) -> None:
    supervisor, stream = load
    stream.run(2)
    for node in (1, 2, 3):
        supervisor.kill(node)
    for node in (1, 2, 3):
        supervisor.start_node(node)
    stream.run(3)
    supervisor.wait_ready()
    stream.finish()
    stream.check()


def test_a_paused_leader_loses_nothing(load: tuple[Supervisor, helpers.Load]) -> None:
    """SIGSTOP is no death: nobody may take the node for dead by mistake, and what it acked stays."""
    supervisor, stream = load
    stream.run(1)
    victim = helpers.leader_of(stream.bootstrap, stream.topic)
    supervisor.kill(victim, signal.SIGSTOP)
    stream.run(1)
    supervisor.kill(victim, signal.SIGCONT)
    stream.run(2)
    stream.finish()
    stream.check()


def test_a_clean_stop_hands_over(load: tuple[Supervisor, helpers.Load]) -> None:
    supervisor, stream = load
    stream.run(1)
    for node in (1, 2, 3):
        supervisor.kill(node, signal.SIGTERM)
        while supervisor.children[node].alive:
            stream.run(0.1)
        assert supervisor.children[node].process.returncode == 0
        stream.run(0.5)
        supervisor.restart_node(node)
        stream.run(1)
    stream.finish()
    stream.check()
    assert stream.longest_gap_s() <= CLEAN_STOP_GAP_LIMIT_S


def test_everything_is_there_after_a_clean_restart(new_cluster: MakeCluster, topic: str) -> None:
    supervisor = new_cluster(1)
    bootstrap = supervisor.plan.bootstrap
    helpers.create_topic(bootstrap, topic, 1, 1)
    stream = helpers.Load(bootstrap, topic)
    stream.run(0.5)
    stream.finish()
    assert supervisor.stop() == []
    supervisor.start()
    stream.check()


def test_controllers_in_processes_of_their_own(new_cluster: MakeCluster, topic: str) -> None:
    supervisor = new_cluster(2, separate=True)
    bootstrap = supervisor.plan.bootstrap
    helpers.create_topic(bootstrap, topic, 1, 2)
    stream = helpers.Load(bootstrap, topic)
    stream.run(0.5)
    stream.finish()
    stream.check()
    assert helpers.active_controller(bootstrap) > 100
