"""Whether data that was written with one Avro schema can be read with another: schema resolution (Avro 1.12).

As Avro's Java library does it, named types match by their names without namespace, or by an alias of the reader's.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import invalid_schema
from .schema import AvroField, AvroSchema, AvroType

_PROMOTED_FROM = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}
_SHOWN = 10
_PAIRS_MAX = 200_000
"""How many pairs of types are compared at most: unions of records of one short name could double them at each level."""


def why_not_readable(reader: AvroSchema, writer: AvroSchema) -> list[str]:
    """What a reader cannot read of the writer's data, a sentence for each, at most ten; none if it can read all.

    Raises `RegistryError` 42201 for schemas that would take too long to compare.
    """
    check = _Check([_PAIRS_MAX])
    check.read(reader.root, writer.root, "/")
    return check.problems[:_SHOWN]


class _Check:
    def __init__(self, left: list[int]) -> None:
        """`left` is how many pairs may be compared yet, one number for all checks of a comparison."""
        self._left = left
        self.problems: list[str] = []
        self._seen: set[tuple[int, int]] = set()
        """Pairs that were begun: within itself, a recursive type is as good as the rest of it."""

    def read(self, reader: AvroType, writer: AvroType, path: str) -> None:
        """Note what is wrong with this pair."""
        self._left[0] -= 1
        if self._left[0] < 0:
            raise invalid_schema("its unions are too complex to compare it with another version")
        if reader.kind == "record" or writer.kind == "record":
            if (id(reader), id(writer)) in self._seen:
                return
            self._seen.add((id(reader), id(writer)))
        if writer.kind == "union":
            for number, branch in enumerate(writer.items):
                self.read(reader, branch, f"{path}{number}/" if len(writer.items) > 1 else path)
        elif reader.kind == "union":
            if not any(self._can_read(branch, writer) for branch in reader.items):
                self._note(f"MISSING_UNION_BRANCH: the reader's union has no branch for {_named(writer)}", path)
        elif reader.kind != writer.kind:
            if writer.kind not in _PROMOTED_FROM.get(reader.kind, ()):
                self._note(f"TYPE_MISMATCH: the reader has {_named(reader)}, the writer {_named(writer)}", path)
        else:
            self._same_kind(reader, writer, path)

    def _same_kind(self, reader: AvroType, writer: AvroType, path: str) -> None:
        if reader.kind in ("array", "map"):
            self.read(reader.items[0], writer.items[0], f"{path}{'items' if reader.kind == 'array' else 'values'}/")
            return
        if not reader.name:
            return
        if _short(reader.name) != _short(writer.name) and writer.name not in reader.aliases:
            self._note(f"NAME_MISMATCH: the reader expects {reader.name}, the writer has {writer.name}", path)
        elif reader.kind == "fixed":
            if reader.size != writer.size:
                self._note(f"FIXED_SIZE_MISMATCH: {reader.name} has {reader.size} bytes, was {writer.size}", path)
        elif reader.kind == "enum":
            known = set(reader.symbols)
            missing = [one for one in writer.symbols if one not in known]
            if missing and not reader.has_default:
                self._note(f"MISSING_ENUM_SYMBOLS: {reader.name} has no {', '.join(missing)}, and no default", path)
        else:
            there = {one.name: one for one in writer.fields}
            for wanted in reader.fields:
                self._field(wanted, there, f"{path}fields/{wanted.name}/")

    def _field(self, wanted: AvroField, there: Mapping[str, AvroField], path: str) -> None:
        found = next((there[name] for name in (wanted.name, *wanted.aliases) if name in there), None)
        if found is not None:
            self.read(wanted.type, found.type, path)
        elif not wanted.has_default:
            self._note(
                f"READER_FIELD_MISSING_DEFAULT_VALUE: the writer has no field '{wanted.name}', for which the reader "
                "has no default",
                path,
            )

    def _can_read(self, reader: AvroType, writer: AvroType) -> bool:
        apart = _Check(self._left)
        apart._seen = set(self._seen)
        apart.read(reader, writer, "/")
        return not apart.problems

    def _note(self, sentence: str, path: str) -> None:
        self.problems.append(f"{sentence} (at {path.rstrip('/') or '/'})")


def _named(one: AvroType) -> str:
    return f"{one.kind} {one.name}" if one.name else one.kind


def _short(name: str) -> str:
    return name.rpartition(".")[2]
