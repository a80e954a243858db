"""Memory that the system gives page by page, when a page is written first."""

from __future__ import annotations

import contextlib
import mmap
from typing import TypeAlias

_MAPPED_BYTES_MIN = 8 << 20

MappedMemory: TypeAlias = mmap.mmap
"""A writable buffer. It is given back when nothing refers to it any more."""


def map_memory(size_bytes: int) -> MappedMemory:
    """A buffer of zeros that takes memory only where it is written. Raises `OSError` when the system refuses it."""
    return mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def scratch_memory(size_bytes: int) -> memoryview:
    """A buffer of zeros for results of a size that is not known yet. `MemoryError` where the system has no memory.

    From 8 MB on it is mapped, in huge pages if the system has them, which take a fifth of the time to fill, and is
    given back without the interpreter's lock: 100 MB from the allocator would hold the event loop for 7 ms. Less is
    faster from the allocator, whose pages have been in use before.
    """
    if size_bytes < _MAPPED_BYTES_MIN:
        return memoryview(bytearray(size_bytes))
    try:
        mapped = map_memory(size_bytes)
    except OSError as error:
        raise MemoryError(f"no memory for {size_bytes} bytes: {error}") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # the kernel may be built without them
            mapped.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(mapped)
