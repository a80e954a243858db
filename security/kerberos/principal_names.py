"""From a principal of Kerberos to the name of a user: `sasl.kerberos.principal.to.local.rules`.

The language of the rules is that of Hadoop's auth_to_local, as Apache Kafka reads it (KerberosShortNamer): DEFAULT, or
RULE:[n:string](regexp)s/pattern/replacement/g/L, of which all behind the bracket may be left out. The rule is for names
of n parts, $0 in the string is the realm and $1 and $2 are the parts. Regular expressions are Python's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_NAME = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE = re.compile(r"(DEFAULT)|RULE:\[(\d*):([^\]]*)\](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?/?(L|U)?")
_PARAMETER = re.compile(r"\$(\d*)", re.ASCII)
_REPLACEMENT = re.compile(r"\\(.)|\$(\d+)|\$\{([A-Za-z][A-Za-z0-9]*)\}|([\\$])", re.DOTALL | re.ASCII)
_NOT_SIMPLE = re.compile("[/@]")


class NoUserNameError(Exception):
    """No rule makes a user's name of a principal; the text says which principal and why."""


class KerberosName(NamedTuple):
    """A principal of Kerberos: `service_name/host_name@realm`, or `service_name@realm`, or a simple name."""

    service_name: str
    host_name: str | None
    realm: str | None


def parse_kerberos_name(text: str) -> KerberosName:
    """Raises `NoUserNameError` for a name of more parts."""
    match = _NAME.fullmatch(text)
    if match is not None:
        return KerberosName(match[1], match[2], match[3])
    if "@" in text:
        raise NoUserNameError(f"{text!r} is not name@REALM or name/host@REALM")
    return KerberosName(text, None, None)


@dataclass(frozen=True, slots=True)
class _Rule:
    text: str
    components: int | None  # None for DEFAULT
    format: str = ""
    accepted: re.Pattern[str] | None = None
    replaced: re.Pattern[str] | None = None
    replacement: str = ""
    replaces_all: bool = False
    case: str = ""

    def apply(self, parameters: Sequence[str], default_realm: str) -> str | None:
        if self.components is None:
            found = parameters[1] if parameters[0] == default_realm else None
        elif self.components != len(parameters) - 1:
            return None
        else:
            found = self._transformed(_filled(self.format, parameters))
        if found is not None and _NOT_SIMPLE.search(found):
            raise NoUserNameError(f"the rule {self.text} makes {found!r}, which has / or @")
        return found if not found else found.lower() if self.case == "L" else found.upper() if self.case else found

    def _transformed(self, base: str) -> str | None:
        if self.accepted is not None and not self.accepted.fullmatch(base):
            return None
        if self.replaced is None:
            return base
        return self.replaced.sub(self._replacement, base, count=0 if self.replaces_all else 1)

    def _replacement(self, match: re.Match[str]) -> str:
        return _expanded(self.replacement, match)


def _filled(text: str, parameters: Sequence[str]) -> str:
    def parameter(match: re.Match[str]) -> str:
        if not match[1] or len(match[1]) > 9 or int(match[1]) >= len(parameters):
            raise NoUserNameError(f"{match[0]} in {text!r} is none of the {len(parameters)} parts of the name")
        return parameters[int(match[1])]

    return _PARAMETER.sub(parameter, text)


def _expanded(replacement: str, match: re.Match[str]) -> str:
    """The replacement with its groups, as java.util.regex.Matcher: $1, ${name}, and a backslash before a character."""

    def part(found: re.Match[str]) -> str:
        if found[1] is not None:
            return found[1]
        if found[4] is not None:
            raise NoUserNameError(f"the replacement {replacement!r} has a {found[4]} with nothing behind it")
        if found[3] is not None:
            return _group(match, found[3], replacement)
        return _numbered(match, found[2], replacement)

    return _REPLACEMENT.sub(part, replacement)


def _numbered(match: re.Match[str], digits: str, replacement: str) -> str:
    """As many digits as make a group that there is, the first one at least."""
    used = 1
    while used < len(digits) and int(digits[: used + 1]) <= match.re.groups:
        used += 1
    return _group(match, int(digits[:used]), replacement) + digits[used:]


def _group(match: re.Match[str], group: int | str, replacement: str) -> str:
    try:
        return match[group] or ""
    except IndexError:
        raise NoUserNameError(f"the replacement {replacement!r} names the group {group}, which there is not") from None


class KerberosShortNamer:
    """Applies rules. `default_realm` is that of the rule DEFAULT."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        """Raises ValueError for what is no rule."""
        self._rules = [_parsed(rule) for rule in rules]
        self._default_realm = default_realm

    def short_name(self, name: str) -> str:
        """The user's name of a principal, by the first rule that fits. Raises `NoUserNameError`."""
        service, host, realm = parse_kerberos_name(name)
        if host is None and realm is None:
            return service
        parameters = [realm or "", service] if host is None else [realm or "", service, host]
        for rule in self._rules:
            found = rule.apply(parameters, self._default_realm)
            if found == "":
                raise NoUserNameError(f"the rule {rule.text} makes an empty name of {name!r}")
            if found is not None:
                return found
        told = ", ".join(rule.text for rule in self._rules)
        raise NoUserNameError(
            f"no rule of sasl.kerberos.principal.to.local.rules ({told}) fits {name!r}; DEFAULT is for "
            + (f"the realm {self._default_realm}" if self._default_realm else "no realm, since krb5.conf names none")
        )


def _parsed(text: str) -> _Rule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no rule; write DEFAULT or RULE:[n:string](regexp)s/pattern/replacement/g/L")
    if match[1]:
        return _Rule(text, None)
    if not match[2]:
        raise ValueError(f"{text!r} does not say of how many parts the names are; write RULE:[1:$1]")
    try:
        accepted, replaced = (None if one is None else re.compile(one) for one in (match[4], match[5]))
    except re.error as error:
        raise ValueError(f"{text!r} has what is no regular expression: {error}") from None
    return _Rule(
        text, int(match[2]), match[3], accepted, replaced, match[6] or "", match[7] is not None, match[8] or ""
    )
