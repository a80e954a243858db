"""The schemas that a schema refers to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Referenced:
    """A schema that another one uses, by the name that it has there."""

    name: str
    text: str
    depth: int = 0
    """How many references lie between: 0 for one that the schema itself names."""


def by_name(references: Iterable[Referenced]) -> dict[str, str]:
    """The texts by their names. Of two with one name, the one that the schema names more directly counts."""
    texts: dict[str, str] = {}
    for one in sorted(references, key=lambda one: one.depth):
        texts.setdefault(one.name, one.text)
    return texts
