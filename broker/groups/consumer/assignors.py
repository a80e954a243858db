"""The coordinator's assignors (KIP-848): they compute which member reads which partition.

`range_assignment` gives each member a range of each topic, so that partitions with the same number go to one member.
`uniform_assignment` is balanced and sticky: no member has two partitions more than another that could take one of them,
and partitions move only where balance needs it. Both are deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

PartitionId = tuple[UUID, int]
PartitionIds = tuple[PartitionId, ...]
Subscriptions = Mapping[str, tuple[UUID, ...]]
"""The topics of each member."""
PartitionCounts = Mapping[UUID, int]
"""The number of partitions of each topic."""
Assignor = Callable[[Subscriptions, PartitionCounts, Mapping[str, PartitionIds]], dict[str, PartitionIds]]


def range_assignment(
    subscriptions: Subscriptions, counts: PartitionCounts, previous: Mapping[str, PartitionIds]
) -> dict[str, PartitionIds]:
    """Ranges in the order of the member ids. The first members get one more where the division has a remainder."""
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
    """Members keep what they may; free partitions go to the smallest member; then the largest give to the smallest."""
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
    """Balance members that all read the same topics: the largest may have one partition more than the smallest."""
    total = sum(map(len, owned.values())) + len(free)
    least, more = divmod(total, len(owned)) if owned else (0, 0)
    largest_first = sorted(owned, key=lambda member: -len(owned[member]))
    spare = free[::-1]
    for index, member in enumerate(largest_first):
        share = least + (1 if index < more else 0)
        spare += owned[member][share:]
        del owned[member][share:]
    for index, member in enumerate(largest_first):
        share = least + (1 if index < more else 0)
        while len(owned[member]) < share:
            owned[member].append(spare.pop())


def _balance(owned: dict[str, list[PartitionId]], readers: Mapping[UUID, list[str]]) -> None:
    """Move single partitions while that improves the balance. It ends: each move lowers the sum of squared sizes."""
    has_moved = True
    while has_moved:
        has_moved = False
        for member in sorted(owned, key=lambda member: -len(owned[member])):
            for part in list(owned[member]):
                smallest = min(readers[part[0]], key=lambda other: len(owned[other]))
                if len(owned[member]) >= len(owned[smallest]) + 2:
                    owned[member].remove(part)
                    owned[smallest].append(part)
                    has_moved = True


ASSIGNORS: dict[str, Assignor] = {"uniform": uniform_assignment, "range": range_assignment}
