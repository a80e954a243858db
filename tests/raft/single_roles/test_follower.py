"""A follower: when it fetches, what it takes from its leader, and when it gives the leader up."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest
from support.raft.memory_log import Entry, MemoryLog

from raftwerk.log.errors import StorageError
from raftwerk.raft.messages.messages import (
    AddVoter,
    BeginQuorumEpoch,
    ChangeReply,
    EndQuorumEpoch,
    Fetch,
    FetchReply,
    FetchSnapshot,
    Outgoing,
    RemoveVoter,
    Request,
    SnapshotReply,
    UpdateVoter,
    Vote,
)
from raftwerk.raft.quorum.config import RaftConfig
from raftwerk.raft.quorum.effects import FailureKind
from raftwerk.raft.quorum.quorum import Quorum
from raftwerk.raft.roles.follower import Follower
from raftwerk.raft.types import EPOCH_MAX, ElectionState, ReplicaKey, RoleKind
from raftwerk.raft.voters.voter_set import KRaftVersion, Voter, VoterEndpoint, VoterListener, VoterSet
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import EpochEndOffset, SnapshotId

STATIC = {i: VoterEndpoint(f"n{i}", 9093) for i in (1, 2, 3)}
BEGAN_MS = 10_000
RETRY_MS, FETCH_TIMEOUT_MS, STAGGER_MS = 50, 2000, 30
"""The defaults of these settings."""
A, B, C = (Entry(offset, 6, bytes([97 + offset])) for offset in range(3))


class LeastDraws(random.Random):
    """Each draw is its least value."""

    def randint(self, a: int, b: int) -> int:
        return a


class Following:
    """A node that follows node 3, the leader of epoch 6, since `BEGAN_MS`."""

    def __init__(self, config: RaftConfig | None = None, log: MemoryLog | None = None) -> None:
        self.log = log or MemoryLog()
        config = config or RaftConfig(node_id=1, cluster_id="c", voters=STATIC)
        self.quorum = Quorum(config, self.log, ElectionState(epoch=5), LeastDraws(0))
        self.quorum.start(0)
        self.quorum.take_effects()
        self.quorum.state.maybe_transition(6, 3, STATIC[3], BEGAN_MS)

    @property
    def role(self) -> Follower:
        role = self.quorum.state.role
        assert isinstance(role, Follower)
        return role

    @property
    def kind(self) -> RoleKind:
        return self.quorum.state.role.kind

    def sent(self) -> list[Outgoing]:
        return self.quorum.take_effects().requests

    def requests(self) -> list[Request]:
        return [sent.request for sent in self.sent()]

    def fetch(self) -> Outgoing:
        """The one request that was sent, a fetch from the leader."""
        (sent,) = self.sent()
        assert (sent.to, sent.endpoint) == (3, STATIC[3])
        assert isinstance(sent.request, Fetch)
        return sent

    def answer(self, sent: Outgoing, now_ms: int, error: ErrorCode = ErrorCode.NONE, **fields: Any) -> None:
        fields = {"leader_id": 3, "epoch": 6} | fields
        self.quorum.on_reply(sent, FetchReply(error=error, **fields), now_ms)

    def flush(self, now_ms: int) -> None:
        self.log.flush()
        self.quorum.on_flushed(now_ms)


def observer() -> Following:
    return Following(RaftConfig(node_id=9, cluster_id="c", voters=STATIC, can_vote=False))


def test_it_fetches_at_once_with_one_request_at_a_time() -> None:
    node = Following()
    sent = node.fetch()
    assert isinstance(sent.request, Fetch)
    assert (sent.request.fetch_offset, sent.request.high_watermark, sent.request.max_wait_ms) == (0, -1, 500)
    assert node.quorum.next_deadline_ms() == BEGAN_MS + FETCH_TIMEOUT_MS, "voter 1 gives it up first"
    node.quorum.on_timer(BEGAN_MS + FETCH_TIMEOUT_MS - 1)
    node.quorum.on_flushed(BEGAN_MS + 1)
    assert node.sent() == []


def test_a_voter_fetches_again_when_what_it_fetched_is_durable_and_a_broker_at_once() -> None:
    voter, broker = Following(), observer()
    for node in (voter, broker):
        node.answer(node.fetch(), BEGAN_MS + 10, records=(A, B), high_watermark=1)
        assert node.log.end_offset == 2
        assert node.quorum.state.high_watermark.offset == 1
    assert voter.sent() == []
    assert voter.quorum.next_deadline_ms() == BEGAN_MS + 10 + FETCH_TIMEOUT_MS
    voter.flush(BEGAN_MS + 15)
    for node in (voter, broker):
        request = node.fetch().request
        assert isinstance(request, Fetch) and (request.fetch_offset, request.high_watermark) == (2, 1)


def test_it_takes_the_high_watermark_as_far_as_its_log_reaches_and_from_plain_answers_only() -> None:
    node = observer()
    assert not node.quorum.state.high_watermark.is_current
    node.answer(node.fetch(), BEGAN_MS, records=(A, B), high_watermark=9)
    assert node.quorum.state.high_watermark.offset == 2
    assert node.quorum.state.high_watermark.is_current
    node = observer()
    node.answer(node.fetch(), BEGAN_MS, records=(A, B))
    assert node.quorum.state.high_watermark.offset is None, "the leader does not know it yet"
    node.answer(node.fetch(), BEGAN_MS, diverging=EpochEndOffset(0, 0), high_watermark=2)
    assert (node.log.end_offset, node.quorum.state.high_watermark.offset) == (0, None)
    node.answer(node.fetch(), BEGAN_MS, snapshot_id=SnapshotId(2, 6), high_watermark=2)
    assert node.quorum.state.high_watermark.offset is None
    assert not node.quorum.state.high_watermark.is_current
    node = observer()
    node.answer(node.fetch(), BEGAN_MS, high_watermark=0)
    assert node.quorum.state.high_watermark.offset == 0, "0 is known, too"


def test_what_it_cannot_take_is_fetched_again_after_a_while() -> None:
    later = Entry(0, 7, b"of a later epoch")
    for answer in ({"records": (later,), "high_watermark": 0}, {"snapshot_id": SnapshotId(2, 7)}):
        node = Following()
        node.answer(node.fetch(), BEGAN_MS + 100, **answer)
        assert node.log.end_offset == 0
        assert node.quorum.next_deadline_ms() == BEGAN_MS + 100 + RETRY_MS
        node.quorum.on_timer(BEGAN_MS + 100 + RETRY_MS - 1)
        assert node.sent() == []
        node.quorum.on_timer(BEGAN_MS + 100 + RETRY_MS)
        node.fetch()
        assert node.quorum.state.high_watermark.offset is None


def test_a_leader_that_answers_ends_the_back_off_of_failed_elections() -> None:
    node = Following()
    node.quorum.state.timeouts.on_round_failed()
    node.answer(node.fetch(), BEGAN_MS + 10, ErrorCode.UNKNOWN_LEADER_EPOCH)
    assert node.quorum.state.timeouts.stagger_ms(None) == RETRY_MS // 2, "that was no success"
    node.quorum.on_timer(BEGAN_MS + 10 + RETRY_MS)
    node.answer(node.fetch(), BEGAN_MS + 100)
    assert node.quorum.state.timeouts.stagger_ms(None) == 0


def test_an_answer_with_an_epoch_that_cannot_be_is_none_and_the_fetch_is_sent_again() -> None:
    node = Following()
    node.answer(node.fetch(), BEGAN_MS + 100, epoch=EPOCH_MAX + 1)
    node.fetch()
    assert node.quorum.state.epoch == 6


def test_records_that_cannot_be_written_end_the_node() -> None:
    def refuse(_entry: Entry, _previous_epoch: int) -> None:
        raise StorageError("the disk is broken")

    node = Following(log=MemoryLog(refuse))
    with pytest.raises(StorageError):
        node.answer(node.fetch(), BEGAN_MS + 10, records=(A,), high_watermark=1)


def test_who_follows_sends_a_change_of_the_voters_to_the_leader() -> None:
    node = Following()
    node.quorum.on_voter_change(7, RemoveVoter(cluster_id="c", voter=key(2)), BEGAN_MS)
    ((token, reply),) = node.quorum.take_effects().change_replies
    assert (token, reply.error) == (7, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert (reply.leader_id, reply.leader_endpoint, reply.epoch) == (3, STATIC[3], 6)


def test_what_becomes_of_a_former_fetch_changes_nothing() -> None:
    node = Following()
    former = node.fetch()
    node.answer(former, BEGAN_MS + 10)
    current = node.fetch()
    node.answer(former, BEGAN_MS + 20, records=(A,), high_watermark=1)
    node.quorum.on_failure(former, FailureKind.REFUSED, BEGAN_MS + 20)
    assert (node.log.end_offset, node.sent()) == (0, [])
    assert not node.role.suspected
    node.answer(current, BEGAN_MS + 30, records=(A,), high_watermark=1)
    assert node.log.end_offset == 1


# ---- a leader that does not answer -----------------------------------------------------------------------------------


def test_a_silent_leader_is_given_up_after_the_fetch_timeout() -> None:
    for node, kind in ((Following(), RoleKind.PROSPECTIVE), (observer(), RoleKind.UNATTACHED)):
        assert node.quorum.state.effects.election_state == ElectionState(6, 3, None)
        node.fetch()
        node.quorum.on_timer(BEGAN_MS + FETCH_TIMEOUT_MS - 1)
        assert node.kind is RoleKind.FOLLOWER
        node.quorum.on_timer(BEGAN_MS + FETCH_TIMEOUT_MS)
        assert node.kind is kind
        assert node.quorum.take_effects().election_state is None, "what binds it in the epoch is written already"


@pytest.mark.parametrize(("after_ms", "fetches_at_once"), [(49, False), (50, True), (51, True)])
def test_a_broken_connection_is_tried_again_at_once_but_not_all_the_time(after_ms: int, fetches_at_once: bool) -> None:
    node = Following()
    node.quorum.on_failure(node.fetch(), FailureKind.LOST, BEGAN_MS + after_ms)
    assert bool(node.sent()) is fetches_at_once
    if not fetches_at_once:
        assert node.quorum.next_deadline_ms() == BEGAN_MS + RETRY_MS
        node.quorum.on_timer(BEGAN_MS + RETRY_MS)
        node.fetch()
    assert not node.role.suspected


def test_a_leader_whose_host_refuses_is_given_up_within_a_moment() -> None:
    node = Following()
    node.quorum.on_failure(node.fetch(), FailureKind.REFUSED, BEGAN_MS + 100)
    assert node.sent() == []
    assert node.role.active_leader.id == 3
    assert node.role.leader_to_name.id is None, "followers do not send each other back to it"
    node.quorum.on_timer(BEGAN_MS + 100)
    assert node.kind is RoleKind.PROSPECTIVE, "the voter with the lowest id does not wait"
    node = Following(RaftConfig(node_id=2, cluster_id="c", voters=STATIC))
    node.quorum.on_failure(node.fetch(), FailureKind.REFUSED, BEGAN_MS + 100)
    assert node.role.deadline_ms == BEGAN_MS + 100 + STAGGER_MS, "after voter 1"
    node.quorum.on_timer(BEGAN_MS + 100)
    node.quorum.on_failure(node.fetch(), FailureKind.REFUSED, BEGAN_MS + 120)
    assert node.role.deadline_ms == BEGAN_MS + 100 + STAGGER_MS, "what is suspected already is not put off"


def test_a_leader_that_is_nearly_given_up_is_not_trusted_longer_because_its_host_refuses() -> None:
    node = Following(RaftConfig(node_id=2, cluster_id="c", voters=STATIC))
    deadline_ms = node.role.deadline_ms
    node.quorum.on_failure(node.fetch(), FailureKind.REFUSED, deadline_ms - 1)
    assert node.role.deadline_ms == deadline_ms


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR])
def test_a_leader_that_says_that_it_leads_no_more_is_suspected(error: ErrorCode) -> None:
    node = Following(RaftConfig(node_id=2, cluster_id="c", voters=STATIC))
    node.answer(node.fetch(), BEGAN_MS + 100, error, leader_id=None)
    assert node.role.suspected
    assert node.role.deadline_ms == BEGAN_MS + 100 + STAGGER_MS
    assert node.quorum.next_deadline_ms() == BEGAN_MS + 100 + STAGGER_MS
    broker = observer()
    broker.answer(broker.fetch(), BEGAN_MS + 100, error, leader_id=None)
    assert broker.kind is RoleKind.UNATTACHED, "it looks for the next one"


def test_another_error_and_an_answer_of_a_former_epoch_are_no_reason_to_give_the_leader_up() -> None:
    for error, epoch in (
        (ErrorCode.UNKNOWN_LEADER_EPOCH, 6),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 5),
        (ErrorCode.NONE, 5),
    ):
        node = Following()
        node.answer(node.fetch(), BEGAN_MS + 100, error, leader_id=None, epoch=epoch, records=(A,))
        assert (node.role.suspected, node.role.deadline_ms) == (False, BEGAN_MS + FETCH_TIMEOUT_MS)
        assert node.log.end_offset == 0
        assert node.quorum.next_deadline_ms() == BEGAN_MS + 100 + RETRY_MS


def test_who_gave_its_pre_vote_lets_the_other_one_finish() -> None:
    node = Following()
    deadline_ms = node.role.deadline_ms
    pre_vote = Vote(
        cluster_id="c",
        voter=ReplicaKey(1),
        candidate=ReplicaKey(2),
        epoch=6,
        last_epoch=6,
        last_offset=9,
        pre_vote=True,
    )
    assert node.quorum.on_vote(pre_vote, deadline_ms - 2 * STAGGER_MS).granted
    assert node.role.deadline_ms == deadline_ms
    assert node.quorum.on_vote(pre_vote, deadline_ms - 1).granted
    assert node.role.deadline_ms == deadline_ms - 1 + 2 * STAGGER_MS


def test_a_leader_that_announces_itself_is_trusted_again() -> None:
    node = Following()
    begin = BeginQuorumEpoch(cluster_id="c", voter=ReplicaKey(1), leader_id=3, epoch=6)
    node.quorum.on_failure(node.fetch(), FailureKind.REFUSED, BEGAN_MS + 100)
    node.quorum.on_begin_quorum_epoch(begin, BEGAN_MS + 100)
    assert not node.role.suspected
    assert node.role.leader_to_name.id == 3
    assert node.role.deadline_ms == BEGAN_MS + 100 + FETCH_TIMEOUT_MS


@pytest.mark.parametrize(("successors", "place"), [((1, 2), 0), ((2, 1), 1), ((2, 4), 2), ((), 0)])
def test_the_successors_of_a_leader_that_resigned_stand_in_their_order(successors: tuple[int, ...], place: int) -> None:
    node = Following()
    end = EndQuorumEpoch(
        cluster_id="c", leader_id=3, epoch=6, preferred_successors=tuple(ReplicaKey(i) for i in successors)
    )
    assert node.quorum.on_end_quorum_epoch(end, BEGAN_MS + 100).error is ErrorCode.NONE
    assert node.kind is RoleKind.UNATTACHED
    assert node.quorum.next_deadline_ms() == BEGAN_MS + 100 + place * STAGGER_MS


# ---- snapshots -------------------------------------------------------------------------------------------------------

SNAPSHOT = SnapshotId(3, 6)


def downloading() -> tuple[Following, Outgoing]:
    """It was told to fetch a snapshot, and has asked for the first part."""
    node = Following()
    node.answer(node.fetch(), BEGAN_MS + 10, snapshot_id=SNAPSHOT, high_watermark=3)
    return node, part_asked(node, 0)


def part_asked(node: Following, position: int) -> Outgoing:
    (sent,) = node.sent()
    request = sent.request
    assert isinstance(request, FetchSnapshot)
    assert (request.snapshot_id, request.position, request.epoch) == (SNAPSHOT, position, 6)
    return sent


def part(node: Following, sent: Outgoing, data: Any, now_ms: int, position: int = 0, size_bytes: int = 3) -> None:
    reply = SnapshotReply(
        error=ErrorCode.NONE, leader_id=3, epoch=6, size_bytes=size_bytes, position=position, data=data
    )
    node.quorum.on_reply(sent, reply, now_ms)


def installed(node: Following) -> tuple[SnapshotId | None, int | None]:
    """The snapshot that its log begins with, and what it knows to be committed."""
    return node.log.installed, node.quorum.state.high_watermark.offset


def test_a_snapshot_comes_in_parts_and_takes_the_place_of_the_log() -> None:
    node, sent = downloading()
    part(node, sent, (A, B), BEGAN_MS + 20)
    assert installed(node) == (None, None)
    assert node.role.deadline_ms == BEGAN_MS + 20 + FETCH_TIMEOUT_MS, "the leader is alive"
    part(node, part_asked(node, 2), (C,), BEGAN_MS + 30, position=2)
    assert installed(node) == (SNAPSHOT, 3)
    request = node.fetch().request
    assert isinstance(request, Fetch) and request.fetch_offset == 3


def test_a_part_that_is_not_what_was_asked_for_ends_the_download() -> None:
    node, sent = downloading()
    part(node, sent, (A, B), BEGAN_MS + 20)
    part(node, part_asked(node, 2), (A, B), BEGAN_MS + 30, position=0)
    assert node.sent() == []
    assert node.quorum.next_deadline_ms() == BEGAN_MS + 30 + RETRY_MS
    node.quorum.on_timer(BEGAN_MS + 30 + RETRY_MS)
    node.fetch()


@pytest.mark.parametrize(
    ("error", "epoch"), [(ErrorCode.SNAPSHOT_NOT_FOUND, 6), (ErrorCode.POSITION_OUT_OF_RANGE, 6), (ErrorCode.NONE, 5)]
)
def test_a_part_that_is_refused_or_of_another_epoch_is_not_taken(error: ErrorCode, epoch: int) -> None:
    node, sent = downloading()
    deadline_ms = node.role.deadline_ms
    reply = SnapshotReply(error=error, leader_id=3, epoch=epoch, size_bytes=3, position=0, data=(A, B, C))  # type: ignore[arg-type]
    node.quorum.on_reply(sent, reply, BEGAN_MS + 20)
    assert installed(node) == (None, None)
    assert node.role.download is None
    assert node.role.deadline_ms == deadline_ms, "the leader is not trusted longer for it"
    assert node.quorum.next_deadline_ms() == BEGAN_MS + 20 + RETRY_MS


def test_a_part_that_comes_twice_is_taken_once() -> None:
    node, sent = downloading()
    part(node, sent, (A, B), BEGAN_MS + 20)
    following = part_asked(node, 2)
    part(node, sent, (A, B), BEGAN_MS + 25)
    assert node.sent() == []
    part(node, following, (C,), BEGAN_MS + 30, position=2)
    assert installed(node) == (SNAPSHOT, 3)


def test_a_snapshot_that_ends_too_early_is_fetched_again() -> None:
    node, sent = downloading()
    part(node, sent, (A, B), BEGAN_MS + 20)
    part(node, part_asked(node, 2), (), BEGAN_MS + 30, position=2)
    assert installed(node) == (None, None)
    assert node.quorum.next_deadline_ms() == BEGAN_MS + 30 + RETRY_MS


# ---- its own place among the voters ----------------------------------------------------------------------------------


def key(node_id: int, directory: int | None = None) -> ReplicaKey:
    return ReplicaKey(node_id, UUID(int=directory or node_id))


def recorded(key: ReplicaKey, host: str | None = None) -> Voter:
    return Voter(key, (VoterListener("CONTROLLER", host or f"n{key.id}", 9093),))


def controller(own: ReplicaKey, *voters: Voter, auto_join: bool = True) -> Following:
    """A controller that follows node 3, where these voters are recorded."""
    log = MemoryLog(formatted=[KRaftVersion(1), VoterSet.of(voters)])
    config = RaftConfig(
        node_id=own.id,
        cluster_id="c",
        bootstrap=(STATIC[3],),
        directory_id=own.directory_id,
        listeners=(VoterListener("CONTROLLER", f"n{own.id}", 9093),),
        auto_join=auto_join,
    )
    return Following(config, log)


def changes_asked(node: Following, now_ms: int, **fields: Any) -> list[Outgoing]:
    """What it asks for besides its next fetch, after the answer to the one in flight."""
    fetch = next(sent for sent in node.sent() if isinstance(sent.request, Fetch))
    node.answer(fetch, now_ms, **({"high_watermark": node.log.end_offset} | fields))
    node.log.flush()
    sent = node.sent()
    node.quorum.state.effects.requests.extend(one for one in sent if isinstance(one.request, Fetch))
    return [one for one in sent if not isinstance(one.request, Fetch)]


DUE_MS = BEGAN_MS + FETCH_TIMEOUT_MS // 2


def test_a_controller_that_may_join_asks_after_half_a_fetch_timeout_when_all_is_committed() -> None:
    node = controller(key(4), recorded(key(3)))
    assert changes_asked(node, DUE_MS - 1) == []
    (asked,) = changes_asked(node, DUE_MS)
    assert asked.request == AddVoter(cluster_id="c", voter=recorded(key(4)), timeout_ms=2000, ack_when_committed=False)
    assert (asked.to, asked.endpoint) == (3, STATIC[3])
    assert changes_asked(node, DUE_MS + FETCH_TIMEOUT_MS) == [], "one request is in flight"


def test_a_controller_asks_for_nothing_while_it_lacks_committed_records() -> None:
    node = controller(key(4), recorded(key(3)))
    (fetch,) = node.sent()
    node.answer(fetch, DUE_MS, records=(A,), high_watermark=0)
    assert node.sent() == []
    node.flush(DUE_MS)
    assert len(changes_asked(node, DUE_MS, high_watermark=1)) == 1


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, None])
def test_the_next_step_follows_a_success_at_once_and_a_failure_after_a_while(error: ErrorCode | None) -> None:
    """Its former disk is a voter still, and is removed first."""
    node = controller(key(4), recorded(key(3)), recorded(key(4, 40)))
    (asked,) = changes_asked(node, DUE_MS)
    assert asked.request == RemoveVoter(cluster_id="c", voter=key(4, 40))
    if error is None:
        node.quorum.on_failure(asked, FailureKind.LOST, DUE_MS + 20)
    else:
        node.quorum.on_reply(asked, ChangeReply(error=error, leader_id=3, epoch=6), DUE_MS + 20)
    if error is ErrorCode.NONE:
        assert len(changes_asked(node, DUE_MS + 20)) == 1
    else:
        assert changes_asked(node, DUE_MS + FETCH_TIMEOUT_MS - 1) == []
        assert len(changes_asked(node, DUE_MS + FETCH_TIMEOUT_MS)) == 1


def test_the_answer_to_a_former_request_does_not_end_the_present_one() -> None:
    node = controller(key(4), recorded(key(3)))
    (former,) = changes_asked(node, DUE_MS)
    node.quorum.on_failure(former, FailureKind.LOST, DUE_MS)
    (present,) = changes_asked(node, DUE_MS + FETCH_TIMEOUT_MS)
    node.quorum.on_failure(former, FailureKind.LOST, DUE_MS + FETCH_TIMEOUT_MS)
    assert changes_asked(node, DUE_MS + 2 * FETCH_TIMEOUT_MS) == []
    node.quorum.on_failure(present, FailureKind.LOST, DUE_MS + 2 * FETCH_TIMEOUT_MS)
    assert len(changes_asked(node, DUE_MS + 2 * FETCH_TIMEOUT_MS)) == 1


def test_a_voter_that_listens_elsewhere_asks_for_the_correction_of_its_record() -> None:
    node = controller(key(4), recorded(key(3)), recorded(key(4), "former"), auto_join=False)
    (asked,) = changes_asked(node, DUE_MS)
    assert asked.request == UpdateVoter(cluster_id="c", epoch=6, voter=recorded(key(4)))


@pytest.mark.parametrize("present", [[], [key(4)], [key(4, 40)]])
def test_who_is_no_voter_and_may_not_join_and_who_is_one_as_recorded_ask_for_nothing(present: list[ReplicaKey]) -> None:
    node = controller(key(4), recorded(key(3)), *(recorded(one) for one in present), auto_join=present == [key(4)])
    assert changes_asked(node, DUE_MS) == []
