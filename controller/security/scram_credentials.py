"""AlterUserScramCredentials: the passwords of SCRAM users (KIP-554), in the words of Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from ...runtime.incremental_work import PLAIN_STEP, Pace, count_in_steps
from ...security.sasl.scram_credential import ITERATIONS_MAX, ITERATIONS_MIN, SCRAM_MECHANISMS, credential_of
from ...wire.errors import ErrorCode, ProtocolError
from ..metadata.metadata_image import MetadataImage
from ..metadata.metadata_records import Record, RemoveUserScramCredentialRecord, UserScramCredentialRecord
from ..result import ControllerResult, Decision, Response, error_response
from .record_level import check_security_records

if TYPE_CHECKING:
    from ...wire.message_types.security import AlterUserScramCredentialsRequest


class _Change(Protocol):
    """A deletion or an upsertion."""

    name: str
    mechanism: int


def alter_scram_credentials(image: MetadataImage, request: AlterUserScramCredentialsRequest) -> Decision:
    """AlterUserScramCredentials 0: all changes of a user, or none of them. Raises `ProtocolError`."""
    check_security_records(image)
    pace = Pace()
    times = yield from count_in_steps(
        ((one.name, one.mechanism) for one in chain[_Change](request.deletions, request.upsertions)), pace
    )
    of_users: dict[str, list[tuple[_Change, Callable[[], Record]]]] = {}
    for deletion in request.deletions:
        of_users.setdefault(deletion.name, []).append((deletion, partial(_deleted, image, deletion)))
        if pace.ends_step():
            yield PLAIN_STEP
    for upsertion in request.upsertions:
        of_users.setdefault(upsertion.name, []).append((upsertion, partial(_set, upsertion)))
        if pace.ends_step():
            yield PLAIN_STEP
    records: list[Record] = []
    results: list[Response] = []
    for name, changes in of_users.items():
        failure: ProtocolError | None = None
        altered: list[Record] = []
        for change, decide in changes:
            try:
                _check(change, times[change.name, change.mechanism])
                altered.append(decide())
            except ProtocolError as error:
                failure = failure or error
        records += altered if failure is None else []
        results.append({"user": name, **_outcome(failure)})
        if pace.ends_step(len(changes)):
            yield records
            records = []
            check_security_records(image)
    return ControllerResult(records, {"results": results})


def _outcome(failure: ProtocolError | None) -> dict[str, object]:
    return error_response(ErrorCode.NONE, None) if failure is None else error_response(failure.code, failure.message)


def _check(change: _Change, times: int) -> None:
    if times > 1:
        text = "A user credential cannot be altered twice in the same request"
        raise ProtocolError(ErrorCode.DUPLICATE_RESOURCE, text)
    if not change.name:
        raise ProtocolError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in SCRAM_MECHANISMS:
        raise ProtocolError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")


def _deleted(image: MetadataImage, change: AlterUserScramCredentialsRequest.ScramCredentialDeletion) -> Record:
    if (change.mechanism, change.name) not in image.scram_credentials:
        text = "Attempt to delete a user credential that does not exist"
        raise ProtocolError(ErrorCode.RESOURCE_NOT_FOUND, text)
    return RemoveUserScramCredentialRecord(change.name, change.mechanism)


def _set(change: AlterUserScramCredentialsRequest.ScramCredentialUpsertion) -> Record:
    if change.iterations < ITERATIONS_MIN:
        raise ProtocolError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > ITERATIONS_MAX:
        raise ProtocolError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    mechanism = SCRAM_MECHANISMS[change.mechanism]
    made = credential_of(mechanism, bytes(change.salted_password), bytes(change.salt), change.iterations)
    return UserScramCredentialRecord(change.name, change.mechanism, *made)
