"""The names of subjects: those of the topic, of the type that a schema describes, or of both."""

from __future__ import annotations

from ..errors import BAD_REQUEST, RestError

TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME = STRATEGIES = ("TOPIC_NAME", "RECORD_NAME", "TOPIC_RECORD_NAME")


def subject_name(strategy: str, topic: str, record_name: str | None, *, is_key: bool) -> str:
    """The subject of a key or a value. Raises `RestError` where the strategy needs a name and there is none."""
    if strategy == TOPIC_NAME:
        return f"{topic}-{'key' if is_key else 'value'}"
    if record_name is None:
        text = f"Cannot use subject_name_strategy={strategy} without schema_id or schema of a type that has a name"
        raise RestError(BAD_REQUEST, text)
    return record_name if strategy == RECORD_NAME else f"{topic}-{record_name}"
