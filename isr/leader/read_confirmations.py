"""Confirms that this broker still leads a partition, for answers that a coordinator gives from its memory.

A leader that is cut off from its peers does not notice that another broker has taken over. What it writes is never
committed, but what it answers from memory may be older than what the other one has acknowledged. Raft has the same
problem and solves it by ReadIndex: before a leader answers a read, a majority must confirm that it still leads (Ongaro,
"Consensus: Bridging Theory and Practice", 6.4). Here the replicas of the partition confirm it, by the fetches which
they send anyway; the metadata quorum takes no part.

Only a member of the maximal ISR, or of the ELR (KIP-966), can be elected cleanly. An ISR grows only by proposals of its
leader, and a replica enters the ELR only from the ISR. So as long as no other broker has taken up the leadership, every
broker that may do so is among those which this leader knows: its ISR, the replicas that it has proposed, and the ELR of
the metadata. A broker that takes up the leadership, or follows another leader, fetches the partition from this one no
more. So when each of them has sent a fetch of the partition with the current leader epoch *after* the read came, none
had taken over before the read came, and every commit that was acknowledged by then was acknowledged here, and is in
this broker's memory. The memory may be read at any time from then on. If there is no other such replica, nothing has to
be confirmed. An unclean election may lose what was committed, and so it may also be missed here.

A follower has one fetch under way on a connection. So a fetch was sent after a read came if this broker has answered
the fetch before it, on the same connection, after the read came; one that was in flight proves nothing. The parked
fetch of a follower that is waited for is answered at once, and so is the next one that contains the partition; a read
costs one to two round trips. Reads are numbered, and a fetch confirms all that came before the answer to the fetch
before it, so thousands of reads cost no more fetches than one. With several members in the ISR, of which one is dead,
the reads wait until the controller has removed it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from ...runtime.invariants import sometimes
from ...runtime.timer_wheel import TimerHandle
from ...wire.types import TopicPartition
from ..ports import FetchKey
from ..purgatory.purgatory import Timers
from ..replica import Replica


class FetchedEpochs(Protocol):
    """What a fetch asks for (`FetchContext`)."""

    def leader_epoch_of(self, key: FetchKey) -> int | None:
        """The leader epoch with which it asks for the partition, named now or earlier; None when it does not."""
        ...


class _Read(NamedTuple):
    number: int
    deadline_ms: int
    done: Callable[[bool], None]


class _UnconfirmedPartition:
    """The reads of one partition that wait, in one leader epoch."""

    __slots__ = ("confirmed", "key", "leader_epoch", "reads", "replica", "timer")

    def __init__(self, replica: Replica, leader_epoch: int) -> None:
        self.replica = replica
        self.leader_epoch = leader_epoch
        self.key = FetchKey(replica.topic_id, replica.topic_partition.partition)
        self.reads: deque[_Read] = deque()
        self.confirmed: dict[int, int] = {}
        """By follower: the number of the last read that it has confirmed."""
        self.timer: TimerHandle | None = None


class ReadConfirmations:
    """The reads of all partitions that wait.

    `elr_of` gives the ELR of a partition by the metadata; `answer_parked` answers the parked fetches of a follower.
    """

    __slots__ = ("_answer_parked", "_answered", "_elr_of", "_now_ms", "_number", "_partitions", "_timers", "is_waiting")

    def __init__(
        self,
        timers: Timers,
        now_ms: Callable[[], int],
        elr_of: Callable[[TopicPartition], Iterable[int]],
        answer_parked: Callable[[int], None],
    ) -> None:
        self._timers = timers
        self._now_ms = now_ms
        self._elr_of = elr_of
        self._answer_parked = answer_parked
        self._number = 0
        self._partitions: dict[TopicPartition, _UnconfirmedPartition] = {}
        self._answered: dict[int, tuple[object, int]] = {}
        """By follower: the connection on which a fetch was last answered, and the number of the last read by then."""
        self.is_waiting = False
        """Whether any read waits. While none does, fetches need not be told."""

    # ---------------------------------------------------------------- reads

    def confirm(self, replica: Replica, leader_epoch: int, timeout_ms: int, done: Callable[[bool], None]) -> None:
        """Call `done` once: with true when this broker led the partition, in that epoch, when this was called.

        It is false after `timeout_ms`, or when this broker does not lead the partition in that epoch any more.
        """
        if not _leads(replica, leader_epoch):
            done(False)
            return
        candidates = self.candidates(replica)
        if not candidates:
            done(True)
            return
        waiting = self._partitions.get(replica.topic_partition)
        if waiting is not None and (waiting.replica is not replica or waiting.leader_epoch != leader_epoch):
            self._fail(waiting)
            waiting = None
        if waiting is None:
            waiting = self._partitions[replica.topic_partition] = _UnconfirmedPartition(replica, leader_epoch)
            self.is_waiting = True
        self._number += 1
        waiting.reads.append(_Read(self._number, self._now_ms() + timeout_ms, done))
        if waiting.timer is None:
            self._set_timer(waiting, timeout_ms)
        for replica_id in candidates:
            self._answer_parked(replica_id)

    # ---------------------------------------------------------------- fetches of followers

    def on_fetch(self, replica_id: int, connection: object, asked: FetchedEpochs) -> bool:
        """A fetch has come, and its session is up to date. True when it must be answered at once."""
        last_connection, number = self._answered.get(replica_id, (None, 0))
        if last_connection is not connection:
            sometimes(number, "a follower came back on another connection while reads waited to be confirmed")
            number = 0
        must_answer = False
        for waiting in list(self._partitions.values()):
            if asked.leader_epoch_of(waiting.key) != waiting.leader_epoch:
                continue
            if number > waiting.confirmed.get(replica_id, 0):
                waiting.confirmed[replica_id] = number
                self._complete(waiting)
            if waiting.reads and waiting.confirmed.get(replica_id, 0) < waiting.reads[-1].number:
                must_answer = must_answer or replica_id in self.candidates(waiting.replica)
        return must_answer

    def on_answer(self, replica_id: int, connection: object) -> None:
        """A fetch of the follower is answered now."""
        self._answered[replica_id] = connection, self._number

    # ---------------------------------------------------------------- changes

    def on_changed(self, replica: Replica) -> None:
        """The partition has another leader epoch or ISR."""
        waiting = self._partitions.get(replica.topic_partition)
        if waiting is None:
            return
        if waiting.replica is replica and _leads(replica, waiting.leader_epoch):
            self._complete(waiting)
        else:
            self._fail(waiting)

    def on_role_lost(self, replica: Replica) -> None:
        """The replica does not lead any more, is gone or offline."""
        waiting = self._partitions.get(replica.topic_partition)
        if waiting is not None:
            self._fail(waiting)

    def close(self) -> None:
        """Confirm nothing more, since the node stops."""
        for waiting in list(self._partitions.values()):
            self._fail(waiting)

    # ---------------------------------------------------------------- completion

    def candidates(self, replica: Replica) -> set[int]:
        """The other brokers that may be elected without an unclean election."""
        leader = replica.partition.leader
        if leader is None:
            return set()
        return {*leader.isr_state.maximal_isr, *self._elr_of(replica.topic_partition)} - {leader.config.local_id}

    def _complete(self, waiting: _UnconfirmedPartition) -> None:
        """Answer the reads that all have confirmed who may be elected."""
        confirmed = waiting.confirmed
        numbers = [confirmed.get(replica_id, 0) for replica_id in self.candidates(waiting.replica)]
        lowest = min(numbers, default=self._number)
        reads = []
        while waiting.reads and waiting.reads[0].number <= lowest:
            reads.append(waiting.reads.popleft())
        if not waiting.reads:
            self._drop(waiting)
        for read in reads:
            read.done(True)

    def _fail(self, waiting: _UnconfirmedPartition) -> None:
        sometimes(waiting.reads, "a leader lost its role while reads waited to be confirmed")
        reads, waiting.reads = waiting.reads, deque()
        self._drop(waiting)
        for read in reads:
            read.done(False)

    def _drop(self, waiting: _UnconfirmedPartition) -> None:
        if waiting.timer is not None:
            waiting.timer.cancel()
            waiting.timer = None
        topic_partition = waiting.replica.topic_partition
        if self._partitions.get(topic_partition) is waiting:
            del self._partitions[topic_partition]
        if not self._partitions:
            self.is_waiting = False
            self._answered.clear()

    # ---------------------------------------------------------------- time-outs

    def _set_timer(self, waiting: _UnconfirmedPartition, delay_ms: int) -> None:
        """One timer a partition: it is set again for the reads that are left when it fires."""
        waiting.timer = self._timers.add(delay_ms, lambda: self._expire(waiting))

    def _expire(self, waiting: _UnconfirmedPartition) -> None:
        waiting.timer = None
        now_ms, late = self._now_ms(), []
        while waiting.reads and waiting.reads[0].deadline_ms <= now_ms:
            late.append(waiting.reads.popleft())
        if waiting.reads:
            self._set_timer(waiting, waiting.reads[0].deadline_ms - now_ms)
        else:
            self._drop(waiting)
        sometimes(late, "a read was not confirmed in time")
        for read in late:
            read.done(False)


def _leads(replica: Replica, leader_epoch: int) -> bool:
    leader = replica.partition.leader
    return leader is not None and leader.leader_epoch == leader_epoch and not replica.offline
