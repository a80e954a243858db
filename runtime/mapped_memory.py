"""Memory that the system gives page by page, when a page is written first."""

from __future__ import annotations

import mmap
from typing import TypeAlias

MappedMemory: TypeAlias = mmap.mmap
"""A writable buffer. It is given back when nothing refers to it any more."""


def map_memory(size_bytes: int) -> MappedMemory:
    """A buffer of zeros that takes memory only where it is written. Raises `OSError` when the system refuses it."""
    return mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
