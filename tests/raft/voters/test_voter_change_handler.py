"""A leader's work on a change of the voters, from the request to its one answer."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest
from support.raft.memory_log import Entry, MemoryLog

from raftwerk.log.errors import StorageError
from raftwerk.raft.messages.messages import (
    AddVoter,
    ChangeReply,
    Fetch,
    Outgoing,
    ProbeReply,
    ProbeVoter,
    RemoveVoter,
    UpdateVoter,
    VoterChange,
)
from raftwerk.raft.quorum.config import RaftConfig
from raftwerk.raft.quorum.effects import FailureKind
from raftwerk.raft.quorum.quorum import Quorum
from raftwerk.raft.types import ElectionState, ReplicaKey
from raftwerk.raft.voters.voter_set import (
    ControlRecord,
    KRaftVersion,
    VersionRange,
    Voter,
    VoterEndpoint,
    VoterListener,
    VoterSet,
)
from raftwerk.wire.errors import ErrorCode

NOW_MS = 1000
REQUEST_TIMEOUT_MS = 2000
"""The default of `request_timeout_ms`."""
BOTH = VersionRange(0, 1)


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, UUID(int=node_id))


def voter(node_id: int, host: str | None = None, versions: VersionRange = BOTH) -> Voter:
    return Voter(key(node_id), (VoterListener("CONTROLLER", host or f"n{node_id}", 9093),), versions)


class LoneLeader:
    """A lone voter that leads epoch 1. Observer 4 has caught up with it."""

    def __init__(self, *, is_dynamic: bool = True, observer_fetches: bool = True) -> None:
        self.has_disk = True
        config = RaftConfig(
            node_id=1,
            cluster_id="c",
            voters={} if is_dynamic else {1: VoterEndpoint("n1", 9093)},
            bootstrap=(VoterEndpoint("n1", 9093),),
            directory_id=key(1).directory_id,
            listeners=voter(1).listeners,
        )
        formatted: list[ControlRecord] = [KRaftVersion(1), VoterSet.of([voter(1)])] if is_dynamic else []
        self.log = MemoryLog(self.on_append, formatted)
        self.quorum = Quorum(config, self.log, ElectionState(), random.Random(0))
        self.quorum.start(0)
        self.commit()
        if observer_fetches:
            self.fetch(4)

    def on_append(self, _entry: Entry, _previous_epoch: int) -> None:
        if not self.has_disk:
            raise StorageError("the disk is broken")

    def commit(self) -> list[tuple[int, ChangeReply]]:
        """All that the leader has is durable; the answers that follow."""
        self.log.flush()
        self.quorum.on_flushed(NOW_MS)
        return self.quorum.take_effects().change_replies

    def fetch(self, node_id: int) -> list[tuple[int, ChangeReply]]:
        """A replica has all of the log; the answers that follow."""
        fetch = Fetch(
            cluster_id="c",
            replica=key(node_id),
            epoch=1,
            fetch_offset=self.log.end_offset,
            last_epoch=1,
            max_wait_ms=0,
            max_bytes=100,
        )
        self.quorum.on_fetch(99, fetch, NOW_MS)
        return self.quorum.take_effects().change_replies

    def ask(self, change: VoterChange, token: int = 7) -> tuple[list[Outgoing], list[tuple[int, ChangeReply]]]:
        """What is sent because of the request, and what is answered at once."""
        self.quorum.on_voter_change(token, change, NOW_MS)
        effects = self.quorum.take_effects()
        return effects.requests, effects.change_replies

    def probe(self, **fields: Any) -> Outgoing:
        """Ask for voter 4, which is asked for its versions."""
        (sent,), replies = self.ask(add(4, **fields))
        assert replies == []
        assert (sent.to, sent.endpoint, sent.request) == (4, VoterEndpoint("n4", 9093), ProbeVoter(voter=key(4)))
        return sent

    def on_probed(self, sent: Outgoing, versions: VersionRange | None) -> list[tuple[int, ChangeReply]]:
        if versions is None:
            self.quorum.on_failure(sent, FailureKind.REFUSED, NOW_MS)
        else:
            self.quorum.on_reply(sent, ProbeReply(versions=versions), NOW_MS)
        return self.quorum.take_effects().change_replies

    @property
    def voters(self) -> VoterSet:
        return self.quorum.state.voters


def add(node_id: int, **fields: Any) -> AddVoter:
    return AddVoter(cluster_id="c", voter=voter(node_id), **({"timeout_ms": 700} | fields))


def errors(replies: list[tuple[int, ChangeReply]]) -> list[tuple[int, ErrorCode]]:
    return [(token, reply.error) for token, reply in replies]


def test_a_voter_is_added_with_the_versions_that_it_tells_and_the_answer_waits_for_the_commit() -> None:
    leader = LoneLeader()
    assert leader.on_probed(leader.probe(), VersionRange(1, 1)) == []
    assert leader.voters == VoterSet.of([voter(1), voter(4, versions=VersionRange(1, 1))]), "it counts at once"
    assert leader.commit() == [], "of the two voters one has it"
    assert errors(leader.fetch(4)) == [(7, ErrorCode.NONE)]
    assert leader.fetch(4) == [], "a request has one answer"


def test_who_does_not_wait_for_the_commit_is_answered_when_the_record_is_appended() -> None:
    leader = LoneLeader()
    sent = leader.probe(ack_when_committed=False)
    assert errors(leader.on_probed(sent, BOTH)) == [(7, ErrorCode.NONE)]
    assert leader.voters.ids == [1, 4]
    leader.commit()
    assert leader.fetch(4) == []


@pytest.mark.parametrize(
    ("versions", "error", "message"),
    [
        (None, ErrorCode.REQUEST_TIMED_OUT, "node 4 does not answer at n4:9093"),
        (VersionRange(0, 0), ErrorCode.INVALID_REQUEST, "Node 4 does not support kraft.version 1."),
    ],
)
def test_a_node_that_does_not_answer_or_is_too_old_is_no_voter(
    versions: VersionRange | None, error: ErrorCode, message: str
) -> None:
    leader = LoneLeader()
    ((token, reply),) = leader.on_probed(leader.probe(), versions)
    assert (token, reply.error, reply.message) == (7, error, message)
    assert leader.voters.ids == [1]
    leader.probe()  # the next change may begin


def test_a_node_that_has_not_caught_up_lately_is_no_voter() -> None:
    leader = LoneLeader(observer_fetches=False)
    assert errors(leader.on_probed(leader.probe(), BOTH)) == [(7, ErrorCode.REQUEST_TIMED_OUT)]
    leader = LoneLeader()
    sent = leader.probe(timeout_ms=10_000)
    leader.quorum.on_reply(sent, ProbeReply(versions=BOTH), NOW_MS + 2001)
    assert errors(leader.quorum.take_effects().change_replies) == [(7, ErrorCode.REQUEST_TIMED_OUT)]
    leader = LoneLeader()
    leader.quorum.on_reply(leader.probe(), ProbeReply(versions=BOTH), NOW_MS + 2000)
    assert leader.voters.ids == [1, 4], "within a fetch time-out is lately"


def test_only_the_answer_to_the_present_question_counts() -> None:
    leader = LoneLeader()
    former = leader.probe()
    leader.on_probed(former, None)
    present = leader.probe()
    assert leader.on_probed(former, BOTH) == []
    assert leader.voters.ids == [1]
    leader.on_probed(present, BOTH)
    end_offset = leader.log.end_offset
    assert leader.on_probed(present, BOTH) == []
    assert leader.log.end_offset == end_offset, "the record is appended once"


def test_one_change_at_a_time() -> None:
    leader = LoneLeader()
    sent = leader.probe()
    requests, replies = leader.ask(add(5), token=8)
    assert (requests, errors(replies)) == ([], [(8, ErrorCode.REQUEST_TIMED_OUT)])
    leader.on_probed(sent, BOTH)
    requests, replies = leader.ask(RemoveVoter(cluster_id="c", voter=key(1)), token=9)
    assert (requests, errors(replies)) == ([], [(9, ErrorCode.REQUEST_TIMED_OUT)])
    requests, replies = leader.ask(UpdateVoter(cluster_id="c", epoch=1, voter=voter(1, "elsewhere")), token=10)
    assert (requests, errors(replies)) == ([], [(10, ErrorCode.REQUEST_TIMED_OUT)])
    leader.commit()
    leader.fetch(4)
    requests, _ = leader.ask(add(5), token=11)
    assert [one.to for one in requests] == [5]


def test_a_change_that_is_not_committed_in_time_is_answered_and_counts_on() -> None:
    leader = LoneLeader()
    leader.on_probed(leader.probe(), BOTH)
    leader.quorum.on_timer(NOW_MS + 699)
    assert leader.quorum.take_effects().change_replies == []
    leader.quorum.on_timer(NOW_MS + 700)
    ((token, reply),) = leader.quorum.take_effects().change_replies
    assert (token, reply.error) == (7, ErrorCode.REQUEST_TIMED_OUT)
    assert leader.voters.ids == [1, 4]
    leader.commit()
    assert leader.fetch(4) == []
    assert leader.quorum.state.high_watermark.offset == leader.log.end_offset


def test_the_outcome_of_a_change_is_open_when_its_leader_resigns() -> None:
    leader = LoneLeader()
    leader.on_probed(leader.probe(), BOTH)
    leader.quorum.resign(NOW_MS)
    ((token, reply),) = leader.quorum.take_effects().change_replies
    assert (token, reply.error) == (7, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    leader = LoneLeader()
    leader.on_probed(leader.probe(ack_when_committed=False), BOTH)
    leader.quorum.resign(NOW_MS)
    assert leader.quorum.take_effects().change_replies == [], "it was answered"


def test_a_record_that_says_so_already_is_not_written_again() -> None:
    leader = LoneLeader()
    end_offset = leader.log.end_offset
    _, replies = leader.ask(UpdateVoter(cluster_id="c", epoch=1, voter=voter(1)))
    assert errors(replies) == [(7, ErrorCode.NONE)]
    assert leader.log.end_offset == end_offset
    _, replies = leader.ask(UpdateVoter(cluster_id="c", epoch=1, voter=voter(1, "elsewhere")))
    assert replies == []
    assert leader.voters == VoterSet.of([voter(1, "elsewhere")])
    assert leader.quorum.next_deadline_ms() == NOW_MS + REQUEST_TIMEOUT_MS
    assert errors(leader.commit()) == [(7, ErrorCode.NONE)]


def test_a_change_whose_record_is_the_next_to_be_committed_is_not_answered_yet() -> None:
    leader = LoneLeader()
    leader.quorum.append([b"x"], 1)
    begun = leader.log.begin_flush()
    leader.ask(UpdateVoter(cluster_id="c", epoch=1, voter=voter(1, "elsewhere")))
    leader.log.end_flush(begun)
    leader.quorum.on_flushed(NOW_MS)
    assert leader.quorum.state.high_watermark.offset == leader.log.end_offset - 1
    assert leader.quorum.take_effects().change_replies == []
    assert errors(leader.commit()) == [(7, ErrorCode.NONE)]


def test_who_is_no_voter_or_names_no_listener_of_the_quorum_has_no_record_to_correct() -> None:
    leader = LoneLeader()
    other = Voter(key(1), (VoterListener("OTHER", "n1", 9093),))
    for wrong, error in ((voter(4), ErrorCode.VOTER_NOT_FOUND), (other, ErrorCode.INVALID_REQUEST)):
        _, replies = leader.ask(UpdateVoter(cluster_id="c", epoch=1, voter=wrong))
        assert errors(replies) == [(7, error)]
    assert leader.voters == VoterSet.of([voter(1)])


def test_static_voters_are_not_changed() -> None:
    leader = LoneLeader(is_dynamic=False)
    end_offset = leader.log.end_offset
    for change in (add(4), RemoveVoter(cluster_id="c", voter=key(1))):
        requests, replies = leader.ask(change)
        assert (requests, errors(replies)) == ([], [(7, ErrorCode.UNSUPPORTED_VERSION)])
    moved = Voter(ReplicaKey(1), voter(1, "elsewhere").listeners)
    _, replies = leader.ask(UpdateVoter(cluster_id="c", epoch=1, voter=moved))
    assert errors(replies) == [(7, ErrorCode.NONE)], "it is where the configuration says"
    assert leader.log.end_offset == end_offset


def test_a_request_of_another_cluster_or_epoch_is_refused() -> None:
    leader = LoneLeader()
    update = UpdateVoter(cluster_id="c", epoch=0, voter=voter(1, "elsewhere"))
    refused = [
        leader.ask(AddVoter(cluster_id="other", voter=voter(4), timeout_ms=1))[1],
        leader.ask(RemoveVoter(cluster_id="other", voter=key(1)))[1],
        leader.ask(UpdateVoter(cluster_id="other", epoch=1, voter=voter(1, "elsewhere")))[1],
        leader.ask(update)[1],
        leader.ask(UpdateVoter(cluster_id="c", epoch=2, voter=update.voter))[1],
    ]
    assert [errors(one)[0][1] for one in refused] == [
        *[ErrorCode.INCONSISTENT_CLUSTER_ID] * 3,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    ]
    assert leader.voters == VoterSet.of([voter(1)])


def test_a_record_that_cannot_be_written_is_no_refusal_but_ends_the_node() -> None:
    """The driver makes it leave the quorum, as after any other write that fails."""
    leader = LoneLeader()
    leader.has_disk = False
    with pytest.raises(StorageError):
        leader.ask(UpdateVoter(cluster_id="c", epoch=1, voter=voter(1, "elsewhere")))
    leader = LoneLeader()
    sent = leader.probe()
    leader.has_disk = False
    with pytest.raises(StorageError):
        leader.on_probed(sent, BOTH)
