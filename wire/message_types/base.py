"""What all decoded messages and structs have in common."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

Default = TypeVar("Default")
"""The type of what `get` returns where the version lacks a field that cannot be null."""


class Message(Protocol):
    """A decoded message, or a struct in it."""

    def to_dict(self) -> dict[str, Any]:
        """Plain nested dicts and lists."""

    def __contains__(self, name: str) -> bool:
        """Whether the message's version has the field."""
