"""Transcripts of a KIP-848 group: heartbeats of members (`>`), what the group answers and writes.

Members are letters; partitions are written t0 t1 u0. A heartbeat without `epoch=` tells the epoch the member was told
last. `owns=t0,t1` is what it says it reads; `join` tells everything, `beat` nothing but what is written.
Run this file to write the answers anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from support.broker.group_transcript import FOLDER, GroupStage

from raftwerk.broker.coordinators.effects import Persist, Reply
from raftwerk.broker.coordinators.record_fields import CoordinatorRecord
from raftwerk.broker.groups.consumer.assignors import PartitionIds
from raftwerk.broker.groups.consumer.consumer_group import ConsumerGroup
from raftwerk.broker.groups.consumer.consumer_group_heartbeat import HeartbeatRequest, HeartbeatResult
from raftwerk.broker.groups.effects import CancelTimer, Reload, SetTimer
from raftwerk.broker.groups.group_config import GroupConfig
from raftwerk.broker.groups.group_coordinator_shard import GroupCoordinatorShard
from raftwerk.broker.groups.records.consumer_group_records import decode_consumer_key
from raftwerk.wire.errors import ErrorCode


def transcripts() -> list[Path]:
    return sorted(FOLDER.glob("consumer_*.txt"))


def run_transcript(text: str) -> str:
    return Stage().run(text)


class FakeTopics:
    """Topics by name with their number of partitions; the id is the name's first letter."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {"t": 4}

    def find(self, name: str) -> tuple[UUID, int] | None:
        return (UUID(int=ord(name[0])), self.counts[name]) if name in self.counts else None

    def name_of(self, topic_id: UUID) -> str | None:
        return next((name for name in self.counts if ord(name[0]) == topic_id.int), None)

    def names(self) -> Iterable[str]:
        return sorted(self.counts)


class Stage(GroupStage):
    group: ConsumerGroup

    def __init__(self) -> None:
        self.topics = FakeTopics()
        self.config = GroupConfig()
        super().__init__(ConsumerGroup("g", self.config, self.topics))
        self.epochs: dict[str, int] = {}
        self.log: list[CoordinatorRecord] = []
        self.next_error = ErrorCode.NONE

    # -- what happens

    def on_topics(self, names: list[str], options: dict[str, str]) -> None:
        self.topics.counts = {name: int(count) for name, count in options.items()}
        self.group.are_topics_stale = True

    def on_join(self, names: list[str], options: dict[str, str]) -> None:
        self.heartbeat(names[0], {"epoch": "0", "reads": "t", "timeout": "60000", "owns": "", **options})

    def on_beat(self, names: list[str], options: dict[str, str]) -> None:
        self.heartbeat(names[0], options)

    def on_leave(self, names: list[str], options: dict[str, str]) -> None:
        self.heartbeat(names[0], {"epoch": "-1", **options})

    def heartbeat(self, name: str, options: dict[str, str]) -> None:
        request = HeartbeatRequest(
            member_id=options.get("id", name.lower()),
            member_epoch=int(options.get("epoch", self.epochs.get(name, 0))),
            instance_id=options.get("instance"),
            rebalance_timeout_ms=int(options.get("timeout", -1)),
            topic_names=tuple(options["reads"].split(",")) if "reads" in options else None,
            topic_regex=options.get("regex"),
            assignor=options.get("assignor"),
            owned=parts_of(options["owns"]) if "owns" in options else None,
        )
        self.group.heartbeat(request, name, self.now_ms, self.now_ms)

    def on_commit(self, names: list[str], options: dict[str, str]) -> None:
        epoch = int(options.get("epoch", self.epochs.get(names[0], 0) if names else -1))
        code = self.group.check_commit(names[0].lower() if names else "", None, epoch, self.now_ms)
        self.lines.append(f"< {code.name}")

    def on_fail(self, names: list[str], options: dict[str, str]) -> None:
        """The next write is refused."""
        self.next_error = ErrorCode[names[0]]

    def on_failover(self, names: list[str], options: dict[str, str]) -> None:
        """Another coordinator reads the log."""
        shard = GroupCoordinatorShard(0, 1, lambda _: self.config, self.topics)
        for record in self.log:
            shard.replay(record.key, record.value)
        shard.finish_loading(self.now_ms, lambda what, error: self.lines.append(f"  {what}: {error}"))
        group = shard.groups["g"]
        assert isinstance(group, ConsumerGroup)
        self.group = group
        self.timers.clear()

    # -- what follows

    def state(self) -> str:
        members = " ".join(
            f"{one.member_id}@{one.epoch}[{show(one.assigned)}{' -' + show(one.revoking) if one.revoking else ''}]"
            for one in self.group.members.values()
        )
        return f"{self.group.state} epoch {self.group.epoch}: {members}"

    def effect(self, effect: Any) -> Iterator[str]:
        if isinstance(effect, Reply):
            yield self.reply(effect.token, effect.result)
        elif isinstance(effect, Persist):
            error, self.next_error = self.next_error, ErrorCode.NONE
            if not error:
                self.log += effect.records
            yield "  write " + " ".join(map(show_record, effect.records))
            self.group.on_persisted(effect.tag, error, self.now_ms, self.now_ms)
        elif isinstance(effect, SetTimer):
            self.timers[effect.name] = effect.deadline_ms
        elif isinstance(effect, CancelTimer):
            self.timers.pop(effect.name, None)
        elif isinstance(effect, Reload):
            yield "  reload"
            self.on_failover([], {})

    def reply(self, name: str, result: HeartbeatResult) -> str:
        if result.error:
            return f"< {name} {result.error.name}"
        self.epochs[name] = result.member_epoch
        given = "" if result.assignment is None else f" reads {show(result.assignment) or 'nothing'}"
        return f"< {name} epoch {result.member_epoch}{given}"


def parts_of(text: str) -> PartitionIds:
    return tuple((UUID(int=ord(part[0])), int(part[1:])) for part in text.split(",") if part)


def show(parts: PartitionIds) -> str:
    return ",".join(f"{chr(topic.int)}{partition}" for topic, partition in parts)


def show_record(record: CoordinatorRecord) -> str:
    key = decode_consumer_key(record.key)
    assert key is not None
    sign = "-" if record.value is None else "+"
    return f"{sign}{key.kind.name.lower()}{':' + key.member_id if key.member_id else ''}"
