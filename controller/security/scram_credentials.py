"""AlterUserScramCredentials: the passwords of SCRAM users (KIP-554), in the words of Apache Kafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ...security.sasl.scram_credential import ITERATIONS_MAX, ITERATIONS_MIN, SCRAM_MECHANISMS, credential_of
from ...wire.errors import ErrorCode, ProtocolError
from ..metadata.metadata_image import MetadataImage
from ..metadata.metadata_records import Record, RemoveUserScramCredentialRecord, UserScramCredentialRecord
from ..result import ControllerResult, error_response
from .record_level import check_security_records

if TYPE_CHECKING:
    from ...wire.message_types.security import AlterUserScramCredentialsRequest


class _Change(Protocol):
    """A deletion or an upsertion."""

    name: str
    mechanism: int


def alter_scram_credentials(image: MetadataImage, request: AlterUserScramCredentialsRequest) -> ControllerResult:
    """AlterUserScramCredentials 0: all changes of a user, or none of them. Raises `ProtocolError`."""
    check_security_records(image)
    changes = [(one.name, one.mechanism) for one in (*request.deletions, *request.upsertions)]
    times = Counter(changes)
    records: dict[str, list[Record]] = {name: [] for name, _ in changes}
    failures: dict[str, ProtocolError] = {}

    def change(one: _Change, decide: Callable[[], Record]) -> None:
        try:
            _check(one, times[one.name, one.mechanism])
            records[one.name].append(decide())
        except ProtocolError as error:
            failures.setdefault(one.name, error)

    for deletion in request.deletions:
        change(deletion, partial(_deleted, image, deletion))
    for upsertion in request.upsertions:
        change(upsertion, partial(_set, upsertion))
    results = [{"user": name, **_outcome(failures.get(name))} for name in records]
    kept = [record for name, some in records.items() if name not in failures for record in some]
    return ControllerResult(kept, {"results": results})


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
