"""The loggers of a node and their levels, which can be changed while it runs.

Levels have Kafka's names (BROKER_LOGGER resources of DescribeConfigs and IncrementalAlterConfigs). A logger without a
level of its own has its parent's.
"""

from __future__ import annotations

import logging

ROOT = "root"
STATE_CHANGE = "raftwerk.state-change"

LOGGERS = {
    ROOT: "what has no level of its own",
    "raftwerk.node": "start, stop, configuration of the node",
    STATE_CHANGE: "leaders, ISRs, brokers, the quorum: every change as this node sees it",
    "raftwerk.broker": "connections, requests that fail, registration and heartbeats",
    "raftwerk.groups": "consumer groups",
    "raftwerk.controller": "the active controller's decisions",
    "raftwerk.isr": "replication between brokers",
    "raftwerk.raft": "the metadata quorum",
    "raftwerk.log": "files: recovery, retention, compaction",
    "raftwerk.runtime": "event loop, disk",
    "aiohttp": "the metrics port",
    "asyncio": "the event loop's own",
}
"""Every logger with its subject. Loggers below them, such as `raftwerk.isr.follower`, can have a level too."""

_LEVELS = {"OFF": 100, "FATAL": 50, "ERROR": 40, "WARN": 30, "INFO": 20, "DEBUG": 10, "TRACE": 5}
LEVELS = tuple(_LEVELS)


class LoggerError(ValueError):
    """There is no such logger or level; the message names those that exist."""


def levels() -> dict[str, str]:
    """The effective level of every logger, by name."""
    known = [name for name in logging.root.manager.loggerDict if name.startswith("raftwerk.")]
    return {
        name: _name_of(_logger(name).getEffectiveLevel()) for name in (*LOGGERS, *sorted(set(known) - set(LOGGERS)))
    }


def set_level(name: str, level: str) -> None:
    """Set a logger's level. Raises `LoggerError` for a name or a level that does not exist."""
    number = _LEVELS.get(level.upper())
    if number is None:
        raise LoggerError(f"{level!r} is no level; there are {', '.join(LEVELS)}")
    _known(name).setLevel(number)


def clear_level(name: str) -> None:
    """Give a logger its parent's level again. Raises `LoggerError` for the root, and for a name that does not exist."""
    if name == ROOT:
        raise LoggerError("the root logger has no parent: set its level instead")
    _known(name).setLevel(logging.NOTSET)


def _known(name: str) -> logging.Logger:
    if name not in LOGGERS and not (name.startswith("raftwerk.") and name in logging.root.manager.loggerDict):
        raise LoggerError(f"there is no logger {name!r}; there are {', '.join(LOGGERS)}")
    return _logger(name)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger() if name == ROOT else logging.getLogger(name)


def _name_of(number: int) -> str:
    return next((name for name, least in _LEVELS.items() if number >= least), "TRACE")
