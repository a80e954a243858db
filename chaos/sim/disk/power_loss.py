"""What a loss of power leaves on a disk: here the simulator loses unsynced bytes.

Of each file the device keeps what was synced and a random prefix of the operations after that. The last operation of
the prefix may be torn: only its first bytes arrive, or zeros in their place. Sometimes writes were reordered as well:
the file is as long as the prefix says, but the data of some writes never arrived, and zeros or the old bytes are in
their place. Of the names that were changed but not synced (created, renamed, removed), a random prefix of each file
system's journal is kept.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from .inodes import Directory, Inode, Relink, Truncate, Write

_REORDERED_PROBABILITY = 0.25
_DATA_MISSING_PROBABILITY = 0.4
_NOTHING_WRITTEN_PROBABILITY = 0.3
_ZEROED_PROBABILITY = 0.2


def lose_power(root: Directory, journals: Iterable[Sequence[Relink]], rng: random.Random) -> None:
    """Forget the page cache: programs then see what the device holds. `journals` hold the unsynced name changes."""
    for journal in journals:
        for entry in journal[: rng.randrange(len(journal) + 1)]:
            entry.apply_durably()
    _restore_durable_names(root)
    for node in root.walk():
        if isinstance(node, Inode):
            _lose_unsynced(node, rng)


def _restore_durable_names(directory: Directory) -> None:
    directory.entries = dict(directory.durable)
    for node in directory.entries.values():
        if isinstance(node, Directory):
            _restore_durable_names(node)


def _lose_unsynced(inode: Inode, rng: random.Random) -> None:
    if inode.unsynced:
        kept = rng.randrange(len(inode.unsynced) + 1)
        reordered = rng.random() < _REORDERED_PROBABILITY
        for operation in inode.unsynced[:kept]:
            if reordered and isinstance(operation, Write) and rng.random() < _DATA_MISSING_PROBABILITY:
                operation = operation.growth_only(len(inode.durable))
            operation.apply(inode.durable)
        if kept < len(inode.unsynced):
            _tear(inode, inode.unsynced[kept], rng)
        inode.unsynced.clear()
    inode.data = bytearray(inode.durable)


def _tear(inode: Inode, operation: Write | Truncate, rng: random.Random) -> None:
    """Apply the first part of a write, or nothing of the operation."""
    if isinstance(operation, Truncate) or rng.random() < _NOTHING_WRITTEN_PROBABILITY:
        return
    length = rng.randrange(len(operation.data) + 1)
    torn = operation.data[:length]
    if rng.random() < _ZEROED_PROBABILITY:
        torn = bytes(length)
    Write(operation.offset, torn).apply(inode.durable)
