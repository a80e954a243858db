"""The fields of a request's JSON object, checked; a wrong one is refused with a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import RequestRefusedError

Fields = Mapping[str, Any]
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


def text(fields: Fields, name: str, default: str | None = None) -> str:
    """A text that is not empty."""
    value = fields.get(name, default)
    if not isinstance(value, str) or not value:
        raise RequestRefusedError(400, f"{name} is missing, or is not a text")
    return value


def number(fields: Fields, name: str, default: int | None = None, *, at_most: int = INT32_MAX) -> int:
    """A whole number from -1 on."""
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value <= at_most:
        raise RequestRefusedError(400, f"{name} is missing, or is not a whole number")
    return value


def one_of(fields: Fields, name: str, choices: Mapping[str, int]) -> int:
    """The number that stands for a word."""
    value = fields.get(name)
    if not isinstance(value, str) or value not in choices:
        raise RequestRefusedError(400, f"{name} is one of {', '.join(choices)}")
    return choices[value]


def rows(fields: Fields, name: str) -> list[Fields]:
    """A list of objects that is not empty."""
    value = fields.get(name)
    if not isinstance(value, list) or not value or not all(isinstance(one, dict) for one in value):
        raise RequestRefusedError(400, f"{name} is missing, or is not a list of objects")
    return value


def texts(fields: Fields, name: str) -> list[str]:
    """A list of texts that is not empty."""
    value = fields.get(name)
    if not isinstance(value, list) or not value or not all(isinstance(one, str) and one for one in value):
        raise RequestRefusedError(400, f"{name} is missing, or is not a list of texts")
    return value


def is_to_execute(fields: Fields) -> bool:
    """Whether the change is to be made; otherwise it is only shown."""
    return fields.get("execute") is True
