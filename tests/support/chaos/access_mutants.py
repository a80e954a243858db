"""Known bugs of access control lists and quotas, as patches on whole nodes: the simulator must find each of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from support.chaos.mutants import Mutant, replacing

from raftwerk.broker.quotas.client_limits import ClientLimits
from raftwerk.controller.security import acls
from raftwerk.security.authorizer import standard_authorizer
from raftwerk.security.authorizer.acl_binding import AclOperation, AclPermissionType
from raftwerk.security.authorizer.standard_authorizer import StandardAuthorizer

ORIGINAL_CHANGE = StandardAuthorizer.change
ORIGINAL_CREATE = acls.create_acls
ORIGINAL_DECIDE = StandardAuthorizer._decide
ORIGINAL_ON_CHANGE = ClientLimits.on_change
ORIGINAL_REMOVE = standard_authorizer._Patterns.remove


def allow_by_any_prefix(
    self: StandardAuthorizer, principal: str, host: str, operation: int, resource_type: int, name: str
) -> bool:
    """An ALLOW for a prefix of the name decides before any DENY."""
    patterns = self._patterns.get(resource_type)
    for prefix, entries in patterns.prefixed.items() if patterns is not None else ():
        for entry in standard_authorizer._held(entries, principal, host) if name.startswith(prefix) else ():
            if entry.permission_type == AclPermissionType.ALLOW and entry.operation in (operation, AclOperation.ALL):
                return True
    return ORIGINAL_DECIDE(self, principal, host, operation, resource_type, name)


def keep_decisions(self: StandardAuthorizer, added: Any, removed: Any) -> None:
    kept = dict(self._decisions)
    ORIGINAL_CHANGE(self, added, removed)
    self._decisions.update(kept)


def create_the_first(image: Any, request: Any, rng: Any) -> Any:
    """Of the entries of a request only the first one is recorded."""
    result = yield from ORIGINAL_CREATE(image, request, rng)
    return replace(result, records=result.records[:1])


def keep_denials(self: Any, binding: Any) -> None:
    """The index of a node takes only ALLOW entries out again."""
    if binding.permission_type == AclPermissionType.ALLOW:
        ORIGINAL_REMOVE(self, binding)


def keep_old_quotas(self: ClientLimits, quotas: Any) -> None:
    """A quota that is changed is taken over, and one that is removed stays."""
    kept = {entity: {**self._quotas.get(entity, {}), **quotas.get(entity, {})} for entity in {**self._quotas, **quotas}}
    ORIGINAL_ON_CHANGE(self, kept)


ACCESS_MUTANTS = (
    Mutant(
        "a DENY is passed over where a prefix is allowed",
        replacing(StandardAuthorizer, "_decide", allow_by_any_prefix),
        ("acls",),
    ),
    Mutant(
        "a DENY that is removed still decides",
        replacing(standard_authorizer._Patterns, "remove", keep_denials),
        ("acls",),
    ),
    Mutant(
        "decisions are kept when access control lists change",
        replacing(StandardAuthorizer, "change", keep_decisions),
        ("acls",),
    ),
    Mutant(
        "a quota that is removed still throttles",
        replacing(ClientLimits, "on_change", keep_old_quotas),
        ("acls",),
    ),
    Mutant(
        "a request creates a part of its access control lists",
        replacing(acls, "create_acls", create_the_first),
        ("acls",),
    ),
)
