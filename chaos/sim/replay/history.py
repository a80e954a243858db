"""The history of a run as data, and the state of the cluster at any of its steps.

A step is one thing that happened, with what it changed: values by key. Keys are flat, so a state is a plain mapping:

    n1.process, n1.role, n1.epoch, n1.high_watermark ...   a node and its place in the metadata quorum
    n1.t-0.log_end_offset, n1.t-0.role ...                 a node's replica of a partition
    t-0.leader, t-0.isr ...                                a partition, as the committed metadata has it
    n1>n2, n1>                                             what is wrong with a link, or with all that a node gets

None means that there is no such thing any more. Times are microseconds of virtual time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

Value: TypeAlias = bool | int | str | tuple[int, ...] | None
State: TypeAlias = dict[str, Value]


class StepKind(Enum):
    """What a step is about. People choose by it what they step through."""

    FAULT = "fault"
    PROCESS = "process"
    LINK = "link"
    ELECTION = "election"
    ROLE = "quorum role"
    CONTROLLER = "controller"
    BROKER = "broker"
    LEADER = "leader"
    REPLICA = "replica role"
    ISR = "ISR"
    TRUNCATION = "truncation"
    REQUEST = "request"
    HIGH_WATERMARK = "high watermark"
    APPEND = "append"
    METADATA_LOG = "metadata log"
    LOG_LINE = "log line"
    FAILURE = "failure"


FREQUENT = (StepKind.HIGH_WATERMARK, StepKind.APPEND, StepKind.METADATA_LOG)
"""Steps of which there are so many that near ones may be told as one."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened at `where`: a host, a partition or the nemesis."""

    at_us: int
    kind: StepKind
    where: str
    text: str
    changes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(slots=True)
class Message:
    """A request or a response. `arrived_us` is None if it never arrived as a whole."""

    sent_us: int
    arrived_us: int | None
    source: str
    target: str
    api: str
    group: str
    """Whose request it is: `quorum`, `replication`, `controller` or `client`."""
    is_response: bool


@dataclass(frozen=True, slots=True)
class FaultSpan:
    """A fault from its beginning to its end, on some hosts."""

    from_us: int
    to_us: int
    what: str
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """The invariant that a run broke, or how else it failed; what was seen, and when."""

    name: str
    detail: str
    at_us: int
    is_invariant: bool = True


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What is known of a run beside its steps."""

    scenario: str
    what: str
    seed: int
    digest: str
    events: int
    acked: int
    end_us: int
    command: str
    """The command that runs it again."""
    failure: Failure | None = None
    invariants: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The names of the invariants that were checked, by what they are about."""


@dataclass(frozen=True, slots=True)
class History:
    """All that is told of a run between two times. `start` is the state before the first step."""

    facts: RunFacts
    from_us: int
    to_us: int
    brokers: Sequence[str]
    controllers: Sequence[str]
    """Hosts of the metadata quorum; brokers may be among them."""
    clients: Sequence[str]
    partitions: Sequence[str]
    start: State
    steps: Sequence[Step]
    messages: Sequence[Message]
    faults: Sequence[FaultSpan]
    acks_us: Sequence[int]
    left_out: Sequence[str] = ()
    """Sentences about what the history does not tell."""


def state_at(history: History, step: int) -> State:
    """The state after the step of this number; -1 for the state before all steps."""
    return folded(history.start, history.steps[: step + 1])


def folded(state: State, steps: Iterable[Step]) -> State:
    """The state after these steps. Keys without a value are absent."""
    found = dict(state)
    for step in steps:
        found.update(step.changes)
    return {key: value for key, value in found.items() if value is not None}


def within(history: History, from_us: int, to_us: int) -> History:
    """The part of a history between two times; what happened before is folded into its first state.

    A window that is wider than the history leaves it as it is.
    """
    from_us, to_us = max(from_us, history.from_us), min(to_us, history.to_us)

    def is_seen(one: Message) -> bool:
        end_us = one.sent_us if one.arrived_us is None else one.arrived_us
        return one.sent_us <= to_us and end_us >= from_us

    return replace(
        history,
        from_us=from_us,
        to_us=to_us,
        start=folded(history.start, (step for step in history.steps if step.at_us < from_us)),
        steps=[step for step in history.steps if from_us <= step.at_us <= to_us],
        messages=[one for one in history.messages if is_seen(one)],
        faults=[one for one in history.faults if one.from_us <= to_us and one.to_us >= from_us],
        acks_us=[at_us for at_us in history.acks_us if from_us <= at_us <= to_us],
    )
