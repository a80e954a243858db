"""What several tests need around the confluent client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, Message


def headers_of(message: Message) -> list[tuple[str, Any]]:
    """Names and values, which are bytes or None."""
    headers: Any = message.headers()
    return list(headers or ())


def collect_errors(errors: list[str]) -> Callable[[KafkaError | None, Message], None]:
    """A callback for `on_delivery` that appends the text of each error to `errors`."""

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error:
            errors.append(str(error))

    return on_delivery
