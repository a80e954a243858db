"""The newest offset of each key in a part of a log, within a memory limit."""

from __future__ import annotations

from hashlib import blake2b

from ...runtime.ports import Buffer

_DIGEST_BYTES = 16
BYTES_PER_KEY = 192
"""Approximate memory of an entry: a slot of the dict, a bytes object and an int."""


class OffsetMap:
    """Newest offsets by key. Keys up to 15 bytes are stored as they are, longer ones as a digest of 16 bytes.

    `latest_offset` is the last offset that was visited, -1 at first.
    """

    __slots__ = ("_capacity", "_offsets", "latest_offset")

    def __init__(self, memory_bytes: int) -> None:
        self._capacity = max(memory_bytes // BYTES_PER_KEY, 1)
        self._offsets: dict[bytes, int] = {}
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: Buffer, offset: int) -> bool:
        """Add a record; returns False, without adding it, when the key is new and the map is full."""
        short = bytes(key) if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()
        offsets = self._offsets
        if len(offsets) >= self._capacity and short not in offsets:
            return False
        offsets[short] = offset
        self.latest_offset = offset
        return True

    def get(self, key: Buffer) -> int:
        """The newest offset of the key, -1 when it is not there."""
        short = bytes(key) if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()
        return self._offsets.get(short, -1)
