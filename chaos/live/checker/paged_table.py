"""Tables of integers on disk, with a bounded number of pages in memory.

A history of 10^8 operations does not fit in memory as Python objects. Its record numbers and offsets are dense, so a
table needs no keys and no index. Clients go through both almost in order, so few pages are in use at a time.
"""

from __future__ import annotations

import os
from array import array
from collections import OrderedDict

PAGE_ROWS = 4096
_SHIFT = 12
_MASK = PAGE_ROWS - 1
INDEX_LIMIT = 1 << 36
"""Higher numbers and offsets are refused: they cannot be dense."""


class PagedTable:
    """Rows of 64-bit integers, zero until written, addressed by a group (a producer, a partition) and an index.

    `row` gives the page and where the row begins in it: `page, at = table.row(group, index)`, then `page[at + column]`.
    The page may be read and written until the next call of `row`.
    """

    def __init__(self, directory: str, columns: int, *, pages_in_memory: int = 128) -> None:
        self._directory = directory
        self._columns = columns
        self._page_bytes = PAGE_ROWS * columns * 8
        self._pages_max = pages_in_memory
        self._pages: OrderedDict[tuple[int, int], array[int]] = OrderedDict()
        self._files: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        os.makedirs(directory, exist_ok=True)

    def row(self, group: int, index: int) -> tuple[array[int], int]:
        """The page with the row, and the position of its first column."""
        key = (group, index >> _SHIFT)
        page = self._pages.get(key)
        if page is None:
            page = self._bring_in(key)
        else:
            self._pages.move_to_end(key)
        if index >= self._sizes[group]:
            self._sizes[group] = index + 1
        return page, (index & _MASK) * self._columns

    def size(self, group: int) -> int:
        """One more than the highest index of the group that was used."""
        return self._sizes.get(group, 0)

    @property
    def groups(self) -> list[int]:
        """All groups with rows, sorted."""
        return sorted(self._sizes)

    @property
    def pages_in_memory(self) -> int:
        """How many pages are in memory; for tests."""
        return len(self._pages)

    def close(self) -> None:
        """Forget everything, and remove the files."""
        self._pages.clear()
        for group, fd in self._files.items():
            os.close(fd)
            os.unlink(self._path(group))
        self._files.clear()
        self._sizes.clear()

    def _bring_in(self, key: tuple[int, int]) -> array[int]:
        group, number = key
        self._sizes.setdefault(group, 0)
        while len(self._pages) >= self._pages_max:
            self._put_away(*self._pages.popitem(last=False))
        fd = self._files.get(group)
        data = os.pread(fd, self._page_bytes, number * self._page_bytes) if fd is not None else b""
        page = array("q", data)
        if not page:
            page = array("q", bytes(self._page_bytes))
        self._pages[key] = page
        return page

    def _put_away(self, key: tuple[int, int], page: array[int]) -> None:
        group, number = key
        fd = self._files.get(group)
        if fd is None:
            fd = self._files[group] = os.open(self._path(group), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        os.pwrite(fd, page, number * self._page_bytes)

    def _path(self, group: int) -> str:
        return os.path.join(self._directory, f"{group}.table")
