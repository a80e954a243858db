"""The principal of a connection (Kafka's KafkaPrincipal), and how the name in a certificate becomes one."""

from __future__ import annotations

import re
from typing import NamedTuple

USER = "User"


class KafkaPrincipal(NamedTuple):
    """Who makes a request, such as `User:alice`."""

    principal_type: str
    name: str
    is_token_authenticated: bool = False
    """Whether a delegation token was shown, and not the principal's own credentials (KIP-48)."""

    def __str__(self) -> str:
        return f"{self.principal_type}:{self.name}"


ANONYMOUS = KafkaPrincipal(USER, "ANONYMOUS")
"""Everybody on a listener that does not authenticate, and a TLS client without a certificate."""


def parse_principal(text: str) -> KafkaPrincipal:
    """Parse `Type:name`. Raises ValueError."""
    principal_type, colon, name = text.partition(":")
    if not colon or not principal_type or not name:
        raise ValueError(f"{text!r} is no principal; write Type:name, for example User:alice")
    return KafkaPrincipal(principal_type, name)


def principal_of_text(text: str, *, is_token: bool = False) -> KafkaPrincipal:
    """The principal of a text that `str` made of one."""
    principal_type, _, name = text.partition(":")
    return KafkaPrincipal(principal_type, name, is_token)


_RULE = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_NAMED_GROUP = re.compile(r"\\k<(\w+)>|\\.|\(\?<(?=[A-Za-z])")
_IN_REPLACEMENT = re.compile(r"\\(.)|\$\{(\w*)\}|\$([0-9]*)")


class PrincipalMapper:
    """`ssl.principal.mapping.rules` (KIP-371): the first rule whose pattern is the whole name gives the principal."""

    def __init__(self, rules: str = "DEFAULT") -> None:
        """Raises ValueError for what is no list of rules."""
        self._rules: list[tuple[re.Pattern[str] | None, str, str]] = []
        position = 0
        rules = rules.strip()
        while position < len(rules):
            match = _RULE.match(rules, position)
            if match is None:
                raise ValueError(f"{rules[position:]!r} is no rule; write RULE:pattern/replacement/ or DEFAULT")
            position = match.end()
            if match[1]:
                self._rules.append((None, "", ""))
            else:
                try:
                    pattern = re.compile(_NAMED_GROUP.sub(_named_group, match[2]))
                except re.error as error:
                    raise ValueError(f"{match[2]!r} is no regular expression: {error}") from None
                try:
                    replacement = _replacement(match[3], pattern)
                except ValueError as error:
                    raise ValueError(f"{match[3]!r} is no replacement for {match[2]!r}: {error}") from None
                self._rules.append((pattern, replacement, match[4]))
            separator = re.compile(r"\s*,\s*|\s*$").match(rules, position)
            if separator is None:
                raise ValueError(f"{rules[position:]!r} is no rule; rules are joined by commas")
            position = separator.end()

    def principal(self, name: str) -> KafkaPrincipal:
        """The principal of a distinguished name. Raises ValueError when no rule fits."""
        for pattern, replacement, case in self._rules:
            if pattern is None:
                return KafkaPrincipal(USER, name)
            if pattern.fullmatch(name):
                found = pattern.sub(replacement, name)  # each match, as Java's replaceAll
                return KafkaPrincipal(USER, found.lower() if case == "L" else found.upper() if case == "U" else found)
        raise ValueError(f"no rule of ssl.principal.mapping.rules fits {name!r}")


def _named_group(found: re.Match[str]) -> str:
    """A named group of Java's as one of `re`; other escapes stay as they are."""
    if found[1]:
        return f"(?P={found[1]})"
    return "(?P<" if found[0] == "(?<" else found[0]


def _replacement(text: str, pattern: re.Pattern[str]) -> str:
    """A replacement of Java's as one of `re`. Raises ValueError."""

    def translated(found: re.Match[str]) -> str:
        literal, name, digits = found.groups()
        if literal:
            return r"\\" if literal == "\\" else literal
        if name in pattern.groupindex:
            return rf"\g<{name}>"
        for length in range(len(digits or ""), 0, -1):  # of $12 the 2 is a text where there are fewer groups
            if int(digits[:length]) <= pattern.groups:
                return rf"\g<{int(digits[:length])}>{digits[length:]}"
        raise ValueError(rf"there is no group {found[0]}; a dollar sign itself is \$")

    return _IN_REPLACEMENT.sub(translated, text)
