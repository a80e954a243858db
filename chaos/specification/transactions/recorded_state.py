"""What a record of `__transaction_state` says, read by its schema alone and by no code of the coordinator.

Source: TransactionLogKey and TransactionLogValue of Apache Kafka, KIP-890 and KIP-939.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, TypeVar

from ....wire.types import TopicPartition

T = TypeVar("T")
_LAST_PLAIN_VERSION = 0
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION, _NEXT_EPOCH = range(4)
"""The tags."""
NOBODY = -1
EPOCH_MAX = 32767


class Phase(IntEnum):
    """Where a transaction is, by its number in the records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open or ending."""
        return self in (Phase.EMPTY, Phase.COMPLETE_COMMIT, Phase.COMPLETE_ABORT)

    @property
    def is_prepared(self) -> bool:
        """Whether the end is decided, and markers are still to be written."""
        return self in (Phase.PREPARE_COMMIT, Phase.PREPARE_ABORT)

    @property
    def is_commit(self) -> bool:
        """Whether the transaction ends, or has ended, with a commit."""
        return self in (Phase.PREPARE_COMMIT, Phase.COMPLETE_COMMIT)


class RecordedState(NamedTuple):
    """One record of a transactional id. Version 0 does not have the fields that have a default here."""

    version: int
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    phase: Phase
    partitions: frozenset[TopicPartition]
    last_update_ms: int
    start_ms: int
    previous_producer_id: int = NOBODY
    next_producer_id: int = NOBODY
    client_version: int = 0
    next_producer_epoch: int = NOBODY

    @property
    def is_kept(self) -> bool:
        """Whether the transaction waits for a producer that has recovered (KIP-939)."""
        return self.next_producer_epoch != NOBODY

    @property
    def client(self) -> tuple[int, int]:
        """The producer id and epoch of the only producer that may ask for anything."""
        if self.is_kept:
            return self.next_producer_id, self.next_producer_epoch
        return self.producer_id, self.producer_epoch

    @property
    def heir(self) -> tuple[int, int]:
        """The producer id and epoch of the producer that goes on when the transaction that is ending is complete."""
        if self.next_producer_id != NOBODY and not self.is_kept:
            return self.next_producer_id, 0
        return self.client

    @property
    def tells_client_version(self) -> bool:
        """Whether the record may have the version of the client."""
        return self.version > _LAST_PLAIN_VERSION


class _Reader:
    def __init__(self, data: bytes, is_compact: bool = False) -> None:
        self._data = data
        self._at = 0
        self.is_compact = is_compact

    def number(self, size: int) -> int:
        self._at += size
        return int.from_bytes(self._data[self._at - size : self._at], "big", signed=True)

    def size(self) -> int:
        """Of an array or a text; -1 for none."""
        return self.varint() - 1 if self.is_compact else self.number(4)

    def varint(self) -> int:
        found = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
            shift += 7

    def text(self) -> str:
        length = self.size() if self.is_compact else self.number(2)
        self._at += length
        return self._data[self._at - length : self._at].decode()

    def array(self, one: Callable[[], T]) -> list[T]:
        return [one() for _ in range(self.size())]

    def tagged(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for _ in range(self.varint() if self.is_compact else 0):
            tag = self.varint()
            found[tag] = self.number(self.varint())
        return found


def read_transactional_id(key: bytes) -> str | None:
    """The transactional id of a key; None for a key of another kind."""
    reader = _Reader(key)
    return reader.text() if reader.number(2) == 0 else None


def read_state(value: bytes) -> RecordedState:
    """The state that a value says."""
    reader = _Reader(value)
    version = reader.number(2)
    reader.is_compact = version > _LAST_PLAIN_VERSION

    def topic() -> list[TopicPartition]:
        name = reader.text()
        found = [TopicPartition(name, index) for index in reader.array(lambda: reader.number(4))]
        reader.tagged()
        return found

    producer_id, epoch, timeout_ms = reader.number(8), reader.number(2), reader.number(4)
    phase = Phase(reader.number(1))
    partitions = frozenset(one for topic_partitions in reader.array(topic) for one in topic_partitions)
    last_update_ms, start_ms = reader.number(8), reader.number(8)
    tags = reader.tagged()
    return RecordedState(
        version,
        producer_id,
        epoch,
        timeout_ms,
        phase,
        partitions,
        last_update_ms,
        start_ms,
        tags.get(_PREVIOUS_ID, NOBODY),
        tags.get(_NEXT_ID, NOBODY),
        tags.get(_CLIENT_VERSION, 0),
        tags.get(_NEXT_EPOCH, NOBODY),
    )
