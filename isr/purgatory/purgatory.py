"""Requests that cannot be answered yet, by the partitions that they wait for (Kafka: DelayedOperationPurgatory).

A produce with acks=all waits until the high watermark of each of its partitions passes its last record. Offsets of a
partition only grow, so the produces that wait for it form a queue, and an advance of the high watermark looks at the
head of it only. A fetch waits for bytes: a follower's for any that are appended, a consumer's for committed ones. An
operation is completed in the call that appends or advances the high watermark, exactly once, unless it is cancelled.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ...runtime.incremental_work import ITEMS_PER_STEP, PLAIN_STEP, Work
from ...runtime.invariants import sometimes
from ...runtime.timer_wheel import TimerHandle
from ...wire.errors import ErrorCode
from ...wire.produce import ProducePartitionResponse
from ...wire.types import LeaderIdAndEpoch, TopicPartition
from ..ports import FetchCaller
from ..results import AppendDone


class Timers(Protocol):
    """Sets time-outs (`DelayedOperationTimers`)."""

    def add(self, delay_ms: int, callback: Callable[[], None]) -> TimerHandle:
        """Call back after `delay_ms` unless cancelled."""
        ...


class UncommittedAppend(NamedTuple):
    """One partition of a delayed produce: its batches are in the leader's log, but not committed."""

    topic_partition: TopicPartition
    required_offset: int
    """The batches are committed when the high watermark is here or above."""
    response: ProducePartitionResponse
    committed_code: int = 0
    """The error code to answer with once it is committed; not 0 for a duplicate whose offset is not known any more."""


class DelayedProduce:
    """A produce that waits for `remaining` of its partitions to commit its batches.

    Until then their responses say REQUEST_TIMED_OUT, which is the answer if nothing happens.
    """

    __slots__ = ("_done", "_responses", "remaining", "timer")

    def __init__(self, responses: list[ProducePartitionResponse], done: AppendDone) -> None:
        self._responses = responses
        self._done: AppendDone | None = done
        self.remaining = 0
        self.timer: TimerHandle | None = None

    @property
    def is_done(self) -> bool:
        """Whether it was answered."""
        return self._done is None

    def finish(self) -> None:
        """Answer with the responses as they are."""
        done, self._done = self._done, None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if done is not None:
            done(self._responses)

    def settle(self, append: UncommittedAppend, error_code: int) -> None:
        """One partition is decided, by an error or by being committed (0). The last one completes the request."""
        if self._done is None:
            return
        append.response.error_code = error_code or append.committed_code
        self.remaining -= 1
        if self.remaining == 0:
            self.finish()


class DelayedFetch:
    """A fetch that waits for `missing_bytes` more bytes, for a change of its partitions, or for its time-out.

    `respond` refers to this object and this object to `respond`. Such a cycle is left to the garbage collector, which
    blocks the event loop for milliseconds when there are thousands of them; so the reference is dropped at the end.
    """

    __slots__ = (
        "_purgatory",
        "_respond",
        "caller",
        "is_read_committed",
        "is_shortened",
        "keys",
        "missing_bytes",
        "replica_id",
        "sequence",
        "timer",
    )

    def __init__(
        self,
        respond: Callable[[], None],
        keys: Sequence[TopicPartition],
        missing_bytes: int,
        replica_id: int,
        *,
        is_read_committed: bool = False,
        caller: FetchCaller | None = None,
    ) -> None:
        self._respond: Callable[[], None] | None = respond
        self._purgatory: Purgatory | None = None
        self.keys = keys
        self.caller = caller
        """Runs the work that many keys make; None where there are few."""
        self.missing_bytes = missing_bytes
        self.replica_id = replica_id
        self.is_read_committed = is_read_committed
        self.sequence = 0
        self.is_shortened = False
        self.timer: TimerHandle | None = None

    @property
    def is_done(self) -> bool:
        """Whether it was answered or cancelled."""
        return self._respond is None

    def add_bytes(self, size_bytes: int) -> None:
        """So many more bytes can be read."""
        self.missing_bytes -= size_bytes
        if self.missing_bytes <= 0:
            self.finish()

    def cancel(self) -> bool:
        """Forget the fetch without an answer, since its connection is lost; false when it was answered before."""
        purgatory, self._purgatory = self._purgatory, None
        self._respond = None
        if purgatory is None:
            return False
        purgatory.unlist(self)
        self.caller = None  # which refers to this object
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        return True

    def finish(self) -> None:
        """Read again and answer."""
        respond = self._respond
        if self.cancel() and respond is not None:
            respond()

    def attach(self, purgatory: Purgatory) -> None:
        """It waits in `purgatory` now."""
        self._purgatory = purgatory


_FetchLists = dict[TopicPartition, dict[int, DelayedFetch]]


class Purgatory:
    """The delayed produces and fetches of one broker."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._produces: dict[TopicPartition, deque[tuple[UncommittedAppend, DelayedProduce]]] = {}
        self._follower_fetches: _FetchLists = {}
        self._consumer_fetches: _FetchLists = {}
        self._of_followers: dict[int, dict[int, DelayedFetch]] = {}
        """Fetches of followers by broker and sequence."""
        self._sequence = 0
        self._fetches = 0

    # ---------------------------------------------------------------- parking

    def park_produce(self, operation: DelayedProduce, appends: Sequence[UncommittedAppend], timeout_ms: int) -> None:
        """Wait until all the `appends` are committed, at most `timeout_ms`."""
        operation.remaining = len(appends)
        for append in appends:
            append.response.error_code = ErrorCode.REQUEST_TIMED_OUT
            key = append.topic_partition
            queue = self._produces.get(key)
            if queue is None:
                queue = self._produces[key] = deque()
            if queue and queue[-1][0].required_offset > append.required_offset:
                insort(queue, (append, operation), key=_required_offset)
            else:
                queue.append((append, operation))
        operation.timer = self._timers.add(timeout_ms, lambda: self._expire_produce(operation, appends))

    def park_fetch(self, operation: DelayedFetch, max_wait_ms: int) -> None:
        """Wait for bytes in any of the operation's partitions."""
        self._enter(operation)
        self._list(operation, operation.keys)
        self.end_after(operation, max_wait_ms)

    def listing(self, operation: DelayedFetch) -> Work[None]:
        """Begin to wait for bytes in any of the many partitions of the operation; `end_after` sets its time-out."""
        self._enter(operation)
        for start in range(0, len(operation.keys), ITEMS_PER_STEP):
            if operation.is_done:
                return
            self._list(operation, operation.keys[start : start + ITEMS_PER_STEP])
            yield PLAIN_STEP

    def end_after(self, operation: DelayedFetch, max_wait_ms: int) -> None:
        """Answer the fetch when it has waited so long."""
        operation.timer = self._timers.add(max_wait_ms, operation.finish)

    def shorten_wait(self, replica_id: int, within_ms: int) -> None:
        """Answer the parked fetches of a follower soon: its next one will name partitions that it is to fetch."""
        for operation in self._of_followers.get(replica_id, {}).values():
            if not operation.is_shortened and operation.timer is not None:
                operation.is_shortened = True
                operation.timer.cancel()
                operation.timer = self._timers.add(within_ms, operation.finish)

    # ---------------------------------------------------------------- events

    def on_appended(self, key: TopicPartition, size_bytes: int) -> None:
        """The leader's log has grown."""
        waiting = self._follower_fetches.get(key)
        if waiting:
            _feed(waiting, size_bytes, size_bytes)

    def on_high_watermark(
        self, key: TopicPartition, high_watermark: int, committed_bytes: int, stable_bytes: int, error_code: int
    ) -> None:
        """The high watermark has advanced; `error_code` answers the produces that it has passed (0: committed).

        `committed_bytes` are what it has passed, `stable_bytes` what the last stable offset has passed.
        """
        queue = self._produces.get(key)
        while queue and queue[0][0].required_offset <= high_watermark:
            append, operation = queue.popleft()
            operation.settle(append, error_code)
        waiting = self._consumer_fetches.get(key)
        if waiting:
            _feed(waiting, committed_bytes, stable_bytes)

    def on_role_lost(self, key: TopicPartition, error_code: int, leader: LeaderIdAndEpoch | None) -> None:
        """The replica does not lead any more, is gone or offline: answer all that wait for it."""
        for append, operation in self._produces.pop(key, ()):
            sometimes(not operation.is_done, "a leader lost its role while a produce request waited for its replicas")
            if not operation.is_done:
                append.response.current_leader = leader
                operation.settle(append, error_code)
        self.finish_fetches(key)

    def finish_fetches(self, key: TopicPartition) -> None:
        """Answer all fetches that wait for this partition."""
        for lists in (self._follower_fetches, self._consumer_fetches):
            for operation in list(lists.get(key, {}).values()):
                operation.finish()

    def finish_fetches_of(self, replica_id: int) -> None:
        """Answer the parked fetches of a follower."""
        for operation in list(self._of_followers.get(replica_id, {}).values()):
            operation.finish()

    def close(self) -> None:
        """Answer everything now, since the node stops."""
        for key in list(self._produces):
            self.on_role_lost(key, ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
        for lists in (self._follower_fetches, self._consumer_fetches):
            for key in list(lists):
                self.finish_fetches(key)
        for replica_id in list(self._of_followers):
            self.finish_fetches_of(replica_id)

    # ---------------------------------------------------------------- bookkeeping

    def unlist(self, operation: DelayedFetch) -> None:
        """Take a fetch out of all lists; one with many partitions leaves them step by step."""
        self._fetches -= 1
        its_own = self._of_followers.get(operation.replica_id)
        if its_own is not None:
            its_own.pop(operation.sequence, None)
        if operation.caller is None:
            self._unlist(operation, operation.keys)
        else:
            operation.caller.run_in_steps(self._unlisting(operation))

    def _unlisting(self, operation: DelayedFetch) -> Work[None]:
        for start in range(0, len(operation.keys), ITEMS_PER_STEP):
            self._unlist(operation, operation.keys[start : start + ITEMS_PER_STEP])
            yield PLAIN_STEP

    def _enter(self, operation: DelayedFetch) -> None:
        self._sequence += 1
        self._fetches += 1
        operation.sequence = self._sequence
        operation.attach(self)
        if operation.replica_id >= 0:
            self._of_followers.setdefault(operation.replica_id, {})[operation.sequence] = operation

    def _list(self, operation: DelayedFetch, keys: Sequence[TopicPartition]) -> None:
        lists = self._lists_of(operation)
        for key in keys:
            waiting = lists.get(key)
            if waiting is None:
                waiting = lists[key] = {}
            waiting[operation.sequence] = operation

    def _unlist(self, operation: DelayedFetch, keys: Sequence[TopicPartition]) -> None:
        lists = self._lists_of(operation)
        for key in keys:
            waiting = lists.get(key)
            if waiting is not None:
                waiting.pop(operation.sequence, None)
                if not waiting:
                    del lists[key]

    def sizes(self) -> tuple[int, int]:
        """Parked produces (counted by partition) and fetches."""
        produces = sum(1 for queue in self._produces.values() for _, operation in queue if not operation.is_done)
        return produces, self._fetches

    def _lists_of(self, operation: DelayedFetch) -> _FetchLists:
        return self._follower_fetches if operation.replica_id >= 0 else self._consumer_fetches

    def _expire_produce(self, operation: DelayedProduce, appends: Sequence[UncommittedAppend]) -> None:
        sometimes(not operation.is_done, "a produce request timed out while it waited for its replicas")
        operation.finish()
        for append in appends:
            queue = self._produces.get(append.topic_partition)
            while queue and queue[0][1].is_done:
                queue.popleft()


def _required_offset(waiting: tuple[UncommittedAppend, DelayedProduce]) -> int:
    return waiting[0].required_offset


def _feed(waiting: dict[int, DelayedFetch], size_bytes: int, stable_bytes: int) -> None:
    for operation in list(waiting.values()):
        operation.add_bytes(stable_bytes if operation.is_read_committed else size_bytes)
