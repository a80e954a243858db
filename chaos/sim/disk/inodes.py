"""Files and directories of the disk in memory: each as programs see it, and as the device holds it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(slots=True, eq=False)
class Write:
    offset: int
    data: bytes

    def apply(self, target: bytearray) -> None:
        if len(target) < self.offset:
            target.extend(bytes(self.offset - len(target)))
        target[self.offset : self.offset + len(self.data)] = self.data

    def size_only(self, size: int) -> Write:
        """What is left when a file of `size` bytes grew for this write, and its data never came."""
        new = max(0, self.offset + len(self.data) - max(size, self.offset))
        return Write(self.offset + len(self.data) - new, bytes(new))


@dataclass(slots=True, eq=False)
class Truncate:
    size: int

    def apply(self, target: bytearray) -> None:
        if self.size < len(target):
            del target[self.size :]
        else:
            target.extend(bytes(self.size - len(target)))


@dataclass(slots=True, eq=False)
class Inode:
    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[Write | Truncate] = field(default_factory=list)

    def perform(self, operation: Write | Truncate) -> None:
        operation.apply(self.data)
        self.unsynced.append(operation)

    def sync(self, operations: list[Write | Truncate]) -> None:
        """Make the first of the unsynced operations, given as a copy, durable; some may be so already."""
        for operation in operations:
            if self.unsynced and self.unsynced[0] is operation:
                operation.apply(self.durable)
                del self.unsynced[0]

    def drop_dirty(self) -> None:
        self.unsynced.clear()


@dataclass(slots=True, eq=False)
class Directory:
    entries: dict[str, Inode | Directory] = field(default_factory=dict)
    durable: dict[str, Inode | Directory] = field(default_factory=dict)

    def walk(self) -> Iterator[Inode | Directory]:
        for node in self.entries.values():
            yield node
            if isinstance(node, Directory):
                yield from node.walk()


DiskCopy: TypeAlias = Directory


@dataclass(slots=True, eq=False)
class Relink:
    """One journal entry: names in directories that now mean another node, or none."""

    changes: list[tuple[Directory, str, Inode | Directory | None]]

    def apply_durably(self) -> None:
        for directory, name, node in self.changes:
            link(directory.durable, name, node)

    def touches(self, directories: list[Directory]) -> bool:
        return any(changed is directory for changed, _, _ in self.changes for directory in directories)


def link(entries: dict[str, Inode | Directory], name: str, node: Inode | Directory | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node
