"""Spark's DDL for schemas, as far as it can be read without Spark, so that a wrong one is told before Spark starts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..errors import WrongOptionError

# Those of later versions of Spark, too: the Spark that runs refuses a type that it does not know.
_TYPES = {
    *("array", "bigint", "binary", "boolean", "byte", "char", "character", "date", "dec", "decimal", "double"),
    *("float", "geography", "geometry", "int", "integer", "interval", "long", "map", "numeric", "real", "short"),
    *("smallint", "string", "struct", "time", "timestamp", "timestamp_ltz", "timestamp_ntz", "tinyint", "varchar"),
    *("variant", "void"),
}
_FIELD = re.compile(r"(?:`((?:[^`]|``)+)`|(\w+)\b)\s*:?\s*([A-Za-z_]+)")
_PAIRS = {"<": ">", "(": ")"}


def field_names(schema: str) -> list[str]:
    """The names of the fields. Raises `WrongOptionError` for what is no name and type; the rest is left to Spark."""
    names = []
    for text in _split(schema):
        found = _FIELD.match(text)
        if found is None:
            raise not_ddl(f"{text!r} is no name and type")
        if found[3].lower() not in _TYPES:
            raise not_ddl(f"{text!r} has no type that Spark knows")
        names.append(found[2] if found[1] is None else found[1].replace("``", "`"))
    doubled = [name for at, name in enumerate(names) if name.lower() in (one.lower() for one in names[:at])]
    if doubled:
        raise WrongOptionError(
            f"the schema has two fields {doubled[0]}, which Spark takes for one: rename one of them."
        )
    return names


def not_ddl(reason: str) -> WrongOptionError:
    """The error for a schema that cannot be read."""
    return WrongOptionError(
        f"the schema is not in Spark's DDL ({reason}): write it like 'carrier STRING, dep_delay DOUBLE'."
    )


def _split(schema: str) -> Iterator[str]:
    """The parts between the commas that are in no brackets and no quotes."""
    part, closing, quote = "", [], ""
    for char in schema:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"`":
            quote = char
        elif char in _PAIRS:
            closing.append(_PAIRS[char])
        elif closing and char == closing[-1]:
            closing.pop()
        elif char == "," and not closing:
            yield part.strip()
            part = ""
            continue
        part += char
    if quote or closing:
        raise not_ddl(f"{part.strip()!r} does not close with {quote or closing[-1]}")
    yield part.strip()
