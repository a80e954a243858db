"""CreateAcls and DeleteAcls (KIP-140), in the words of Apache Kafka.

A request is decided in parts, between which the authorizers already decide by what is there. So that nobody may do in
between what he may do neither before nor after, DENY entries are created first and removed last.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from ...runtime.incremental_work import PLAIN_STEP, Pace, map_in_steps
from ...security.authorizer.acl_binding import (
    CLUSTER_NAME,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from ...wire.errors import ErrorCode, ProtocolError
from ..metadata.metadata_image import MetadataImage
from ..metadata.metadata_records import AccessControlEntryRecord, Record, RemoveAccessControlEntryRecord
from ..result import ControllerResult, Decision, Parts, Response, error_response
from .record_level import check_security_records

if TYPE_CHECKING:
    from ...wire.message_types.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

MATCHES_MAX = 10_000
"""So many entries are removed by one request; Kafka's limit."""

E = TypeVar("E", bound=IntEnum)


def create_acls(image: MetadataImage, request: CreateAclsRequest, rng: random.Random) -> Decision:
    """CreateAcls 1-3: each entry is created or refused by itself. One that is there already is no error."""
    check_security_records(image)
    pace = Pace()
    results: list[Response] = []
    denied: list[AclBinding] = []
    allowed: list[AclBinding] = []
    for creation in request.creations:
        binding = AclBinding(
            creation.resource_type,
            creation.resource_name,
            creation.resource_pattern_type,
            creation.principal,
            creation.host,
            creation.operation,
            creation.permission_type,
        )
        try:
            _check(binding)
        except ProtocolError as error:
            results.append(error_response(error.code, error.message))
        else:
            results.append(error_response(ErrorCode.NONE, ""))
            (denied if binding.permission_type == AclPermissionType.DENY else allowed).append(binding)
        if pace.ends_step():
            yield PLAIN_STEP
    records: list[Record] = []
    for binding in dict.fromkeys((*denied, *allowed)):
        if not image.has_acl(binding):
            records.append(AccessControlEntryRecord(_new_id(image, rng), *binding))
        if pace.ends_step():
            yield records
            records = []
            check_security_records(image)
    return ControllerResult(records, {"results": results})


def _new_id(image: MetadataImage, rng: random.Random) -> UUID:
    while True:
        drawn = UUID(int=rng.getrandbits(128), version=4)
        if drawn not in image.acls:
            return drawn


def _check(binding: AclBinding) -> None:
    """Raise `ProtocolError(INVALID_REQUEST)` for what is no entry."""
    resource_type = _known(ResourceType, binding.resource_type)
    if resource_type is ResourceType.CLUSTER and binding.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not binding.resource_name:
        raise _invalid("Invalid empty resource name")
    if resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        raise _invalid(f"Invalid resourceType {resource_type.name}")
    pattern_type = _known(PatternType, binding.pattern_type)
    if pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {pattern_type.name}")
    operation = _known(AclOperation, binding.operation)
    if operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise _invalid(f"Invalid operation {operation.name}")
    permission_type = _known(AclPermissionType, binding.permission_type)
    if permission_type not in (AclPermissionType.DENY, AclPermissionType.ALLOW):
        raise _invalid(f"Invalid permissionType {permission_type.name}")
    if ":" not in binding.principal:
        text = f"Could not parse principal from `{binding.principal}` (no colon is present separating the principal "
        raise _invalid(text + "type from the principal name)")


def delete_acls(image: MetadataImage, request: DeleteAclsRequest) -> Decision:
    """DeleteAcls 1-3: the entries that any filter matches are removed; each filter has its own row of matches."""
    check_security_records(image)
    known = _KnownEntries(image)
    matched: dict[UUID, AclBinding] = {}
    results: list[Response] = []
    left = MATCHES_MAX
    pace = Pace()
    for one in request.filters:
        try:
            wanted = checked_filter(one)
            candidates = yield from known.candidates(wanted, pace)
            found = yield from _matching(wanted, candidates, left, pace)
        except ProtocolError as error:
            results.append({**error_response(error.code, error.message), "matching_acls": []})
            continue
        if pace.ends_step():
            yield PLAIN_STEP
        left -= len(found)
        matched.update(found)
        rows = yield from map_in_steps(_matching_row, found, pace)
        results.append({**error_response(ErrorCode.NONE), "matching_acls": rows})
    records: list[Record] = []
    for acl_id, _ in sorted(matched.items(), key=lambda item: item[1].permission_type == AclPermissionType.DENY):
        if acl_id in image.acls:
            records.append(RemoveAccessControlEntryRecord(acl_id))
        if pace.ends_step():
            yield records
            records = []
    return ControllerResult(records, {"filter_results": results})


class _KnownEntries:
    """The entries of an image, as a request with many filters looks for them: by resource where a filter names one."""

    def __init__(self, image: MetadataImage) -> None:
        self._all = list(image.acls.items())
        self._by_name: dict[str, list[tuple[UUID, AclBinding]]] | None = None

    def candidates(self, wanted: AclBindingFilter, pace: Pace) -> Parts[Sequence[tuple[UUID, AclBinding]]]:
        """The entries that the filter may match, in their order."""
        if wanted.resource_name is None or wanted.pattern_type == PatternType.MATCH:
            return self._all
        if self._by_name is None:
            self._by_name = {}
            for item in self._all:
                self._by_name.setdefault(item[1].resource_name, []).append(item)
                if pace.ends_step():
                    yield PLAIN_STEP
        return self._by_name.get(wanted.resource_name, ())


def _matching_row(item: tuple[UUID, AclBinding]) -> Response:
    return {**error_response(ErrorCode.NONE), **item[1]._asdict()}


def _matching(
    wanted: AclBindingFilter, known: Iterable[tuple[UUID, AclBinding]], matches_max: int, pace: Pace
) -> Parts[list[tuple[UUID, AclBinding]]]:
    found = []
    for item in known:
        if wanted.matches(item[1]):
            found.append(item)
            if len(found) > matches_max:
                raise _invalid(f"Cannot remove more than {MATCHES_MAX} acls in a single delete operation.")
        if pace.ends_step():
            yield PLAIN_STEP
    return found


def checked_filter(fields: DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter) -> AclBindingFilter:
    """The filter in a request. Raises `ProtocolError(INVALID_REQUEST)`."""
    unknown_types = (
        _known(ResourceType, fields.resource_type_filter) is ResourceType.UNKNOWN
        or _known(PatternType, fields.pattern_type_filter) is PatternType.UNKNOWN
    )
    if unknown_types:
        raise _invalid("Unknown patternFilter.")
    unknown_entry = (
        _known(AclOperation, fields.operation) is AclOperation.UNKNOWN
        or _known(AclPermissionType, fields.permission_type) is AclPermissionType.UNKNOWN
    )
    if unknown_entry:
        raise _invalid("Unknown entryFilter.")
    return AclBindingFilter(
        fields.resource_type_filter,
        fields.resource_name_filter,
        fields.pattern_type_filter,
        fields.principal_filter,
        fields.host_filter,
        fields.operation,
        fields.permission_type,
    )


def _known(kind: type[E], number: int) -> E:
    """The value of that number; UNKNOWN for a number that newer software may know."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)


def _invalid(text: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_REQUEST, text)
