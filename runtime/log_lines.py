"""Log lines on stderr: one a record, time in UTC, level, logger, text."""

from __future__ import annotations

import logging
import sys
import time


class _LineFormatter(logging.Formatter):
    converter = staticmethod(time.gmtime)
    default_msec_format = "%s.%03dZ"
    default_time_format = "%Y-%m-%dT%H:%M:%S"


def configure_logging(level: str = "INFO", *, node_id: int | None = None) -> None:
    """Send the process's log to stderr. `level` is a name of the standard library's levels; ValueError otherwise."""
    node = "" if node_id is None else f" node={node_id}"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LineFormatter(f"%(asctime)s %(levelname)-5s{node} %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
