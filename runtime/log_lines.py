"""Log lines on stderr: one line for each event, as text for people or as JSON for log collectors.

The lines of one loop iteration are written together, at its end: when thousands of partitions change, a write for each
line would take as long as the changes. Warnings and errors are written at once. A line that cannot be written, as on a
full disk, is lost, and what the node does goes on.

A text line has the time in UTC, the level, the node, the logger and the message. A JSON line is an object with the same
and with the event's fields. A traceback stays in the line of its event: in text its line ends are written as `\\n`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import time
from contextlib import nullcontext, suppress
from typing import TextIO

TEXT, JSON = "text", "json"
FORMATS = (TEXT, JSON)
_TAKEN = frozenset({"time", "level", "node", "logger", "message", "exception"})
_TEXT_LINE = re.compile(
    r"(?P<time>\d{4}-\S+Z) (?P<level>[A-Z]+) +(?:node=(?P<node>\d+) )?(?P<logger>[\w.]+): (?P<message>.*)", re.DOTALL
)


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
    """Writes to a stream; where a loop runs, the lines of one iteration together."""

    _LINES_BUFFERED_MAX = 500

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._buffered: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._buffered.append(self.format(record) + self.terminator)
        except Exception:
            self.handleError(record)
            return
        if record.levelno >= logging.WARNING or len(self._buffered) >= self._LINES_BUFFERED_MAX:
            self.flush()
        elif len(self._buffered) == 1:
            try:
                asyncio.get_running_loop().call_soon(self.flush)
            except RuntimeError:  # no loop runs here
                self.flush()

    def flush(self) -> None:
        """Write the buffered lines. Those that cannot be written are lost: there is nowhere to say so."""
        with self.lock or nullcontext(), suppress(OSError, ValueError):  # the disk is full, the stream is closed
            buffered, self._buffered = self._buffered, []
            if buffered:
                self.stream.write("".join(buffered))
                super().flush()


def flush_logs() -> None:
    """Write the buffered lines, before the process ends or writes to stderr by itself. Raises nothing if it cannot."""
    for handler in logging.getLogger().handlers:
        handler.flush()


def configure_logging(level: str = "INFO", *, node_id: int | None = None, line_format: str = TEXT) -> None:
    """Send the process's log to stderr as `TEXT` or `JSON` lines.

    `level` is a name of the standard library's levels. Raises `ValueError` for another one.
    """
    node = "" if node_id is None else f" node={node_id}"
    handler = _LinesHandler(sys.stderr)
    text = _TextFormatter(f"%(asctime)s %(levelname)-5s{node} %(name)s: %(message)s")
    handler.setFormatter(_JsonFormatter(node_id) if line_format == JSON else text)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def fields_of(line: str) -> dict[str, object]:
    """What a line says that a node has written, by the names that a JSON line has; of any other line the message."""
    with suppress(ValueError):
        row = json.loads(line)
        if isinstance(row, dict):
            return row
    found = _TEXT_LINE.fullmatch(line)
    if found is None:
        return {"message": line}
    told: dict[str, object] = {name: value for name, value in found.groupdict().items() if value is not None}
    return told | ({"node": int(found["node"])} if found["node"] else {})


def log_event(logger: logging.Logger, event: str, *, level: int = logging.INFO, **fields: object) -> None:
    """Log an event with its fields, as text for example `partition-change topic=flights partition=0`."""
    if logger.isEnabledFor(level):
        text = "".join(f" {name}={_show(value)}" for name, value in fields.items())
        logger.log(level, "%s%s", event, text, extra={"fields": {"event": event, **fields}})


def _show(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{','.join(map(str, value))}]"
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if isinstance(value, str) and (not text or " " in text) else text
