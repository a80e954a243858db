"""The placement of new replicas on brokers: rack-aware round robin (KIP-36; Kafka: `StripedReplicaPlacer`).

Brokers stand in a line in which racks alternate. Leaders are chosen round the line from a random start. The other
replicas follow at a distance that grows after each round. So the partitions of one leader have different followers, and
its load spreads over all brokers when it dies. The replicas of a partition are spread over racks as evenly as there are
brokers, which goes before all else: a rack whose brokers are all fenced gets its share, as in Kafka. Within a rack, and
where racks have equal shares, fenced brokers get replicas only when there are not enough live ones; they never get the
first replica.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ...wire.errors import ErrorCode, ProtocolError


@dataclass(frozen=True, slots=True)
class UsableBroker:
    """A broker that may be given replicas."""

    broker_id: int
    rack: str | None = None
    fenced: bool = False


def place(
    brokers: Sequence[UsableBroker], partition_count: int, replication_factor: int, rng: random.Random
) -> list[tuple[int, ...]]:
    """The replicas of each new partition, the preferred leader first.

    Raises `ProtocolError(INVALID_REPLICATION_FACTOR)` when there are too few brokers, or only fenced ones.
    """
    if replication_factor > len(brokers):
        raise ProtocolError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(brokers)} broker(s) are registered.",
        )
    live = [broker for broker in brokers if not broker.fenced]
    if not live:
        raise ProtocolError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): All brokers are currently fenced.",
        )
    fenced = [broker for broker in brokers if broker.fenced]
    return _Placer(_alternate_racks(live), _alternate_racks(fenced), replication_factor, rng).place(partition_count)


def _alternate_racks(brokers: Sequence[UsableBroker]) -> list[UsableBroker]:
    """All brokers in one line: the first of each rack, then the second of each rack, and so on."""
    racks: dict[str, list[UsableBroker]] = {}
    for broker in sorted(brokers, key=lambda b: (b.rack or "", b.broker_id)):
        racks.setdefault(broker.rack or "", []).append(broker)
    depth = max((len(members) for members in racks.values()), default=0)
    return [members[i] for i in range(depth) for members in racks.values() if i < len(members)]


class _Placer:
    def __init__(
        self, line: Sequence[UsableBroker], fenced: Sequence[UsableBroker], replication_factor: int, rng: random.Random
    ) -> None:
        self._line = line
        self._fenced = fenced
        self._replication_factor = replication_factor
        self._start = rng.randrange(len(line))
        self._shift = rng.randrange(len(line))
        self._stride = _stride(len(line) - 1, len({broker.rack or "" for broker in line}))

    def place(self, partition_count: int) -> list[tuple[int, ...]]:
        size = len(self._line)
        return [
            self._place_one((self._start + index) % size, self._shift + index // size)
            for index in range(partition_count)
        ]

    def _place_one(self, first: int, shift: int) -> tuple[int, ...]:
        leader = self._line[first]
        replicas = [leader.broker_id]
        in_racks = Counter((leader.rack or "",))
        # All other positions once, rotated by the shift; the fenced brokers behind them.
        others = len(self._line) - 1
        distances = [1 + (shift * self._stride + step) % others for step in range(others)]
        candidates = [self._line[(first + distance) % len(self._line)] for distance in distances]
        candidates += [self._fenced[(first + shift + step) % len(self._fenced)] for step in range(len(self._fenced))]
        while len(replicas) < self._replication_factor:
            chosen = min(candidates, key=lambda broker: in_racks[broker.rack or ""])  # the first one of these
            candidates.remove(chosen)
            replicas.append(chosen.broker_id)
            in_racks[chosen.rack or ""] += 1
        return tuple(replicas)


def _stride(others: int, racks: int) -> int:
    """By how much the distances rotate after a round.

    With several racks, a rotation by one would only exchange racks; by their number it changes the broker. But a
    number that has a divisor in common with that of the other brokers would never come to some of them.
    """
    return next(stride for stride in range(racks, racks + others + 2) if math.gcd(stride, others) <= 1)
