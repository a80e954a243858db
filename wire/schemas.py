"""The schemas of Kafka's messages, read from kio's dataclasses lazily: one module per API and version in use."""

from __future__ import annotations

import dataclasses
import importlib
import sys
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from typing import Any, Final

from .apis import ApiKey

SCALAR: Final = "scalar"
ARRAY: Final = "array"

_FORMATS: dict[str, str] = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
_SIZES = {"?": 1, "b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "Q": 8, "d": 8}
_ZEROES: dict[str, Any] = {"string": "", "bytes": b"", "records": None, "uuid": None, "bool": False, "float64": 0.0}


@dataclass(frozen=True, slots=True)
class Field:
    """One field: `kind` is kio's type name or `struct`; `fmt` its `struct` letter where its size is fixed."""

    name: str
    kind: str
    shape: str
    nullable: bool
    tag: int | None
    schema: Schema | None
    default: Callable[[], Any]

    @property
    def fmt(self) -> str | None:
        return _FORMATS.get(self.kind)

    @property
    def item_min_size(self) -> int:
        """The fewest bytes that one value, or one item of an array, takes; always positive."""
        if self.schema is not None:
            return self.schema.min_size
        if self.fmt is not None:
            return _SIZES[self.fmt]
        return 16 if self.kind == "uuid" else 1


@dataclass(frozen=True, slots=True)
class Schema:
    """The fields of a message or of a struct in one: in wire order, and the tagged ones apart."""

    name: str
    flexible: bool
    fields: list[Field]
    tagged: list[Field]

    @property
    def min_size(self) -> int:
        """The fewest bytes that it takes on the wire, at least 1."""
        size = 1 if self.flexible else 0
        for field in self.fields:
            null_is_short = field.nullable and field.schema is not None
            size += 1 if field.shape == ARRAY or null_is_short else field.item_min_size
        return max(1, size)


def _keep_kio_small() -> None:
    """kio registers its types with hypothesis wherever that is installed, at 150 ms and 11 MB: import it without."""
    if "hypothesis" in sys.modules or "kio.static._phantom" in sys.modules:
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("kio.static._phantom")
    finally:
        del sys.modules["hypothesis"]


def _strip_null(annotation: Any) -> tuple[Any, bool]:
    if isinstance(annotation, types.UnionType):
        (inner,) = (arg for arg in typing.get_args(annotation) if arg is not types.NoneType)
        return inner, True
    return annotation, False


def _plain_default(value: Any) -> Any:
    """kio's default in our terms: ints for times and error codes, dicts for structs, None for the zero id."""
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, Enum):
        return value.value
    return value


def _default_factory(field: dataclasses.Field[Any], kind: str, array: bool, schema: Schema | None) -> Callable[[], Any]:
    if field.default is None:
        value = -1 if kind == "datetime_i64" else None
        return lambda: value
    if array:
        return list
    if schema is not None:
        return lambda: {inner.name: inner.default() for inner in (*schema.fields, *schema.tagged)}
    if field.default is dataclasses.MISSING:
        zero = _ZEROES.get(kind, 0)
        return lambda: zero
    plain = _plain_default(field.default)
    return lambda: plain


def _read_field(field: dataclasses.Field[Any]) -> Field:
    annotation, nullable = _strip_null(field.type)
    array = typing.get_origin(annotation) is tuple
    if array:
        annotation, _ = _strip_null(typing.get_args(annotation)[0])
    schema = _read_schema(annotation) if hasattr(annotation, "__dataclass_fields__") else None
    kind = "struct" if schema is not None else field.metadata["kafka_type"]
    return Field(
        name=field.name,
        kind=kind,
        shape=ARRAY if array else SCALAR,
        nullable=nullable,
        tag=field.metadata.get("tag"),
        schema=schema,
        default=_default_factory(field, kind, array, schema),
    )


@cache
def _read_schema(entity: type[Any]) -> Schema:
    fields = [_read_field(field) for field in dataclasses.fields(entity)]
    return Schema(
        name=entity.__name__,
        flexible=bool(entity.__flexible__),
        fields=[field for field in fields if field.tag is None],
        tagged=[field for field in fields if field.tag is not None],
    )


def _load(name: str, version: int, kind: str) -> Schema:
    _keep_kio_small()
    try:
        module = importlib.import_module(f"kio.schema.{name}.v{version}.{kind}")
    except ModuleNotFoundError as error:
        raise ValueError(f"there is no {name} {kind} of version {version}") from error
    for candidate in vars(module).values():
        if candidate.__class__ is type and getattr(getattr(candidate, "__type__", None), "name", "") == kind:
            return _read_schema(candidate)
    raise ValueError(f"{module.__name__} holds no {kind}")


def load_api_schema(api_key: ApiKey, version: int, kind: str) -> Schema:
    """The schema of a request or response (`kind`); `ValueError` where there is none."""
    return _load(api_key.name.lower(), version, kind)


def load_data_schema(name: str, version: int) -> Schema:
    """The schema of a message that is no request or response; `ValueError` where there is none."""
    return _load(name, version, "data")
