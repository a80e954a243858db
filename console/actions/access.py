"""Who may do what: access control lists, users with a SCRAM password, and client quotas."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ...cluster.client.admin_client import AdminClient
from ...cluster.client.cluster_client import ClusterClient
from ...cluster.settings.setting_names import way_out_of_quotas
from ...security.authorizer.acl_binding import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclBindingFilter,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from ...security.authorizer.acl_words import (
    OPERATIONS,
    RESOURCE_NOUNS,
    AclWordError,
    operations_of,
    principal_of,
    row_of,
)
from ...security.sasl.scram_credential import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISM_NUMBERS, SCRAM_SHA_512
from ..errors import RequestRefusedError
from ..fields import Fields, is_to_execute, number, one_of, text, texts

_PERMISSIONS = {"allow": AclPermissionType.ALLOW, "deny": AclPermissionType.DENY}
_PATTERNS = {"literal": PatternType.LITERAL, "prefix": PatternType.PREFIXED}
_RESOURCES = {
    RESOURCE_NOUNS[kind]: kind for kind in ResourceType if kind not in (ResourceType.UNKNOWN, ResourceType.ANY)
}
_ENTITY_TYPES = ("user", "client-id", "ip")


class AccessActions:
    """Asks and changes what the cluster's metadata says of rights. Methods raise `ClientError` where it refuses."""

    def __init__(self, client: ClusterClient, secret_bytes: Callable[[int], bytes]) -> None:
        self._client = client
        self._admin = AdminClient(client)
        self._secret_bytes = secret_bytes

    # Access control lists

    async def acls(self) -> dict[str, Any]:
        """All entries."""
        return {"acls": [row_of(one) for one in await self._admin.list_acls(AclBindingFilter())]}

    async def add_acls(self, fields: Fields) -> dict[str, Any]:
        """An entry for each of `operations`, added if `execute` is true."""
        permission = one_of(fields, "permission", _PERMISSIONS)
        wanted = [
            AclBinding(kind, name, pattern, principal_of(text(fields, "principal")), host, operation, permission)
            for kind, name, pattern, host in (_resource(fields),)
            for operation in _operations(texts(fields, "operations"), ResourceType(kind))
        ]
        if not wanted:
            raise RequestRefusedError(400, "these operations mean nothing there; name one, such as read")
        if is_to_execute(fields):
            await self._admin.create_acls(wanted)
        return {"executed": is_to_execute(fields), "acls": [row_of(one) for one in wanted]}

    async def remove_acl(self, fields: Fields) -> dict[str, Any]:
        """One entry, in the words in which it is shown, removed if `execute` is true."""
        kind, name, pattern, host = _resource(fields)
        operation = one_of(fields, "operation", OPERATIONS)
        permission = one_of(fields, "permission", _PERMISSIONS)
        wanted = AclBindingFilter(kind, name, pattern, text(fields, "principal"), host, operation, permission)
        admin, execute = self._admin, is_to_execute(fields)
        found = await (admin.delete_acls([wanted]) if execute else admin.list_acls(wanted))
        if not found:
            raise RequestRefusedError(404, "there is no such entry")
        return {"executed": execute, "acls": [row_of(one) for one in found]}

    # Users

    async def users(self) -> dict[str, Any]:
        """The users with a SCRAM password, with a row for each mechanism."""
        found = await self._admin.list_scram_users()
        rows = [
            {"user": name, "mechanism": mechanism, "iterations": iterations}
            for name, mechanisms in sorted(found.items())
            for mechanism, iterations in mechanisms.items()
        ]
        return {"users": rows}

    async def set_password(self, fields: Fields) -> dict[str, Any]:
        """Set the password of `user` for `mechanism`, which makes the user if there is none."""
        name, password = text(fields, "user"), text(fields, "password")
        mechanism = text(fields, "mechanism", SCRAM_SHA_512)
        if mechanism not in MECHANISM_NUMBERS:
            raise RequestRefusedError(400, f"mechanism is one of {', '.join(MECHANISM_NUMBERS)}")
        had = (await self._admin.list_scram_users()).get(name, {}).get(mechanism)
        iterations = number(fields, "iterations", had or ITERATIONS_MIN)
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise RequestRefusedError(400, f"iterations are {ITERATIONS_MIN} to {ITERATIONS_MAX}")
        await self._admin.set_scram_password(name, password, {mechanism: iterations}, self._secret_bytes)
        return {"done": f"{'added' if had is None else 'changed'} the password of {name} for {mechanism}"}

    async def remove_user(self, name: str, fields: Fields) -> dict[str, Any]:
        """The password of a user for one `mechanism`, removed if `execute` is true; not that of the console itself."""
        mechanism = text(fields, "mechanism")
        if mechanism not in (await self._admin.list_scram_users()).get(name, {}):
            raise RequestRefusedError(404, f"{name} has no password for {mechanism}")
        if self._client.scram_user == (mechanism, name):
            told = f"you act as {name}, who logs in by {mechanism}, and could not log in again"
            raise RequestRefusedError(409, told)
        if is_to_execute(fields):
            await self._admin.remove_scram_password(name, [mechanism])
        return {"executed": is_to_execute(fields), "user": name, "mechanism": mechanism}

    # Quotas

    async def quotas(self) -> dict[str, Any]:
        """The quotas of all entities."""
        found = await self._admin.describe_quotas({})
        rows = [{"entity": dict(one.entity), "quotas": one.json_quotas} for one in found]
        return {"quotas": sorted(rows, key=lambda row: sorted((k, v or "") for k, v in row["entity"].items()))}

    async def alter_quotas(self, fields: Fields) -> dict[str, Any]:
        """What the quotas in `set` (numbers; null removes one) change of `entity`; changed if `execute` is true."""
        entity, values = _entity(fields), _quota_values(fields)
        way_out = way_out_of_quotas(entity, values)
        if way_out is not None:
            raise RequestRefusedError(400, f"there is no such quota: {way_out}")
        found = await self._admin.describe_quotas(entity)
        has = next((one.json_quotas for one in found if dict(one.entity) == entity), {})
        if is_to_execute(fields):
            await self._admin.alter_quotas(entity, values)
        rows = [{"quota": key, "from": has.get(key), "to": value} for key, value in values.items()]
        return {"executed": is_to_execute(fields), "quotas": rows}


def _resource(fields: Fields) -> tuple[int, str, int, str]:
    """The type, name and pattern of the resource, and the host, of an entry."""
    kind = one_of(fields, "resource_type", _RESOURCES)
    is_cluster = kind == ResourceType.CLUSTER
    name = text(fields, "resource_name", CLUSTER_NAME if is_cluster else None)
    pattern = one_of({"pattern": "literal", **fields}, "pattern", _PATTERNS)
    if is_cluster and pattern == PatternType.PREFIXED:
        raise RequestRefusedError(400, "the cluster has no prefix")
    return kind, name, pattern, text(fields, "host", WILDCARD)


def _operations(names: list[str], kind: ResourceType) -> list[int]:
    try:
        return list(operations_of(names, kind))
    except AclWordError as error:
        raise RequestRefusedError(400, str(error)) from None


def _entity(fields: Fields) -> dict[str, str | None]:
    given = fields.get("entity")
    if not isinstance(given, dict) or not given or not set(given) <= set(_ENTITY_TYPES):
        raise RequestRefusedError(400, f"entity is an object with names of {', '.join(_ENTITY_TYPES)}")
    if not all(name is None or (isinstance(name, str) and name) for name in given.values()):
        raise RequestRefusedError(400, "the names of an entity are texts, or null for the default")
    if "ip" in given and len(given) > 1:
        raise RequestRefusedError(400, "an address has quotas of its own, not together with a user or a client id")
    return dict(given)


def _quota_values(fields: Fields) -> Mapping[str, float | None]:
    given = fields.get("set")
    if not isinstance(given, dict) or not given:
        raise RequestRefusedError(400, "set is an object of quotas and numbers, or null to remove one")
    for value in given.values():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (is_number and math.isfinite(value) and value >= 0):
            raise RequestRefusedError(400, "the value of a quota is a number, or null to remove it")
    return {str(key): value for key, value in given.items()}
