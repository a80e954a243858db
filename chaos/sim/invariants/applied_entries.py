"""What the nodes of a simulated cluster have applied of one kind of metadata, such as access control lists, and when.

A set of entries stands for that metadata. The sets that each node had are kept with their times, so that an answer can
be compared with what its node knew when it answered. The set of the node that is furthest ahead is the committed one.
Its changes are compared with the requests that asked for them:

- all nodes have the same set at the same offset;
- each change was asked for by a request that was under way, and is made as a whole;
- what is acknowledged was committed before.

A request without an answer may be carried out later, even after other requests, and is under way for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ....controller.metadata.metadata_image import MetadataImage
from ....controller.metadata.metadata_loader import MetadataLoader
from .invariant_broken import InvariantBroken

E = TypeVar("E")


@dataclass(slots=True, eq=False)
class RequestedChange(Generic[E]):
    """One attempt of an administrator: it adds `added`, and removes those for which `is_removed` holds."""

    added: frozenset[E]
    is_removed: Callable[[E], bool]
    begun_s: float
    ended_s: float | None = None
    """When it was acknowledged or refused; None without an answer."""

    def is_made_in(self, entries: frozenset[E]) -> bool:
        """Whether the entries are as right after this change."""
        return self.added <= entries and self.has_removed(entries)

    def has_removed(self, entries: frozenset[E]) -> bool:
        """Whether nothing is left of what it removes."""
        return not any(map(self.is_removed, sorted(entries - self.added, key=str)))


@dataclass(frozen=True, slots=True)
class _Version(Generic[E]):
    since_s: float
    entries: frozenset[E]


class AppliedEntries(Generic[E]):
    """The history of one kind of entries: by node, and of the committed metadata."""

    def __init__(self, kind: str, entries_of: Callable[[MetadataImage], frozenset[E]], now_s: Callable[[], float]):
        """`kind` names the entries in what is said of a broken invariant."""
        self.kind = kind
        self._entries_of = entries_of
        self._now_s = now_s
        self._of_nodes: dict[int, list[_Version[E]]] = {}
        self._seen: dict[int, tuple[MetadataLoader, int]] = {}
        """The loader of each node's present incarnation, and its last offset."""
        self._at_offsets: dict[int, frozenset[E]] = {}
        self._committed: list[_Version[E]] = [_Version(0.0, frozenset())]
        self._committed_offset = -1
        self._changes: list[RequestedChange[E]] = []

    # -- what nodes apply

    def after_event(self, node_id: int, loader: MetadataLoader) -> None:
        """Take note of what a running node has applied in an event. Raises `InvariantBroken`."""
        seen = self._seen.get(node_id)
        if seen is None or seen[0] is not loader or seen[1] != loader.image.offset:
            self._seen[node_id] = loader, loader.image.offset
            self._on_image(node_id, loader.image)

    def since(self, node_id: int, begun_s: float) -> list[frozenset[E]]:
        """The sets that a node had at any time from `begun_s` until now, oldest first."""
        return _since(self._of_nodes.get(node_id, []), begun_s)

    def since_anywhere(self, begun_s: float) -> list[frozenset[E]]:
        """The sets that any node had at any time from `begun_s` until now."""
        return [entries for node_id in self._of_nodes for entries in self.since(node_id, begun_s)]

    @property
    def committed(self) -> frozenset[E]:
        """The set that is committed, as the node knows it that is furthest ahead."""
        return self._committed[-1].entries

    def why_nodes_differ(self) -> str | None:
        """A node that has not applied what is committed; None if there is none."""
        for node_id, versions in self._of_nodes.items():
            if versions[-1].entries != self.committed:
                differing = versions[-1].entries ^ self.committed
                return f"node {node_id} differs in the {self.kind} {_shown(differing)}"
        return None

    def _on_image(self, node_id: int, image: MetadataImage) -> None:
        entries = self._entries_of(image)
        versions = self._of_nodes.setdefault(node_id, [])
        if not versions or versions[-1].entries != entries:
            versions.append(_Version(self._now_s(), entries))
        known = self._at_offsets.setdefault(image.offset, entries)
        if known != entries:
            detail = f"{self.kind} at offset {image.offset}: node {node_id} differs in {_shown(known ^ entries)}"
            raise InvariantBroken("all nodes have the same entries at the same offset", detail)
        if image.offset > self._committed_offset:
            self._committed_offset = image.offset
            self._on_committed(entries)

    def _on_committed(self, entries: frozenset[E]) -> None:
        before = self.committed
        if entries == before:
            return
        under_way = [each for each in self._changes if each.ended_s is None]
        asked_for = frozenset(entry for each in under_way for entry in each.added)
        for entry in sorted(entries - before, key=str):
            if not any(entry in each.added and self._is_whole(each, entries, under_way) for each in under_way):
                raise InvariantBroken("entries come as they were asked for, none alone", f"{self.kind}: {entry}")
        for entry in sorted(before - entries, key=str):
            if not any(each.is_removed(entry) and each.has_removed(entries - asked_for) for each in under_way):
                raise InvariantBroken("entries go as they were asked to, none alone", f"{self.kind}: {entry}")
        self._committed.append(_Version(self._now_s(), entries))

    @staticmethod
    def _is_whole(change: RequestedChange[E], entries: frozenset[E], under_way: Sequence[RequestedChange[E]]) -> bool:
        """Whether all that a change adds is there, or may have been removed again since."""
        return all(
            entry in entries or any(each.is_removed(entry) for each in under_way if each is not change)
            for entry in change.added
        )

    # -- what is asked for

    def begin(self, added: frozenset[E], is_removed: Callable[[E], bool]) -> RequestedChange[E]:
        """An administrator sends a request."""
        change = RequestedChange(added, is_removed, self._now_s())
        self._changes.append(change)
        return change

    def end(self, change: RequestedChange[E], *, is_acknowledged: bool) -> None:
        """The request was answered: it is carried out, or never will be."""
        change.ended_s = self._now_s()
        if is_acknowledged and not any(map(change.is_made_in, _since(self._committed, change.begun_s))):
            detail = f"{self.kind} {_shown(change.added)}, there are {_shown(self.committed)}"
            raise InvariantBroken("what is acknowledged is committed", detail)


def _since(versions: Sequence[_Version[E]], begun_s: float) -> list[frozenset[E]]:
    """The sets in force at any time from `begun_s` on: the last one before it, and all later ones."""
    found: list[frozenset[E]] = []
    for version in reversed(versions):
        found.append(version.entries)
        if version.since_s < begun_s:
            break
    return found[::-1]


def _shown(entries: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, entries))) or "none"
