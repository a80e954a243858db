"""One event is one line, in text and in JSON."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from raftwerk.runtime import loggers
from raftwerk.runtime.log_lines import FORMATS, JSON, TEXT, configure_logging, fields_of, flush_logs, log_event

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def root_logger_as_before() -> Iterator[None]:
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])


def say_everything() -> None:
    logger = logging.getLogger("raftwerk.node")
    log_event(logger, "partition-change", topic="a b", partition=0, isr=(1, 2), leader_before=None)
    logger.warning("two\nlines")
    with suppress(ValueError):
        try:
            raise ValueError("bad\nthing")
        except ValueError:
            logger.exception("it failed")
            raise


def test_text_has_one_line_an_event(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(node_id=3, line_format=TEXT)
    say_everything()
    first, second, third = capsys.readouterr().err.splitlines()
    head = 'INFO  node=3 raftwerk.node: partition-change topic="a b" partition=0 isr=[1,2] leader_before=None'
    assert first.endswith("Z " + head)
    assert second.endswith("WARNING node=3 raftwerk.node: two\\nlines")
    assert "it failed\\nTraceback" in third and third.endswith("ValueError: bad\\nthing")


def test_json_has_an_event_s_fields_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(node_id=3, line_format=JSON)
    say_everything()
    first, second, third = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (first["node"], first["level"], first["logger"]) == (3, "INFO", "raftwerk.node")
    assert (first["event"], first["topic"], first["isr"]) == ("partition-change", "a b", [1, 2])
    assert second["message"] == "two\nlines"
    assert "bad\nthing" in third["exception"]


def test_a_turn_s_lines_go_out_at_its_end_and_warnings_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(node_id=3)
    logger = logging.getLogger("raftwerk.node")

    def written() -> list[str]:
        return [line.rpartition(" ")[2] for line in capsys.readouterr().err.splitlines()]

    async def main() -> None:
        logger.info("one")
        logger.info("two")
        assert written() == []
        await asyncio.sleep(0)
        assert written() == ["one", "two"]
        logger.info("three")
        logger.warning("four")
        assert written() == ["three", "four"]
        await asyncio.sleep(0)
        logger.info("five")
        flush_logs()
        assert written() == ["five"]
        logger.info("six")

    asyncio.run(main())
    logger.info("seven")
    flush_logs()
    assert written() == ["six", "seven"]


class FullStream(io.StringIO):
    """A stream to a disk that is full."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("is_closed", [False, True])
def test_lines_that_cannot_be_written_are_lost_and_raise_nothing(
    monkeypatch: pytest.MonkeyPatch, is_closed: bool
) -> None:
    stream = io.StringIO() if is_closed else FullStream()
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logging()
    if is_closed:
        stream.close()
    logger = logging.getLogger("raftwerk.node")
    unhandled: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
        logger.info("at the end of the iteration")
        await asyncio.sleep(0)
        logger.info("by hand")
        flush_logs()
        logger.warning("at once")

    asyncio.run(main())
    logger.info("without a loop")
    assert unhandled == []


_NO_NODES = ("chaos", "bench", "pipeline", "registry", "rest", "console")


def test_every_logger_of_the_code_is_known() -> None:
    """By its own name, or as a child of a package's. Those of programs that are no nodes are left out."""
    packages = [path for path in (ROOT / "raftwerk").iterdir() if path.is_symlink()]
    for package in packages:
        for path in package.resolve().rglob("*.py"):
            text = path.read_text()
            if "getLogger(__name__)" in text and package.name not in _NO_NODES:
                assert f"raftwerk.{package.name}" in loggers.LOGGERS, path


@pytest.mark.parametrize("node_id", [None, 7])
def test_a_line_is_read_back(capsys: pytest.CaptureFixture[str], node_id: int | None) -> None:
    told = {}
    for line_format in FORMATS:
        configure_logging(node_id=node_id, line_format=line_format)
        logging.getLogger("raftwerk.isr").warning("a disk is full: %s\nand more", "/d")
        flush_logs()
        (line,) = capsys.readouterr().err.splitlines()
        told[line_format] = {name: value for name, value in fields_of(line).items() if name != "time"}
        assert fields_of(line)["time"]
    node = {} if node_id is None else {"node": node_id}
    fields = {"level": "WARNING", **node, "logger": "raftwerk.isr"}
    assert told == {
        "text": {**fields, "message": "a disk is full: /d\\nand more"},
        "json": {**fields, "message": "a disk is full: /d\nand more"},
    }


@pytest.mark.parametrize("line", ["", "Killed", "[1, 2]", "2026-11-29T00:00:00.000Z half of a line"])
def test_what_no_node_has_logged_is_a_message(line: str) -> None:
    assert fields_of(line) == {"message": line}
