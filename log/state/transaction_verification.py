"""Which producers may open a transaction in a partition: those whose transaction the coordinator has confirmed.

A batch that opens a transaction, and of which the coordinator knows nothing, would leave the transaction open for ever.
So the leader asks the coordinator first (KIP-890). Meanwhile the producer's markers and other batches may be written.
A guard stands for the state of the producer when the question was asked: it ends with the first transactional batch or
marker of the producer, and an answer that comes later lets nothing in. All batches of a producer that wait for an
answer share one guard.
Source: VerificationGuard and VerificationStateEntry of Apache Kafka. Its guards end with every marker, also with that
of a former transaction, and a client has to abort that did nothing wrong. So has one that meets a late batch, of its
own or of a producer that it has fenced: Kafka expects that one first.
"""

from __future__ import annotations

from ...runtime.invariants import sometimes
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.records import BatchHeader
from .sequence_numbers import is_later_sequence

_PENDING_MAX = 10_000
"""If more producers wait, the one that has waited for longest is forgotten, and has to be verified again."""


class VerificationGuard:
    """Identifies one question to the coordinator. Guards are compared by identity."""

    __slots__ = ()


VERIFICATION_OFF = VerificationGuard()
"""Lets every batch in, where `transaction.partition.verification.enable` is false."""


class _PendingVerification:
    """A producer's guard, and the batches that wait for it: their newest epoch, and its first sequence number."""

    __slots__ = ("epoch", "first_sequence", "guard", "since_ms", "supports_epoch_bump")

    def __init__(self, epoch: int, sequence: int, supports_epoch_bump: bool) -> None:
        self.guard = VerificationGuard()
        self.epoch = epoch
        self.first_sequence = sequence
        self.supports_epoch_bump = supports_epoch_bump
        self.since_ms: int | None = None


class PendingVerifications:
    """The producers of one partition whose transactions are being verified, by producer id."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: dict[int, _PendingVerification] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def begin(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard:
        """The guard of the producer, a new one if it has none. `supports_epoch_bump`: its client knows KIP-890."""
        pending = self._pending.get(producer_id)
        if pending is None:
            if len(self._pending) >= _PENDING_MAX:
                del self._pending[next(iter(self._pending))]
            pending = self._pending[producer_id] = _PendingVerification(
                producer_epoch, base_sequence, supports_epoch_bump
            )
        elif producer_epoch > pending.epoch:
            pending.epoch, pending.first_sequence = producer_epoch, base_sequence
            pending.supports_epoch_bump = supports_epoch_bump
        elif producer_epoch == pending.epoch and is_later_sequence(pending.first_sequence, base_sequence):
            pending.first_sequence = base_sequence
        return pending.guard

    def check(self, header: BatchHeader, guard: VerificationGuard | None) -> None:
        """Refuse a batch that would open a transaction, unless `guard` is current. INVALID_TXN_STATE."""
        if guard is VERIFICATION_OFF:
            return
        pending = self._pending.get(header.producer_id)
        if pending is None or guard is not pending.guard:
            sometimes(True, "a partition refused a batch whose transaction it had not verified")
            raise ProtocolError(
                ErrorCode.INVALID_TXN_STATE,
                f"Record of producer {header.producer_id} was not part of an ongoing transaction",
            )

    def check_sequence(self, header: BatchHeader) -> None:
        """Refuse a batch that is not the first of those that wait. OUT_OF_ORDER_SEQUENCE_NUMBER.

        It is for a producer of which the log knows no batch, and cannot say which one comes next. A client that knows
        KIP-890 begins with 0, in any epoch. For others batches of another epoch are not waited for.
        """
        pending = self._pending.get(header.producer_id)
        if pending is None or not (pending.supports_epoch_bump or pending.epoch == header.producer_epoch):
            return
        if pending.supports_epoch_bump:
            expected, is_late = 0, header.base_sequence != 0
        else:
            expected = pending.first_sequence
            is_late = is_later_sequence(header.base_sequence, expected)
        if is_late:
            sometimes(True, "a partition refused a batch that had overtaken the first one of its transaction")
            raise ProtocolError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {header.producer_id} (epoch {header.producer_epoch}) sent sequence {header.base_sequence}, "
                f"{expected} is expected first",
            )

    def end(self, producer_id: int) -> None:
        """The producer has a transactional batch in the log: its guard is over."""
        self._pending.pop(producer_id, None)

    def end_by_marker(self, producer_id: int, marker_epoch: int) -> None:
        """The producer has a marker in the log: its guard is over, unless that is the end of a former transaction.

        With `transaction.version` 2 a marker has a higher epoch than the transaction that it ends. A client may write
        to its next transaction, in the epoch of the marker, before the marker is there.
        """
        pending = self._pending.get(producer_id)
        if pending is not None and not (pending.supports_epoch_bump and marker_epoch <= pending.epoch):
            del self._pending[producer_id]

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget the guards that are so old; the age counts from the first call that finds one."""
        for producer_id, pending in list(self._pending.items()):
            if pending.since_ms is None:
                pending.since_ms = now_ms
            elif now_ms - pending.since_ms >= expiration_ms:
                del self._pending[producer_id]

    def clear(self) -> None:
        """Forget all guards."""
        self._pending.clear()
