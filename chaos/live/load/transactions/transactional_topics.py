"""The topics of the transactional load, and the values of its records.

Writers write to two topics in one transaction, processors read the first of them and write to the third.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from ...checker.transactions.read_table import COMMITTED

PARTITIONS = 3
"""Partitions of each topic."""
ISOLATION_LEVELS = {"committed": COMMITTED, "uncommitted": "read_uncommitted"}
"""By the word that the names of reading processes end with."""


class TransactionalTopics(NamedTuple):
    """The names of the topics of a run, and of the groups of processors and copiers."""

    inputs: str
    others: str
    effects: str
    copies: str
    group: str
    copiers: str

    @staticmethod
    def of(topic: str) -> TransactionalTopics:
        """The names that belong to the main topic of a run."""
        return TransactionalTopics(*(f"{topic}-{name}" for name in TransactionalTopics._fields))

    @property
    def all(self) -> tuple[str, ...]:
        """The topics."""
        return (self.inputs, self.others, self.effects, self.copies)

    @property
    def inputs_of(self) -> dict[str, str]:
        """By group: the topic that it reads."""
        return {self.group: self.inputs, self.copiers: self.others}


def encode_value(transaction: str, index: int, size_bytes: int) -> bytes:
    """The value of a record: a checksum, the record's name, and padding."""
    body = f"{transaction}/{index}/".encode().ljust(max(0, size_bytes - 9), b"x")
    return b"%08x:%b" % (zlib.crc32(body), body)


def decode_value(value: bytes | None) -> tuple[str | None, int]:
    """The transaction and the index of these bytes; None if no client of the run wrote exactly them."""
    try:
        checksum, _, body = (value or b"").partition(b":")
        transaction, index, _ = body.split(b"/", 2)
        if int(checksum, 16) != zlib.crc32(body):
            return (None, 0)
        return (transaction.decode(), int(index))
    except ValueError:
        return (None, 0)
