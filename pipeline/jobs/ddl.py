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
_FIELD = re.compile(r"(?:`((?:[^`]|``)+)`|(\w+)\b)\s*(:?)\s*([A-Za-z_]+)")
_DECIMAL = re.compile(r"\b(?:decimal|dec|numeric)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", re.IGNORECASE)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
_DIGITS_MAX = 38
_PAIRS = {"<": ">", "(": ")"}


def field_names(schema: str) -> list[str]:
    """The names of the fields. Raises `WrongOptionError` for what is no name and type; the rest is left to Spark."""
    names = []
    for text in _split(schema):
        found = _FIELD.match(text)
        if found is None:
            raise not_ddl(f"{text!r} is no name and type")
        if found[4].lower() not in _TYPES:
            raise not_ddl(f"{text!r} has no type that Spark knows")
        _check_decimals(text)
        names.append(found[2] if found[1] is None else found[1].replace("``", "`"))
    doubled = [name for at, name in enumerate(names) if name.lower() in (one.lower() for one in names[:at])]
    if doubled:
        raise WrongOptionError(
            f"the schema has two fields {doubled[0]}, which Spark takes for one: rename one of them."
        )
    return names


def _check_decimals(text: str) -> None:
    for found in _DECIMAL.finditer(_QUOTED.sub("", text)):
        digits, scale = int(found[1]), int(found[2] or 0)
        if digits > _DIGITS_MAX:
            raise not_ddl(f"{found[0]} in {text!r} has more than the {_DIGITS_MAX} digits that Spark can hold")
        if scale > digits:
            raise not_ddl(f"{found[0]} in {text!r} has more digits behind the point than it has at all")


def without_colons(schema: str) -> str:
    """The schema with `name TYPE` for each field written `name: TYPE`, which Spark takes within structs only."""
    fields = []
    for text in _split(schema):
        found = _FIELD.match(text)
        fields.append(text if found is None else f"{text[: found.start(3)].rstrip()} {text[found.end(3) :].lstrip()}")
    return ", ".join(fields)


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
