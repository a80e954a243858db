"""What can go wrong with a log or its directory, beyond the error codes of the protocol."""

from __future__ import annotations

import asyncio
import errno

from ..wire.errors import ErrorCode, ProtocolError


class StorageError(ProtocolError):
    """The disk refused; clients see KAFKA_STORAGE_ERROR, find another replica, or retry."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class ColdReadError(Exception):
    """What is to be read is not in the page cache. `warming` ends when it is, as far as can be known."""

    def __init__(self, warming: asyncio.Future[None]) -> None:
        super().__init__("not in the page cache")
        self.warming = warming


class NoSpaceError(StorageError):
    """The disk is full, or no more files can be open: nothing was written, nothing is lost, and the same may be tried
    again when there is space."""


def is_no_space(error: OSError) -> bool:
    """Whether the disk, or what this user may have of it, is full; or so many files open that no more can be."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)


def refused_write(message: str, error: OSError) -> StorageError:
    """What a write becomes that the disk refused and that was taken back, or a read."""
    return (NoSpaceError if is_no_space(error) else StorageError)(message)


class LogDirError(Exception):
    """A log directory that this node must not use; the text is one sentence that names the way out."""


class DirLockedError(LogDirError):
    """Another process holds the directory."""


class DirFailedError(LogDirError):
    """The disk under the directory refuses to be read or written."""


class UnformattedDirError(LogDirError):
    """The directory has no `meta.properties`."""


class ForeignClusterError(LogDirError):
    """The directory was formatted for another cluster."""


class ForeignNodeError(LogDirError):
    """The directory was formatted for another node."""


class CorruptFileError(LogDirError):
    """A small text file (checkpoint, meta.properties, partition.metadata) that does not parse."""
