"""The signals that end `raftwerk up`: Ctrl-C, SIGTERM as from `raftwerk down`, SIGHUP of a terminal that closes."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Any

_REASONS = {
    signal.SIGTERM: "SIGTERM came, as from raftwerk down",
    signal.SIGHUP: "SIGHUP came, as from a terminal that closes",
}
_STANDARD_OUTPUT, _STANDARD_ERROR = 1, 2


class AskedToStop(Exception):
    """A signal other than that of Ctrl-C came while `EndingSignals.interrupts`; its text says which."""


class EndingSignals:
    """Notes the signals that come, for as long as the context lasts. nohup ignores SIGHUP, and so it stays then."""

    def __init__(self) -> None:
        self.came: list[int] = []
        self.interrupts = True
        """Whether a signal interrupts what goes on, by `AskedToStop`, or KeyboardInterrupt for Ctrl-C."""
        self._terminals = [file for file in (_STANDARD_OUTPUT, _STANDARD_ERROR) if os.isatty(file)]
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> EndingSignals:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @property
    def reason(self) -> str:
        """Which signal came, and where it may be from; empty after Ctrl-C alone, which needs no explanation."""
        return next((reason for number, reason in _REASONS.items() if number in self.came), "")

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.came.append(number)
        if number == signal.SIGHUP:
            self._leave_terminals()
        if self.interrupts:
            raise KeyboardInterrupt if number == signal.SIGINT else AskedToStop(self.reason)

    def _leave_terminals(self) -> None:
        """Write to no terminal any more: what is written to one that has closed fails, and so would the ending."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for file in self._terminals:
            os.dup2(nowhere, file)
        os.close(nowhere)
