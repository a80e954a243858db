"""Files that are read from the disk, not from memory."""

from __future__ import annotations

import os
from pathlib import Path


def drop_from_page_cache(path: Path) -> None:
    """Let the next read of the file come from the disk. What it holds is on the disk then."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
