"""The coordinator's own assignors (KIP-848): who reads which partition.

`range_assignment` gives each member a run of each topic, so that partitions of one number go together.
`uniform_assignment` balances and is sticky: nobody has two more than somebody else who could take one of them, and
partitions move only for the sake of that. Both are deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

PartitionId = tuple[UUID, int]
PartitionIds = tuple[PartitionId, ...]
Subscriptions = Mapping[str, tuple[UUID, ...]]
"""The topics of each member."""
PartitionCounts = Mapping[UUID, int]
"""How many partitions each topic has."""
Assignor = Callable[[Subscriptions, PartitionCounts, Mapping[str, PartitionIds]], dict[str, PartitionIds]]


def range_assignment(
    subscriptions: Subscriptions, counts: PartitionCounts, previous: Mapping[str, PartitionIds]
) -> dict[str, PartitionIds]:
    """Members in order of their ids; the first ones get one more where it does not come out even."""
    result: dict[str, list[PartitionId]] = {member: [] for member in sorted(subscriptions)}
    for topic, count in sorted(counts.items()):
        readers = [member for member in result if topic in subscriptions[member]]
        at = 0
        for index, member in enumerate(readers):
            share = count // len(readers) + (1 if index < count % len(readers) else 0)
            result[member] += [(topic, partition) for partition in range(at, at + share)]
            at += share
    return {member: tuple(parts) for member, parts in result.items()}


def uniform_assignment(
    subscriptions: Subscriptions, counts: PartitionCounts, previous: Mapping[str, PartitionIds]
) -> dict[str, PartitionIds]:
    """Everybody keeps what it may, what is free goes to who has least, then the fullest give to the emptiest."""
    owned, free = _kept(subscriptions, counts, previous)
    if len({frozenset(topics) for topics in subscriptions.values()}) <= 1:
        _level(owned, free)
        return {member: tuple(sorted(parts)) for member, parts in owned.items()}
    readers = {topic: [member for member in owned if topic in subscriptions[member]] for topic in counts}
    for part in sorted(free, key=lambda part: (len(readers[part[0]]), part)):
        if readers[part[0]]:
            owned[min(readers[part[0]], key=lambda member: len(owned[member]))].append(part)
    _balance(owned, readers)
    return {member: tuple(sorted(parts)) for member, parts in owned.items()}


def _kept(
    subscriptions: Subscriptions, counts: PartitionCounts, previous: Mapping[str, PartitionIds]
) -> tuple[dict[str, list[PartitionId]], list[PartitionId]]:
    owned: dict[str, list[PartitionId]] = {member: [] for member in sorted(subscriptions)}
    free = {(topic, partition): None for topic, count in counts.items() for partition in range(count)}
    for member, parts in owned.items():
        topics = subscriptions[member]
        for part in previous.get(member, ()):
            if part in free and part[0] in topics:
                del free[part]
                parts.append(part)
    return owned, list(free)


def _level(owned: dict[str, list[PartitionId]], free: list[PartitionId]) -> None:
    """All read the same topics: the fullest may have one more than the emptiest."""
    total = sum(map(len, owned.values())) + len(free)
    least, more = divmod(total, len(owned)) if owned else (0, 0)
    fullest_first = sorted(owned, key=lambda member: -len(owned[member]))
    spare = free[::-1]
    for index, member in enumerate(fullest_first):
        share = least + (1 if index < more else 0)
        spare += owned[member][share:]
        del owned[member][share:]
    for index, member in enumerate(fullest_first):
        share = least + (1 if index < more else 0)
        while len(owned[member]) < share:
            owned[member].append(spare.pop())


def _balance(owned: dict[str, list[PartitionId]], readers: Mapping[UUID, list[str]]) -> None:
    """Move single partitions while that evens out; each move makes the sum of squares smaller, so it ends."""
    has_moved = True
    while has_moved:
        has_moved = False
        for member in sorted(owned, key=lambda member: -len(owned[member])):
            for part in list(owned[member]):
                emptiest = min(readers[part[0]], key=lambda other: len(owned[other]))
                if len(owned[member]) >= len(owned[emptiest]) + 2:
                    owned[member].remove(part)
                    owned[emptiest].append(part)
                    has_moved = True


ASSIGNORS: dict[str, Assignor] = {"uniform": uniform_assignment, "range": range_assignment}
