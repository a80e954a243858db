"""StandardAuthorizer: decides by the access control lists of the metadata log, as Apache Kafka's (KIP-11, KIP-801).

An entry holds for a request when its resource, principal, host and operation do. A DENY that holds decides; then an
ALLOW; where neither holds the request is denied, unless no entry at all is for the resource and
`allow.everyone.if.no.acl.found` is set. Super users may do everything.

Entries are found by the resource's name: the literal one, the wildcard, and one look-up for each length that a prefix
has. Decisions are kept until an entry changes, so that a request costs one look-up however many entries there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple, TypeAlias

from ..principals import USER, KafkaPrincipal
from .acl_binding import WILDCARD, AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType

EVERYBODY = str(KafkaPrincipal(USER, WILDCARD))
"""The principal of entries that are for all principals."""
DECISIONS_MAX = 20_000
"""So many decisions are kept; then they are dropped, as the names in requests are chosen by clients."""
_KEPT_NAME_CHARS_MAX = 256

_IMPLIED_BY: Mapping[int, frozenset[int]] = {
    AclOperation.DESCRIBE: frozenset(
        (
            AclOperation.DESCRIBE,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.ALL,
        )
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset(
        (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.ALL)
    ),
}
"""The operations of ALLOW entries that allow an operation, where there are others than itself and ALL."""


class _Entry(NamedTuple):
    host: str
    operation: int
    permission_type: int


_Question: TypeAlias = tuple[KafkaPrincipal, str, int, str]
"""Principal, host, operation and resource type in one number (below 0 for any resource of the type), and name."""
_Entries: TypeAlias = dict[str, dict[_Entry, int]]
"""By principal, how often each entry of one resource pattern is there."""


class _Names(NamedTuple):
    """Literal names and prefixes for which something is allowed and denied."""

    allowed: set[str]
    allowed_prefixes: set[str]
    denied: set[str]
    denied_prefixes: set[str]


class _Patterns:
    """The entries of one resource type."""

    def __init__(self) -> None:
        self.literal: dict[str, _Entries] = {}
        self.prefixed: dict[str, _Entries] = {}
        self._names: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
        """By principal, the literal names and the prefixes of its entries."""
        self._prefix_lengths: Counter[int] = Counter()

    def matching(self, name: str) -> Iterator[_Entries]:
        """The entries of each pattern that the name matches."""
        found = self.literal.get(name)
        if found is not None:
            yield found
        if name != WILDCARD:
            found = self.literal.get(WILDCARD)
            if found is not None:
                yield found
        for length in self._prefix_lengths:
            found = self.prefixed.get(name[:length]) if length <= len(name) else None
            if found is not None:
                yield found

    def add(self, binding: AclBinding) -> None:
        """Take an entry in."""
        patterns = self._of(binding)
        entries = patterns.get(binding.resource_name)
        if entries is None:
            entries = patterns[binding.resource_name] = {}
            if patterns is self.prefixed:
                self._prefix_lengths[len(binding.resource_name)] += 1
        of_principal = entries.setdefault(binding.principal, {})
        entry = _entry(binding)
        of_principal[entry] = of_principal.get(entry, 0) + 1
        self._names_of(binding)[binding.resource_name] = None

    def remove(self, binding: AclBinding) -> None:
        """Take one of the equal entries out, if there is any."""
        patterns, name = self._of(binding), binding.resource_name
        entries = patterns.get(name, {})
        of_principal = entries.get(binding.principal, {})
        entry = _entry(binding)
        times = of_principal.pop(entry, 0)
        if times > 1:
            of_principal[entry] = times - 1
        if of_principal or not times:
            return
        del entries[binding.principal]
        del self._names_of(binding)[name]
        if not any(self._names[binding.principal]):
            del self._names[binding.principal]
        if entries:
            return
        del patterns[name]
        if patterns is self.prefixed:
            self._prefix_lengths[len(name)] -= 1
            if not self._prefix_lengths[len(name)]:
                del self._prefix_lengths[len(name)]

    def names(self, principal: str, host: str, operation: int) -> _Names:
        """The names and prefixes of which entries for the principal or everybody name the operation, or all."""
        found = _Names(set(), set(), set(), set())
        allowed, denied = (found.allowed, found.allowed_prefixes), (found.denied, found.denied_prefixes)
        for who in _who(principal):
            for at, (patterns, names) in enumerate(zip((self.literal, self.prefixed), self._names.get(who, ()))):
                for name in names:
                    for entry in patterns[name][who]:
                        if entry.host in (WILDCARD, host) and entry.operation in (operation, AclOperation.ALL):
                            (denied if entry.permission_type == AclPermissionType.DENY else allowed)[at].add(name)
        return found

    def _of(self, binding: AclBinding) -> dict[str, _Entries]:
        return self.prefixed if binding.pattern_type == PatternType.PREFIXED else self.literal

    def _names_of(self, binding: AclBinding) -> dict[str, None]:
        literal, prefixed = self._names.setdefault(binding.principal, ({}, {}))
        return prefixed if binding.pattern_type == PatternType.PREFIXED else literal


class StandardAuthorizer:
    """Follows the access control lists by `replace` and `change`. `super_users` are texts such as `User:admin`.

    Until the first `replace` it does not know the access control lists, and allows super users only.
    """

    def __init__(self, super_users: Iterable[str] = (), *, allow_everyone_if_no_acl_found: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allows_without_acl = allow_everyone_if_no_acl_found
        self._patterns: dict[int, _Patterns] = {}
        self._is_loaded = False
        self._decisions: dict[_Question, bool] = {}

    def authorize(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """See `Authorizer`."""
        key = principal, host, operation << 8 | resource_type, name
        known = self._decisions.get(key)
        if known is not None:
            return known
        decided = self._decide(str(principal), canonical_host(host), operation, resource_type, name)
        return self._kept(key, decided) if len(name) <= _KEPT_NAME_CHARS_MAX else decided

    def authorize_by_resource_type(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """See `Authorizer`. As in Apache Kafka no operation implies another one here."""
        key = principal, host, -(operation << 8 | resource_type), ""
        known = self._decisions.get(key)
        if known is not None:
            return known
        return self._kept(key, self._decide_by_type(str(principal), canonical_host(host), operation, resource_type))

    def replace(self, bindings: Iterable[AclBinding]) -> None:
        """See `Authorizer`."""
        self._is_loaded = True
        self._patterns.clear()
        self.change(bindings, ())

    def change(self, added: Iterable[AclBinding], removed: Iterable[AclBinding]) -> None:
        """See `Authorizer`."""
        for binding in removed:
            patterns = self._patterns.get(binding.resource_type)
            if patterns is not None and _is_decisive(binding):
                patterns.remove(binding)
        for binding in added:
            if _is_decisive(binding):
                self._patterns.setdefault(binding.resource_type, _Patterns()).add(binding)
        self._decisions.clear()

    def _kept(self, question: _Question, decided: bool) -> bool:
        if len(self._decisions) >= DECISIONS_MAX:
            self._decisions.clear()
        self._decisions[question] = decided
        return decided

    def _decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        if principal in self._super_users:
            return True
        if not self._is_loaded:
            return False
        patterns = self._patterns.get(resource_type)
        is_allowed, has_acl = False, False
        allowing = _IMPLIED_BY.get(operation) or (operation, AclOperation.ALL)
        for entries in patterns.matching(name) if patterns is not None else ():
            has_acl = True
            for entry in _held(entries, principal, host):
                if entry.permission_type == AclPermissionType.ALLOW:
                    is_allowed = is_allowed or entry.operation in allowing
                elif entry.operation in (operation, AclOperation.ALL):
                    return False
        return is_allowed if has_acl else self._allows_without_acl

    def _decide_by_type(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """An ALLOW of a name or a prefix counts, unless a DENY holds for all names that it is for."""
        if self._decide(principal, host, operation, resource_type, "hardcode"):
            return True
        patterns = self._patterns.get(resource_type)
        if patterns is None:
            return False
        found = patterns.names(principal, host, operation)
        if WILDCARD in found.denied:
            return False
        if WILDCARD in found.allowed:
            return True
        lengths = sorted({len(prefix) for prefix in found.denied_prefixes})
        return any(
            all(name[:length] not in found.denied_prefixes for length in lengths if length <= len(name))
            for name in (found.allowed - found.denied) | found.allowed_prefixes
        )


def _held(entries: _Entries, principal: str, host: str) -> Iterator[_Entry]:
    """The entries for the principal or for everybody, from the host or from all hosts."""
    for who in _who(principal):
        for entry in entries.get(who, ()):
            if entry.host in (WILDCARD, host):
                yield entry


def _who(principal: str) -> tuple[str, ...]:
    return (principal, EVERYBODY) if principal != EVERYBODY else (EVERYBODY,)


def _entry(binding: AclBinding) -> _Entry:
    return _Entry(canonical_host(binding.host), binding.operation, binding.permission_type)


def _is_decisive(binding: AclBinding) -> bool:
    """Whether the entry can decide anything; newer software may know more patterns and permissions."""
    return binding.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED) and binding.permission_type in (
        AclPermissionType.DENY,
        AclPermissionType.ALLOW,
    )


def canonical_host(host: str) -> str:
    """The one text of an IPv6 address, which has several; any other host as it is."""
    if ":" not in host:
        return host
    try:
        address = ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
