"""AlterClientQuotas: limits of users, client ids and addresses (KIP-546, KIP-612), in the words of Apache Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING

from ...runtime.incremental_work import Pace, count_in_steps
from ...wire.errors import ErrorCode, ProtocolError
from ..metadata.metadata_image import MetadataImage, QuotaEntity
from ..metadata.metadata_records import ClientQuotaRecord, Record
from ..result import ControllerResult, Decision, Response, error_response
from .record_level import check_security_records

if TYPE_CHECKING:
    from ...wire.message_types.configs import AlterClientQuotasRequest

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"
PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"
LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
_FRACTION_MAX = 1e-6

CLIENT_QUOTAS: Mapping[str, int | None] = {
    PRODUCER_BYTE_RATE: LONG_MAX,
    CONSUMER_BYTE_RATE: LONG_MAX,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
"""The quotas of users and client ids, and the largest value of those that are whole numbers."""
IP_QUOTAS: Mapping[str, int | None] = {CONNECTION_CREATION_RATE: INT_MAX}
"""The quotas of addresses."""


def alter_client_quotas(image: MetadataImage, request: AlterClientQuotasRequest) -> Decision:
    """AlterClientQuotas 0 to 1: all changes of an entity, or none of them. Raises `ProtocolError`."""
    check_security_records(image)
    pace = Pace()
    times = yield from count_in_steps((_rows_of(entry.entity) for entry in request.entries), pace)
    records: list[Record] = []
    results: dict[tuple[tuple[str, str | None], ...], Response] = {}
    for entry in request.entries:
        given = _rows_of(entry.entity)
        if given in results:
            continue
        try:
            if times[given] > 1:
                raise _invalid(f"Ignoring duplicate entity {dict(given)}")
            changed = _changes(image, _entity(given), entry.ops)
            records += [] if request.validate_only else changed
            outcome = error_response(ErrorCode.NONE)
        except ProtocolError as error:
            outcome = error_response(error.code, error.message)
        rows = [{"entity_type": kind, "entity_name": name} for kind, name in given]
        results[given] = {**outcome, "entity": rows}
        if pace.ends_step(1 + len(entry.ops)):
            yield records
            records = []
            check_security_records(image)
    return ControllerResult(records, {"entries": list(results.values())})


def _rows_of(entity: list[AlterClientQuotasRequest.EntityData]) -> tuple[tuple[str, str | None], ...]:
    return tuple((one.entity_type, one.entity_name) for one in entity)


def _entity(given: tuple[tuple[str, str | None], ...]) -> QuotaEntity:
    """The entity as records have it."""
    if not given:
        raise _invalid("Invalid empty client quota entity")
    found: dict[str, str | None] = {}
    for kind, name in given:
        if kind in found:
            raise _invalid(f"Invalid client quota entity, duplicate entity entry {kind}")
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name is not None and not name:
            raise _invalid(f"Empty {kind} not supported")
        found[kind] = name
    if IP in found:
        if len(found) > 1:
            raise _invalid("Invalid quota entity combination, IP entity should not be combined with User or ClientId")
        found[IP] = _address(found[IP])
    return tuple(sorted(found.items()))


def canonical_address(name: str) -> str:
    """An address as quotas and connections have it. Raises ValueError."""
    return str(ip_address(name))


def _address(name: str | None) -> str | None:
    try:
        return None if name is None else canonical_address(name)
    except ValueError:
        raise _invalid(f"{name} is not a valid IP; names of hosts are not resolved here") from None


def _changes(image: MetadataImage, entity: QuotaEntity, ops: list[AlterClientQuotasRequest.OpData]) -> list[Record]:
    known = image.client_quotas.get(entity, {})
    keys = IP_QUOTAS if entity[0][0] == IP else CLIENT_QUOTAS
    wanted: dict[str, float | None] = {}
    for op in ops:
        if op.key in wanted:
            raise _invalid(f"Duplicate quota key {op.key} not updating quota for this entity")
        wanted[op.key] = None if op.remove else op.value
        if not op.remove:
            _check_value(keys, op.key, op.value)
    return [ClientQuotaRecord(entity, key, value) for key, value in wanted.items() if known.get(key) != value]


def _check_value(keys: Mapping[str, int | None], key: str, value: float) -> None:
    if key not in keys:
        raise _invalid(f"Invalid configuration key {key}")
    if not value > 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    limit = keys[key]
    if limit is None:
        return
    if value > limit:
        raise _invalid(f"Proposed value for {key} is too large for {'an INT' if limit == INT_MAX else 'a LONG'}.")
    if value % 1.0 > _FRACTION_MAX:
        raise _invalid(f"{key} cannot be a fractional value.")


def _invalid(text: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_REQUEST, text)
