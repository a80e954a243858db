"""Contexts: parts of a registry with subjects and ids of their own. `:.context:subject` is a subject's qualified name.

The default context is `.`, and names in it are not qualified. The context `.__GLOBAL` has no subjects: its level and
mode hold for all contexts that have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import parse_qs, urlencode

from .errors import RegistryError

DEFAULT = "."
GLOBAL = ":.__GLOBAL:"
ALL = ":*:"
"""How a prefix begins that means the subjects of all contexts."""
_SETTINGS = ("config", "mode")
_RESERVED = ("__GLOBAL", "__EMPTY")


def split(subject: str) -> tuple[str, str]:
    """The context of a subject, and its name there: `.` and the whole name if it is not qualified."""
    if not subject.startswith(":."):
        return DEFAULT, subject
    context, _, name = subject[1:].partition(":")
    return context, name


def context_of(subject: str | None) -> str:
    """The context of a subject; None stands for the default context."""
    return split(subject or "")[0]


def prefix_of(context: str) -> str:
    """What qualifies the subjects of a context: `:.context:`, and nothing for the default one."""
    return "" if context == DEFAULT else f":{context}:"


def normalized(subject: str) -> str:
    """The one name of a subject: `:.:s` is `s`, and `:.context` is the context `:.context:` itself."""
    context, name = split(subject)
    return prefix_of(context) + name


def qualified(subject: str, parent: str) -> str:
    """The name of a subject that another one refers to: in the context of that one, unless it names its own."""
    return subject if subject.startswith(":.") else prefix_of(context_of(parent)) + subject


def setting_of(subject: str | None) -> str | None:
    """What a level or mode is set for: None stands for the default context, for which people also write `:.:`."""
    return normalized(subject or "") or None


def begins(subject: str, prefix: str) -> bool:
    """Whether a subject is one that this `subjectPrefix` asks for."""
    if prefix.startswith(ALL):
        return split(subject)[1].startswith(prefix.removeprefix(ALL))
    if prefix.startswith(":.") and not prefix.startswith(":.:"):
        return subject.startswith(prefix)
    return context_of(subject) == DEFAULT and subject.startswith(normalized(prefix))


def check_subject(subject: str) -> None:
    """Raise `RegistryError` 42208 for what can have no schemas: a context, a reserved name, control characters."""
    context, name = split(subject)
    is_reserved = name in _RESERVED or prefix_of(context) == GLOBAL
    if not name or is_reserved or any(one < " " or "\x7f" <= one <= "\x9f" for one in subject):
        raise RegistryError(42208, f"The specified subject '{subject}' is not a valid subject.")


# -- paths


def routed(path: Sequence[str], query: str) -> tuple[list[str], str]:
    """The path and the query without the beginning `/contexts/NAME`, which qualifies the subjects in them.

    Names of subjects are normalized. Raises `RegistryError` 400 for a name that no context can have.
    """
    if path[:1] != ["contexts"] or len(path) < 2:
        return _with_subject(path, ""), query
    prefix, rest = prefix_of(_context_named(path[1])), path[2:]
    if rest and rest[0] in _SETTINGS and len(rest) == 1:
        return [rest[0], *([prefix] if prefix else [])], query
    if list(rest[:2]) == ["schemas", "ids"]:
        return list(rest), _with_parameter(query, "subject", prefix)
    if list(rest) in (["schemas"], ["subjects"]):
        return list(rest), _with_parameter(query, "subjectPrefix", prefix)
    return _with_subject(rest, prefix) if rest else ["contexts", path[1]], query


def _context_named(text: str) -> str:
    """The context that a path names, with or without its dot and its colons."""
    name = text.removeprefix(":").removesuffix(":")
    if ":" in name:
        raise RegistryError(400, "Context name cannot contain a colon")
    return name if name.startswith(".") else f".{name}"


def _with_subject(path: Sequence[str], prefix: str) -> list[str]:
    """The path with the qualified name of the subject in it, if there is one."""
    at = 2 if path[:1] == ["compatibility"] else 1
    if len(path) <= at or path[at - 1] not in ("subjects", *_SETTINGS):
        return list(path)
    subject = path[at] if path[at].startswith((":.", ALL)) else prefix + path[at]
    return [*path[:at], normalized(subject), *path[at + 1 :]]


def _with_parameter(query: str, name: str, prefix: str) -> str:
    found = parse_qs(query, keep_blank_values=True)
    value = found.get(name, [""])[-1]
    found[name] = [value if value.startswith((":.", ALL)) else prefix + value]
    return urlencode(found, doseq=True)
