"""The errors of logs and log directories, beyond the error codes of the protocol."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..wire.errors import ErrorCode, ProtocolError
from ..wire.produce import RecordError


class RefusedRecordsError(ProtocolError):
    """A batch is refused for some of its records, which are named (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class StorageError(ProtocolError):
    """The disk refused. Clients get KAFKA_STORAGE_ERROR and try again, with another replica if there is one."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class ColdReadError(Exception):
    """The bytes are not in the page cache. The future `warming` ends when they have been brought there."""

    def __init__(self, warming: asyncio.Future[None]) -> None:
        super().__init__("not in the page cache")
        self.warming = warming


class NoSpaceError(StorageError):
    """The disk is full, or no more files can be opened. Nothing was written; the same can be tried again later."""


def is_no_space(error: OSError) -> bool:
    """Whether the disk or the user's quota is full, or no more files can be opened."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)


def refused_write(message: str, error: OSError) -> StorageError:
    """The error to raise for a read, or for a write that was taken back, when the disk has refused it."""
    return (NoSpaceError if is_no_space(error) else StorageError)(message)


@contextmanager
def no_space_refused(what: str) -> Iterator[None]:
    """Around steps that may be tried again later: an `OSError` for want of space or descriptors becomes `NoSpaceError`.

    `what` is the begin of its sentence. Another `OSError` stays what it is.
    """
    try:
        yield
    except OSError as error:
        if not is_no_space(error):
            raise
        raise NoSpaceError(f"{what} now: {error}") from error


class LogDirError(Exception):
    """A log directory that this node must not use; the text is one sentence that says what to do."""


class DirLockedError(LogDirError):
    """Another process has locked the directory."""


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
