"""What of a file is in memory, and how the rest gets there."""

from __future__ import annotations

import ctypes
import mmap
import os

_PIECE_BYTES = 256 * 1024
_READ_AHEAD_BYTES = 1024 * 1024
_MAP_FAILED = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)


def is_cached(fd: int, offset: int, length: int) -> bool:
    """Whether every page of the range is in the page cache; true where the system does not tell.

    Some ten microseconds: the range is mapped, but none of its pages is touched.
    """
    start = offset // mmap.PAGESIZE * mmap.PAGESIZE
    size = offset + length - start
    if length <= 0:
        return True
    address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, start)
    if address == _MAP_FAILED:
        return True
    try:
        pages = ctypes.create_string_buffer((size + mmap.PAGESIZE - 1) // mmap.PAGESIZE)
        if _libc.mincore(address, size, pages):
            return True
        return not pages.raw.strip(b"\1")  # the lowest bit of a page's byte says that it is there
    finally:
        _libc.munmap(address, size)


def read_no_more_than_asked(fd: int) -> None:
    """No reading ahead: beside a busy device even the request for it waits its turn, and with it who only wants what is
    in memory."""
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)


def open_again(fd: int) -> int:
    """A second descriptor of an open file, which may have lost its name; it reads ahead as files do."""
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return os.dup(fd)


def warm(fd: int, offset: int, length: int) -> None:
    """Read the range and let the system read on behind it; closes `fd`. To be called in a thread."""
    try:
        os.posix_fadvise(fd, offset, length + _READ_AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
        end = offset + length
        while offset < end and os.pread(fd, min(_PIECE_BYTES, end - offset), offset):
            offset += _PIECE_BYTES
    except OSError:
        pass  # who reads the file next is told
    finally:
        os.close(fd)
