"""What one leader of a partition of `__transaction_state` has appended, and from which records it may go on.

"Each record of a transactional id follows the one before by the protocol" compares each new record with the states that
the coordinator may have in memory: the last record, or the one before it if the last one was not committed within the
time-out of the write. A coordinator answers nobody and sends no marker for such a write, so it may go on as if there
were none. "The memory of a coordinator is what its log says" compares both, when it has loaded, at each write, and in
the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from .....broker.transactions.transaction_coordinator_shard import TransactionCoordinatorShard
from .....broker.transactions.transaction_metadata import TransactionMetadata
from .....wire.records import BatchHeader, iter_records
from ....specification.transactions.recorded_state import Phase, RecordedState, read_state, read_transactional_id
from ....specification.transactions.state_steps import why_no_step
from ..invariant_broken import InvariantBroken

_WRITE_TIMEOUT_S = 5.0
_IN_TIME_S = 0.9 * _WRITE_TIMEOUT_S


@dataclass(slots=True)
class _Written:
    """A record in the log, the offset after its batch, and when it was appended."""

    state: RecordedState | None
    end_offset: int
    appended_s: float


def records_in(batch: bytes | memoryview) -> Iterator[tuple[str, RecordedState | None]]:
    """The transactional ids with their states in a batch; None for a tombstone."""
    for record in iter_records(batch):
        transactional_id = None if record.key is None else read_transactional_id(bytes(record.key))
        if transactional_id is not None:
            yield transactional_id, None if record.value is None else read_state(bytes(record.value))


class CoordinatorLog:
    """The transactional ids of one partition in one leader epoch."""

    def __init__(self) -> None:
        self._ids: dict[str, list[_Written]] = {}
        """What the coordinator may go on from, the last record at the end."""
        self._uncommitted: deque[tuple[str, _Written]] = deque()

    def load(self, batch: bytes | memoryview) -> None:
        """Take a batch that was in the log before the leader began."""
        for transactional_id, state in records_in(batch):
            self._ids[transactional_id] = [_Written(state, 0, 0.0)]

    def on_committed(self, high_watermark: int, now_s: float) -> None:
        """The leader's high watermark has advanced."""
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0][1].end_offset <= high_watermark:
            transactional_id, one = uncommitted.popleft()
            written = self._ids[transactional_id]
            if now_s - one.appended_s <= _IN_TIME_S and one in written:
                del written[: written.index(one)]

    def append(
        self, header: BatchHeader, batch: bytes, now_s: float, shard: TransactionCoordinatorShard | None, where: str
    ) -> list[tuple[str, RecordedState | None, RecordedState | None]]:
        """The leader has appended a batch; returns each id with the state before and the new one."""
        steps = []
        for transactional_id, state in records_in(batch):
            known = self._ids.setdefault(transactional_id, [_Written(None, 0, 0.0)])
            before = self._before(transactional_id, known, state, f"{where} at {header.base_offset}")
            steps.append((transactional_id, before, state))
            if shard is not None:
                self._check_memory(transactional_id, shard, where, (state,))
            one = _Written(state, header.next_offset, now_s)
            known.append(one)
            self._uncommitted.append((transactional_id, one))
        return steps

    @staticmethod
    def _before(
        transactional_id: str, known: list[_Written], state: RecordedState | None, where: str
    ) -> RecordedState | None:
        """The last of the known states that the new one may follow."""
        wrong: str | None = None
        for one in reversed(known):
            why = why_no_step(one.state, state)
            if why is None:
                return one.state
            wrong = wrong or why
        detail = f"{where}, {transactional_id}: {wrong}; {told(known[-1].state)}, then {told(state)}"
        raise InvariantBroken("each record of a transactional id follows the one before by the protocol", detail)

    def certain_states(self) -> dict[str, RecordedState]:
        """The state of each id that has one, and only this one can be in the memory of the coordinator."""
        return {
            name: written[0].state
            for name, written in self._ids.items()
            if len(written) == 1 and written[0].state is not None
        }

    def check_memory(self, shard: TransactionCoordinatorShard, where: str) -> None:
        """Compare all that the coordinator knows with the log. Raises `InvariantBroken`."""
        for transactional_id in dict.fromkeys((*self._ids, *shard.entries)):
            self._check_memory(transactional_id, shard, where)

    def _check_memory(
        self,
        transactional_id: str,
        shard: TransactionCoordinatorShard,
        where: str,
        also: tuple[RecordedState | None, ...] = (),
    ) -> None:
        may_be = [one.state for one in self._ids.get(transactional_id, ())] or [None]
        memory = shard.current(transactional_id)
        if not any(_is_same(memory, state) for state in (*may_be, *also)):
            detail = f"{where}, {transactional_id}: {memory}, the log has {told(may_be[-1])}"
            raise InvariantBroken("the memory of a coordinator is what its log says", detail)


def told(state: RecordedState | None) -> str:
    """A state in the words of a failure."""
    if state is None:
        return "nothing"
    partitions = ", ".join(str(one) for one in sorted(state.partitions))
    heir = f", next {state.client}" if state.is_kept else ""
    who = f"{state.producer_id} epoch {state.producer_epoch}{heir}, client {state.client_version}"
    return f"{state.phase.name} of {who} [{partitions}] since {state.start_ms}"


def _is_same(memory: TransactionMetadata | None, state: RecordedState | None) -> bool:
    if memory is None or state is None:
        return memory is None and state is None
    partitions = frozenset() if state.phase is Phase.EMPTY else state.partitions
    known = (
        memory.producer_id,
        memory.producer_epoch,
        memory.timeout_ms,
        int(memory.state),
        memory.partitions,
        memory.last_update_ms,
        memory.start_ms,
    )
    recorded = (
        state.producer_id,
        state.producer_epoch,
        state.timeout_ms,
        int(state.phase),
        partitions,
        state.last_update_ms,
        state.start_ms,
    )
    if known != recorded or not state.tells_client_version:
        return known == recorded
    return (
        memory.previous_producer_id,
        memory.next_producer_id,
        memory.client_version,
        memory.next_producer_epoch,
    ) == (state.previous_producer_id, state.next_producer_id, state.client_version, state.next_producer_epoch)
