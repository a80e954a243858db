"""Which names a topic may have. Source: `Topic.validate` of Apache Kafka."""

from __future__ import annotations

import re

from ...wire.errors import ErrorCode, ProtocolError

TOPIC_NAME_LENGTH_MAX = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def is_legal_topic_name(name: str) -> bool:
    """Whether the name is 1 to 249 of [a-zA-Z0-9._-], and neither "." nor ".."."""
    return _complaint(name) is None


def validate_topic_name(name: str) -> None:
    """Raise `ProtocolError(INVALID_TOPIC_EXCEPTION)` unless the name is legal."""
    complaint = _complaint(name)
    if complaint is not None:
        raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {complaint}")


def _complaint(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"the length of '{name}' is longer than the max allowed length {TOPIC_NAME_LENGTH_MAX}"
    if _LEGAL_NAME.fullmatch(name) is None:
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None
