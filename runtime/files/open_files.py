"""Files that stay open for their users while only some of them have a descriptor.

A partition that is written to needs a few files, and a system may let a process open fewer than it has partitions. So
a file that is open is a `NamedFile`: it has a descriptor while that is in use, may lose it to another file, and gets a
new one by its name when it is used again. Who holds it notices nothing.

Which file loses its descriptor is chosen by the second-chance algorithm (CLOCK; Corbató, "A paging experiment with the
Multics system", 1968): the hand passes over files that were used since it last came by. So a use costs one assignment.

A file is found again by its name, so names must be known: every rename goes through here. A file that is about to lose
its name, being removed or replaced, is opened before, and keeps its descriptor until it is closed. So does one in use
by a thread (`pins`).
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

_SWEEP_FILES = 8
"""So many descriptors more than needed are taken back at a time."""


class NamedFile(ABC):
    """A file that is open for its users. `path` is the name that it has now."""

    __slots__ = ("has_name", "path", "pins", "was_used")

    def __init__(self, path: str) -> None:
        self.path = path
        self.has_name = True
        self.pins = 0
        self.was_used = True

    @property
    @abstractmethod
    def has_descriptor(self) -> bool: ...

    @abstractmethod
    def open(self) -> None:
        """Get a descriptor by name. `OSError`, also when another file has this name."""

    @abstractmethod
    def give_back(self) -> bool:
        """Close the descriptor, if nothing is lost by that; whether it was closed."""

    @abstractmethod
    def close(self) -> None:
        """Nobody wants the file any more. May come from any thread."""


F = TypeVar("F", bound=NamedFile)


class Hold(Generic[F]):
    """Keeps a file open: it is closed when the last of those who share this let it go."""

    __slots__ = ("_file", "_files")

    def __init__(self, files: OpenFiles, file: F) -> None:
        self._files = files
        self._file = file

    def __del__(self) -> None:
        self._files.let_go(self._file)

    def file(self, *, is_used: bool = True) -> F:
        """The file, with a descriptor if it `is_used`. `OSError`."""
        file = self._file
        if is_used:
            if not file.has_descriptor:
                self._files.reopen(file)
            file.was_used = True
        return file


class OpenFiles:
    """All files that are open, of which `limit()` may have a descriptor; more where all of them are needed.

    To be used by one thread; only `let_go` may come from others.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._ring: OrderedDict[NamedFile, None] = OrderedDict()
        """Those that have a descriptor; the hand stands before the first."""
        self._directories: dict[str, dict[NamedFile, None]] = {}
        """Those that have a name, by the directory they are in."""
        self._gone: deque[NamedFile] = deque()

    def count(self) -> tuple[int, int]:
        """How many have a descriptor, and how many are open."""
        self._bury()
        return len(self._ring), sum(map(len, self._directories.values()))

    def add(self, file: F) -> Hold[F]:
        """Open a file and keep it so until nobody has the result any more. `OSError`."""
        self.reopen(file)
        self._directories.setdefault(_directory_of(file.path), {})[file] = None
        return Hold(self, file)

    def reopen(self, file: NamedFile) -> None:
        """Give it a descriptor; where the system has no more, others lose theirs. `OSError`."""
        self._bury()
        if not file.has_name:
            raise OSError(errno.ESTALE, "the file has no name any more by which to open it again", file.path)
        if (excess := len(self._ring) + 1 - (limit := self._limit())) > 0:
            self._take_back(excess + min(limit // 8, _SWEEP_FILES))
        while True:
            try:
                file.open()
                break
            except OSError as error:
                if not is_out_of_files(error) or not self._take_back(_SWEEP_FILES):
                    raise
        self._ring[file] = None

    def let_go(self, file: NamedFile) -> None:
        """Nobody holds it any more."""
        file.close()
        self._gone.append(file)

    def keep(self, path: str) -> None:
        """The file or directory is about to lose its name: files at it or in it keep their descriptors until they are
        closed, as far as there are any."""
        for file in self._at(path):
            self._ensure(file)
            self._forget_name(file)

    def pin(self, paths: Sequence[str]) -> list[NamedFile]:
        """A thread is about to change these names: files at them have and keep their descriptors until `unpin`."""
        files = [file for path in dict.fromkeys(paths) for file in self._at(path)]
        for file in files:
            self._ensure(file)
            file.pins += 1
        return files

    def unpin(self, files: Sequence[NamedFile]) -> None:
        for file in files:
            file.pins -= 1

    def renamed(self, source: str, target: str) -> None:
        """What was called `source`, a file or a directory of files, is called `target` now; `keep` that before."""
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
        """Files of this name, and files in the directory of this name, but not in those below it."""
        self._bury()
        beside = self._directories.get(_directory_of(path), {})
        return [*(file for file in beside if file.path == path), *self._directories.get(path, {})]

    def _ensure(self, file: NamedFile) -> None:
        if not file.has_descriptor:
            with suppress(OSError):  # who uses it is told
                self.reopen(file)

    def _take_back(self, wanted: int) -> int:
        """Close up to so many descriptors; how many it were. The hand passes each file twice at most."""
        taken = 0
        for _ in range(2 * len(self._ring)):
            if taken >= wanted or not self._ring:
                break
            file, _ = self._ring.popitem(last=False)
            if file.was_used or file.pins or not file.has_name or not file.give_back():
                file.was_used = False
                self._ring[file] = None
            else:
                taken += 1
        return taken

    def _bury(self) -> None:
        while self._gone:
            file = self._gone.popleft()
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
    """Whether the process, or the system, can open no more files."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def _directory_of(path: str) -> str:
    return path.rpartition("/")[0]
