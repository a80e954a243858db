"""Files that are being replaced in the background (`Disk.write_atomic_soon`), and what becomes of their names then.

Of the writes to one path the latest counts. A write that waits belongs to the directory that it was begun in: it
follows a rename of that directory, so that it does not land in a later one of the same name.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

_T = TypeVar("_T")


class _File:
    """A file that is being replaced."""

    def __init__(self, path: str) -> None:
        self.path: str | None = path
        """None when its directory was removed."""
        self.lock = threading.Lock()
        self.issued = 0
        self.done = 0
        self.under_way = 0


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """A write that was begun, with its number among those to the same file."""

    file: _File
    number: int


class PendingWrites:
    """`begin`, `end` and changes of names are for the loop's thread, `carry_out` for any thread."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        self._names_lock = threading.Lock()

    def begin(self, path: str) -> PendingWrite:
        """A write to this path is begun now; writes to it that were begun before give way to it."""
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = _File(path)
        file.issued += 1
        file.under_way += 1
        return PendingWrite(file, file.issued)

    def carry_out(self, write: PendingWrite, enter: Callable[[str], _T], replace: Callable[[_T], None]) -> None:
        """Replace the file, unless a later write has been done. `OSError`, ENOENT when its directory was removed.

        `enter` gets the present path, and opens its directory before a change of names can come in between.
        """
        file = write.file
        with file.lock:
            if write.number > file.done:
                with self._names_lock:
                    if file.path is None:
                        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
                    entered = enter(file.path)
                replace(entered)
                file.done = write.number

    def end(self, write: PendingWrite) -> None:
        """The write is done or has failed."""
        file = write.file
        file.under_way -= 1
        if not file.under_way and file.path is not None:
            del self._files[file.path]

    def renaming(self, source: str, target: str | None, rename: Callable[[], None]) -> None:
        """Call `rename`, which gives the directory `source` another name, or removes it (None)."""
        moved = [path for path in self._files if path.startswith(f"{source}/")]
        if not moved:
            rename()
            return
        with self._names_lock:
            rename()
            for path in moved:
                file = self._files.pop(path)
                file.path = None if target is None else target + path[len(source) :]
                if file.path is not None:
                    self._files[file.path] = file
