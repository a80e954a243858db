"""A slow, obviously right twin of StandardAuthorizer: it walks over a list of all access control lists."""

from __future__ import annotations

from raftwerk.security.authorizer.acl_binding import AclBinding

DENY, ALLOW = 2, 3
ALL, READ, WRITE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = 2, 3, 4, 6, 7, 8, 10, 11
LITERAL, PREFIXED = 3, 4


class NaiveAuthorizer:
    def __init__(self, super_users: set[str], allows_without_acl: bool) -> None:
        self.bindings: list[AclBinding] = []
        self.super_users = super_users
        self.allows_without_acl = allows_without_acl

    def authorize(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        if principal in self.super_users:
            return True
        of_resource = [one for one in self.bindings if one.resource_type == resource_type and is_for(one, name)]
        if not of_resource:
            return self.allows_without_acl
        held = [one for one in of_resource if one.principal in (principal, "User:*") and one.host in (host, "*")]
        if any(one.permission_type == DENY and one.operation in (operation, ALL) for one in held):
            return False
        return any(one.permission_type == ALLOW and allows(one.operation, operation) for one in held)

    def authorize_by_resource_type(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """As Kafka says it: some allowed name or prefix that no denied name or prefix covers."""
        if self.authorize(principal, host, operation, resource_type, "hardcode"):
            return True
        held = [
            one
            for one in self.bindings
            if one.resource_type == resource_type
            and one.principal in (principal, "User:*")
            and one.host in (host, "*")
            and one.operation in (operation, ALL)
        ]
        denied = [one for one in held if one.permission_type == DENY]
        if any(one.pattern_type == LITERAL and one.resource_name == "*" for one in denied):
            return False
        return any(
            (one.pattern_type == LITERAL and one.resource_name == "*")
            or not any(covers(other, one) for other in denied)
            for one in held
            if one.permission_type == ALLOW
        )


def covers(denied: AclBinding, allowed: AclBinding) -> bool:
    if denied.pattern_type == PREFIXED:
        return allowed.resource_name.startswith(denied.resource_name)
    return allowed.pattern_type == LITERAL and allowed.resource_name == denied.resource_name


def is_for(binding: AclBinding, name: str) -> bool:
    if binding.pattern_type == PREFIXED:
        return name.startswith(binding.resource_name)
    return binding.resource_name in (name, "*")


def allows(operation: int, wanted: int) -> bool:
    if operation in (wanted, ALL):
        return True
    if wanted == DESCRIBE:
        return operation in (READ, WRITE, DELETE, ALTER)
    return wanted == DESCRIBE_CONFIGS and operation == ALTER_CONFIGS
