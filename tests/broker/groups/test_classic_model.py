"""Random histories of a classic group: each request is answered once, and each silent member expires."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from raftwerk.broker.coordinators.effects import Persist, Reply
from raftwerk.broker.groups.classic.classic_events import JoinRequest, SyncRequest
from raftwerk.broker.groups.classic.classic_group import ClassicGroup
from raftwerk.broker.groups.classic.classic_group_members import ClassicGroupState
from raftwerk.broker.groups.effects import CancelTimer, JoinResult, SetTimer, TimerName
from raftwerk.broker.groups.group_config import ClassicConfig
from raftwerk.wire.errors import ErrorCode

CLIENTS = 4
STEPS = 150


class History:
    """A group, and clients that join, sync, send heartbeats and leave at random."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.group = ClassicGroup(
            "g", ClassicConfig(initial_rebalance_delay_ms=self.rng.choice((0, 3_000)), max_size=3)
        )
        self.now_ms = 0
        self.tokens = itertools.count()
        self.waiting: dict[int, int] = {}
        self.ids: dict[int, str] = {}
        self.generations: dict[int, int] = {}
        self.timers: dict[TimerName, int] = {}
        self.held: list[Persist[Any]] = []
        self.last_generation = 0

    def run(self) -> None:
        deeds = (self.join, self.join, self.sync, self.heartbeat, self.leave, self.tick, self.log)
        for _ in range(STEPS):
            self.rng.choices(deeds, (2, 2, 8, 2, 1, 1, 4))[0]()
            self.carry_out()
            self.check()
        self.group.close(ErrorCode.NOT_COORDINATOR)
        self.carry_out()
        while self.held:
            self.log()
            self.carry_out()
        assert self.waiting == {}, "every request is answered"
        assert self.timers == {}

    def ask(self, client: int) -> int:
        token = next(self.tokens)
        self.waiting[token] = client
        return token

    def join(self) -> None:
        client = self.rng.randrange(CLIENTS)
        instance = f"i{client}" if client == 0 else None
        protocols = self.rng.sample([("range", b"r"), ("sticky", b"s"), ("roundrobin", b"o")], self.rng.choice((2, 3)))
        request = JoinRequest(
            member_id="" if self.rng.random() < 0.1 else self.ids.get(client, ""),
            new_member_id=f"{client}-{next(self.tokens)}",
            instance_id=instance,
            client_id=str(client),
            client_host="/h",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=self.rng.choice((15_000, 60_000)),
            protocol_type="consumer",
            protocols=tuple(protocols),
            requires_known_id=self.rng.random() < 0.8,
        )
        self.group.join(request, self.ask(client), self.now_ms, self.now_ms)

    def sync(self) -> None:
        client = self.rng.randrange(CLIENTS)
        request = SyncRequest(self.ids.get(client, ""), self.generations.get(client, -1), None, None, None, ())
        self.group.sync(request, self.ask(client), self.now_ms, self.now_ms)

    def heartbeat(self) -> None:
        client = self.rng.randrange(CLIENTS)
        self.group.heartbeat(self.ids.get(client, ""), None, self.generations.get(client, -1), self.now_ms)

    def leave(self) -> None:
        if self.rng.random() < 0.3:
            self.group.leave([(self.ids.get(self.rng.randrange(CLIENTS), ""), None)], self.now_ms, self.now_ms)

    def tick(self) -> None:
        until = self.now_ms + self.rng.choice((100, 2_000, 8_000, 20_000))
        while due := [(at, name) for name, at in self.timers.items() if at <= until]:
            at, name = min(due)
            del self.timers[name]
            self.now_ms = max(self.now_ms, at)
            self.group.on_timer(name, self.now_ms, self.now_ms)
            self.carry_out()
            self.check()
        self.now_ms = until

    def log(self) -> None:
        if self.held:
            error = self.rng.choice((ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_COORDINATOR))
            self.group.on_persisted(self.held.pop(0).tag, error, self.now_ms, self.now_ms)

    def carry_out(self) -> None:
        while effects := self.group.drain():
            for effect in effects:
                if isinstance(effect, Reply):
                    self.on_reply(self.waiting.pop(effect.token), effect.result)
                elif isinstance(effect, Persist):
                    self.held.append(effect)
                elif isinstance(effect, SetTimer):
                    self.timers[effect.name] = effect.deadline_ms
                elif isinstance(effect, CancelTimer):
                    self.timers.pop(effect.name, None)

    def on_reply(self, client: int, result: Any) -> None:
        if isinstance(result, JoinResult):
            if result.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                self.ids[client] = result.member_id
                self.generations[client] = result.generation
            else:
                self.ids.pop(client, None)

    def check(self) -> None:
        group, members = self.group, self.group.members
        assert group.generation >= self.last_generation
        self.last_generation = group.generation
        assert (members.leader is None) == (not members.members)
        assert members.leader is None or members.leader in members.members
        assert (group.state is ClassicGroupState.EMPTY) == (
            not members.members and TimerName("join") not in self.timers
        )
        for member_id, member in members.members.items():
            assert member.member_id == member_id
            assert member.join_token is None or group.state is ClassicGroupState.PREPARING_REBALANCE
            assert member.sync_token is None or group.state is ClassicGroupState.COMPLETING_REBALANCE
            timed = TimerName("session", member_id) in self.timers
            assert timed or member.is_awaiting, "a member that is silent for ever is noticed"
        for name, count in members.supporters.items():
            assert count == sum(name in dict(member.protocols) for member in members.members.values())
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            assert TimerName("join") in self.timers, "a rebalance ends"
        if group.state is ClassicGroupState.COMPLETING_REBALANCE:
            assert TimerName("sync") in self.timers or not members.unsynced, "nobody holds a generation up"


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_random_histories(first: int) -> None:
    for seed in range(first, first + 50):
        try:
            History(seed).run()
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
