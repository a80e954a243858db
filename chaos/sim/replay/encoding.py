"""A history as compact JSON: names are numbers in a table, and times are differences to the one before.

`page/history.js` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from .history import FREQUENT, History, Message, Step, StepKind

NEVER = -1
"""Stands for the time that a message took that never arrived."""


class _Table:
    """Numbers for texts, in the order of their first use."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.numbers: dict[str, int] = {}
        for text in texts:
            self.number(text)

    def number(self, text: str) -> int:
        """The number of this text."""
        return self.numbers.setdefault(text, len(self.numbers))

    @property
    def texts(self) -> list[str]:
        """All texts by number."""
        return list(self.numbers)


def encode(history: History) -> str:
    """The JSON text, without a byte that is not needed."""
    return json.dumps(_encoded(history), separators=(",", ":"), ensure_ascii=False)


def _encoded(history: History) -> dict[str, Any]:
    keys, places, apis = _Table(), _Table(), _Table()
    steps = _steps(history, keys, places)
    messages = _messages(history, places, apis)
    return {
        "facts": asdict(history.facts),
        "from": history.from_us,
        "to": history.to_us,
        "brokers": list(history.brokers),
        "controllers": list(history.controllers),
        "clients": list(history.clients),
        "partitions": list(history.partitions),
        "kinds": [kind.value for kind in StepKind],
        "frequent": [kind.value for kind in FREQUENT],
        "start": history.start,
        "steps": steps,
        "messages": messages,
        "faults": [[one.from_us, one.to_us, one.what, list(one.hosts)] for one in history.faults],
        "acks": _differences(history.acks_us, history.from_us),
        "left_out": list(history.left_out),
        "keys": keys.texts,
        "places": places.texts,
        "apis": [text.split("|") for text in apis.texts],
    }


def _differences(times_us: Iterable[int], before_us: int) -> list[int]:
    found = []
    for at_us in times_us:
        found.append(at_us - before_us)
        before_us = at_us
    return found


def _steps(history: History, keys: _Table, places: _Table) -> list[list[Any]]:
    """For each step: the time since the last, kind, place and sentence; then a key and a value for each change."""
    kinds = list(StepKind)
    found: list[list[Any]] = []
    before_us = history.from_us
    for step in history.steps:
        row = [step.at_us - before_us, kinds.index(step.kind), places.number(step.where), _text(step)]
        for key, value in step.changes.items():
            row += [keys.number(key), value]
        found.append(row)
        before_us = step.at_us
    return found


def _text(step: Step) -> str:
    """The sentence; of frequent steps it follows from the changes."""
    return "" if step.kind in FREQUENT else step.text


def _messages(history: History, places: _Table, apis: _Table) -> list[int]:
    """Four numbers a message: when it was sent, how long it took, the link, and the API with its direction."""
    in_order = sorted(history.messages, key=lambda one: one.sent_us)
    rows: list[int] = []
    before_us = history.from_us
    hosts = [places.number(host) for host in (*history.brokers, *history.controllers, *history.clients)]
    width = max(hosts) + 1
    for one in in_order:
        took_us = NEVER if one.arrived_us is None else one.arrived_us - one.sent_us
        link = places.number(one.source) * width + places.number(one.target)
        rows += [one.sent_us - before_us, took_us, link, _api(one, apis)]
        before_us = one.sent_us
    return rows


def _api(message: Message, apis: _Table) -> int:
    return 2 * apis.number(f"{message.api}|{message.group}") + message.is_response
