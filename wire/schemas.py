"""The schemas of Kafka's messages, read from kio's sources as data: one file per API, version and direction in use.

kio declares each message as a dataclass in a file of its own. The files are parsed, not imported: making the classes
takes five times as long (a node uses some fifty of them, the first time often in the middle of a failover), and kio's
base modules bring 20 ms and, where hypothesis is installed, another 150 ms and 11 MB. The tests hold every schema
against kio's own reader and writer.
"""

from __future__ import annotations

import ast
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from .api_keys import ApiKey

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


def _strip_null(annotation: ast.expr) -> tuple[ast.expr, bool]:
    """`X | None` as `X` and True."""
    if isinstance(annotation, ast.BinOp):
        return annotation.left, True
    return annotation, False


def _strip_tuple(annotation: ast.expr) -> tuple[ast.expr, bool]:
    """`tuple[X, ...]` as `X` and True."""
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple):
        return _strip_null(annotation.slice.elts[0])[0], True
    return annotation, False


def _literal(expression: ast.expr) -> Any:
    """The plain value in a default such as `-1`, `i32(-1)` or `i32Timedelta.parse(timedelta(milliseconds=5))`."""
    while isinstance(expression, ast.Call):
        expression = (expression.args or [keyword.value for keyword in expression.keywords])[0]
    return ast.literal_eval(expression)


def _default_factory(default: ast.expr | None, kind: str, array: bool, schema: Schema | None) -> Callable[[], Any]:
    if isinstance(default, ast.Constant) and default.value is None:
        null = -1 if kind == "datetime_i64" else None
        return lambda: null
    if array:
        return list
    if schema is not None:
        return lambda: {inner.name: inner.default() for inner in (*schema.fields, *schema.tagged)}
    value = _ZEROES.get(kind, 0) if default is None else _literal(default)
    return lambda: value


def _declaration(value: ast.expr | None) -> tuple[dict[str, Any], ast.expr | None]:
    """The metadata and the default of a field's right-hand side, `field(metadata=..., default=...)` or a default."""
    if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "field"):
        return {}, value
    arguments = {keyword.arg: keyword.value for keyword in value.keywords}
    metadata = ast.literal_eval(arguments["metadata"]) if "metadata" in arguments else {}
    return metadata, arguments.get("default")


def _read_field(name: str, statement: ast.AnnAssign, structs: Mapping[str, Schema]) -> Field:
    metadata, default = _declaration(statement.value)
    annotation, nullable = _strip_null(statement.annotation)
    annotation, array = _strip_tuple(annotation)
    schema = structs.get(annotation.id) if isinstance(annotation, ast.Name) else None
    kind = "struct" if schema is not None else metadata["kafka_type"]
    return Field(
        name=name,
        kind=kind,
        shape=ARRAY if array else SCALAR,
        nullable=nullable,
        tag=metadata.get("tag"),
        schema=schema,
        default=_default_factory(default, kind, array, schema),
    )


def _read_class(node: ast.ClassDef, structs: Mapping[str, Schema]) -> Schema:
    fields = []
    flexible = False
    for statement in node.body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        name = statement.target.id
        if name == "__flexible__" and statement.value is not None:
            flexible = ast.literal_eval(statement.value)
        elif not name.startswith("__"):
            # kio writes `type_` where Python has a `type` of its own; nothing is shadowed here.
            fields.append(_read_field(name.rstrip("_"), statement, structs))
    return Schema(
        name=node.name,
        flexible=flexible,
        fields=[field for field in fields if field.tag is None],
        tagged=[field for field in fields if field.tag is not None],
    )


@cache
def _load(name: str, version: int, kind: str) -> Schema:
    """The last class of the file, which is the message; those before it are its structs."""
    try:
        source = pkgutil.get_data("kio", f"schema/{name}/v{version}/{kind}.py")
    except OSError as error:
        raise ValueError(f"there is no {name} {kind} of version {version}") from error
    structs: dict[str, Schema] = {}
    schema = None
    for node in ast.parse(source or b"").body:
        if isinstance(node, ast.ClassDef):
            schema = structs[node.name] = _read_class(node, structs)
    if schema is None:
        raise ValueError(f"{name} {kind} of version {version} holds no message")
    return schema


def load_api_schema(api_key: ApiKey, version: int, kind: str) -> Schema:
    """The schema of a request or response (`kind`); `ValueError` where there is none."""
    return _load(api_key.name.lower(), version, kind)


def load_data_schema(name: str, version: int) -> Schema:
    """The schema of a message that is no request or response; `ValueError` where there is none."""
    return _load(name, version, "data")
