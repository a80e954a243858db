"""Sorts what changed in an event into steps: each with its kind, where it happened, and a sentence."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

from .history import State, StepKind, Value

_ELECTION_ROLES = ("prospective", "candidate", "leader")
_LOG = ("log_start_offset", "log_end_offset")
_LINKS_NAMED = 7
_SUBJECT = {
    **dict.fromkeys(("role", "epoch", "leader", "voted", "votes", "voters"), "quorum"),
    **dict.fromkeys((*_LOG, "high_watermark"), "metadata log"),
    "active": "controller",
    "fenced": "broker",
}
"""What the last part of a key `host.what` is about."""
_SUBJECT_OF_REPLICA = {
    "role": "replica",
    "leader_epoch": "replica",
    "isr": "replica ISR",
    "high_watermark": "high watermark",
    **dict.fromkeys(_LOG, "log"),
}
"""What the last part of a key `host.partition.what` is about."""
_SUBJECT_OF_PARTITION = {
    **dict.fromkeys(("leader", "leader_epoch"), "partition"),
    **dict.fromkeys(("isr", "elr", "replicas"), "ISR"),
}
"""What the last part of a key `partition.what` is about."""

Change = tuple[StepKind, str, str, State]
"""The kind of a step, where it happened, the sentence and the changes."""


def sorted_changes(news: Mapping[str, Value], before: Mapping[str, Value], hosts: Container[str]) -> Iterator[Change]:
    """The steps that the changes `news` to the state `before` are. `hosts` are the nodes' names."""
    groups: dict[tuple[str, str], State] = {}
    for key, value in news.items():
        where, _, what = key.rpartition(".")
        if where in hosts:
            subject = _SUBJECT[what]
        elif where.partition(".")[0] in hosts:
            subject = _SUBJECT_OF_REPLICA[what]
        else:
            subject = _SUBJECT_OF_PARTITION[what]
        groups.setdefault((subject, where), {})[key] = value
    for (subject, where), changes in groups.items():
        after = {**before, **changes}
        kind, text = _told(subject, where, before, after)
        yield kind, where.partition(".")[0] if where.partition(".")[0] in hosts else where, text, changes


def link_text(changes: Mapping[str, Value]) -> str:
    """A sentence about links that change at one time."""
    states: dict[str, list[tuple[str, str]]] = {}
    for key, value in changes.items():
        source, _, target = key.partition(">")
        states.setdefault(str(value or "works again"), []).append((source, target))
    return "; ".join(f"{_links(links)}: {state}" for state, links in states.items())


def _links(links: Sequence[tuple[str, str]]) -> str:
    """The links, with two directions between the same hosts as one, and a count of those that are too many to name."""
    named: list[str] = []
    for source, target in links:
        if not target:
            named.append(source)
        elif (target, source) not in links:
            named.append(f"{source} → {target}")
        elif source < target:
            named.append(f"{source} ↔ {target}")
    if len(named) > _LINKS_NAMED:
        named[_LINKS_NAMED - 1 :] = [f"{len(named) - _LINKS_NAMED + 1} more"]
    return ", ".join(named)


def _told(subject: str, where: str, before: Mapping[str, Value], after: Mapping[str, Value]) -> tuple[StepKind, str]:
    match subject:
        case "quorum":
            return _quorum(where, before, after)
        case "controller":
            active = after.get(f"{where}.active")
            return StepKind.CONTROLLER, f"is {'the' if active else 'no longer the'} active controller"
        case "broker":
            return StepKind.BROKER, f"broker is {'fenced' if after.get(f'{where}.fenced') else 'unfenced'}"
        case "metadata log":
            return StepKind.METADATA_LOG, f"metadata log: {_offsets(where, before, after)}"
        case "partition":
            return StepKind.LEADER, _leader(where, after)
        case "ISR":
            return StepKind.ISR, _isr(where, after)
        case _:
            return _replica(subject, where, before, after)


def _quorum(where: str, before: Mapping[str, Value], after: Mapping[str, Value]) -> tuple[StepKind, str]:
    role, epoch = after.get(f"{where}.role"), after.get(f"{where}.epoch")
    if (role, epoch) == (before.get(f"{where}.role"), before.get(f"{where}.epoch")):
        votes = after.get(f"{where}.votes")
        if votes != before.get(f"{where}.votes") and isinstance(votes, tuple):
            return StepKind.ELECTION, f"has the votes of {_listed(votes)} as {role} of epoch {epoch}"
        if after.get(f"{where}.voters") != before.get(f"{where}.voters"):
            return StepKind.ROLE, f"voters are {_listed(after.get(f'{where}.voters'))}"
    leader, voted = after.get(f"{where}.leader"), after.get(f"{where}.voted")
    text = f"{role} of epoch {epoch}"
    if leader is not None and role != "leader":
        text += f", leader {leader}"
    elif voted is not None and role in ("unattached", "candidate"):
        text += f", voted for {voted}"
    return StepKind.ELECTION if role in _ELECTION_ROLES else StepKind.ROLE, text


def _leader(where: str, after: Mapping[str, Value]) -> str:
    leader, epoch = after.get(f"{where}.leader"), after.get(f"{where}.leader_epoch")
    if leader is None:
        return "is deleted"
    return f"{'has no leader' if leader == -1 else f'leader {leader}'}, leader epoch {epoch}"


def _isr(where: str, after: Mapping[str, Value]) -> str:
    isr, elr = after.get(f"{where}.isr"), after.get(f"{where}.elr")
    if isr is None:
        return "has no replicas any more"
    text = f"ISR {_listed(isr)} of {_listed(after.get(f'{where}.replicas'))}"
    return f"{text}, ELR {_listed(elr)}" if elr else text


def _replica(subject: str, where: str, before: Mapping[str, Value], after: Mapping[str, Value]) -> tuple[StepKind, str]:
    partition = where.partition(".")[2]
    role = after.get(f"{where}.role")
    match subject:
        case "replica":
            epoch = after.get(f"{where}.leader_epoch")
            if role is None:
                return StepKind.REPLICA, f"has no replica of {partition} any more"
            verb = "leads" if role == "leader" else "follows" if role == "follower" else "cannot use its replica of"
            return StepKind.REPLICA, f"{verb} {partition} in leader epoch {epoch}"
        case "replica ISR":
            isr = after.get(f"{where}.isr")
            if isr is None:
                return StepKind.REPLICA, f"does not lead {partition} any more"
            return StepKind.REPLICA, f"leads {partition} with the maximal ISR {_listed(isr)}"
        case "high watermark":
            return StepKind.HIGH_WATERMARK, f"{partition}: {_offsets(where, before, after)}"
        case _:
            old, new = before.get(f"{where}.log_end_offset"), after.get(f"{where}.log_end_offset")
            if isinstance(old, int) and isinstance(new, int) and new < old:
                return StepKind.TRUNCATION, f"{partition}: log end offset back from {old} to {new}"
            return StepKind.APPEND, f"{partition}: {_offsets(where, before, after)}"


def _offsets(where: str, before: Mapping[str, Value], after: Mapping[str, Value]) -> str:
    """The offsets that changed."""
    names = {"log_start_offset": "log start", "log_end_offset": "log end", "high_watermark": "high watermark"}
    told = []
    for what, name in names.items():
        old, new = before.get(f"{where}.{what}"), after.get(f"{where}.{what}")
        if old != new:
            told.append(f"{name} {new}" if old is None else f"{name} {old} → {new}")
    return ", ".join(told)


def _listed(ids: Value) -> str:
    return f"[{', '.join(str(each) for each in ids)}]" if isinstance(ids, tuple) else "[]"
