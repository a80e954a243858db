"""What the broker is told when a log cannot be used."""

from __future__ import annotations

import errno

from support.isr.replicas import TP

from raftwerk.isr.hosted_partitions import HostedPartitions
from raftwerk.isr.storage_errors import StorageErrors
from raftwerk.log.errors import NoSpaceError, StorageError
from raftwerk.wire.errors import ErrorCode, ProtocolError


class Told:
    """The broker's side, and the object under test. No replica is hosted, so nobody waits for one."""

    def __init__(self) -> None:
        self.errors: list[OSError] = []
        self.without_space = 0
        self.storage = StorageErrors(
            HostedPartitions(1, lambda: 1),
            None,  # type: ignore[arg-type]
            lambda _, error: self.errors.append(error),
            lambda _: self.count(),
        )

    def count(self) -> None:
        self.without_space += 1


def test_the_error_of_the_disk_is_told_as_it_is() -> None:
    told, broken = Told(), OSError(errno.EIO, "the disk is broken")
    told.storage.report(TP, broken)
    told.storage.report(TP, raised(StorageError("the log cannot be read"), broken))
    assert told.errors == [broken, broken]


def test_an_error_without_a_cause_is_told_by_its_text() -> None:
    told = Told()
    told.storage.report(TP, StorageError("the log has a gap"))
    (error,) = told.errors
    assert "the log has a gap" in str(error)


def test_only_a_write_that_found_the_disk_full_is_news() -> None:
    told = Told()
    told.storage.on_no_space(TP, NoSpaceError("it takes no records for now"))
    assert told.without_space == 0
    full = raised(NoSpaceError("the write failed"), OSError(errno.ENOSPC, "no space left"))
    assert isinstance(full, NoSpaceError)
    told.storage.on_no_space(TP, full)
    assert told.without_space == 1


def raised(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def test_what_is_no_error_of_the_disk_is_answered_as_it_is() -> None:
    told, refused = Told(), ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads")
    assert told.storage.to_protocol_error(TP, refused) is refused
    assert told.errors == [] and told.without_space == 0


def test_an_error_of_the_disk_is_answered_as_such_and_says_why() -> None:
    told = Told()
    for error, text in (
        (OSError(errno.EIO, "the disk is broken"), "t-0: the disk is broken"),
        (OSError("no"), "t-0: no"),
    ):
        answer = told.storage.to_protocol_error(TP, error)
        assert (answer.code, answer.message) == (ErrorCode.KAFKA_STORAGE_ERROR, text)
    failed = StorageError("the log has failed")
    assert told.storage.to_protocol_error(TP, failed) is failed


def test_a_full_disk_is_told_and_is_no_failure_of_the_log() -> None:
    told = Told()
    full = NoSpaceError("the write failed")
    full.__cause__ = OSError(errno.ENOSPC, "no space left")
    assert told.storage.to_protocol_error(TP, full) is full
    assert (told.without_space, told.errors) == (1, [])
