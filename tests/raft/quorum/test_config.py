"""The settings of a quorum: what they are by default, what contradicts what, and who this node is by them."""

from __future__ import annotations

from uuid import UUID

import pytest

from raftwerk.raft.quorum.config import RaftConfig, RaftTiming
from raftwerk.raft.types import ReplicaKey
from raftwerk.raft.voters.voter_set import VersionRange, Voter, VoterEndpoint, VoterListener

STATIC = {1: VoterEndpoint("n1", 9093), 2: VoterEndpoint("n2", 9093)}
LISTENERS = (VoterListener("OTHER", "other", 9095), VoterListener("CONTROLLER", "moved", 9094))


def test_defaults() -> None:
    """The first four are Kafka's."""
    timing = RaftTiming()
    assert (timing.election_timeout_ms, timing.fetch_timeout_ms) == (1000, 2000)
    assert (timing.election_backoff_max_ms, timing.request_timeout_ms) == (1000, 2000)
    assert (timing.retry_backoff_ms, timing.fetch_max_wait_ms) == (50, 500)
    assert (timing.first_election_delay_ms, timing.election_stagger_ms) == (20, 30)
    assert timing.shutdown_grace_ms == 500
    config = RaftConfig(node_id=1, cluster_id="c", voters=STATIC)
    assert (config.can_vote, config.auto_join, config.listener_name) == (True, False, "CONTROLLER")
    assert config.spare_bytes == 0
    assert config.fetch_max_bytes == config.snapshot_fetch_max_bytes == 8_388_608
    retention = config.snapshot_retention
    assert (retention.max_bytes, retention.max_ms) == (100 * 1024 * 1024, 7 * 24 * 60 * 60 * 1000)


def test_a_node_must_know_a_voter_or_a_bootstrap_server() -> None:
    with pytest.raises(ValueError, match=r"controller\.quorum\.voters and controller\.quorum\.bootstrap\.servers"):
        RaftConfig(node_id=1, cluster_id="c")
    RaftConfig(node_id=1, cluster_id="c", bootstrap=(VoterEndpoint("n1", 9093),))
    RaftConfig(node_id=1, cluster_id="c", voters=STATIC)


@pytest.mark.parametrize("wait_ms", [499, 500, 501])
def test_an_idle_fetch_ends_before_its_leader_is_given_up_and_before_its_request_times_out(wait_ms: int) -> None:
    for timing in ({"fetch_timeout_ms": 500}, {"request_timeout_ms": 500}):
        try:
            settings = RaftTiming(fetch_max_wait_ms=wait_ms, **timing)
            RaftConfig(node_id=1, cluster_id="c", voters=STATIC, timing=settings)
        except ValueError as error:
            assert wait_ms >= 500, error
        else:
            assert wait_ms < 500, timing


def test_a_static_voter_is_where_the_configuration_says_whatever_listeners_it_has() -> None:
    config = RaftConfig(node_id=1, cluster_id="c", voters=STATIC, directory_id=UUID(int=7))
    assert config.own_key == ReplicaKey(1, UUID(int=7))
    assert config.own_endpoint == STATIC[1]
    assert config.own_listeners == (VoterListener("CONTROLLER", "n1", 9093),)
    config = RaftConfig(node_id=1, cluster_id="c", voters=STATIC, listeners=LISTENERS)
    assert config.own_endpoint == STATIC[1]
    assert config.own_listeners == LISTENERS, "its record names those that it has"


def test_another_controller_is_at_its_own_listener_and_a_broker_nowhere() -> None:
    config = RaftConfig(node_id=4, cluster_id="c", voters=STATIC, listeners=LISTENERS)
    assert config.own_endpoint == VoterEndpoint("moved", 9094)
    assert config.own_voter == Voter(ReplicaKey(4), LISTENERS, VersionRange(0, 1))
    broker = RaftConfig(node_id=5, cluster_id="c", voters=STATIC)
    assert broker.own_endpoint is None
    assert broker.own_listeners == ()


def test_static_voters_have_the_listener_of_the_quorum() -> None:
    voters = RaftConfig(node_id=4, cluster_id="c", voters=STATIC, listener_name="QUORUM").static_voters
    assert voters.keys == [ReplicaKey(1), ReplicaKey(2)]
    assert [voter.listeners for voter in voters.voters] == [
        (VoterListener("QUORUM", "n1", 9093),),
        (VoterListener("QUORUM", "n2", 9093),),
    ]
