"""The placement of new replicas on brokers: rack-aware round robin (KIP-36; Kafka: `StripedReplicaPlacer`).

Brokers stand in a line in which racks alternate. Leaders are chosen round the line from a random start. The other
replicas follow at a distance that grows after each round. So the partitions of one leader have different followers, and
its load spreads over all brokers when it dies. A replica goes to a rack without a replica as long as there is one.
Fenced brokers get replicas only when there are not enough live brokers, and never the first replica.
"""

from __future__ import annotations

import random
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
    live_line = _alternate_racks(live)
    replicas = _Placer(live_line, min(replication_factor, len(live)), rng).place(partition_count)
    missing = replication_factor - len(live)
    if missing <= 0:
        return replicas
    fenced_line = _alternate_racks([broker for broker in brokers if broker.fenced])
    fillers = _Placer(fenced_line, missing, rng).place(partition_count)
    return [first + rest for first, rest in zip(replicas, fillers, strict=True)]


def _alternate_racks(brokers: Sequence[UsableBroker]) -> list[UsableBroker]:
    """All brokers in one line: the first of each rack, then the second of each rack, and so on."""
    racks: dict[str, list[UsableBroker]] = {}
    for broker in sorted(brokers, key=lambda b: (b.rack or "", b.broker_id)):
        racks.setdefault(broker.rack or "", []).append(broker)
    depth = max((len(members) for members in racks.values()), default=0)
    return [members[i] for i in range(depth) for members in racks.values() if i < len(members)]


class _Placer:
    def __init__(self, line: Sequence[UsableBroker], replication_factor: int, rng: random.Random) -> None:
        self._line = line
        self._replication_factor = replication_factor
        self._rack_count = len({broker.rack or "" for broker in line})
        self._start = rng.randrange(len(line))
        self._shift = rng.randrange(len(line))

    def place(self, partition_count: int) -> list[tuple[int, ...]]:
        size = len(self._line)
        return [
            self._place_one((self._start + index) % size, self._shift + index // size)
            for index in range(partition_count)
        ]

    def _place_one(self, first: int, shift: int) -> tuple[int, ...]:
        leader = self._line[first]
        replicas = [leader.broker_id]
        racks = {leader.rack or ""}
        # All other positions once, rotated by the shift. Racks without a replica come first.
        others = len(self._line) - 1
        distances = [1 + (shift * self._stride() + step) % others for step in range(others)]
        candidates = [self._line[(first + distance) % len(self._line)] for distance in distances]
        while len(replicas) < self._replication_factor:
            chosen = self._next(candidates, racks)
            candidates.remove(chosen)
            replicas.append(chosen.broker_id)
            racks.add(chosen.rack or "")
        return tuple(replicas)

    def _stride(self) -> int:
        # With several racks, a rotation by one would only exchange racks; by their number it changes the broker.
        return self._rack_count if self._rack_count > 1 else 1

    def _next(self, candidates: Sequence[UsableBroker], racks: set[str]) -> UsableBroker:
        if len(racks) < self._rack_count:
            return next(broker for broker in candidates if (broker.rack or "") not in racks)
        return candidates[0]
