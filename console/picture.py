"""A picture of the cluster, what has changed between two pictures, and how that is told.

Everything here is a pure function of pictures, so the console's live view can be tested without a cluster or a browser.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..wire.types import TopicPartition

Row: TypeAlias = Mapping[str, Any]

UP, FENCED, DOWN, PAUSED = "up", "fenced", "down", "paused"
TOPIC_SEPARATOR = "\t"
"""Between the topic and the partition in a key. No name of a topic has it."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition as the console shows it. `end_offset` is the high watermark, -1 while no leader tells it."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    end_offset: int = -1

    @property
    def state(self) -> str:
        """`offline` without a leader, `under-replicated` with replicas out of sync, else `in-sync`."""
        if self.leader < 0:
            return "offline"
        return "in-sync" if len(self.isr) >= len(self.replicas) else "under-replicated"

    def as_row(self) -> list[Any]:
        """The partition in as few bytes as possible, since a cluster may have thousands."""
        return [self.leader, self.leader_epoch, list(self.replicas), list(self.isr), self.end_offset]


@dataclass(frozen=True, slots=True)
class Picture:
    """What is known of the cluster at one moment. `at_ms` is in milliseconds since 1970."""

    at_ms: int
    cluster_id: str | None = None
    problem: str | None = None
    """Why the cluster cannot be seen; then everything else is what was seen last."""
    nodes: Mapping[int, Row] = field(default_factory=dict)
    quorum: Row | None = None
    why_no_quorum: str | None = None
    """Why the quorum may not be seen."""
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    """By `topic TAB partition`."""


def key_of(topic: str, partition: int) -> str:
    """The key of a partition in a picture."""
    return f"{topic}{TOPIC_SEPARATOR}{partition}"


def end_offsets(picture: Picture) -> dict[TopicPartition, int]:
    """The high watermarks that the picture knows."""
    found = {}
    for key, one in picture.partitions.items():
        topic, _, partition = key.rpartition(TOPIC_SEPARATOR)
        if one.end_offset >= 0:
            found[TopicPartition(topic, int(partition))] = one.end_offset
    return found


def name_of(key: str) -> str:
    """A key as people write it: `orders-0`."""
    return key.replace(TOPIC_SEPARATOR, "-")


def summary(picture: Picture) -> dict[str, int]:
    """The numbers at a glance."""
    states = [one.state for one in picture.partitions.values()]
    return {
        "partitions": len(states),
        "under_replicated": states.count("under-replicated"),
        "offline": states.count("offline"),
        "nodes": len(picture.nodes),
        "nodes_up": sum(one["state"] == UP for one in picture.nodes.values()),
    }


def records_between(before: Picture, after: Picture) -> int:
    """How many records were committed between two pictures, in partitions that both show."""
    total = 0
    for key, partition in after.partitions.items():
        former = before.partitions.get(key)
        if former is not None and 0 <= former.end_offset < partition.end_offset:
            total += partition.end_offset - former.end_offset
    return total


def changes(before: Picture | None, after: Picture) -> dict[str, Any]:
    """What a browser that shows `before` needs to show `after`; everything, if `before` is None."""
    told: dict[str, Any] = {"at_ms": after.at_ms, "problem": after.problem, "summary": summary(after)}
    if before is None:
        told |= {"whole": True, "cluster_id": after.cluster_id}
        before = Picture(0)
    else:
        elapsed_ms = max(after.at_ms - before.at_ms, 1)
        told["records_per_s"] = round(records_between(before, after) * 1000 / elapsed_ms, 1)
    if after.nodes != before.nodes:
        told["nodes"] = list(after.nodes.values())
    if after.quorum != before.quorum:
        told["quorum"] = after.quorum
    if after.why_no_quorum != before.why_no_quorum:
        told["why_no_quorum"] = after.why_no_quorum
    changed = {key: one.as_row() for key, one in after.partitions.items() if before.partitions.get(key) != one}
    gone = [key for key in before.partitions if key not in after.partitions]
    if changed:
        told["partitions"] = changed
    if gone:
        told["gone"] = gone
    return told


def events(before: Picture, after: Picture) -> list[str]:
    """The story of what happened between two pictures, a sentence each, the cause before its consequences."""
    return [*_node_events(before, after), *_quorum_events(before, after), *_partition_events(before, after)]


def _node_events(before: Picture, after: Picture) -> Iterator[str]:
    for node_id, node in after.nodes.items():
        former = before.nodes.get(node_id)
        if former is None:
            yield f"node {node_id} is known"
        elif former["state"] != node["state"]:
            yield f"node {node_id}: {former['state']} → {node['state']}"
    for node_id in before.nodes:
        if node_id not in after.nodes:
            yield f"node {node_id} is no longer registered"


def _quorum_events(before: Picture, after: Picture) -> Iterator[str]:
    former, now = before.quorum or {}, after.quorum or {}
    if before.quorum and not after.quorum:
        yield "the quorum has no leader"
    elif after.quorum and (former.get("leader"), former.get("epoch")) != (now["leader"], now["epoch"]):
        yield f"node {now['leader']} is the active controller, epoch {now['epoch']}"


def _partition_events(before: Picture, after: Picture) -> Iterator[str]:
    """Changes of leaders first. Where many partitions changed in the same way, one sentence tells all of them."""
    told: dict[str, list[str]] = {}
    for key, one in after.partitions.items():
        former = before.partitions.get(key)
        if former is None:
            continue
        if (former.leader, former.leader_epoch) != (one.leader, one.leader_epoch):
            if one.leader < 0:
                what = "has no leader"
            elif one.leader == former.leader:
                what = f"led by {one.leader} in a new epoch"
            else:
                what = f"leader {_node(former.leader)} → {one.leader}"
            told.setdefault(what, []).append(name_of(key))
    for key, one in after.partitions.items():
        former = before.partitions.get(key)
        if former is None:
            continue
        if left := [node for node in former.isr if node not in one.isr]:
            told.setdefault(f"{_nodes(left)} out of sync", []).append(name_of(key))
        if joined := [node for node in one.isr if node not in former.isr]:
            told.setdefault(f"{_nodes(joined)} in sync again", []).append(name_of(key))
    for what, names in told.items():
        yield f"{_shortened(names)}: {what}"


def _node(node_id: int) -> str:
    return "none" if node_id < 0 else str(node_id)


def _nodes(node_ids: list[int]) -> str:
    return f"{'replicas' if len(node_ids) > 1 else 'replica'} {', '.join(map(str, node_ids))}"


def _shortened(names: list[str]) -> str:
    """The first few names; those of internal topics come last, since nobody looks for them first."""
    names = sorted(names, key=lambda name: name.startswith("__"))
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"
