"""DescribeClientQuotas: the quotas of the entities that a filter matches (KIP-546), in the words of Apache Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....controller.metadata.metadata_image import QuotaEntity
from ....controller.security.client_quotas import CLIENT_ID, IP, USER, canonical_address
from ....runtime.incremental_work import PLAIN_STEP, Pace, Work
from ....security.authorizer.acl_binding import AclOperation
from ....wire.codec import Struct
from ....wire.errors import ErrorCode, ProtocolError
from ...api import Fields, Result
from ...network.request import Request
from ...services import BrokerServices

if TYPE_CHECKING:
    from ....wire.message_types.configs import DescribeClientQuotasRequest

MATCH_EXACT = 0
MATCH_DEFAULT = 1
MATCH_SPECIFIED = 2


class QuotaFilter:
    """Which entities a request asks for. Raises `ProtocolError` for a filter that Kafka refuses."""

    def __init__(self, components: list[DescribeClientQuotasRequest.ComponentData], *, is_strict: bool) -> None:
        self._names: dict[str, str | None] = {}
        """The name that an entity must have, by its type; None for the default."""
        self._types: set[str] = set()
        """The types that an entity must have, with any name."""
        self._is_strict = is_strict
        for one in components:
            self._add(one.entity_type, one.match_type, one.match)
        kinds = self._types | set(self._names)
        if IP in kinds and len(kinds) > 1:
            raise _invalid(
                "Invalid entity filter component combination. IP filter component should not be used with user or "
                "clientId filter component."
            )

    def matches(self, entity: QuotaEntity) -> bool:
        """Whether the entity is asked for; a strict filter names all types of an entity."""
        names = dict(entity)
        if self._is_strict and len(names) != len(self._names) + len(self._types):
            return False
        return self._types <= names.keys() and all(
            kind in names and names[kind] == name for kind, name in self._names.items()
        )

    def _add(self, kind: str, match_type: int, name: str | None) -> None:
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in self._names or kind in self._types:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if match_type == MATCH_EXACT:
            if name is None:
                raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            self._names[kind] = _canonical(name) if kind == IP else name
            return
        if match_type not in (MATCH_DEFAULT, MATCH_SPECIFIED):
            raise _invalid(f"Unknown match type {match_type}")
        if name is not None:
            kind_of_match = "DEFAULT" if match_type == MATCH_DEFAULT else "SPECIFIED"
            raise _invalid(f"Request specified MATCH_TYPE_{kind_of_match}, but also specified a match string.")
        if match_type == MATCH_DEFAULT:
            self._names[kind] = None
        else:
            self._types.add(kind)


def _canonical(address: str) -> str:
    try:
        return canonical_address(address)
    except ValueError:
        return address


def _invalid(text: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_REQUEST, text)


def error(message: Struct, code: ErrorCode, text: str) -> Fields:
    """The error, and no list of entries."""
    return {"error_code": int(code), "error_message": text, "entries": None}


def handle(services: BrokerServices, request: Request, message: DescribeClientQuotasRequest) -> Work[Result]:
    """The quotas of all entities that match."""
    services.authorization.check_cluster(request, AclOperation.DESCRIBE_CONFIGS)
    return _described(services, QuotaFilter(message.components, is_strict=message.strict))


def _described(services: BrokerServices, wanted: QuotaFilter) -> Work[Result]:
    pace = Pace()
    entries = []
    for entity, values in list(services.metadata.image.client_quotas.items()):
        if wanted.matches(entity):
            entries.append(
                {
                    "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
                    "values": [{"key": key, "value": value} for key, value in sorted(values.items())],
                }
            )
        if pace.ends_step():
            yield PLAIN_STEP
    fields: Fields = {"error_code": 0, "error_message": None, "entries": entries}
    return fields
