"""The aborted transactions of a segment: a read_committed consumer skips their records.

An entry is written with the abort marker: `.txnindex`, entries of 34 bytes, big-endian: version (0), producer id,
first and last offset of the transaction, last stable offset at its end. Most segments have none and so no file.
Source: KIP-98; the format of Apache Kafka's TransactionIndex.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ...runtime.ports import Disk, File

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    """An aborted transaction, from `first_offset` to `last_offset`, which is that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class CorruptTransactionIndexError(Exception):
    """The file of a transaction index does not parse."""


def decode_transaction_index(data: bytes) -> list[AbortedTransaction]:
    """The entries of a file. `CorruptTransactionIndexError`."""
    if len(data) % _ENTRY.size:
        raise CorruptTransactionIndexError(f"{len(data)} bytes are no whole entries")
    entries: list[AbortedTransaction] = []
    for version, producer_id, first, last, stable in _ENTRY.iter_unpack(data):
        in_order = 0 <= first <= last and 0 <= stable <= last + 1 and (not entries or last > entries[-1].last_offset)
        if version != _VERSION or not in_order:
            raise CorruptTransactionIndexError(f"entry {len(entries)} is of version {version}, {first} to {last}")
        entries.append(AbortedTransaction(producer_id, first, last, stable))
    return entries


class TransactionIndex:
    """The index of one segment. An unreadable file counts as empty until it is rebuilt from the batches."""

    __slots__ = ("_disk", "_entries", "_file", "_synced", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self._entries: list[AbortedTransaction] | None = None
        self._file: File | None = None
        self._synced = True

    @property
    def entries(self) -> list[AbortedTransaction]:
        """The entries in order of their last offsets; the list must not be changed by the caller."""
        if self._entries is None:
            try:
                self._entries = self.load()
            except CorruptTransactionIndexError:
                self._entries = []
        return self._entries

    def read_in(self) -> None:
        """Read the file, which is not needed for reading from then on."""
        self._entries = self.entries

    def load(self) -> list[AbortedTransaction]:
        """The entries in the file. `CorruptTransactionIndexError`."""
        return decode_transaction_index(self._disk.read_bytes(self.path)) if self._disk.exists(self.path) else []

    def add(self, entry: AbortedTransaction) -> None:
        """Write an entry. On `OSError` the file is as before."""
        entries = self.entries
        file = self._open()
        size = len(entries) * _ENTRY.size
        if file.size() != size:
            file.truncate(size)
        self._synced = False
        try:
            file.append((_ENTRY.pack(_VERSION, *entry),))
        except OSError:
            file.truncate(size)
            raise
        entries.append(entry)

    def cut(self, offset: int) -> None:
        """Remove the transactions whose marker is at or after `offset`."""
        if not self._disk.exists(self.path):
            return
        entries = self.entries
        keep = len(entries)
        while keep and entries[keep - 1].last_offset >= offset:
            keep -= 1
        file = self._open()
        if file.size() != keep * _ENTRY.size:
            file.truncate(keep * _ENTRY.size)
            self._synced = False
        del entries[keep:]

    def unsynced(self) -> File | None:
        """The file, if it needs an fsync."""
        return None if self._synced else self._open()

    def mark_synced(self) -> None:
        """The file was fsynced after its last change."""
        self._synced = True

    def close(self) -> None:
        """Release the descriptor; the file is opened again when it is needed."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path, create=True)
        return self._file
