"""Files and directories of the disk in memory: each as programs see it, and as the device holds it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(slots=True, eq=False)
class Write:
    """Bytes written at an offset."""

    offset: int
    data: bytes

    def apply(self, target: bytearray) -> None:
        """Carry it out on the contents of a file."""
        if len(target) < self.offset:
            target.extend(bytes(self.offset - len(target)))
        target[self.offset : self.offset + len(self.data)] = self.data

    def growth_only(self, size: int) -> Write:
        """What is left if a file of `size` bytes grew for this write, but its data never arrived: zeros."""
        new = max(0, self.offset + len(self.data) - max(size, self.offset))
        return Write(self.offset + len(self.data) - new, bytes(new))


@dataclass(slots=True, eq=False)
class Truncate:
    """A change of the size."""

    size: int

    def apply(self, target: bytearray) -> None:
        """Carry it out on the contents of a file."""
        if self.size < len(target):
            del target[self.size :]
        else:
            target.extend(bytes(self.size - len(target)))


@dataclass(slots=True, eq=False)
class Inode:
    """A file: `data` as programs see it, `durable` on the device, and the operations between the two."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[Write | Truncate] = field(default_factory=list)

    def perform(self, operation: Write | Truncate) -> None:
        """Carry out an operation in the page cache."""
        operation.apply(self.data)
        self.unsynced.append(operation)

    def sync(self, operations: list[Write | Truncate]) -> None:
        """Make these operations durable, the oldest unsynced ones; some may be durable already."""
        for operation in operations:
            if self.unsynced and self.unsynced[0] is operation:
                operation.apply(self.durable)
                del self.unsynced[0]

    @property
    def lasting(self) -> bytearray:
        """What a loss of power leaves as it is, whichever of the unsynced operations are carried out."""
        changed_from = (each.size if isinstance(each, Truncate) else each.offset for each in self.unsynced)
        return self.durable[: min(changed_from, default=len(self.durable))]

    def drop_dirty_pages(self) -> None:
        """Forget the unsynced operations, as Linux does when an fsync fails."""
        self.unsynced.clear()


@dataclass(slots=True, eq=False)
class Directory:
    """A directory: `entries` as programs see them, `durable` on the device."""

    entries: dict[str, Inode | Directory] = field(default_factory=dict)
    durable: dict[str, Inode | Directory] = field(default_factory=dict)

    def walk(self) -> Iterator[Inode | Directory]:
        """All files and directories below, as programs see them."""
        for node in self.entries.values():
            yield node
            if isinstance(node, Directory):
                yield from node.walk()


DiskCopy: TypeAlias = Directory


@dataclass(slots=True, eq=False)
class Relink:
    """One journal entry: names in directories that now refer to another node, or to none."""

    changes: list[tuple[Directory, str, Inode | Directory | None]]

    def apply_durably(self) -> None:
        """Change the names on the device."""
        for directory, name, node in self.changes:
            link(directory.durable, name, node)

    def touches(self, directories: list[Directory]) -> bool:
        """Whether it changes a name in one of the directories."""
        return any(changed is directory for changed, _, _ in self.changes for directory in directories)


def link(entries: dict[str, Inode | Directory], name: str, node: Inode | Directory | None) -> None:
    """Let a name refer to a node; None removes the name."""
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node
