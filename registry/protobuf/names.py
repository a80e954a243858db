"""How names of types are found in a `.proto` file, and so how short one may be."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

_PARTS_MAX = 60
"""Names of more parts are written in full."""


class Names:
    """The full names of the packages, messages and enums of some files."""

    def __init__(self, files: Iterable[FileDescriptorProto]) -> None:
        self._known: set[str] = set()
        for one in files:
            parts = one.package.split(".") if one.package else []
            if len(parts) <= _PARTS_MAX:
                self._known |= {".".join(parts[: n + 1]) for n in range(len(parts))}
            self._add(one.package, one.message_type)
            self._known |= {_joined(one.package, each.name) for each in one.enum_type}

    def _add(self, scope: str, messages: Iterable[DescriptorProto]) -> None:
        for one in messages:
            name = _joined(scope, one.name)
            self._known |= {name, *(_joined(name, each.name) for each in one.enum_type)}
            self._add(name, one.nested_type)

    def shortest(self, name: str, scope: str) -> str:
        """The shortest name by which a type is found from a message or a package; with a dot in front if none is."""
        full = name.removeprefix(".")
        parts, around = full.split("."), scope.split(".") if scope else []
        if len(parts) + len(around) > _PARTS_MAX:
            return f".{full}"
        scopes = [".".join(around[:n]) for n in range(len(around), -1, -1)]
        for first in range(len(parts) - 1, -1, -1):
            short = ".".join(parts[first:])
            if self._found(parts[first], short, scopes) == full:
                return short
        return f".{full}"

    def _found(self, head: str, short: str, scopes: Iterable[str]) -> str | None:
        """What a name stands for: the innermost scope that knows its first part decides."""
        for one in scopes:
            if _joined(one, head) in self._known:
                return _joined(one, short)
        return None


def _joined(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
