"""The follower's side of fetch sessions, against a leader's side that just does what it is told."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.isr.follower import follower_fetch_session
from raftwerk.isr.follower.follower_fetch_session import NAMED_AT_ONCE, FetchSession
from raftwerk.wire.fetch import FetchPartition, FetchTopic, ForgottenTopic

KEYS = st.tuples(st.sampled_from([UUID(int=1), UUID(int=2)]), st.integers(0, 2))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("want"), KEYS, st.integers(0, 5)),
        st.tuples(st.just("forget"), KEYS),
        st.tuples(st.just("exchange"), st.sampled_from(["answered", "lost before", "lost after", "evicted", "none"])),
    ),
    max_size=40,
)


class Leader:
    """Keeps one session; knows only what requests say."""

    def __init__(self) -> None:
        self.session_id = 0
        self.epoch = 0
        self.known: dict[tuple[UUID, int], FetchPartition] = {}

    def on_request(self, session: FetchSession, topics: list[FetchTopic], forgotten: list[ForgottenTopic]) -> bool:
        if session.epoch == 0:
            self.known.clear()
            self.session_id += 1
            self.epoch = 0
        elif session.session_id != self.session_id or session.epoch != self.epoch + 1:
            return False
        else:
            self.epoch = session.epoch
        for topic in topics:
            assert topic.topic_id is not None
            for partition in topic.partitions:
                self.known[(topic.topic_id, partition.partition)] = partition
        for gone in forgotten:
            assert gone.topic_id is not None
            for index in gone.partitions:
                self.known.pop((gone.topic_id, index), None)
        return True


@given(STEPS)
def test_a_leader_is_never_left_with_former_parameters(steps: list[tuple[Any, ...]]) -> None:
    """Where a request can name two partitions only, the leader knows nothing of the others."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(follower_fetch_session, "NAMED_AT_ONCE", 2)
        session, leader = FetchSession(), Leader()
        wanted: dict[tuple[UUID, int], FetchPartition] = {}
        for step in [*steps, *([("exchange", "answered")] * 5)]:
            if step[0] == "want":
                wanted[step[1]] = FetchPartition(step[1][1], fetch_offset=step[2])
                session.want(step[1], wanted[step[1]])
            elif step[0] == "forget":
                wanted.pop(step[1], None)
                session.forget(step[1])
            elif step[1] == "answered":
                topics, forgotten = session.next_request()
                assert leader.on_request(session, topics, forgotten)
                assert leader.known.items() <= wanted.items()
                session.on_answer(leader.session_id)
            else:
                session.next_request()
                session.on_failure()
        assert leader.known == wanted and not session.has_more_to_name


@given(STEPS)
def test_leader_knows_what_is_wanted_after_every_answer(steps: list[tuple[Any, ...]]) -> None:
    session, leader = FetchSession(), Leader()
    wanted: dict[tuple[UUID, int], FetchPartition] = {}
    for step in steps:
        if step[0] == "want":
            wanted[step[1]] = FetchPartition(step[1][1], fetch_offset=step[2])
            session.want(step[1], wanted[step[1]])
        elif step[0] == "forget":
            wanted.pop(step[1], None)
            session.forget(step[1])
        else:
            exchange(session, leader, wanted, step[1])


def exchange(session: FetchSession, leader: Leader, wanted: dict[tuple[UUID, int], FetchPartition], fate: str) -> None:
    if fate == "evicted":
        leader.session_id += 1000
    topics, forgotten = session.next_request()
    if fate == "lost before":
        session.on_failure()
        return
    accepted = leader.on_request(session, topics, forgotten)
    if fate == "lost after":
        session.on_failure()
    elif not accepted:
        assert fate == "evicted"
        session.reset()
    else:
        assert leader.known == wanted
        session.on_answer(0 if fate == "none" else leader.session_id)


def test_unchanged_partitions_are_not_named_again() -> None:
    session = FetchSession()
    key = (UUID(int=1), 0)
    session.want(key, FetchPartition(0, fetch_offset=5))
    assert session.next_request()[0][0].partitions == [FetchPartition(0, fetch_offset=5)]
    session.on_answer(9)
    session.want(key, FetchPartition(0, fetch_offset=5))
    assert session.next_request() == ([], [])
    assert (session.session_id, session.epoch) == (9, 1)


def test_forgotten_and_wanted_again_before_a_request() -> None:
    session = FetchSession()
    key = (UUID(int=1), 0)
    session.want(key, FetchPartition(0))
    session.next_request()
    session.on_answer(9)
    session.forget(key)
    session.want(key, FetchPartition(0))
    topics, forgotten = session.next_request()
    assert len(topics) == 1 and not forgotten


def test_a_partition_in_a_new_epoch_that_cannot_be_named_yet_is_forgotten() -> None:
    """The leader would take it that this broker still follows in the former epoch."""
    session, topic = FetchSession(), UUID(int=1)
    for index in range(NAMED_AT_ONCE + 2):
        session.want((topic, index), FetchPartition(index, current_leader_epoch=1))
    for _ in range(2):
        session.next_request()
        session.on_answer(9)
    for index in range(NAMED_AT_ONCE):
        session.want((topic, index), FetchPartition(index, current_leader_epoch=1, fetch_offset=5))
    by_epoch, removed = (topic, NAMED_AT_ONCE), (topic, NAMED_AT_ONCE + 1)
    session.want(by_epoch, FetchPartition(by_epoch[1], current_leader_epoch=2))
    session.forget(removed)
    session.want(removed, FetchPartition(removed[1], current_leader_epoch=1))
    topics, forgotten = session.next_request()
    assert len(topics[0].partitions) == NAMED_AT_ONCE
    assert forgotten[0].partitions == [by_epoch[1], removed[1]]
    session.on_answer(9)
    topics, forgotten = session.next_request()
    assert [one.partition for one in topics[0].partitions] == [by_epoch[1], removed[1]]
    assert not forgotten


def test_epoch_wraps_to_one() -> None:
    session = FetchSession()
    session.session_id, session.epoch = 9, 0x7FFFFFFF
    session.on_answer(9)
    assert session.epoch == 1


def test_a_leader_that_gives_no_session_is_told_all_partitions_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It remembers nothing: what a request does not name would not be fetched."""
    monkeypatch.setattr(follower_fetch_session, "NAMED_AT_ONCE", 2)
    session, topic = FetchSession(), UUID(int=1)
    for index in range(5):
        session.want((topic, index), FetchPartition(index))
    assert [one.partition for one in session.next_request()[0][0].partitions] == [0, 1]
    for _ in range(2):
        session.on_answer(0)
        assert (session.session_id, session.epoch) == (0, 0)
        assert [one.partition for one in session.next_request()[0][0].partitions] == [0, 1, 2, 3, 4]
        assert not session.has_more_to_name
    session.on_answer(9)
    assert (session.session_id, session.epoch) == (9, 1)
    assert session.next_request() == ([], []), "now it remembers them"


def test_a_lost_answer_closes_the_session_and_names_all_partitions_again() -> None:
    session, topic = FetchSession(), UUID(int=1)
    for index in range(2):
        session.want((topic, index), FetchPartition(index))
    session.next_request()
    session.on_answer(9)
    session.next_request()
    session.on_failure()
    topics, forgotten = session.next_request()
    assert (session.session_id, session.epoch) == (9, 0), "the id says which one to close"
    assert [one.partition for one in topics[0].partitions] == [0, 1] and not forgotten
