"""Files that stay open for their users while only some of them have a descriptor.

A partition that is written to needs a few files, and a system may let a process open fewer files than it has
partitions. So an open file is a `NamedFile`: it has a descriptor while it is in use, may lose it to another file, and
gets a new one by its name when it is used again. Its users do not notice.

The second-chance algorithm chooses the file that loses its descriptor (CLOCK; Corbató, "A paging experiment with the
Multics system", 1968): the hand passes over files that were used since it came by the last time. So a use costs one
assignment.

A file is opened again by its name, so every rename goes through here. A file that is about to lose its name, because it
is removed or replaced, is opened before and keeps its descriptor until it is closed. So does a file that a thread uses
(`pins`).
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

_SWEEP_FILES = 8
"""How many descriptors more than needed are closed at a time."""


class NamedFile(ABC):
    """A file that is open for its users. `path` is its present name."""

    __slots__ = ("has_name", "path", "pins", "was_used")

    def __init__(self, path: str) -> None:
        self.path = path
        self.has_name = True
        self.pins = 0
        self.was_used = True

    @property
    @abstractmethod
    def has_descriptor(self) -> bool:
        """Whether it has a descriptor now."""

    @abstractmethod
    def open(self) -> None:
        """Get a descriptor by name. Raises `OSError`, also when another file has this name."""

    @abstractmethod
    def yield_descriptor(self) -> bool:
        """Close the descriptor, if no error report is lost by that. Returns whether it was closed."""

    @abstractmethod
    def close(self) -> None:
        """Close the file, which has no users any more. May be called from any thread."""


F = TypeVar("F", bound=NamedFile)


class FileReference(Generic[F]):
    """Keeps a file open. The file is closed when the last user has dropped this object."""

    __slots__ = ("_file", "_files")

    def __init__(self, files: OpenFiles, file: F) -> None:
        self._files = files
        self._file = file

    def __del__(self) -> None:
        self._files.release(self._file)

    def file(self, *, is_used: bool = True) -> F:
        """The file, with a descriptor if it `is_used`. Raises `OSError`."""
        file = self._file
        if is_used:
            if not file.has_descriptor:
                self._files.reopen(file)
            file.was_used = True
        return file


class OpenFiles:
    """All open files, of which `limit()` may have a descriptor; more where all of them are needed.

    It is used by one thread; only `release` may be called from others.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._ring: OrderedDict[NamedFile, None] = OrderedDict()
        """The files with a descriptor; the hand is before the first one."""
        self._directories: dict[str, dict[NamedFile, None]] = {}
        """The files with a name, by directory."""
        self._released: deque[NamedFile] = deque()

    def count(self) -> tuple[int, int]:
        """How many files have a descriptor, and how many are open."""
        self._drop_released()
        return len(self._ring), sum(map(len, self._directories.values()))

    def add(self, file: F) -> FileReference[F]:
        """Open a file and keep it open until the result is dropped. Raises `OSError`."""
        self.reopen(file)
        self._directories.setdefault(_directory_of(file.path), {})[file] = None
        return FileReference(self, file)

    def reopen(self, file: NamedFile) -> None:
        """Give a file a descriptor; where the system has no more, other files lose theirs. Raises `OSError`."""
        self._drop_released()
        if not file.has_name:
            raise OSError(errno.ESTALE, "the file has no name any more by which to open it again", file.path)
        if (excess := len(self._ring) + 1 - (limit := self._limit())) > 0:
            self._reclaim_descriptors(excess + min(limit // 8, _SWEEP_FILES))
        while True:
            try:
                file.open()
                break
            except OSError as error:
                if not is_out_of_files(error) or not self._reclaim_descriptors(_SWEEP_FILES):
                    raise
        self._ring[file] = None

    def release(self, file: NamedFile) -> None:
        """Close a file whose users have dropped it."""
        file.close()
        self._released.append(file)

    def keep(self, path: str) -> None:
        """The file or directory `path` is about to lose its name: its files keep their descriptors until closed."""
        for file in self._at(path):
            self._ensure(file)
            self._forget_name(file)

    def pin(self, paths: Sequence[str]) -> list[NamedFile]:
        """A thread is about to change these names: the files get descriptors, and keep them until `unpin`."""
        files = [file for path in dict.fromkeys(paths) for file in self._at(path)]
        for file in files:
            self._ensure(file)
            file.pins += 1
        return files

    def unpin(self, files: Sequence[NamedFile]) -> None:
        """The thread is done with the files that `pin` returned: they may lose their descriptors again."""
        for file in files:
            file.pins -= 1
        if (excess := len(self._ring) - self._limit()) > 0:
            self._reclaim_descriptors(excess)

    def renamed(self, source: str, target: str) -> None:
        """The file or directory `source` is called `target` now. Call `keep(target)` before the rename."""
        moved = self._at(source)
        for file in self._at(target):
            self._forget_name(file)
        for file in moved:
            was_in = _directory_of(file.path)
            del self._directories[was_in][file]
            self._drop_if_empty(was_in)
            file.path = target + file.path[len(source) :]
            self._directories.setdefault(_directory_of(file.path), {})[file] = None

    def _at(self, path: str) -> list[NamedFile]:
        """The file of this name, and the files in the directory of this name, without its subdirectories."""
        self._drop_released()
        beside = self._directories.get(_directory_of(path), {})
        return [*(file for file in beside if file.path == path), *self._directories.get(path, {})]

    def _ensure(self, file: NamedFile) -> None:
        if not file.has_descriptor:
            with suppress(OSError):  # its next use raises the error
                self.reopen(file)

    def _reclaim_descriptors(self, wanted: int) -> int:
        """Close up to `wanted` descriptors; returns how many. The hand passes each file twice at most."""
        taken = 0
        for _ in range(2 * len(self._ring)):
            if taken >= wanted or not self._ring:
                break
            file, _ = self._ring.popitem(last=False)
            if file.was_used or file.pins or not file.has_name or not file.yield_descriptor():
                file.was_used = False
                self._ring[file] = None
            else:
                taken += 1
        return taken

    def _drop_released(self) -> None:
        while self._released:
            file = self._released.popleft()
            self._ring.pop(file, None)
            self._forget_name(file)

    def _forget_name(self, file: NamedFile) -> None:
        if file.has_name:
            file.has_name = False
            directory = _directory_of(file.path)
            self._directories.get(directory, {}).pop(file, None)
            self._drop_if_empty(directory)

    def _drop_if_empty(self, directory: str) -> None:
        if not self._directories.get(directory, True):
            del self._directories[directory]


def is_out_of_files(error: OSError) -> bool:
    """Whether the error says that the process or the system can open no more files."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def _directory_of(path: str) -> str:
    return path.rpartition("/")[0]
