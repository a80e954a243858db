"""Bootstrap addresses as people write them: host:port,host:port."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..client_errors import WrongArgumentError

_DEFAULT_PORT = 9092


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """The pairs of `host:port,host`; a port that is missing is 9092. Raises `WrongArgumentError` for the rest.

    As with Kafka's clients a comma at the end is allowed.
    """
    return [_parse_address(entry.strip()) for entry in text.rstrip(", ").split(",")]


def bootstrap_text(pairs: Iterable[tuple[str, int]]) -> str:
    """The text that `parse_bootstrap` understands."""
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in pairs)


def _parse_address(entry: str) -> tuple[str, int]:
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\s/\[\]:]+))(?::([0-9]{1,5}))?", entry)
    if match is None or not 0 < int(match[3] or _DEFAULT_PORT) < 65536:
        raise WrongArgumentError(f"{entry!r} is not host:port, for example localhost:9092 or [::1]:9092")
    return match[1] or match[2], int(match[3] or _DEFAULT_PORT)
