"""The types of schemas, and what each of them has to be able to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from .avro.compatibility import why_not_readable as why_avro_not_readable
from .avro.schema import parse_avro
from .errors import invalid_schema
from .json_schema.compatibility import why_not_readable as why_json_not_readable
from .json_schema.schema import parse_json_schema
from .protobuf.compatibility import why_not_readable as why_protobuf_not_readable
from .protobuf.schema import parse_protobuf
from .records import AVRO, JSON, PROTOBUF
from .references import Referenced

TEXT_MAX = 1 << 20
"""The longest text of a schema, in characters."""
REFERENCED_MAX = 4 << 20
"""The longest texts of all that a schema refers to together."""
_KEPT = 256
_KEPT_TEXT_MAX = 1 << 15


class Schema(Protocol):
    """A schema that is valid."""

    @property
    def text(self) -> str:
        """The one text of all schemas that are written differently and are the same."""

    def normalized(self) -> str:
        """The text in which also the order of what has none is one."""

    def serialized(self) -> str:
        """The form that clients ask for as `format=serialized`."""


@dataclass(frozen=True, slots=True)
class _Format:
    parse: Callable[[str, Sequence[Referenced]], Schema]
    why_not_readable: Callable[[Any, Any], list[str]]
    """What a reader with the first schema cannot read of the data of the second one."""


_FORMATS = {
    JSON: _Format(parse_json_schema, why_json_not_readable),
    PROTOBUF: _Format(parse_protobuf, why_protobuf_not_readable),
    AVRO: _Format(parse_avro, why_avro_not_readable),
}
TYPES = tuple(_FORMATS)


def parse(schema_type: str, text: str, references: Sequence[Referenced]) -> Schema:
    """The schema of a text. Raises `RegistryError` 42201 for what is none. It may take seconds."""
    if schema_type not in _FORMATS:
        raise invalid_schema(f"the type {schema_type[:40]} is not supported, only {', '.join(TYPES)}")
    if len(text) > TEXT_MAX:
        raise invalid_schema(f"it has {len(text):,} characters, and at most {TEXT_MAX:,} are taken")
    size = sum(len(one.text) for one in references)
    if size > REFERENCED_MAX:
        raise invalid_schema(f"its references have {size:,} characters, and at most {REFERENCED_MAX:,} are taken")
    parse_it = _parse if len(text) + size > _KEPT_TEXT_MAX else _parse_once
    return parse_it(schema_type, text, tuple(references))


def _parse(schema_type: str, text: str, references: tuple[Referenced, ...]) -> Schema:
    parsed = _FORMATS[schema_type].parse(text, references)
    try:
        parsed.text.encode()
    except UnicodeEncodeError:
        raise invalid_schema("it has half of a surrogate pair, which is no character") from None
    return parsed


_parse_once = lru_cache(_KEPT)(_parse)


def why_not_readable(schema_type: str, reader: Schema, writer: Schema) -> list[str]:
    """What a reader cannot read of the writer's data, a sentence for each; none if it can read all. Both have one type.

    Raises `RegistryError` 42201 for schemas that would take too long to compare.
    """
    return _FORMATS[schema_type].why_not_readable(reader, writer)
