"""The driver's decision that the transactions of a micro-batch are to be committed, and how it is kept.

It is the metadata of a committed offset, whose offset is the number of the batch. Brokers take 4,096 characters of
metadata (`offset.metadata.max.bytes`), so it is compressed, and cut into parts, each of a group of its own.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ....cluster.client.transactions.producer_transactions import ProducerIdAndEpoch

PART_CHARS = 4000
_VERSION = 1


class ForeignMetadataError(ValueError):
    """Metadata of an offset that no sink has written."""


@dataclass(frozen=True, slots=True)
class TaskTransaction:
    """The transaction of a task: what its transactional id adds to that of the sink, and its producer."""

    suffix: str
    producer: ProducerIdAndEpoch


@dataclass(frozen=True, slots=True)
class Decision:
    """That the transactions of a micro-batch are to be committed; `is_done` when they are.

    `serial` counts the decisions of a sink, whatever query they are of.
    """

    serial: int
    query_id: str
    batch: int
    transactions: tuple[TaskTransaction, ...]
    is_done: bool = False

    def covers(self, query_id: str, batch: int) -> bool:
        """Whether this batch of this query is decided."""
        return query_id == self.query_id and batch <= self.batch

    def done(self) -> Decision:
        """The decision once all transactions are committed, which need not be known any more."""
        return replace(self, serial=self.serial + 1, transactions=(), is_done=True)

    def void(self) -> Decision:
        """What is decided once all transactions have turned out to be aborted: the batch is to be written again."""
        return replace(self.done(), batch=self.batch - 1)


def to_parts(decision: Decision) -> list[str]:
    """The decision as metadata of offsets, each of at most `PART_CHARS` characters."""
    rows = [[one.suffix, one.producer.producer_id, one.producer.epoch] for one in decision.transactions]
    fields = {
        "version": _VERSION,
        "serial": decision.serial,
        "query": decision.query_id,
        "batch": decision.batch,
        "done": decision.is_done,
        "transactions": rows,
    }
    text = base64.b64encode(zlib.compress(json.dumps(fields, separators=(",", ":")).encode())).decode()
    size = PART_CHARS - 8
    count = -(-len(text) // size)
    return [f"{count}:{text[start : start + size]}" for start in range(0, len(text), size)]


def part_count(first: str) -> int:
    """The number of parts, which each of them tells. Raises `ForeignMetadataError`."""
    count, colon, _ = first.partition(":")
    if not colon or not count.isascii() or not count.isdigit() or not 0 < int(count) < 10**6:
        raise ForeignMetadataError(first)
    return int(count)


def from_parts(parts: Sequence[str]) -> Decision:
    """The decision in these parts. Raises `ForeignMetadataError` when they are not of one decision."""
    try:
        text = zlib.decompress(base64.b64decode("".join(one.partition(":")[2] for one in parts), validate=True))
        fields = json.loads(text)
        rows = fields["transactions"]
        if fields["version"] != _VERSION:
            raise ForeignMetadataError(f"it is of version {fields['version']}")
        return Decision(
            int(fields["serial"]),
            str(fields["query"]),
            int(fields["batch"]),
            tuple(TaskTransaction(str(at), ProducerIdAndEpoch(int(one), int(epoch))) for at, one, epoch in rows),
            bool(fields["done"]),
        )
    except (zlib.error, ValueError, KeyError, TypeError) as error:
        raise ForeignMetadataError(str(error)) from None
