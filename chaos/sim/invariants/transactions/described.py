"""What administrators are told of producers and transactional ids (KIP-664), compared with the logs.

An answer is judged if the broker led the partition in one epoch from the request to the answer, and its log said the
same all that time. "What is described of producers is what the log says" names each producer of the partition with its
last batch and its open transaction. "What is described of a transactional id is what its log says" is about
DescribeTransactions and ListTransactions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .....wire.codec import Struct
from ....specification.transactions.recorded_state import RecordedState
from ..invariant_broken import InvariantBroken
from .leader_log import LeaderLog


class LogView(NamedTuple):
    """What a leader's log says of its producers, or of its transactional ids, at one moment."""

    log: LeaderLog
    end_offset: int
    states: Mapping[str, RecordedState]
    """Of the transactional ids of which only one state is possible."""


def view_of(log: LeaderLog) -> LogView:
    """What the log says now."""
    states = {} if log.coordinator is None else log.coordinator.certain_states()
    return LogView(log, log.replay.end_offset, states)


def check_described_producers(before: LogView, after: LogView, rows: Sequence[Struct]) -> bool:
    """The producers of a partition were described; returns whether that could be judged. Raises `InvariantBroken`."""
    if before.log is not after.log or before.end_offset != after.end_offset:
        return False
    said = {
        producer_id: (
            one.epoch,
            one.batches[-1].last_sequence if one.batches else -1,
            one.last_timestamp,
            one.coordinator_epoch,
            one.first_offset,
        )
        for producer_id, one in before.log.replay.producers.items()
    }
    told = {
        row.producer_id: (
            row.producer_epoch,
            row.last_sequence,
            row.last_timestamp,
            row.coordinator_epoch,
            row.current_txn_start_offset,
        )
        for row in rows
    }
    if said != told:
        detail = f"{before.log.replica.topic_partition}: {told}, the log says {said}"
        raise InvariantBroken("what is described of producers is what the log says", detail)
    return True


def check_described_id(before: LogView, after: LogView, transactional_id: str, row: Struct) -> bool:
    """A transactional id was described; returns whether that could be judged. Raises `InvariantBroken`."""
    state = _unchanged(before, after).get(transactional_id)
    if state is None:
        return False
    partitions = sorted((topic.topic, index) for topic in row.topics for index in topic.partitions)
    told = (
        row.transaction_state,
        row.transaction_timeout,
        row.transaction_start_time,
        row.producer_id,
        row.producer_epoch,
        partitions,
    )
    said = (
        _label(state),
        state.timeout_ms,
        state.start_ms,
        state.producer_id,
        state.producer_epoch,
        sorted(tuple(one) for one in state.partitions),
    )
    if said != told:
        detail = f"{transactional_id}: {told}, the log says {said}"
        raise InvariantBroken("what is described of a transactional id is what its log says", detail)
    return True


def check_listed_ids(before: LogView, after: LogView, labels: Sequence[str], rows: Sequence[Struct]) -> bool:
    """The ids of a partition were listed, of these states or, if there are none, of all. Raises `InvariantBroken`.

    `rows` are those of all partitions of the broker. Returns whether there was an id that could be judged.
    """
    listed = {row.transactional_id: (row.transaction_state, row.producer_id) for row in rows}
    unchanged = _unchanged(before, after)
    for transactional_id, state in unchanged.items():
        said = (_label(state), state.producer_id)
        expected = said if not labels or said[0] in labels else None
        told = listed.get(transactional_id)
        if told != expected:
            detail = f"{transactional_id} is listed as {told}, the log says {said}; asked for {labels}"
            raise InvariantBroken("what is described of a transactional id is what its log says", detail)
    return bool(unchanged)


def _unchanged(before: LogView, after: LogView) -> dict[str, RecordedState]:
    if before.log is not after.log:
        return {}
    return {name: state for name, state in before.states.items() if after.states.get(name) == state}


def _label(state: RecordedState) -> str:
    return "".join(word.capitalize() for word in state.phase.name.split("_"))
