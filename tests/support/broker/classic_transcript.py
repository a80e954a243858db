"""Transcripts of a classic group: what members and the clock do (`>`), and what the group does.

Run this file to write the answers anew.

Members are called by a letter; the group gives them ids: the first of member A is `a-1`. A member uses the id it was
given last, unless it is said to be `fresh`. Timers fire as the clock passes them (`> at`, milliseconds). What the group
writes is committed at once, unless the log is held (`> hold`), until it `> commits` or `> fails CODE`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.broker.group_transcript import FOLDER, GroupStage

from raftwerk.broker.coordinators.effects import Persist, Reply
from raftwerk.broker.groups.classic.classic_events import JoinRequest, SyncRequest
from raftwerk.broker.groups.classic.classic_group import ClassicGroup
from raftwerk.broker.groups.effects import CancelTimer, JoinResult, SetTimer, SyncResult
from raftwerk.broker.groups.group_config import ClassicConfig
from raftwerk.broker.groups.records.offset_and_classic_records import GroupMetadataValue, decode_classic_group
from raftwerk.wire.errors import ErrorCode


def transcripts() -> list[Path]:
    return sorted(FOLDER.glob("classic_*.txt"))


def run_transcript(text: str) -> str:
    return Stage().run(text)


class Stage(GroupStage):
    group: ClassicGroup

    def __init__(self) -> None:
        self.config = ClassicConfig()
        super().__init__(ClassicGroup("g", self.config))
        self.ids: dict[str, str] = {}
        self.given: dict[str, int] = {}
        self.is_held = False
        self.held: list[Persist[Any]] = []
        self.written: GroupMetadataValue | None = None

    # -- what happens

    def on_config(self, names: list[str], options: dict[str, str]) -> None:
        self.config = replace(self.config, **{name: int(value) for name, value in options.items()})
        self.group.config = self.config

    def on_join(self, names: list[str], options: dict[str, str]) -> None:
        name = names[0]
        protocols = options.get("protocols", "range").split(",")
        count = self.given[name] = self.given.get(name, 0) + 1
        request = JoinRequest(
            member_id=options.get("id", "" if "fresh" in names else self.ids.get(name, "")),
            new_member_id=f"{name.lower()}-{count}",
            instance_id=options.get("instance"),
            client_id=name,
            client_host="/h",
            session_timeout_ms=int(options.get("session", 10_000)),
            rebalance_timeout_ms=int(options.get("rebalance", 60_000)),
            protocol_type=options.get("type", "consumer"),
            protocols=tuple((one, options.get("metadata", name).encode()) for one in protocols),
            requires_known_id="old" not in names,
            can_skip_assignment="old" not in names,
        )
        self.group.join(request, name, self.now_ms, self.now_ms)

    def on_sync(self, names: list[str], options: dict[str, str]) -> None:
        generation = int(options.pop("gen"))
        protocol = options.pop("protocol", None)
        instance = options.pop("instance", None)
        assignments = tuple((self.ids.get(name, name), value.encode()) for name, value in options.items())
        request = SyncRequest(self.ids.get(names[0], ""), generation, instance, "consumer", protocol, assignments)
        self.group.sync(request, names[0], self.now_ms, self.now_ms)

    def on_heartbeat(self, names: list[str], options: dict[str, str]) -> None:
        member_id = options.get("id", self.ids.get(names[0], ""))
        code = self.group.heartbeat(member_id, options.get("instance"), int(options["gen"]), self.now_ms)
        self.lines.append(f"< {names[0]} {code.name}")

    def on_commit(self, names: list[str], options: dict[str, str]) -> None:
        member_id = self.ids.get(names[0], "") if names else ""
        code = self.group.check_commit(member_id, options.get("instance"), int(options["gen"]), self.now_ms)
        self.lines.append(f"< {names[0] if names else 'somebody'} {code.name}")

    def on_leave(self, names: list[str], options: dict[str, str]) -> None:
        leavers: list[tuple[str, str | None]] = [(self.ids.get(name, name), None) for name in names]
        leavers += [("", options["instance"])] if "instance" in options else []
        codes = self.group.leave(leavers, self.now_ms, self.now_ms)
        self.lines.append("< " + " ".join(code.name for code in codes))

    def on_hold(self, names: list[str], options: dict[str, str]) -> None:
        self.is_held = True

    def on_commits(self, names: list[str], options: dict[str, str]) -> None:
        self.persisted(ErrorCode.NONE)

    def on_fails(self, names: list[str], options: dict[str, str]) -> None:
        self.persisted(ErrorCode[names[0]])

    def on_failover(self, names: list[str], options: dict[str, str]) -> None:
        """The coordinator dies, and the next one loads the log."""
        assert self.written is not None
        self.group = ClassicGroup.restored("g", self.config, self.written, self.now_ms)
        self.timers.clear()

    def on_close(self, names: list[str], options: dict[str, str]) -> None:
        self.group.close(ErrorCode.NOT_COORDINATOR)

    # -- what follows

    def persisted(self, error: ErrorCode) -> None:
        for persist in self.held:
            if not error:
                self.written = decode_classic_group(persist.records[0].value or b"")
            self.group.on_persisted(persist.tag, error, self.now_ms, self.now_ms)
        self.held = []
        self.is_held = False

    def on_carried_out(self) -> None:
        if self.held and not self.is_held:
            self.persisted(ErrorCode.NONE)

    def state(self) -> str:
        return f"{self.group.state} gen {self.group.generation}: {self.members()}"

    def members(self) -> str:
        members = self.group.members
        return " ".join(
            f"{member.member_id}{'*' if member.member_id == members.leader else ''}"
            f"{'(' + member.instance_id + ')' if member.instance_id else ''}"
            for member in members.members.values()
        )

    def effect(self, effect: Any) -> Iterator[str]:
        if isinstance(effect, Reply):
            yield from self.reply(effect.token, effect.result)
        elif isinstance(effect, Persist):
            value = decode_classic_group(effect.records[0].value or b"")
            given = " ".join(f"{one.member_id}={one.assignment.decode()}" for one in value.members)
            yield f"  write gen {value.generation} {value.protocol} {given}".rstrip()
            self.held.append(effect)
        elif isinstance(effect, SetTimer):
            self.timers[effect.name] = effect.deadline_ms
        elif isinstance(effect, CancelTimer):
            self.timers.pop(effect.name, None)

    def reply(self, name: str, result: JoinResult | SyncResult) -> Iterator[str]:
        if isinstance(result, SyncResult):
            given = f"gets {result.assignment.decode() or 'nothing'}"
            yield f"< {name} {result.error.name if result.error else given}"
            return
        if result.member_id and result.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.ids[name] = result.member_id
        if result.error:
            yield f"< {name} {result.error.name} {result.member_id}".rstrip()
            return
        role = "leads" if result.leader == result.member_id else f"follows {result.leader}"
        members = " ".join(f"{member_id}:{metadata.decode()}" for member_id, _, metadata in result.members)
        skips = " (assignment stays)" if result.skip_assignment else ""
        yield (
            f"< {name} is {result.member_id}, gen {result.generation} {result.protocol_name}, {role} {members}".rstrip()
            + skips
        )
