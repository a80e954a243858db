"""A write that the log refuses changes nothing: the group is what the log says, and other groups do not notice."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.broker.broker_harness import TOPIC, settle
from support.broker.group_harness import (
    PARTITIONS,
    GroupHarness,
    consumer_heartbeat,
    join_consumer_group,
    play,
    played,
    subscription,
)

from raftwerk.broker.coordinators.effects import Persist
from raftwerk.broker.coordinators.partition_for import partition_for
from raftwerk.broker.coordinators.record_fields import CoordinatorRecord
from raftwerk.broker.groups.classic.classic_group import ClassicGroup
from raftwerk.broker.groups.classic.consumer_protocol import write_assignment
from raftwerk.broker.groups.consumer.consumer_group import ConsumerGroup
from raftwerk.broker.groups.consumer.consumer_group_heartbeat import HeartbeatRequest
from raftwerk.broker.groups.consumer.consumer_group_member import MemberState
from raftwerk.broker.groups.effects import CancelTimer, ReplaceGroup, SetTimer, TimerName
from raftwerk.broker.groups.group_config import GroupConfig
from raftwerk.broker.groups.group_coordinator_shard import GroupCoordinatorShard
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode

OTHER = next(f"o{i}" for i in range(100) if partition_for(f"o{i}", PARTITIONS) == partition_for("g", PARTITIONS))


def rebalance(harness: GroupHarness) -> Any:
    """Another group of the same partition, in the middle of a rebalance: a JoinGroup waits."""
    fields = {"group_id": OTHER, "session_timeout": 10_000, "rebalance_timeout": 60_000, "member_id": ""}
    protocols = [{"name": "range", "metadata": subscription(TOPIC)}]
    waiting = harness.parked(ApiKey.JOIN_GROUP, 3, {**fields, "protocol_type": "consumer", "protocols": protocols})
    assert waiting() is None
    return waiting


@played
async def test_other_groups_of_the_partition_do_not_notice(harness: GroupHarness) -> None:
    shard = harness.groups.shard_of("g")
    waiting = rebalance(harness)
    harness.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await join_consumer_group(harness, member_id="m")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await asyncio.sleep(0.1)
    assert waiting() is None and harness.groups.shard_of("g") is shard
    assert "g" not in shard.groups, "a group that the log does not know is gone"
    harness.append_error = 0
    assert (await join_consumer_group(harness, member_id="m")).member_epoch == 1


@played
async def test_a_subscription_that_is_too_large_is_refused_to_its_member_alone(harness: GroupHarness) -> None:
    joined = await join_consumer_group(harness, member_id="m")
    waiting = rebalance(harness)
    names = [f"a-topic-with-a-longish-name-{number:06}" for number in range(40_000)]
    answer = await consumer_heartbeat(harness, member_epoch=joined.member_epoch, subscribed_topic_names=names)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    await asyncio.sleep(0.1)
    assert waiting() is None
    assert (await consumer_heartbeat(harness, member_epoch=joined.member_epoch)).error_code == 0


@played
async def test_a_write_that_may_be_in_the_log_has_the_shard_loaded_again(harness: GroupHarness) -> None:
    shard = harness.groups.shard_of("g")
    harness.append_error = ErrorCode.REQUEST_TIMED_OUT
    assert (await join_consumer_group(harness)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.append_error = 0
    harness.release_commits()
    await settle(30)
    assert harness.groups.shard_of("g") is not shard
    assert (await consumer_heartbeat(harness, member_epoch=1)).error_code == 0


async def sync(harness: GroupHarness, joined: Any) -> None:
    """Assign a partition to the only member of a classic group."""
    given = {"member_id": joined.member_id, "assignment": write_assignment(1, [(TOPIC, 0)])}
    fields = {"generation_id": joined.generation_id, "member_id": joined.member_id, "assignments": [given]}
    named = {"group_id": "g", "protocol_type": "consumer", "protocol_name": joined.protocol_name}
    answer = await harness.call(ApiKey.SYNC_GROUP, 5, {**named, **fields})
    assert answer.assignment == given["assignment"]


@pytest.mark.parametrize("has_synced", [True, False])
def test_a_classic_group_whose_upgrade_is_refused_goes_on(has_synced: bool) -> None:
    async def test(harness: GroupHarness) -> None:
        joined = await harness.join("g")
        if has_synced:
            await sync(harness, joined)
        harness.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await join_consumer_group(harness)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        harness.append_error = 0
        group = harness.groups.shard_of("g").groups["g"]
        assert isinstance(group, ClassicGroup) and list(group.members.members) == [joined.member_id]
        fields = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
        answer = await harness.call(ApiKey.HEARTBEAT, 4, fields)
        assert answer.error_code == (0 if has_synced else ErrorCode.REBALANCE_IN_PROGRESS)
        await sync(harness, joined if has_synced else await harness.join("g", member_id=joined.member_id))
        await asyncio.sleep(11)
        assert group.is_empty, "its member has a session, which expires"

    play(test)


@played
async def test_ids_that_were_given_before_a_refused_upgrade_hold_no_rebalance_up(harness: GroupHarness) -> None:
    """Their time-outs ended with the group. Who was given one has to ask again, as after an upgrade."""
    joined = await harness.join("g")
    await sync(harness, joined)
    fields = {"group_id": "g", "session_timeout": 10_000, "rebalance_timeout": 60_000, "protocol_type": "consumer"}
    fields["protocols"] = [{"name": "range", "metadata": subscription(TOPIC)}]
    given = await harness.call(ApiKey.JOIN_GROUP, 9, {**fields, "member_id": ""})
    assert given.error_code == ErrorCode.MEMBER_ID_REQUIRED
    harness.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await join_consumer_group(harness)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.append_error = 0
    late = await harness.call(ApiKey.JOIN_GROUP, 9, {**fields, "member_id": given.member_id})
    assert late.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    again = await harness.join("g", member_id=joined.member_id)
    assert (again.error_code, again.generation_id) == (0, joined.generation_id + 1)


@played
async def test_an_empty_classic_group_keeps_its_offsets_when_its_upgrade_is_refused(harness: GroupHarness) -> None:
    assert await harness.commit("g", offset=7) == 0
    harness.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await join_consumer_group(harness)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.append_error = 0
    group = harness.groups.shard_of("g").groups["g"]
    assert isinstance(group, ClassicGroup) and group.is_simple
    assert await harness.committed("g") == 7


@played
async def test_a_downgrade_that_is_refused_leaves_a_consumer_group(harness: GroupHarness) -> None:
    joined = await harness.join("g")
    await sync(harness, joined)
    epoch = (await join_consumer_group(harness)).member_epoch
    harness.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await consumer_heartbeat(harness, member_epoch=-1)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.append_error = 0
    group = harness.groups.shard_of("g").groups["g"]
    assert isinstance(group, ConsumerGroup) and sorted(group.members) == sorted(["m", joined.member_id])
    assert (await consumer_heartbeat(harness, member_epoch=epoch)).error_code == 0
    await asyncio.sleep(11)
    assert list(group.members) == ["m"], "the member of the classic protocol has a session, which expires"
    assert (await consumer_heartbeat(harness, member_epoch=-1)).error_code == 0


class Topics:
    """The topics t and u."""

    def __init__(self) -> None:
        self.counts = {"t": 4, "u": 2}

    def find(self, name: str) -> tuple[UUID, int] | None:
        return (UUID(int=ord(name)), self.counts[name]) if name in self.counts else None

    def name_of(self, topic_id: UUID) -> str | None:
        return chr(topic_id.int)

    def names(self) -> list[str]:
        return sorted(self.counts)


class Model:
    """A group, its log, and its timers. `fails` says whether the log refuses the next write."""

    def __init__(self) -> None:
        self.topics = Topics()
        self.log: list[CoordinatorRecord] = []
        self.timers: dict[TimerName, int] = {}
        self.now_ms = 0
        self.fails = False
        self.group = self.new_group()

    def new_group(self) -> ConsumerGroup:
        return ConsumerGroup("g", GroupConfig(), self.topics)

    def from_log(self) -> ConsumerGroup:
        shard = GroupCoordinatorShard(0, 1, lambda _: GroupConfig(), self.topics)
        for record in self.log:
            shard.replay(record.key, record.value)
        shard.finish_loading(0, lambda what, error: pytest.fail(f"{what}: {error}"))
        group = shard.groups.get("g", self.new_group())
        assert isinstance(group, ConsumerGroup)
        return group

    def send(self, member: str, action: str, reads: str, timers_fire: bool) -> None:
        self.now_ms += 1
        known = self.group.members.get(member)
        epoch = {"join": 0, "leave": -1, "go away": -2}.get(action, 0 if known is None else known.epoch)
        owned = known.assigned if known is not None and action != "join" else ()
        if known is not None and action == "keep":
            owned = (*known.assigned, *known.revoking)
        instance = f"i{member[0]}" if member[0] == "s" else None
        request = HeartbeatRequest(
            member, epoch, instance_id=instance, rebalance_timeout_ms=50, topic_names=tuple(reads), owned=owned
        )
        self.group.heartbeat(request, None, self.now_ms, self.now_ms)
        self.carry_out()
        if timers_fire:
            self.fire_next()

    def fire_next(self) -> None:
        if self.timers:
            name = min(self.timers, key=lambda name: self.timers[name])
            self.now_ms = max(self.now_ms, self.timers.pop(name))
            self.group.on_timer(name, self.now_ms, self.now_ms)
            self.carry_out()

    def carry_out(self) -> None:
        while effects := self.group.drain():
            for effect in effects:
                if isinstance(effect, Persist) and self.fails:
                    self.group.on_refused(effect.tag, ErrorCode.COORDINATOR_NOT_AVAILABLE, self.now_ms, self.now_ms)
                elif isinstance(effect, Persist):
                    self.log += effect.records
                    self.group.on_persisted(effect.tag, ErrorCode.NONE, self.now_ms, self.now_ms)
                elif isinstance(effect, SetTimer):
                    self.timers[effect.name] = effect.deadline_ms
                elif isinstance(effect, CancelTimer):
                    self.timers.pop(effect.name, None)
                elif isinstance(effect, ReplaceGroup):
                    assert effect.group is None and not self.timers
                    self.group = self.new_group()


def state_of(group: ConsumerGroup) -> Any:
    """All that follows from the records. A member without a target may have an empty one."""
    members = {
        name: replace(one, assigned=tuple(sorted(one.assigned)), revoking=tuple(sorted(one.revoking)))
        for name, one in group.members.items()
    }
    target = {name: parts for name, parts in group.target.items() if parts}
    epochs = group.epoch, group.target_epoch, group.metadata_hash
    return epochs, members, target, group._owners, group._static_ids


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", "s1", "s2"]),
        st.sampled_from(["join", "beat", "keep", "leave", "go away"]),
        st.sampled_from(["t", "u", "tu"]),
        st.booleans(),
        st.booleans(),
    ),
    max_size=30,
)


@given(STEPS)
def test_the_group_is_always_what_its_log_says(steps: list[tuple[str, str, str, bool, bool]]) -> None:
    model = Model()
    for member, action, reads, timers_fire, model.fails in steps:
        model.send(member, action, reads, timers_fire)
        assert state_of(model.group) == state_of(model.from_log())
        sessions = [name.member_id for name in model.timers if name.kind == "session"]
        assert sorted(sessions) == sorted(model.group.members)
        revoking = [name for name, one in model.group.members.items() if one.state is MemberState.UNREVOKED]
        assert sorted(name.member_id for name in model.timers if name.kind == "rebalance") == sorted(revoking)
