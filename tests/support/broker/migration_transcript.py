"""Transcripts of a group that goes from one protocol to the other, asked over the wire.

Members are letters; partitions are written t0 t1. The classic protocol: `join` `sync` `heart` `quit`, the consumer
protocol: `enter` `beat` `exit`; `owns=t0,t1` is what a member says it reads. `wait` passes milliseconds, `fail` has the
next write refused, `failover` gives the log to another coordinator. `policy` sets group.consumer.migration.policy.
Run this file to write the answers anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from support.broker.broker_harness import settle
from support.broker.group_harness import GroupHarness, on_virtual_time

from raftwerk.broker.groups.classic.classic_group import ClassicGroup
from raftwerk.broker.groups.classic.consumer_protocol import read_assignment, write_assignment, write_subscription
from raftwerk.broker.groups.group_config import GroupConfig, MigrationPolicy
from raftwerk.broker.groups.records.consumer_group_records import decode_consumer_key
from raftwerk.broker.groups.records.offset_and_classic_records import ClassicGroupKey, decode_classic_group, decode_key
from raftwerk.controller.metadata.metadata_records import PartitionRecord, TopicRecord
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.records import Record

FOLDER = Path(__file__).parents[2] / "broker" / "groups" / "transcripts"
TOPIC, TOPIC_ID = "t", UUID(int=ord("t"))
GROUP = "g"


def transcripts() -> list[Path]:
    return sorted(FOLDER.glob("migration_*.txt"))


def run_transcript(text: str) -> str:
    lines: list[str] = []

    async def main() -> None:
        stage = Stage()
        for line in text.splitlines():
            if line.startswith("#"):
                lines.extend(["", line])
            elif line.startswith(">"):
                lines.extend(["", line, *await stage.play(line[1:].split())])

    on_virtual_time(main)
    return "\n".join(lines).replace("\n\n\n", "\n\n").strip("\n") + "\n"


class Stage:
    def __init__(self) -> None:
        self.harness = GroupHarness()
        self.config = GroupConfig()
        self.policy = MigrationPolicy.BIDIRECTIONAL
        self.prepare()
        self.ids: dict[str, str] = {}
        self.epochs: dict[str, int] = {}
        self.waiting: list[tuple[str, Callable[[], Any], Callable[[str, Any], str]]] = []
        self.next_error = 0
        self.shown = ""

    def prepare(self) -> None:
        self.harness.replay(TopicRecord(TOPIC, TOPIC_ID))
        for index in range(4):
            self.harness.replay(PartitionRecord(TOPIC_ID, index, (1,), (1,), 1))
        self.set_policy(self.policy)

    def set_policy(self, policy: MigrationPolicy) -> None:
        self.policy = policy
        groups = self.harness.groups
        groups.config = replace(
            groups.config,
            classic=replace(groups.config.classic, initial_rebalance_delay_ms=0),
            consumer=replace(groups.config.consumer, migration_policy=policy),
        )
        groups.apply_configs()

    async def play(self, words: list[str]) -> list[str]:
        options = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        names = [word for word in words[1:] if "=" not in word]
        self.harness.append_error, self.next_error = self.next_error, 0
        before = len(self.harness.records())
        acted = getattr(self, "on_" + words[0])(names, options)
        if acted is not None:
            await acted
        lines: list[str] = []
        for _ in range(3):
            await settle(10)
            lines += self.replies()
        written = self.harness.records()[before:]
        if written:
            lines.append("  write " + " ".join(self.show_record(record) for record in written))
        state = self.state()
        if state != self.shown:
            lines.append(state)
            self.shown = state
        return lines

    # -- what happens

    def on_policy(self, names: list[str], options: dict[str, str]) -> None:
        self.set_policy(MigrationPolicy(names[0]))

    async def on_wait(self, names: list[str], options: dict[str, str]) -> None:
        await asyncio.sleep(int(names[0]) / 1000)

    def on_fail(self, names: list[str], options: dict[str, str]) -> None:
        self.next_error = int(ErrorCode[names[0]])

    async def on_failover(self, names: list[str], options: dict[str, str]) -> None:
        self.harness = GroupHarness(self.harness.logs)
        self.prepare()
        await settle(30)

    def on_join(self, names: list[str], options: dict[str, str]) -> None:
        name = names[0]
        protocols = options.get("assignor", "range").split(",")
        fields = {
            "group_id": GROUP,
            "session_timeout": 10_000,
            "rebalance_timeout": 20_000,
            "member_id": options.get("id", self.ids.get(name, "")),
            "group_instance_id": options.get("instance"),
            "protocol_type": options.get("type", "consumer"),
            "protocols": [{"name": one, "metadata": subscription(options)} for one in protocols],
        }

        def answered(name: str, answer: Struct) -> str:
            self.name(name, answer.member_id)
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.ask(name, ApiKey.JOIN_GROUP, 9, {**fields, "member_id": answer.member_id}, answered)
                return ""
            if answer.error_code:
                return ErrorCode(answer.error_code).name
            self.epochs[name] = answer.generation_id
            leads = " leads " + ",".join(self.letter(one.member_id) for one in answer.members) if answer.members else ""
            return f"generation {answer.generation_id}{leads}"

        self.ask(name, ApiKey.JOIN_GROUP, 9, fields, answered)

    def on_sync(self, names: list[str], options: dict[str, str]) -> None:
        name = names[0]
        given = [part.split(":") for part in options.get("gives", "").split(";") if part]
        fields = {
            "group_id": GROUP,
            "generation_id": self.epochs[name],
            "member_id": self.ids[name],
            "group_instance_id": options.get("instance"),
            "protocol_type": "consumer",
            "protocol_name": options.get("assignor", "range"),
            "assignments": [
                {"member_id": self.ids[to], "assignment": write_assignment(1, named(parts))} for to, parts in given
            ],
        }

        def answered(name: str, answer: Struct) -> str:
            if answer.error_code:
                return ErrorCode(answer.error_code).name
            return "reads " + (show(read_assignment(answer.assignment)[0]) or "nothing")

        self.ask(name, ApiKey.SYNC_GROUP, 5, fields, answered)

    def on_heart(self, names: list[str], options: dict[str, str]) -> None:
        fields = {"group_id": GROUP, "generation_id": self.epochs[names[0]], "member_id": self.ids[names[0]]}
        fields["group_instance_id"] = options.get("instance")
        self.ask(names[0], ApiKey.HEARTBEAT, 4, fields, lambda _, answer: ErrorCode(answer.error_code).name)

    def on_quit(self, names: list[str], options: dict[str, str]) -> None:
        fields = {"group_id": GROUP, "members": [{"member_id": self.ids[name]} for name in names]}
        self.ask(names[0], ApiKey.LEAVE_GROUP, 5, fields, lambda _, answer: left(answer))

    def on_enter(self, names: list[str], options: dict[str, str]) -> None:
        said = {"rebalance_timeout": 20_000, "subscribed_topic_names": options.get("reads", "t").split(",")}
        self.beat(names[0], {"epoch": "0", "owns": "", **options}, said)

    def on_beat(self, names: list[str], options: dict[str, str]) -> None:
        self.beat(names[0], options, {})

    def on_exit(self, names: list[str], options: dict[str, str]) -> None:
        self.beat(names[0], {"epoch": "-1", **options}, {})

    def beat(self, name: str, options: dict[str, str], said: dict[str, Any]) -> None:
        owned = None
        if "owns" in options:
            parts = [int(part[1:]) for part in options["owns"].split(",") if part]
            owned = [{"topic_id": TOPIC_ID, "partitions": parts}] if parts else []
        self.name(name, options.get("id", self.ids.get(name, name.lower())))
        fields = {
            "group_id": GROUP,
            "member_id": self.ids[name],
            "member_epoch": int(options.get("epoch", self.epochs.get(name, 0))),
            "instance_id": options.get("instance"),
            "topic_partitions": owned,
            **said,
        }

        def answered(name: str, answer: Struct) -> str:
            if answer.error_code:
                return f"{ErrorCode(answer.error_code).name} {answer.error_message or ''}".strip()
            self.epochs[name] = answer.member_epoch
            given = ""
            if answer.assignment is not None:
                rows = [(TOPIC, part) for row in answer.assignment.topic_partitions for part in row.partitions]
                given = f" reads {show(rows) or 'nothing'}"
            return f"epoch {answer.member_epoch}{given}"

        self.ask(name, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, fields, answered)

    async def on_commit(self, names: list[str], options: dict[str, str]) -> None:
        name = names[0]
        code = await self.harness.commit(
            GROUP, 9, int(options["offset"]), member_id=self.ids[name], generation_id_or_member_epoch=self.epochs[name]
        )
        self.waiting.append(
            (name, lambda: SimpleNamespace(error_code=code), lambda _, answer: ErrorCode(answer.error_code).name)
        )

    # -- what follows

    def ask(
        self, name: str, key: ApiKey, version: int, fields: dict[str, Any], show: Callable[[str, Struct], str]
    ) -> None:
        self.waiting.append((name, self.harness.parked(key, version, fields), show))

    def replies(self) -> list[str]:
        """The answers that have come."""
        lines = []
        for entry in list(self.waiting):
            name, answer, show_answer = entry
            found = answer()
            if found is not None:
                self.waiting.remove(entry)
                text = show_answer(name, found)
                lines += [f"< {name} {text}"] if text else []
        return lines

    def name(self, name: str, member_id: str) -> None:
        if member_id:
            self.ids[name] = member_id

    def letter(self, member_id: str) -> str:
        return next((name for name, known in self.ids.items() if known == member_id), "?")

    def show_record(self, record: Record) -> str:
        assert record.key is not None
        sign = "-" if record.value is None else "+"
        key = decode_key(record.key)
        if isinstance(key, ClassicGroupKey):
            value = "" if record.value is None else f"@{decode_classic_group(bytes(record.value)).generation}"
            return f"{sign}classic{value}"
        found = decode_consumer_key(record.key)
        if found is None:
            return f"{sign}offset"
        return f"{sign}{found.kind.name.lower()}{':' + self.letter(found.member_id) if found.member_id else ''}"

    def state(self) -> str:
        group = self.harness.groups.shard_of(GROUP).groups.get(GROUP)
        if group is None:
            return "  nothing"
        if isinstance(group, ClassicGroup):
            members = " ".join(
                f"{self.letter(one.member_id)}[{show(read_assignment(one.assignment)[0])}]"
                for one in group.members.members.values()
            )
            return f"  classic {group.state} generation {group.generation}: {members}".rstrip(": ")
        members = " ".join(
            f"{self.letter(one.member_id)}@{one.epoch}"
            f"[{show([(TOPIC, part) for _, part in one.assigned])}"
            f"{' -' + show([(TOPIC, part) for _, part in one.revoking]) if one.revoking else ''}]"
            for one in group.members.values()
        )
        return f"  consumer {group.state} epoch {group.epoch}: {members}".rstrip(": ")


def left(answer: Struct) -> str:
    return " ".join(ErrorCode(one.error_code or answer.error_code).name for one in answer.members)


def named(text: str) -> list[tuple[str, int]]:
    return [(part[0], int(part[1:])) for part in text.split(",") if part]


def show(parts: Any) -> str:
    return ",".join(f"{topic}{partition}" for topic, partition in parts)


def subscription(options: dict[str, str]) -> bytes:
    return write_subscription(options.get("reads", "t").split(","), named(options.get("owns", "")))
