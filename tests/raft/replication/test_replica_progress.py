"""What a leader knows of the replicas that fetch from it."""

from __future__ import annotations

from uuid import UUID

from raftwerk.raft.replication.replica_progress import OBSERVER_SESSION_MS, ProgressTracker, ReplicaProgress
from raftwerk.raft.types import ReplicaKey
from raftwerk.raft.voters.voter_set import Voter, VoterEndpoint, VoterListener, VoterSet

LEADER = ReplicaKey(1, UUID(int=1))


def key(node_id: int, directory: int | None = None) -> ReplicaKey:
    return ReplicaKey(node_id, UUID(int=directory or node_id))


def voters(*keys: ReplicaKey) -> VoterSet:
    return VoterSet.of(Voter(key, (VoterListener("CONTROLLER", f"n{key.id}", 9093),)) for key in keys)


def tracker(*others: ReplicaKey) -> ProgressTracker:
    return ProgressTracker(LEADER, voters(LEADER, *others))


def test_the_disk_that_fetched_last_is_the_nodes() -> None:
    replicas = tracker(key(2))
    former, current = replicas.progress_of(key(4, 40)), replicas.progress_of(key(4, 41))
    former.on_fetch(0, 10, now_ms=1000)
    assert not replicas.is_replaced(former), "the other directory has not fetched yet"
    current.on_fetch(0, 10, now_ms=1000)
    assert not replicas.is_replaced(former), "nobody knows which of the two was later"
    current.on_fetch(0, 10, now_ms=1001)
    assert replicas.is_replaced(former)
    assert not replicas.is_replaced(current)


def test_another_node_replaces_nobody() -> None:
    replicas = tracker(key(2))
    observer = replicas.progress_of(key(4))
    observer.on_fetch(0, 10, now_ms=1000)
    replicas.progress_of(key(5)).on_fetch(0, 10, now_ms=2000)
    assert not replicas.is_replaced(observer)


def test_an_observer_is_forgotten_after_its_session() -> None:
    replicas = tracker(key(2))
    replicas.progress_of(key(4)).on_fetch(0, 10, now_ms=1000)
    replicas.forget_silent_observers(1000 + OBSERVER_SESSION_MS)
    assert key(4) in replicas.observers
    replicas.forget_silent_observers(1001 + OBSERVER_SESSION_MS)
    assert key(4) not in replicas.observers


def test_a_former_voter_that_never_fetched_is_forgotten_as_if_it_had_at_the_beginning_of_time() -> None:
    replicas = tracker(key(2))
    replicas.set_voters(voters(LEADER))
    replicas.forget_silent_observers(OBSERVER_SESSION_MS)
    assert key(2) in replicas.observers
    replicas.forget_silent_observers(OBSERVER_SESSION_MS + 1)
    assert key(2) not in replicas.observers


def test_what_is_known_is_kept_when_an_observer_becomes_a_voter_and_back() -> None:
    replicas = tracker(key(2))
    replicas.progress_of(key(4)).on_fetch(7, 10, now_ms=1000)
    replicas.set_voters(voters(LEADER, key(2), key(4)))
    assert replicas.peers[4].end_offset == 7
    assert key(4) not in replicas.observers
    replicas.set_voters(voters(LEADER, key(2)))
    assert replicas.observers[key(4)].end_offset == 7
    assert sorted(replicas.peers) == [2]


def test_a_voter_with_another_directory_begins_anew() -> None:
    replicas = tracker(key(2))
    replicas.progress_of(key(2)).on_fetch(7, 10, now_ms=1000)
    replicas.set_voters(voters(LEADER))
    replicas.set_voters(voters(LEADER, key(2, 20)))
    assert replicas.peers[2].end_offset == -1
    assert replicas.observers[key(2)].end_offset == 7


def test_a_fetch_by_another_directory_of_a_voters_node_is_that_of_an_observer() -> None:
    replicas = tracker(key(2))
    other = replicas.progress_of(key(2, 20))
    other.on_fetch(9, 10, now_ms=1000)
    assert replicas.observers == {key(2, 20): other}
    assert (replicas.peers[2].key, replicas.peers[2].end_offset) == (key(2), -1)
    own = replicas.progress_of(LEADER)
    assert replicas.observers[LEADER] is own, "a leader that fetches from itself counts once"


def test_a_static_voter_is_known_with_the_directory_that_it_told() -> None:
    static = VoterSet.static({1: VoterEndpoint("n1", 9093), 2: VoterEndpoint("n2", 9093)}, "CONTROLLER")
    replicas = ProgressTracker(LEADER, static)
    replicas.progress_of(key(2)).on_fetch(9, 10, now_ms=1000)
    assert (replicas.peers[2].key, replicas.peers[2].end_offset) == (key(2), 9)
    assert replicas.peers_by_log_length() == [key(2)]


def test_a_replica_had_caught_up_when_it_last_fetched_if_it_has_now_what_there_was_then() -> None:
    progress = tracker(key(2)).peers[2]
    progress.on_fetch(5, 10, now_ms=1000)
    assert progress.last_caught_up_ms is None
    progress.on_fetch(9, 12, now_ms=2000)
    assert progress.last_caught_up_ms is None
    progress.on_fetch(12, 20, now_ms=3000)
    assert progress.last_caught_up_ms == 2000
    progress.on_fetch(20, 20, now_ms=4000)
    assert progress.last_caught_up_ms == 4000
    progress.on_fetch(20, 21, now_ms=5000)
    assert progress.last_caught_up_ms == 4000


def test_nothing_is_known_of_a_replica_that_has_not_fetched() -> None:
    assert ReplicaProgress(key(2)) == ReplicaProgress(key(2), -1, None, None, -1, -1)


def test_a_leader_that_is_no_voter_does_not_count_itself() -> None:
    replicas = tracker(key(2), key(3))
    replicas.progress_of(key(2)).on_fetch(7, 10, now_ms=1000)
    assert sorted(replicas.durable_end_offsets(9)) == [-1, 7, 9]
    replicas.set_voters(voters(key(2), key(3)))
    assert sorted(replicas.durable_end_offsets(9)) == [-1, 7]


def test_successors_are_named_by_the_length_of_their_logs() -> None:
    replicas = tracker(key(2), key(3), key(4))
    replicas.progress_of(key(4)).on_fetch(7, 10, now_ms=1000)
    replicas.progress_of(key(3)).on_fetch(5, 10, now_ms=1000)
    replicas.progress_of(key(2)).on_fetch(5, 10, now_ms=1000)
    assert replicas.peers_by_log_length() == [key(4), key(2), key(3)]


def test_a_tool_without_an_id_is_not_remembered() -> None:
    replicas = tracker(key(2))
    replicas.progress_of(ReplicaKey(-1)).on_fetch(7, 10, now_ms=1000)
    assert replicas.observers == {}
    replicas.progress_of(ReplicaKey(0)).on_fetch(7, 10, now_ms=1000)
    assert list(replicas.observers) == [ReplicaKey(0)], "0 is the id of a node"
