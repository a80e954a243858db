"""The aborted transactions of a segment: a read_committed consumer skips their records.

An entry is written with the abort marker: `.txnindex`, entries of 34 bytes, big-endian: version (0), producer id,
first and last offset of the transaction, last stable offset at its end. Most segments have none and so no file.
Source: KIP-98; the format of Apache Kafka's TransactionIndex.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ...runtime.ports import Disk, File
from ..errors import is_no_space

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

    __slots__ = ("_disk", "_entries", "_file", "_synced", "_written", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self._entries: list[AbortedTransaction] | None = None
        self._file: File | None = None
        self._synced = True
        self._written = 0
        """How many of the entries are in the file."""

    @property
    def entries(self) -> list[AbortedTransaction]:
        """The entries in order of their last offsets; the list must not be changed by the caller."""
        if self._entries is None:
            try:
                self._entries = self.load()
            except CorruptTransactionIndexError:
                self._entries = []
            self._written = len(self._entries)
        return self._entries

    def read_in(self) -> None:
        """Read the file, which is not needed for reading from then on."""
        self._entries = self.entries

    def load(self) -> list[AbortedTransaction]:
        """The entries in the file. `CorruptTransactionIndexError`."""
        return decode_transaction_index(self._disk.read_bytes(self.path)) if self._disk.exists(self.path) else []

    def add(self, entry: AbortedTransaction) -> None:
        """Add an entry, and write it. While the disk is full it is kept in memory, and written by `unsynced`.

        The marker of the transaction is in the log already. On another `OSError` the index is as before.
        """
        self.entries.append(entry)
        self._synced = False
        try:
            self._write()
        except OSError as error:
            if not is_no_space(error):
                self.entries.pop()
                raise

    def _write(self) -> None:
        """Write the entries that are not in the file. On `OSError` the file is as before."""
        entries, size = self.entries, self._written * _ENTRY.size
        if self._written == len(entries):
            return
        file = self._open()
        if file.size() != size:
            file.truncate(size)
        try:
            file.append((b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries[self._written :]),))
        except OSError:
            file.truncate(size)
            raise
        self._written = len(entries)

    def cut(self, offset: int) -> None:
        """Remove the transactions whose marker is at or after `offset`."""
        entries = self.entries
        keep = len(entries)
        while keep and entries[keep - 1].last_offset >= offset:
            keep -= 1
        del entries[keep:]
        self._written = min(self._written, keep)
        if self._disk.exists(self.path):
            file = self._open()
            if file.size() != self._written * _ENTRY.size:
                file.truncate(self._written * _ENTRY.size)
                self._synced = False

    @property
    def is_synced(self) -> bool:
        """Whether all entries are in the file, and the file needs no fsync."""
        return self._synced

    def unsynced(self) -> File | None:
        """The file with all entries, if it needs an fsync. `OSError`."""
        if self._synced:
            return None
        self._write()
        return self._open()

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
