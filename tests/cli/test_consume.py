"""`raftwerk consume` while no records come."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from raftwerk.cli.records import consume


class Full(Exception):
    """The end of the test."""


class Quiet:
    """A source whose first polls find nothing; it ends the test."""

    def __init__(self, empty: int) -> None:
        self.empty = empty

    async def poll(self) -> list[Any]:
        self.empty -= 1
        if self.empty < 0:
            raise Full
        return []


class Printer:
    is_full = False


@pytest.mark.parametrize(("is_terminal", "told"), [(True, 1), (False, 0)])
def test_a_terminal_is_told_once_that_nothing_comes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_terminal: bool, told: int
) -> None:
    monkeypatch.setattr(consume, "_SILENT_S", -1.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal, raising=False)
    source: Any = Quiet(3)
    printer: Any = Printer()
    with pytest.raises(Full):
        asyncio.run(consume._print_until(None, source, printer))
    shown = capsys.readouterr()
    assert shown.err.count("Waiting for records: Ctrl-C ends it") == told and shown.out == ""
