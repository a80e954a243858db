"""Log levels, changed through the wire while the broker runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from support.broker.broker_harness import Harness

from raftwerk.runtime.loggers import LOGGERS
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode

LOGGER = 8
SET, DELETE, APPEND = 0, 1, 2
NAME = "raftwerk.groups"


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    """Restores the levels after each test."""
    loggers = [logging.getLogger(), logging.getLogger(NAME)]
    before = [one.level for one in loggers]
    yield
    for one, level in zip(loggers, before, strict=True):
        one.setLevel(level)


def alter(harness: Harness, broker: str, *changes: tuple[str, int, str | None], **more: Any) -> tuple[int, str | None]:
    rows = [{"name": name, "config_operation": operation, "value": value} for name, operation, value in changes]
    resources = [{"resource_type": LOGGER, "resource_name": broker, "configs": rows}]
    fields = {"resources": resources, "validate_only": False, **more}
    answer = asyncio.run(harness.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields)).responses[0]
    return answer.error_code, answer.error_message


def levels(harness: Harness, broker: str = "1") -> Any:
    resource = {"resource_type": LOGGER, "resource_name": broker, "configuration_keys": None}
    fields = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
    result = asyncio.run(harness.call(ApiKey.DESCRIBE_CONFIGS, 4, fields)).results[0]
    return {row.name: row.value for row in result.configs} if not result.error_code else result.error_code


def test_a_level_is_set_shown_and_removed() -> None:
    harness = Harness()
    assert alter(harness, "1", ("root", SET, "WARN")) == (0, None)
    assert alter(harness, "1", (NAME, SET, "DEBUG")) == (0, None)
    assert (levels(harness)["root"], levels(harness)[NAME]) == ("WARN", "DEBUG")
    assert logging.getLogger(NAME).isEnabledFor(logging.DEBUG)
    assert alter(harness, "1", (NAME, DELETE, None)) == (0, None)
    assert levels(harness)[NAME] == "WARN"
    assert alter(harness, "1", (NAME, SET, "ERROR"), validate_only=True) == (0, None)
    assert levels(harness)[NAME] == "WARN"


@pytest.mark.parametrize(
    ("broker", "change", "code"),
    [
        ("1", ("nobody.knows", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        ("1", ("root", SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        ("1", ("root", SET, None), ErrorCode.INVALID_CONFIG),
        ("1", ("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        ("1", (NAME, APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        ("7", ("root", SET, "INFO"), ErrorCode.INVALID_REQUEST),
        ("", ("root", SET, "INFO"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_changes_are_refused(broker: str, change: tuple[str, int, str | None], code: int) -> None:
    harness = Harness()
    before = levels(harness)
    answered, text = (
        alter(harness, broker, (NAME, SET, "ERROR"), change) if broker == "1" else alter(harness, broker, change)
    )
    assert (answered, bool(text)) == (code, True)
    assert levels(harness) == before, "nothing of it is done"


def test_only_the_loggers_of_this_broker_are_shown() -> None:
    harness = Harness()
    assert levels(harness, "7") == ErrorCode.INVALID_REQUEST
    assert levels(harness, "") == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", LOGGERS)
def test_each_documented_logger_can_be_changed(name: str) -> None:
    assert alter(Harness(), "1", (name, SET, "DEBUG"), validate_only=True) == (0, None)


def test_every_logger_that_takes_a_level_is_listed() -> None:
    """Also those that only have loggers below them: Kafka's own tools refuse names that are not listed."""
    harness = Harness()
    logging.getLogger("raftwerk.runtime.only.below")
    assert {*LOGGERS, "raftwerk.runtime.only"} <= levels(harness).keys()
    assert next(iter(levels(harness))) == "root"
