"""The schema that Kafka Connect's JsonConverter writes beside a value: Spark's types for it, and their values.

Names of types with a meaning, such as `io.debezium.time.Date`, are those of Debezium's documentation of its connectors.
Converted values are JSON that Spark's `from_json` reads as the type.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from ..lakehouse.partition_fields import quoted

Convert = Callable[[Any], Any]

DECIMAL_TEXT, DATE_TEXT, TIMESTAMP_TEXT = "raftwerk.Decimal", "raftwerk.Date", "raftwerk.Timestamp"
"""Names of types whose values are texts already."""
_DECIMAL_PRECISION_MAX = 38
"""Digits of a decimal in Spark, Iceberg and Delta."""
_PRIMITIVE_TYPES: Mapping[str, str] = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "binary",
}
_DAY_MICROS = 86_400_000_000


class UnknownSchemaError(Exception):
    """A schema that names no type of Connect's."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The type in Spark's words, and how a value becomes JSON for it; None where it is that already."""

    spark: str
    convert: Convert | None = None

    def value(self, value: Any) -> Any:
        """The converted value; null stays null."""
        return value if value is None or self.convert is None else self.convert(value)


class ConnectSchema:
    """The schema of a key or a value. What follows from it is found once, as all records of a table share it.

    Its properties raise `UnknownSchemaError`.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema

    @cached_property
    def columns(self) -> RowColumns:
        """The columns of the struct."""
        return RowColumns(columns_of_struct(self._schema))

    @cached_property
    def row_after(self) -> RowColumns:
        """The columns of the row `after` the change, in the schema of a value."""
        for field in self._schema.get("fields") or ():
            if field.get("field") == "after":
                return RowColumns(columns_of_struct(field))
        raise UnknownSchemaError("it describes no row `after` the change")


class RowColumns:
    """The columns of a row by their names."""

    def __init__(self, types: Mapping[str, ColumnType]) -> None:
        self._types = types
        self.as_json = json.dumps([(name, kind.spark) for name, kind in types.items()])
        """The names and types in Spark's words, as a list in JSON."""

    def converted(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The row in JSON for Spark, without what is no column. Raises `ValueError` for a value of another type."""
        try:
            return {name: self._types[name].value(value) for name, value in row.items() if name in self._types}
        except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
            raise ValueError(str(error)) from None


def columns_of_struct(schema: Mapping[str, Any]) -> dict[str, ColumnType]:
    """The types of a struct's fields by their names. Raises `UnknownSchemaError`."""
    if schema.get("type") != "struct":
        raise UnknownSchemaError(f"{schema.get('type')!r} where a struct belongs")
    try:
        return {field["field"]: column_type(field) for field in schema.get("fields") or ()}
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise UnknownSchemaError(str(error)) from None


def column_type(schema: Mapping[str, Any]) -> ColumnType:
    """The type for a field's schema. Raises `UnknownSchemaError`."""
    name = schema.get("name")
    if name is not None:
        named = _NAMED_TYPES.get(name)
        if named is not None:
            return named(schema)
    kind = str(schema.get("type"))
    if kind == "array":
        return _array(column_type(schema["items"]))
    if kind == "map":
        return _map(column_type(schema["keys"]), column_type(schema["values"]))
    if kind == "struct":
        return _struct(columns_of_struct(schema))
    if kind not in _PRIMITIVE_TYPES:
        raise UnknownSchemaError(f"the type {kind!r}")
    return ColumnType(_PRIMITIVE_TYPES[kind])


def _array(items: ColumnType) -> ColumnType:
    convert = None if items.convert is None else lambda values: [items.value(value) for value in values]
    return ColumnType(f"array<{items.spark}>", convert)


def _map(keys: ColumnType, values: ColumnType) -> ColumnType:
    def convert(value: Any) -> Any:
        # JsonConverter writes an object where keys are strings, and a list of pairs otherwise.
        pairs = value.items() if isinstance(value, dict) else value
        return {str(key): values.value(one) for key, one in pairs}

    return ColumnType(f"map<string,{values.spark}>", None if keys.spark == "string" and not values.convert else convert)


def _struct(fields: Mapping[str, ColumnType]) -> ColumnType:
    spark = ",".join(f"{quoted(name)}:{kind.spark}" for name, kind in fields.items())

    def convert(value: Any) -> Any:
        return {name: kind.value(value.get(name)) for name, kind in fields.items()}

    return ColumnType(f"struct<{spark}>", convert if any(kind.convert for kind in fields.values()) else None)


def _decimal(schema: Mapping[str, Any]) -> ColumnType:
    scale, kind = _scale_and_type(schema)
    return ColumnType(kind, lambda value: _unscaled(value, scale))


def _decimal_text(schema: Mapping[str, Any]) -> ColumnType:
    return ColumnType(_scale_and_type(schema)[1])


def _scale_and_type(schema: Mapping[str, Any]) -> tuple[int, str]:
    parameters = schema.get("parameters") or {}
    scale = int(parameters.get("scale", 0))
    precision = int(parameters.get("connect.decimal.precision", _DECIMAL_PRECISION_MAX))
    fits = 0 <= scale <= precision <= _DECIMAL_PRECISION_MAX
    return scale, f"decimal({precision},{scale})" if fits else "string"


def _variable_decimal(_schema: Mapping[str, Any]) -> ColumnType:
    return ColumnType("string", lambda value: _unscaled(value["value"], int(value["scale"])))


def _unscaled(value: str, scale: int) -> str:
    """The decimal whose unscaled value is in the bytes, the highest first, in two's complement."""
    number = int.from_bytes(base64.b64decode(value), "big", signed=True)
    digits = tuple(map(int, str(abs(number))))
    return f"{Decimal((int(number < 0), digits, -scale)):f}"


def _timestamp(micros: Callable[[int], int]) -> Callable[[Mapping[str, Any]], ColumnType]:
    kind = ColumnType("timestamp", lambda value: iso_timestamp(micros(value)))
    return lambda _schema: kind


def _time(micros: Callable[[int], int]) -> Callable[[Mapping[str, Any]], ColumnType]:
    kind = ColumnType("string", lambda value: _clock(micros(value)))
    return lambda _schema: kind


def iso_timestamp(micros: int) -> str:
    """A time in microseconds since 1970 as text, also beyond the years that Python's datetime knows."""
    days, rest = divmod(micros, _DAY_MICROS)
    return f"{iso_date(days)}T{_clock(rest)}Z"


def iso_date(days: int) -> str:
    """A day since 1970-01-01 as text, by the Gregorian calendar in both directions."""
    # Eras of 400 years begin on March 1, so that the day of a leap year is the last of its year.
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    year = era * 400 + year_of_era + (month <= 2)
    sign = "-" if year < 0 else "+" if year > 9_999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def _clock(micros: int) -> str:
    seconds, micros = divmod(micros, 1_000_000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{micros:06d}"


def _date(_schema: Mapping[str, Any]) -> ColumnType:
    return ColumnType("date", iso_date)


def _zoned_timestamp(_schema: Mapping[str, Any]) -> ColumnType:
    return ColumnType("timestamp")


_from_millis = _timestamp(lambda value: value * 1_000)
_NAMED_TYPES: Mapping[str, Callable[[Mapping[str, Any]], ColumnType]] = {
    "io.debezium.time.Date": _date,
    "org.apache.kafka.connect.data.Date": _date,
    "io.debezium.time.Timestamp": _from_millis,
    "org.apache.kafka.connect.data.Timestamp": _from_millis,
    "io.debezium.time.MicroTimestamp": _timestamp(lambda value: value),
    "io.debezium.time.NanoTimestamp": _timestamp(lambda value: value // 1_000),
    "io.debezium.time.ZonedTimestamp": _zoned_timestamp,
    "io.debezium.time.Time": _time(lambda value: value * 1_000),
    "org.apache.kafka.connect.data.Time": _time(lambda value: value * 1_000),
    "io.debezium.time.MicroTime": _time(lambda value: value),
    "io.debezium.time.NanoTime": _time(lambda value: value // 1_000),
    "org.apache.kafka.connect.data.Decimal": _decimal,
    "io.debezium.data.VariableScaleDecimal": _variable_decimal,
    DECIMAL_TEXT: _decimal_text,
    DATE_TEXT: lambda _schema: ColumnType("date"),
    TIMESTAMP_TEXT: lambda _schema: ColumnType("timestamp"),
}
