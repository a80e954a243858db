"""The levels of this node's loggers, which may be changed at run time (KIP-412, resource type BROKER_LOGGER).

Changes are lost when the process ends. Kafka's FATAL is Python's CRITICAL; TRACE logs everything.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from ..runtime.loggers import LOGGERS, ROOT
from ..wire.errors import ErrorCode, ProtocolError

LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""The names of the levels, from the one that logs most, with Python's numbers."""
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


def logger_levels() -> dict[str, str]:
    """The effective level of each logger, by name."""
    below_root = sorted({**LOGGERS, **logging.root.manager.loggerDict}.keys() - {ROOT})
    return {name: _name(_logger(name).getEffectiveLevel()) for name in (ROOT, *below_root)}


def alter_logger_levels(changes: Iterable[Any], *, validate_only: bool) -> None:
    """Set levels, or remove them so that the parent's level holds. After a ProtocolError nothing is changed."""
    wanted = []
    for change in changes:
        if change.config_operation in (_APPEND, _SUBTRACT):
            verb = "APPEND" if change.config_operation == _APPEND else "SUBTRACT"
            complaint = f"{verb} operation is not allowed for the BROKER_LOGGER resource"
            raise ProtocolError(ErrorCode.INVALID_REQUEST, complaint)
        if not _exists(change.name):
            raise ProtocolError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
        if change.config_operation == _DELETE:
            if change.name == ROOT:
                complaint = "Removing the log level of the root logger is not allowed"
                raise ProtocolError(ErrorCode.INVALID_REQUEST, complaint)
            wanted.append((change.name, logging.NOTSET))
        elif change.value not in LEVELS:
            complaint = (
                f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level. "
                f"Valid log levels are {', '.join(sorted(LEVELS))}"
            )
            raise ProtocolError(ErrorCode.INVALID_CONFIG, complaint)
        else:
            wanted.append((change.name, LEVELS[change.value]))
    if not validate_only:
        for name, level in wanted:
            _logger(name).setLevel(level)


def _exists(name: str) -> bool:
    """Whether there is such a logger, or loggers below it, whose parent it then becomes."""
    return name in LOGGERS or name in logging.root.manager.loggerDict


def _logger(name: str) -> logging.Logger:
    return logging.getLogger() if name == ROOT else logging.getLogger(name)


def _name(level: int) -> str:
    return next((name for name, value in LEVELS.items() if level <= value), "FATAL")
