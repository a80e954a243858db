"""Writes the markers that end transactions, for transaction coordinators (KIP-98).

A marker is a control batch of the producer, appended by the partition's leader with acks=all.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from ...wire.errors import ErrorCode, ProtocolError
from ...wire.produce import ProducePartitionResponse
from ...wire.records import ControlRecordType, encode_batch, encode_control_record
from ...wire.types import TopicPartition
from ..hosted_partitions import HostedPartitions
from ..purgatory.delayed_operations import Appended, DelayedOperations
from ..purgatory.purgatory import UncommittedAppend
from ..replica import ACKS_ALL
from ..storage_errors import StorageErrors

_END_TRANSACTION_MARKER = struct.Struct(">hi")
_MARKER_VERSION = 0


class TransactionMarker(NamedTuple):
    """The end of a producer's transaction, as its coordinator has decided it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int
    """The coordinator's; from 2 on `producer_epoch` is above that of the transaction's records."""


MarkerEntry: TypeAlias = tuple[TopicPartition, TransactionMarker]
"""A marker, and the partition that it goes to."""
MarkersDone: TypeAlias = Callable[[list[ErrorCode]], None]
MarkerCommitted: TypeAlias = Callable[[MarkerEntry], None]
_NO_TIMEOUT_MS = 2**31 - 1


def encode_marker(marker: TransactionMarker, timestamp_ms: int) -> bytearray:
    """The control batch of a marker."""
    kind = ControlRecordType.COMMIT if marker.is_commit else ControlRecordType.ABORT
    value = _END_TRANSACTION_MARKER.pack(_MARKER_VERSION, marker.coordinator_epoch)
    return encode_batch(
        [encode_control_record(kind, value, timestamp_ms)],
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        is_control=True,
        is_transactional=True,
    )


class MarkerAppends:
    """Appends markers to the partitions that this broker leads. `now` gives monotonic and wall-clock milliseconds."""

    def __init__(
        self,
        hosted: HostedPartitions,
        operations: DelayedOperations,
        errors: StorageErrors,
        now: Callable[[], tuple[int, int]],
    ) -> None:
        self._hosted = hosted
        self._operations = operations
        self._errors = errors
        self._now = now

    def write(
        self,
        timeout_ms: int,
        entries: Sequence[MarkerEntry],
        done: MarkersDone,
        committed: MarkerCommitted | None = None,
    ) -> None:
        """See `ReplicaManager.write_markers`."""
        times = self._now()
        responses: list[ProducePartitionResponse] = []
        appended: list[Appended] = []
        ends: list[tuple[int, MarkerEntry]] = []
        operations = self._operations
        operations.defer()
        try:
            for entry in entries:
                key, marker = entry
                response = ProducePartitionResponse(key.partition)
                responses.append(response)
                try:
                    if marker.producer_id < 0:
                        text = f"{marker.producer_id} is the id of no producer"
                        raise ProtocolError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)
                    replica = self._hosted.find(key)
                    batch = memoryview(encode_marker(marker, times[1]))
                    info = replica.append_as_leader(
                        batch, ACKS_ALL, times, internal=True, transaction_version=marker.transaction_version
                    )
                except (ProtocolError, OSError) as error:
                    response.error_code = int(self._errors.to_protocol_error(key, error).code)
                    continue
                appended.append((replica, info.size_bytes, UncommittedAppend(key, info.last_offset + 1, response)))
                ends.append((info.last_offset + 1, entry))
            for replica, size_bytes, _ in appended:
                operations.on_appended(replica, size_bytes)
        finally:
            operations.complete()
        if committed is not None:
            for end_offset, entry in ends:
                self._tell_when_committed(entry, end_offset, committed)

        def answer(answered: list[ProducePartitionResponse]) -> None:
            done([ErrorCode(response.error_code) for response in answered])

        operations.answer_when_committed(timeout_ms, responses, appended, answer)

    def _tell_when_committed(self, entry: MarkerEntry, end_offset: int, committed: MarkerCommitted) -> None:
        def settled(is_committed: bool) -> None:
            if is_committed:
                committed(entry)

        self._operations.when_committed(entry[0], end_offset, _NO_TIMEOUT_MS, settled)
