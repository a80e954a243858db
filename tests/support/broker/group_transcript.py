"""What the transcripts of both kinds of groups share: their lines, their timers, and how they are played."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raftwerk.broker.groups.effects import TimerName

FOLDER = Path(__file__).parents[2] / "broker" / "groups" / "transcripts"


class GroupStage:
    """A group on a stage: a line `> word name option=value` calls `on_word`."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.now_ms = 0
        self.timers: dict[TimerName, int] = {}
        self.lines: list[str] = []
        self.shown = ""

    def run(self, text: str) -> str:
        lines: list[str] = []
        for line in text.splitlines():
            if line.startswith("#"):
                lines += ["", line]
            elif line.startswith(">"):
                lines += ["", line, *self.play(line[1:].split())]
        return "\n".join(lines).replace("\n\n\n", "\n\n").strip("\n") + "\n"

    def play(self, words: list[str]) -> list[str]:
        self.lines = []
        options = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        names = [word for word in words[1:] if "=" not in word]
        getattr(self, "on_" + words[0])(names, options)
        self.carry_out()
        return self.lines

    def on_at(self, names: list[str], options: dict[str, str]) -> None:
        until = int(names[0])
        while due := min((at for at in self.timers.values() if at <= until), default=None):
            name = next(name for name, at in self.timers.items() if at == due)
            del self.timers[name]
            self.now_ms = max(self.now_ms, due)
            before = len(self.lines)
            self.group.on_timer(name, self.now_ms, self.now_ms)
            self.carry_out()
            if len(self.lines) > before:
                self.lines.insert(before, f"  at {self.now_ms} {name.kind} {name.member_id}".rstrip())
        self.now_ms = until

    def carry_out(self) -> None:
        """Carry out the effects of the group, and show its state if that has changed."""
        while effects := self.group.drain():
            for effect in effects:
                self.lines += self.effect(effect)
            self.on_carried_out()
        state = f"  {self.state()}".rstrip(": ")
        if state != self.shown:
            self.lines.append(state)
            self.shown = state

    def effect(self, effect: Any) -> Iterator[str]:
        """Carry out one effect; the lines that show it."""
        raise NotImplementedError

    def on_carried_out(self) -> None:
        """All effects of one event were carried out."""

    def state(self) -> str:
        """The state of the group and its members."""
        raise NotImplementedError
