"""Shapes of network partitions: the links that each of them cuts."""

from __future__ import annotations

import random
from collections.abc import Sequence


def bridge(names: Sequence[str]) -> list[tuple[str, str]]:
    """Cut all links between two halves of the nodes; the first node still reaches every other."""
    middle = 1 + len(names) // 2
    pairs = [(here, there) for here in names[1:middle] for there in names[middle:]]
    return pairs + [(there, here) for here, there in pairs]


def split(names: Sequence[str], clients: Sequence[str], rng: random.Random) -> list[tuple[str, str]]:
    """Cut all links between two random parts of the nodes; the clients are with one part."""
    mixed = rng.sample(names, len(names))
    middle = rng.randrange(1, len(names)) if len(names) > 1 else 1
    here, there = mixed[:middle], mixed[middle:]
    (here if rng.random() < 0.5 else there).extend(clients)
    pairs = [(one, other) for one in here for other in there]
    return pairs + [(other, one) for one, other in pairs]


def ring(names: Sequence[str]) -> list[tuple[str, str]]:
    """Cut all links but those between neighbours on a ring."""
    count = len(names)
    return [
        (here, there)
        for i, here in enumerate(names)
        for j, there in enumerate(names)
        if (i - j) % count not in (0, 1, count - 1)
    ]
