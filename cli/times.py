"""Times as people write them on a command line."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

import click

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def milliseconds(text: str, option: str) -> int:
    """Milliseconds since 1970 of `10m` (ago), `2026-01-31T12:00` (UTC) or a number of milliseconds.

    Exit code 2 for anything else.
    """
    if text.isdigit():
        return int(text)
    ago = re.fullmatch(r"(\d+)([smhd])", text)
    if ago:
        return int((time.time() - int(ago[1]) * _UNITS_S[ago[2]]) * 1000)
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        example = "is no time like 10m (ago), 2026-01-31T12:00 (UTC) or 1769860800000"
        raise click.BadParameter(f"{text!r} {example}", param_hint=option) from None
    return int((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1000)
