"""Where a change stands in the log of its database, as a text that sorts as the log does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NUMBER_AT_END = re.compile(r"\d+$")


def source_position(source: Mapping[str, Any]) -> str:
    """The position of a change by the `source` of its event, empty where it names none.

    PostgreSQL has the number of a byte in the log, MySQL and MariaDB a file, a byte and a row, SQL Server and Db2 the
    places of the commit and of the change, Oracle a number of its own; other connectors have a time only.
    """
    if source.get("lsn") is not None:
        return _padded(source["lsn"])
    if source.get("file") is not None:
        number = _NUMBER_AT_END.search(source["file"])
        place = (0 if number is None else int(number[0]), source.get("pos") or 0, source.get("row") or 0)
        return "-".join(map(_padded, place))
    commit, change = source.get("commit_lsn"), source.get("change_lsn")
    if commit is not None or change is not None:
        # Both are of a fixed length. A row of a snapshot has no place of a change, so it stands before all of them.
        return f"{commit or ''}-{change or ''}-{_padded(source.get('event_serial_no') or 0)}"
    for name in ("scn", "ts_us", "ts_ms"):
        if source.get(name) is not None:
            return _padded(source[name])
    return ""


def _padded(number: Any) -> str:
    return f"{int(number):020d}"
