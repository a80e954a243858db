"""Checks the body of a request against the schema that the OpenAPI document shows for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import RestError
from .schemas import SCHEMAS

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_NOUNS = {
    "object": "an object",
    "array": "a list",
    "string": "a text",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
}


def validated(value: Any, schema_name: str, code: int) -> Any:
    """The value, if it fits. Raises `RestError` with this code, which names the first field that does not."""
    _check(value, SCHEMAS[schema_name], "the body", code)
    return value


def _check(value: Any, schema: Mapping[str, Any], where: str, code: int) -> None:
    if "$ref" in schema:
        schema = SCHEMAS[schema["$ref"].rpartition("/")[2]]
    if value is None and schema.get("nullable"):
        return
    wanted = schema.get("type")
    if wanted is None:
        return
    if not isinstance(value, _TYPES[wanted]) or (isinstance(value, bool) and wanted != "boolean"):
        raise RestError(code, f"{where} must be {_NOUNS[wanted]}")
    if isinstance(value, dict):
        _check_object(value, schema, where, code)
    elif isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            raise RestError(code, f"{where} has {len(value)} items, which are too few or too many")
        for number, item in enumerate(value):
            _check(item, schema.get("items", {}), f"{where}[{number}]", code)
    elif "enum" in schema and value not in schema["enum"]:
        raise RestError(code, f"{where} must be one of {', '.join(map(str, schema['enum']))}")
    elif wanted in ("integer", "number"):
        if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
            raise RestError(code, f"{where} is {str(value)[:40]}, which is too small or too large")
    elif isinstance(value, str) and len(value) < schema.get("minLength", 0):
        raise RestError(code, f"{where} may not be empty")


def _check_object(value: Mapping[str, Any], schema: Mapping[str, Any], where: str, code: int) -> None:
    fields, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            raise RestError(code, f"{where} has no {name}")
    for name, item in value.items():
        if name in fields:
            _check(item, fields[name], name if where == "the body" else f"{where}.{name}", code)
        elif others is False:
            raise RestError(code, f"Unrecognized field: {name[:80]}")
        elif isinstance(others, dict):
            _check(item, others, f"{where}.{name[:80]}", code)
