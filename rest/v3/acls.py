"""Access control lists: search, create one or several, delete by a filter."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any
from urllib.parse import urlencode

from ...cluster.client.admin_client import AdminClient
from ...security.authorizer.acl_binding import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from ..errors import BAD_REQUEST, RestError
from ..request import Request
from ..routes import Answer, Query, Route
from ..schemas import ACL_CHOICES, TEXT
from ..services import Services
from .resources import Links, links_of

_ACLS = "/v3/clusters/{cluster_id}/acls"
_KINDS: Mapping[str, type[IntEnum]] = {
    "resource_type": ResourceType,
    "pattern_type": PatternType,
    "operation": AclOperation,
    "permission": AclPermissionType,
}
_FIELDS = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
"""The names of Confluent's fields, in the order of those of `AclBinding` and `AclBindingFilter`."""
_FOR_FILTERS_ONLY = ("ANY", "MATCH")


def _kind(name: str, text: str) -> int:
    found = _KINDS[name].__members__.get(text.upper())
    if not found:  # UNKNOWN is 0
        names = ", ".join(list(_KINDS[name].__members__)[1:])
        raise RestError(BAD_REQUEST, f"{name} must be one of {names}, not {text[:40]!r}")
    return int(found)


def _filter(request: Request, *, is_whole: bool) -> AclBindingFilter:
    """The filter in the query. A whole one has to name all but the name, the principal and the host."""
    values: list[Any] = []
    for name in _FIELDS:
        text = request.query(name) or None
        if name not in _KINDS:
            values.append(text)
        elif text is None and is_whole:
            raise RestError(BAD_REQUEST, f"The query has no {name}")
        else:
            values.append(_kind(name, text or "ANY"))
    return AclBindingFilter(*values)


def _binding(fields: Mapping[str, Any]) -> AclBinding:
    values: list[Any] = []
    for name in _FIELDS:
        text = fields[name]
        if name in _KINDS and text.upper() in _FOR_FILTERS_ONLY:
            raise RestError(BAD_REQUEST, f"{name} cannot be {text.upper()} in an ACL, only in a filter")
        values.append(_kind(name, text) if name in _KINDS else text)
    return AclBinding(*values)


def _words(values: AclBinding | AclBindingFilter) -> dict[str, str]:
    return {
        name: _KINDS[name](int(value or 0)).name if name in _KINDS else str(value or "")
        for name, value in zip(_FIELDS, values, strict=True)
    }


def _url(links: Links, words: Mapping[str, str]) -> str:
    return f"{links.url('acls')}?{urlencode(words, errors='replace')}"


def _resource(links: Links, binding: AclBinding) -> dict[str, Any]:
    words = _words(binding)
    metadata = {"self": _url(links, words), "resource_name": None}
    return {"kind": "KafkaAcl", "metadata": metadata, "cluster_id": links.cluster_id, **words}


async def _search(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    wanted = _filter(request, is_whole=False)
    found = await AdminClient(services.cluster.client).list_acls(wanted)
    metadata = {"self": _url(links, _words(wanted)), "next": None}
    return Answer({"kind": "KafkaAclList", "metadata": metadata, "data": [_resource(links, one) for one in found]})


async def _create(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    binding = _binding(await request.fields("CreateAclRequestData"))
    await AdminClient(services.cluster.client).create_acls([binding])
    return Answer(status=201, headers={"location": _url(links, _words(binding))})


async def _create_batch(services: Services, request: Request) -> Answer:
    await links_of(services, request)
    bindings = [_binding(one) for one in (await request.fields("CreateAclRequestDataList"))["data"]]
    await AdminClient(services.cluster.client).create_acls(bindings)
    return Answer(status=201)


async def _delete(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    deleted = await AdminClient(services.cluster.client).delete_acls([_filter(request, is_whole=True)])
    return Answer({"data": [_resource(links, one) for one in deleted]})


def _query(*, is_whole: bool) -> tuple[Query, ...]:
    return tuple(
        Query(name, f"The {name} of ACLs.", ACL_CHOICES.get(name, TEXT), is_whole and name in _KINDS)
        for name in _FIELDS
    )


_SEEING, _CHANGING = "Describe on the cluster", "Alter on the cluster"
ROUTES = (
    Route(
        "GET",
        _ACLS,
        _search,
        "The ACLs that a filter matches.",
        "AclDataList",
        query=_query(is_whole=False),
        right=_SEEING,
    ),
    Route("POST", _ACLS, _create, "Create an ACL.", None, 201, "CreateAclRequestData", right=_CHANGING),
    Route(
        "POST",
        f"{_ACLS}:batch",
        _create_batch,
        "Create several ACLs.",
        None,
        201,
        "CreateAclRequestDataList",
        right=_CHANGING,
    ),
    Route(
        "DELETE",
        _ACLS,
        _delete,
        "Delete the ACLs that a filter matches.",
        "AclsData",
        query=_query(is_whole=True),
        right=_CHANGING,
    ),
)
