"""Where a change stands in the log of its database, as a text that sorts as the log does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NUMBER_AT_END = re.compile(r"\d+$")


def source_position(source: Mapping[str, Any]) -> str:
    """The position of a change by the `source` of its event, empty where it names none.

    PostgreSQL has the number of a byte in the log, MySQL and MariaDB a file, a byte and a row, SQL Server and Oracle
    numbers of their own; other connectors have a time only.
    """
    if source.get("lsn") is not None:
        return _padded(source["lsn"])
    if source.get("file") is not None:
        number = _NUMBER_AT_END.search(source["file"])
        place = (0 if number is None else int(number[0]), source.get("pos") or 0, source.get("row") or 0)
        return "-".join(map(_padded, place))
    if source.get("change_lsn") is not None:
        return str(source["change_lsn"])  # of a fixed length
    for name in ("scn", "ts_us", "ts_ms"):
        if source.get(name) is not None:
            return _padded(source[name])
    return ""


def _padded(number: Any) -> str:
    return f"{int(number):020d}"
