"""What every attack has: the cluster that it attacks, its time, its counts, and its share of the processors."""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...wire.api_keys import ApiKey
from .attacker_connection import AttackerConnection, Endpoint, Outcome, fault_of_answer
from .drawn_values import KnownNames
from .node_watch import NodeWatch, Trouble
from .sent_requests import SentRequest, SentRequests


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster under attack."""

    brokers: Sequence[Endpoint]
    controllers: Sequence[Endpoint]
    known: KnownNames
    bootstrap: str

    def endpoint(self, node_id: int, kind: str) -> Endpoint:
        """A listener of a node."""
        listeners = self.brokers if kind == "broker" else self.controllers
        return next(one for one in listeners if one.node_id == node_id)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not be, with the command that does it again."""

    attack: str
    kind: str
    text: str
    replay: str


@dataclass
class AttackRun:
    """One run of one attack until `deadline` (monotonic seconds)."""

    name: str
    target: Target
    rng: random.Random
    watch: NodeWatch
    sent: SentRequests
    deadline: float
    seed: int
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: dict[str, Finding] = field(default_factory=dict)

    def is_over(self) -> bool:
        """Whether the time of the attack is over."""
        return time.monotonic() >= self.deadline

    def connect(self, endpoint: Endpoint, timeout_s: float = 0.5) -> AttackerConnection | None:
        """A connection, None when the node does not take one."""
        try:
            return AttackerConnection(endpoint, timeout_s)
        except OSError:
            self.outcomes[Outcome.REFUSED.value] += 1
            time.sleep(0.05)
            return None

    def exchange(self, connection: AttackerConnection, frame: bytes) -> tuple[Outcome, bytes]:
        """Send a frame and take its answer; both are counted, and the frame is kept."""
        endpoint = connection.endpoint
        self.sent.add(SentRequest(endpoint.node_id, endpoint.kind, frame))
        outcome, answer = connection.receive() if connection.send(frame) else (Outcome.CLOSED, b"")
        self.outcomes[outcome.value] += 1
        return outcome, answer

    def judge_answer(self, api: ApiKey, version: int, correlation_id: int, answer: bytes) -> None:
        """Add a finding when the answer to a well-formed request is wrong."""
        fault = fault_of_answer(api, version, correlation_id, answer)
        if fault is not None:
            self._add("wrong-answer", f"wrong-answer {api.name} {fault[:60]}", f"{api.name} v{version}: {fault}", 1)

    def look(self) -> None:
        """Add a finding for each new trouble of the nodes."""
        for trouble in self.watch.look():
            self.trouble(trouble)

    def trouble(self, trouble: Trouble) -> None:
        """Add a finding unless one with the same cause is there."""
        self._add(trouble.kind, trouble.key, trouble.text, None)

    def _add(self, kind: str, key: str, text: str, requests: int | None) -> None:
        if key not in self.findings:
            path = self.sent.write(f"{self.name}: {text}") if requests is None else self.sent.write(text, requests)
            command = "python -m raftwerk.chaos.fuzz"
            run = f"{command} run --attacks {self.name} --seed {self.seed}"
            self.findings[key] = Finding(self.name, kind, text, run if path is None else f"{command} replay {path}")


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack by name. `slice_s` is how long it goes on at most before the next one has its turn."""

    name: str
    what: str
    run: Callable[[AttackRun], None]
    slice_s: float = 10.0


def leave_processors_to_others() -> None:
    """Put the calling thread, and those that it starts, into Linux's idle scheduling class; nothing on other systems.

    So attackers take only what others leave of the processors, as if they had a machine of their own, and a run
    measures what nodes do with hostile requests. An ordinary user cannot undo it.
    """
    if sys.platform == "linux":
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
