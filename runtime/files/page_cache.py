"""Which part of a file is in the page cache, how the rest is read into it, and how failed write-backs are kept."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
from contextlib import suppress

_PIECE_BYTES = 256 * 1024
_READ_AHEAD_BYTES = 1024 * 1024
_MS_SYNC = 4
_MAP_FAILED = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.msync.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
_SYS_CACHESTAT = 451
"""The number of cachestat(2), of Linux 6.5, on every processor but Alpha."""
_libc.syscall.restype = ctypes.c_long
_RANGE = struct.Struct("=QQ")
_PAGES = struct.Struct("=QQQQQ")


def is_cached(fd: int, offset: int, length: int) -> bool:
    """Whether every page of the range is in the page cache; true where the system does not tell.

    It takes a microsecond or two on Linux from 6.5 on, and some twenty for each megabyte on older ones.
    """
    if length <= 0:
        return True
    pages = _cached_pages(fd, offset, length)
    if pages is None:
        return _is_mapped_range_cached(fd, offset, length)
    last = offset + length - 1
    return pages > last // mmap.PAGESIZE - offset // mmap.PAGESIZE and _is_readable_now(fd, last)


def _cached_pages(fd: int, offset: int, length: int) -> int | None:
    """How many pages of the range are in the page cache or being read into it; None where cachestat is not there."""
    counts = ctypes.create_string_buffer(_PAGES.size)
    if _libc.syscall(_SYS_CACHESTAT, fd, _RANGE.pack(offset, length), counts, 0):
        return None
    return int(_PAGES.unpack(counts)[0])


def _is_readable_now(fd: int, position: int) -> bool:
    """Whether the byte can be read without waiting. The system reads ahead in order, so those before it can be, too."""
    try:
        os.preadv(fd, [bytearray(1)], position, os.RWF_NOWAIT)
    except OSError as error:
        return error.errno != errno.EAGAIN  # file systems without such reads do not tell
    return True


def _is_mapped_range_cached(fd: int, offset: int, length: int) -> bool:
    """The same by mincore(2): the range is mapped, and none of its pages is read."""
    start = offset // mmap.PAGESIZE * mmap.PAGESIZE
    size = offset + length - start
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


def disable_read_ahead(fd: int) -> None:
    """Switch off read-ahead: on a busy device even the request for it waits, and delays reads of what is in memory."""
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)


def keep_description(fd: int) -> int | None:
    """Keep the open file description behind `fd` without a descriptor, by a mapping of one page that is never read.

    Returns the mapping's address; None where the file system or the limit of mappings (vm.max_map_count) refuses it.
    """
    address: int = _libc.mmap(None, mmap.PAGESIZE, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    return None if address == _MAP_FAILED else address


def sync_description(kept: int) -> None:
    """fsync the first page through a description that was kept.

    Raises `OSError` if the write-back of any page of the file has failed since the description was made.
    """
    if _libc.msync(kept, mmap.PAGESIZE, _MS_SYNC):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def drop_description(kept: int) -> None:
    """Release a description that was kept."""
    _libc.munmap(kept, mmap.PAGESIZE)


def warm(fd: int, offset: int, length: int) -> None:
    """Read the range, and let the system read ahead behind it. It never fails. To be called in a thread.

    It uses a descriptor of its own, which reads ahead, unlike `fd`. The file may have lost its name.
    """
    with suppress(OSError):  # the next read of the file raises the error
        again = _open_again(fd)
        try:
            os.posix_fadvise(again, offset, length + _READ_AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
            end = offset + length
            while offset < end and os.pread(again, min(_PIECE_BYTES, end - offset), offset):
                offset += _PIECE_BYTES
        finally:
            os.close(again)


def _open_again(fd: int) -> int:
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return os.dup(fd)
