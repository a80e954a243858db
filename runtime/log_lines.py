"""Log lines on stderr: one event, one line. Text for people, or JSON for what collects logs.

Lines of one turn of the event loop go out together, at its end: thousands of partitions that move are thousands of
lines, and a write for each would take as long as what they tell of. A warning, or what is worse, goes out at once.

Text: the time in UTC, level, node, logger, then the message. JSON: the same as an object, and an event's fields under
their own names. A traceback stays in the line of its event: in text its line ends are written as `\\n`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from contextlib import nullcontext
from typing import TextIO

TEXT, JSON = "text", "json"
FORMATS = (TEXT, JSON)
_TAKEN = frozenset({"time", "level", "node", "logger", "message", "exception"})


class _TextFormatter(logging.Formatter):
    converter = staticmethod(time.gmtime)
    default_msec_format = "%s.%03dZ"
    default_time_format = "%Y-%m-%dT%H:%M:%S"

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).replace("\n", "\\n").replace("\r", "\\r")


class _JsonFormatter(_TextFormatter):
    def __init__(self, node_id: int | None) -> None:
        super().__init__()
        self._node_id = node_id

    def format(self, record: logging.LogRecord) -> str:
        row: dict[str, object] = {"time": self.formatTime(record), "level": record.levelname}
        if self._node_id is not None:
            row["node"] = self._node_id
        row |= {"logger": record.name, "message": record.getMessage()}
        fields: dict[str, object] = getattr(record, "fields", {})
        row |= {name: value for name, value in fields.items() if name not in _TAKEN}
        if record.exc_info:
            row["exception"] = self.formatException(record.exc_info)
        return json.dumps(row, separators=(",", ":"), ensure_ascii=False, default=str)


class _LinesHandler(logging.StreamHandler[TextIO]):
    """Writes to a stream, a turn's lines at a time where a loop runs."""

    _LINES_HELD_MAX = 500

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._held: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._held.append(self.format(record) + self.terminator)
            if record.levelno >= logging.WARNING or len(self._held) >= self._LINES_HELD_MAX:
                self.flush()
            elif len(self._held) == 1:
                asyncio.get_running_loop().call_soon(self.flush)
        except RuntimeError:  # no loop runs here
            self.flush()
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        with self.lock or nullcontext():
            held, self._held = self._held, []
            if held:
                self.stream.write("".join(held))
                super().flush()


def flush_logs() -> None:
    """Write out what is held back: before the process ends, or says something by itself."""
    for handler in logging.getLogger().handlers:
        handler.flush()


def configure_logging(level: str = "INFO", *, node_id: int | None = None, line_format: str = TEXT) -> None:
    """Send the process's log to stderr as `TEXT` or `JSON` lines.

    `level` is a name of the standard library's levels; ValueError otherwise.
    """
    node = "" if node_id is None else f" node={node_id}"
    handler = _LinesHandler(sys.stderr)
    text = _TextFormatter(f"%(asctime)s %(levelname)-5s{node} %(name)s: %(message)s")
    handler.setFormatter(_JsonFormatter(node_id) if line_format == JSON else text)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def log_event(logger: logging.Logger, event: str, *, level: int = logging.INFO, **fields: object) -> None:
    """Log an event by its name with its fields: `partition-change topic=flights partition=0 ...` in text."""
    if logger.isEnabledFor(level):
        text = "".join(f" {name}={_show(value)}" for name, value in fields.items())
        logger.log(level, "%s%s", event, text, extra={"fields": {"event": event, **fields}})


def _show(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{','.join(map(str, value))}]"
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if isinstance(value, str) and (not text or " " in text) else text
