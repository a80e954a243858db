"""Reads that wait until the other replicas have confirmed who leads (`isr/leader/read_confirmations.py`)."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.isr.late_fetch import late_fetch
from support.isr.manager_cluster import Cluster

from raftwerk.isr.leader.isr_state import CommittedIsr, IsrState, PendingExpandIsr, PendingShrinkIsr
from raftwerk.isr.leader.read_confirmations import ReadConfirmations
from raftwerk.isr.ports import FetchKey
from raftwerk.wire.types import TopicPartition

TP = TopicPartition("offsets", 0)
EPOCH = 3


class Asked:
    """What a fetch asks for: the leader epoch of the partition, None where it is not in the session."""

    def __init__(self, leader_epoch: int | None = EPOCH) -> None:
        self.leader_epoch = leader_epoch

    def leader_epoch_of(self, key: FetchKey) -> int | None:
        return self.leader_epoch


class Leader:
    """The leader of a partition, on broker 1; `answers` are those of its reads, in order."""

    def __init__(self, isr: IsrState | tuple[int, ...] = (1, 2, 3), elr: tuple[int, ...] = ()) -> None:
        state = CommittedIsr(isr) if isinstance(isr, tuple) else isr
        self.now_ms = 0
        self.elr = elr
        self.timers: list[Any] = []
        self.woken: list[int] = []
        self.state = SimpleNamespace(leader_epoch=EPOCH, isr_state=state, config=SimpleNamespace(local_id=1))
        self.partition = SimpleNamespace(leader=self.state)
        self.replica: Any = SimpleNamespace(
            topic_partition=TP, topic_id=UUID(int=1), partition=self.partition, offline=False
        )
        self.reads = ReadConfirmations(self, lambda: self.now_ms, lambda _: self.elr, self.woken.append)
        self.answers: list[bool | None] = []

    def add(self, delay_ms: int, callback: Any) -> Any:
        timer = SimpleNamespace(at_ms=self.now_ms + delay_ms, callback=callback)
        timer.cancel = lambda: self.timers.remove(timer) if timer in self.timers else None
        self.timers.append(timer)
        return timer

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        for timer in [one for one in self.timers if one.at_ms <= self.now_ms]:
            self.timers.remove(timer)
            timer.callback()

    def read(self, timeout_ms: int = 5_000) -> int:
        number = len(self.answers)
        self.answers.append(None)

        def done(is_confirmed: bool) -> None:
            assert self.answers[number] is None, "answered twice"
            self.answers[number] = is_confirmed

        self.reads.confirm(self.replica, EPOCH, timeout_ms, done)
        return number

    def set_isr(self, *isr: int) -> None:
        self.state.isr_state = CommittedIsr(isr)
        self.reads.on_changed(self.replica)

    def fetch(self, follower: int, connection: object = None, leader_epoch: int | None = EPOCH) -> bool:
        """A fetch comes, and is answered at once if it must be."""
        must_answer = self.reads.on_fetch(follower, connection or follower, Asked(leader_epoch))
        if must_answer:
            self.reads.on_answer(follower, connection or follower)
        return must_answer


def test_a_read_waits_for_a_fetch_of_each_member_after_an_answer() -> None:
    leader = Leader()
    leader.read()
    assert leader.woken == [2, 3]
    leader.reads.on_answer(2, 2)
    leader.reads.on_answer(3, 3)
    assert not leader.fetch(2)
    assert leader.answers == [None]
    assert not leader.fetch(3)
    assert leader.answers == [True]
    assert not leader.reads.is_waiting
    assert not leader.timers


def test_a_fetch_that_was_in_flight_confirms_nothing_and_is_answered_at_once() -> None:
    leader = Leader((1, 2))
    leader.read()
    assert leader.fetch(2)
    assert leader.answers == [None]
    assert not leader.fetch(2)
    assert leader.answers == [True]


def test_an_answer_on_another_connection_orders_nothing() -> None:
    leader = Leader((1, 2))
    leader.read()
    leader.reads.on_answer(2, "new")
    assert leader.fetch(2, "old"), "it was sent before the connection was lost, and came late"
    assert leader.answers == [None]
    leader.fetch(2, "new")
    assert leader.answers == [None], "the last answer went to the old connection"
    leader.fetch(2, "new")
    assert leader.answers == [True]


@pytest.mark.parametrize("leader_epoch", [None, EPOCH - 1, EPOCH + 1, -1])
def test_a_fetch_without_the_partition_or_of_another_epoch_confirms_nothing(leader_epoch: int | None) -> None:
    leader = Leader((1, 2))
    leader.read()
    leader.reads.on_answer(2, 2)
    assert not leader.fetch(2, leader_epoch=leader_epoch), "such a fetch may wait"
    leader.fetch(2, leader_epoch=leader_epoch)
    assert leader.answers == [None]


def test_nobody_is_asked_where_nobody_else_can_be_elected() -> None:
    leader = Leader((1,))
    leader.read()
    assert leader.answers == [True]


@pytest.mark.parametrize(
    "leader",
    [
        Leader((1,), elr=(2,)),
        Leader(PendingExpandIsr(CommittedIsr((1,)), 2)),
        Leader(PendingShrinkIsr(CommittedIsr((1, 2)), (2,))),
    ],
    ids=["ELR", "expanding", "shrinking"],
)
def test_whoever_may_be_elected_must_confirm(leader: Leader) -> None:
    leader.read()
    leader.reads.on_answer(2, 2)
    assert leader.answers == [None]
    leader.fetch(2)
    assert leader.answers == [True]


def test_a_dead_member_is_waited_for_until_it_has_left_the_isr() -> None:
    leader = Leader()
    leader.read()
    leader.reads.on_answer(2, 2)
    leader.fetch(2)
    assert leader.answers == [None]
    leader.set_isr(1, 2)
    assert leader.answers == [True]


def test_reads_time_out_each_at_its_time_by_one_timer() -> None:
    leader = Leader((1, 2))
    for _ in range(3):
        leader.read(100)
        leader.pass_time(40)
    assert len(leader.timers) == 1
    assert leader.answers == [False, None, None]
    leader.pass_time(20)
    assert leader.answers == [False, False, None]
    leader.pass_time(500)
    assert leader.answers == [False, False, False]
    assert not leader.timers
    assert not leader.reads.is_waiting


def test_a_later_read_is_not_confirmed_by_what_an_earlier_one_needed() -> None:
    leader = Leader((1, 2))
    first = leader.read()
    leader.reads.on_answer(2, 2)
    second = leader.read()
    assert leader.fetch(2), "the second read needs one more"
    assert (leader.answers[first], leader.answers[second]) == (True, None)
    leader.fetch(2)
    assert leader.answers[second] is True


@pytest.mark.parametrize("change", ["epoch", "role", "offline"])
def test_a_leader_that_is_replaced_confirms_nothing(change: str) -> None:
    leader = Leader((1, 2))
    leader.read()
    if change == "epoch":
        leader.state.leader_epoch += 1
        leader.reads.on_changed(leader.replica)
    elif change == "role":
        leader.partition.leader = None
        leader.reads.on_role_lost(leader.replica)
    else:
        leader.replica.offline = True
        leader.reads.on_role_lost(leader.replica)
    assert leader.answers == [False]
    leader.read()
    assert leader.answers == [False, False]


@given(st.integers(0, 2**32))
def test_a_confirmed_read_has_a_later_fetch_of_everybody(seed: int) -> None:
    """The naive rule: each member has sent, after the read came, a fetch of the partition in the leader's epoch."""
    rng, leader = random.Random(seed), Leader((1, 2, 3))
    sent_at, asked_at = {2: -1, 3: -1}, []
    followers = (Follower(2), Follower(3))
    for now in range(rng.randrange(10, 120)):
        follower = rng.choice(followers)
        action = rng.choice(("read", "send", "arrive", "arrive", "answer", "receive", "reconnect", "leave", "late"))
        if action == "read":
            asked_at.append(now)
            leader.read()
        elif action == "send":
            follower.send(now)
        elif action == "arrive" and follower.on_way is not None:
            arrive(leader, follower, follower.on_way, sent_at)
            follower.on_way, follower.is_parked = None, True
        elif action == "late" and follower.lost:
            arrive(leader, follower, follower.lost.pop(), sent_at)
            leader.reads.on_answer(follower.id, follower.connection - 1)
        elif action == "answer" and follower.is_parked:
            if leader.reads.is_waiting:
                leader.reads.on_answer(follower.id, follower.connection)
            follower.is_parked, follower.answer_on_way = False, True
        elif action == "receive" and follower.answer_on_way:
            follower.answer_on_way = follower.is_fetching = False
        elif action == "reconnect":
            follower.reconnect()
        elif action == "leave":
            follower.leader_epoch = rng.choice((EPOCH, EPOCH, EPOCH, EPOCH + 1))
        for number, answer in enumerate(leader.answers):
            if answer:
                assert min(sent_at.values()) > asked_at[number], (seed, number)


class Follower:
    """A follower with one fetch under way on its connection; those of lost connections may still arrive."""

    def __init__(self, number: int) -> None:
        self.id = number
        self.connection = 10 * number + 1000
        self.leader_epoch = EPOCH
        self.on_way: tuple[int, int] | None = None
        self.is_fetching = self.is_parked = self.answer_on_way = False
        self.lost: list[tuple[int, int]] = []

    def send(self, now: int) -> None:
        if not self.is_fetching:
            self.is_fetching, self.on_way = True, (now, self.leader_epoch)

    def reconnect(self) -> None:
        self.lost = [] if self.on_way is None else [self.on_way]
        self.connection += 1
        self.on_way = None
        self.is_fetching = self.is_parked = self.answer_on_way = False


def arrive(leader: Leader, follower: Follower, fetch: tuple[int, int], sent_at: dict[int, int]) -> None:
    sent, leader_epoch = fetch
    if leader_epoch == EPOCH:
        sent_at[follower.id] = max(sent, sent_at[follower.id])
    connection = follower.connection if fetch is follower.on_way else follower.connection - 1
    leader.reads.on_fetch(follower.id, connection, Asked(leader_epoch))


# ---------------------------------------------------------------- whole replica managers


def confirm(cluster: Cluster, node: int, leader_epoch: int = 0, timeout_ms: int = 1_000) -> list[bool]:
    answers: list[bool] = []
    cluster.on_loop(cluster.managers[node].confirm_leadership, TP, leader_epoch, timeout_ms, answers.append)
    return answers


def offsets_cluster() -> Cluster:
    cluster = Cluster(replica_lag_time_max_ms=60_000)
    cluster.create_topic(TP.topic, 1)
    for node in (1, 2, 3):
        cluster.boot(node)
    cluster.sleep(0.2)
    return cluster


def test_parked_fetches_are_answered_so_that_a_read_takes_two_round_trips() -> None:
    cluster = offsets_cluster()
    answers = confirm(cluster, 1)
    assert answers == []
    cluster.sleep(0.0045)
    assert answers == [True], "replica.fetch.wait.max.ms is 500"
    fetches = len(cluster.fetches)
    cluster.sleep(0.3)
    assert len(cluster.fetches) == fetches, "the fetches are parked again"


def test_many_reads_cost_no_more_fetches_than_one() -> None:
    cluster = offsets_cluster()
    before = len(cluster.fetches)
    answers = [confirm(cluster, 1) for _ in range(1_000)]
    cluster.sleep(0.01)
    assert answers == [[True]] * 1_000
    assert len(cluster.fetches) - before <= 4


def test_a_leader_that_nobody_reaches_confirms_nothing() -> None:
    cluster = offsets_cluster()
    cluster.mute[(2, 1)] = None
    cluster.mute[(3, 1)] = None
    answers = confirm(cluster, 1)
    cluster.sleep(0.9)
    assert answers == []
    cluster.sleep(0.2)
    assert answers == [False]


def test_a_follower_that_has_taken_over_does_not_confirm() -> None:
    """The former leader does not know it, and the fetch session of the new one still goes on."""
    cluster = offsets_cluster()
    cluster.create_topic("other", 2)
    cluster.tell()
    cluster.sleep(0.7)
    cluster.change(UUID(int=1), 0, leader=2, isr=(2, 3))
    cluster.tell(2, 3)
    cluster.sleep(0.7)
    before = len(cluster.fetches)
    answers = confirm(cluster, 1)
    cluster.sleep(0.9)
    assert [target for source, target, _ in cluster.fetches[before:] if source == 2].count(1) >= 1
    assert answers == []
    cluster.tell(1)
    assert answers == [False]


def test_a_fetch_that_was_sent_before_the_take_over_confirms_nothing() -> None:
    assert late_fetch() is None


def test_only_the_asked_epoch_is_confirmed() -> None:
    cluster = offsets_cluster()
    assert confirm(cluster, 1, leader_epoch=1) == [False]
    assert confirm(cluster, 2) == [False]


def test_a_read_does_not_wait_for_those_who_have_left_the_isr_and_not_in_another_leader_epoch() -> None:
    """Metadata tells so. Nobody fetches here, so only that can end the wait before its time is over."""
    cluster = offsets_cluster()
    cluster.mute.update({(2, 1): None, (3, 1): None})
    first = confirm(cluster, 1)
    assert first == []
    cluster.change(UUID(int=1), 0, isr=(1,))
    cluster.tell(1)
    assert first == [True]
    cluster.change(UUID(int=1), 0, isr=(1, 2))
    cluster.tell(1)
    second = confirm(cluster, 1)
    assert second == []
    cluster.change(UUID(int=1), 0, leader=1)
    cluster.tell(1)
    assert second == [False], "another broker may have led between the two epochs"


# ---------------------------------------------------------------- who is asked, and for what


def test_a_follower_that_cannot_be_elected_is_not_answered_at_once() -> None:
    """Nobody waits for it: its fetches would be answered in vain as long as a read waits."""
    leader = Leader((1, 2))
    leader.read()
    assert leader.woken == [2]
    assert not leader.fetch(3)
    assert leader.answers == [None]


def test_a_read_in_the_next_leader_epoch_ends_those_of_the_former_one() -> None:
    leader, later = Leader((1, 2)), list[bool]()
    leader.read()
    leader.state.leader_epoch = EPOCH + 1
    leader.reads.confirm(leader.replica, EPOCH + 1, 5_000, later.append)
    assert leader.answers == [False]
    leader.fetch(2, leader_epoch=EPOCH + 1)
    leader.fetch(2, leader_epoch=EPOCH + 1)
    assert later == [True]
    assert not leader.reads.is_waiting


def test_a_node_that_stops_confirms_nothing() -> None:
    leader = Leader((1, 2))
    for _ in range(2):
        leader.read()
    leader.reads.close()
    assert leader.answers == [False, False]
    assert not leader.reads.is_waiting and not leader.timers


def test_what_was_answered_before_no_read_waited_confirms_no_later_read() -> None:
    leader = Leader((1, 2))
    leader.read()
    leader.reads.on_answer(2, 2)
    leader.fetch(2)
    assert leader.answers == [True]
    leader.read()
    assert leader.fetch(2), "it may have been sent before the read came"
    assert leader.answers == [True, None]
