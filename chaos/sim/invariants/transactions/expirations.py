"""What nodes may forget, and when: transactional ids, and the producers of a partition.

"A transactional id is removed when it was not used for its expiration" is judged by the records of the id alone. "A
producer is known until it was silent for its expiration": when its next batch is in the log, the leader must remember
the batches before it, unless these are so old. Who forgets them earlier takes a repeated batch for a new one.
"""

from __future__ import annotations

from typing import NamedTuple

from .....log.partition_log import PartitionLog
from ....specification.transactions.log_replay import SeenProducer
from ....specification.transactions.recorded_state import RecordedState
from ..invariant_broken import InvariantBroken

DAY_MS = 86_400_000


class Expirations(NamedTuple):
    """`transactional.id.expiration.ms` and `producer.id.expiration.ms` of the nodes."""

    id_ms: int = 7 * DAY_MS
    producer_ms: int = DAY_MS

    @property
    def forgets_producers(self) -> bool:
        """Whether a run is long enough for producers to be forgotten."""
        return self.producer_ms < DAY_MS


DEFAULT_EXPIRATIONS = Expirations()


def check_removed(before: RecordedState | None, removed_ms: int, expiration_ms: int, where: str) -> None:
    """A coordinator has written a tombstone at a time of its clock. Raises `InvariantBroken`."""
    if before is not None and removed_ms < before.last_update_ms + expiration_ms:
        detail = f"{where}: {removed_ms - before.last_update_ms} ms after it was used"
        raise InvariantBroken("a transactional id is removed when it was not used for its expiration", detail)


def check_remembered(
    log: PartitionLog, producer_id: int, said: SeenProducer, *, may_be_forgotten: bool, where: str
) -> None:
    """Compare the batches that a leader remembers of a producer that has just written with those of the log.

    What it has forgotten for a reason is removed from `said`. Raises `InvariantBroken`.
    """
    entry = log.producers.get(producer_id)
    known = [] if entry is None else [(one.first_sequence, one.last_sequence, one.last_offset) for one in entry.batches]
    expected = [tuple(one) for one in said.batches]
    if known == expected:
        return
    if not may_be_forgotten or known != expected[len(expected) - len(known) :]:
        detail = f"{where}: of producer {producer_id} it remembers {known}, the log has {expected}"
        raise InvariantBroken("a producer is known until it was silent for its expiration", detail)
    del said.batches[: len(expected) - len(known)]
