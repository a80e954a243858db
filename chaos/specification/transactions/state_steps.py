"""Which record of a transactional id may follow which, by KIP-98, KIP-360, KIP-890 and KIP-939.

Written from what the protocol promises: a decision is never taken back, a transaction grows only while it is open,
and each new producer has an epoch or an id that nobody had before.
"""

from __future__ import annotations

from .recorded_state import EPOCH_MAX, NOBODY, Phase, RecordedState

_BUMPS_EPOCHS = 2
"""The version of clients from which on each end of a transaction bumps the epoch (KIP-890)."""
_COMPLETED_BY = {Phase.COMPLETE_COMMIT: Phase.PREPARE_COMMIT, Phase.COMPLETE_ABORT: Phase.PREPARE_ABORT}


def why_no_step(before: RecordedState | None, after: RecordedState | None) -> str | None:
    """What is wrong with a record that follows another one of its id; None if nothing is.

    None as a state stands for no record, or a tombstone.
    """
    if after is None:
        return None if before is None or before.phase.is_idle else f"an id is removed in {before.phase.name}"
    if after.producer_id < 0 or not 0 <= after.producer_epoch <= EPOCH_MAX:
        return "there is no such producer"
    if before is None:
        return _why_not_first(after)
    if after.phase is Phase.EMPTY:
        return _why_not_initialized(before, after)
    if after.phase is Phase.ONGOING:
        return _why_not_grown(before, after) if not after.is_kept else _why_not_kept(before, after)
    if after.phase.is_prepared:
        return _why_not_prepared(before, after)
    return _why_not_completed(before, after)


def _why_not_first(after: RecordedState) -> str | None:
    if after.phase is not Phase.EMPTY:
        return f"the first record is {after.phase.name}"
    if after.producer_epoch != 0:
        return f"the first epoch is {after.producer_epoch}"
    return _why_not_empty(after)


def _why_not_empty(after: RecordedState) -> str | None:
    if after.partitions:
        return "an empty transaction has partitions"
    if after.next_producer_id != NOBODY or after.is_kept:
        return "an empty transaction has a next producer"
    return None


def _why_not_initialized(before: RecordedState, after: RecordedState) -> str | None:
    """InitProducerId. An epoch is granted again only to who asks again for what he was given (KIP-360)."""
    if not before.phase.is_idle:
        return f"a producer is granted an epoch in {before.phase.name}"
    if (wrong := _why_not_empty(after)) is not None:
        return wrong
    if after.producer_id == before.producer_id:
        may_be = (before.producer_epoch, before.producer_epoch + 1)
        return None if after.producer_epoch in may_be else f"the epoch after {before.producer_epoch} is one more"
    if before.producer_epoch < EPOCH_MAX - 1:
        return "the producer id changes before its epochs are used up"
    if after.producer_epoch != 0 or after.previous_producer_id != before.producer_id:
        return "a new producer id begins with epoch 0 and names the former one"
    return None


def _why_not_grown(before: RecordedState, after: RecordedState) -> str | None:
    """AddPartitionsToTxn, AddOffsetsToTxn."""
    if not (before.phase.is_idle or before.phase is Phase.ONGOING):
        return f"partitions are added in {before.phase.name}"
    if before.is_kept:
        return "partitions are added to a transaction that was kept"
    if (wrong := _why_another_producer(before, after)) is not None:
        return wrong
    known = before.partitions if before.phase is Phase.ONGOING else frozenset()
    if not known < after.partitions:
        return "partitions are only added"
    if before.phase is Phase.ONGOING and after.start_ms != before.start_ms:
        return "a transaction begins once"
    return None


def _why_another_producer(before: RecordedState, after: RecordedState) -> str | None:
    if (after.producer_id, after.producer_epoch) != (before.producer_id, before.producer_epoch):
        return "the producer changes"
    if after.timeout_ms != before.timeout_ms:
        return "the time-out changes"
    return None


def _why_not_kept(before: RecordedState, after: RecordedState) -> str | None:
    """InitProducerId that keeps the transaction (KIP-939): only its client becomes another one."""
    if before.phase is not Phase.ONGOING:
        return f"a transaction is kept in {before.phase.name}"
    if (after.producer_id, after.producer_epoch) != (before.producer_id, before.producer_epoch):
        return "the producer of what was written changes"
    if after.partitions != before.partitions or after.start_ms != before.start_ms:
        return "what is kept changes"
    producer_id, epoch = before.client
    if after.client == (producer_id, epoch + 1):
        return None
    is_next_id = epoch >= EPOCH_MAX - 1 and after.next_producer_id != producer_id and after.next_producer_epoch == 0
    return None if is_next_id else f"{after.client} does not come after {before.client}"


def _why_not_prepared(before: RecordedState, after: RecordedState) -> str | None:
    """EndTxn, a time-out, or InitProducerId while a transaction is open."""
    is_commit = after.phase.is_commit
    if before.phase is not Phase.ONGOING and (is_commit or not before.phase.is_idle):
        return f"{after.phase.name} follows {before.phase.name}"
    known = before.partitions if before.phase is Phase.ONGOING else frozenset()
    if after.partitions != known:
        return f"the markers go to {sorted(after.partitions)}, the transaction has {sorted(known)}"
    if after.producer_id != before.producer_id or after.timeout_ms != before.timeout_ms:
        return "the producer or the time-out changes"
    if before.phase is Phase.ONGOING and after.start_ms != before.start_ms:
        return "a transaction begins once"
    bump = after.producer_epoch - before.producer_epoch
    if bump not in (0, 1):
        return f"the epoch goes from {before.producer_epoch} to {after.producer_epoch}"
    if after.tells_client_version:
        if after.client_version >= _BUMPS_EPOCHS and bump != 1:
            return "the end does not bump the epoch"
        if after.client_version < _BUMPS_EPOCHS and is_commit and bump != 0:
            return "the end bumps the epoch of a client that does not know it"
    if before.is_kept and not _has_same_heir(before, after):
        return f"{after.client} does not come after {before.client}"
    return None


def _has_same_heir(before: RecordedState, after: RecordedState) -> bool:
    """Whether the recovered producer of a transaction that was kept goes on with its id."""
    if before.next_producer_epoch >= EPOCH_MAX - 1:
        return after.is_kept
    may_be = (before.next_producer_epoch, before.next_producer_epoch + 1)
    return after.next_producer_id == before.next_producer_id and after.next_producer_epoch in may_be


def _why_not_completed(before: RecordedState, after: RecordedState) -> str | None:
    """All markers are written."""
    if before.phase is not _COMPLETED_BY[after.phase]:
        return f"{after.phase.name} follows {before.phase.name}"
    if after.partitions or after.next_producer_id != NOBODY or after.is_kept:
        return "a transaction that is complete has nothing left to do"
    if after.timeout_ms != before.timeout_ms:
        return "the time-out changes"
    if (after.producer_id, after.producer_epoch) != before.heir:
        return f"{before.heir} was to go on"
    return None
