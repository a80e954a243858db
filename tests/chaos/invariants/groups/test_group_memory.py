"""What a coordinator holds is compared with the simulator's replay of its log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.chaos.offsets_topic import GROUP, KEY, OffsetsTopic, classic, epochs, member

from raftwerk.broker.groups.classic.classic_group import ClassicGroup
from raftwerk.broker.groups.classic.classic_group_members import ClassicGroupState
from raftwerk.broker.groups.consumer.consumer_group import ConsumerGroup
from raftwerk.broker.groups.group_coordinator_shard import GroupCoordinatorShard
from raftwerk.broker.groups.records.consumer_group_records import MemberMetadataValue
from raftwerk.broker.groups.records.offset_and_classic_records import OffsetAndMetadata
from raftwerk.chaos.sim.invariants.groups.group_memory import difference


def with_offsets() -> OffsetsTopic:
    topic = OffsetsTopic()
    topic.commit(1)
    topic.commit(2, producer=8)
    topic.commit(3, producer=9)
    topic.commit(4, producer=8)
    return topic


def with_classic_group() -> OffsetsTopic:
    topic = OffsetsTopic()
    topic.append(classic(3, {"a": b"0", "b": b"1"}))
    return topic


def with_consumer_group() -> OffsetsTopic:
    topic = OffsetsTopic()
    topic.append(*epochs(3), *member("a", 3, (0,)), *member("b", 2, (1,), revoking=(2,)))
    return topic


def found(topic: OffsetsTopic, *, may_have_refused: bool = False) -> str | None:
    return difference(topic.shard, topic.log, may_have_refused=may_have_refused)


@pytest.mark.parametrize("make", [with_offsets, with_classic_group, with_consumer_group])
def test_what_was_loaded_is_what_the_log_says(make: Callable[[], OffsetsTopic]) -> None:
    topic = make()
    topic.load()
    assert found(topic) is None


def test_an_older_offset_is_told_of() -> None:
    topic = with_offsets()
    topic.load().store(GROUP, [(KEY.topic_partition, OffsetAndMetadata(0))])
    assert "offset=0" in str(found(topic))


def test_an_offset_that_is_lost_is_told_of() -> None:
    topic = with_offsets()
    topic.load().offsets.clear()
    assert "the log has" in str(found(topic))


def test_a_pending_offset_that_is_lost_is_told_of() -> None:
    topic = with_offsets()
    topic.load().pending.forget(KEY)
    assert str(found(topic)).startswith("pending are")


def test_the_order_of_pending_offsets_is_told_of() -> None:
    """The second commit of producer 8 is behind that of 9, whichever transaction ends first."""
    topic = with_offsets()
    producers = topic.load().pending._producers[GROUP][KEY.topic_partition]
    producers[9] = producers.pop(9)
    assert "when [8, 9] commit" in str(found(topic))


def broken_classic(shard: GroupCoordinatorShard) -> ClassicGroup:
    group = shard.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    return group


def test_other_assignments_of_a_classic_group_are_told_of() -> None:
    topic = with_classic_group()
    broken_classic(topic.load()).members.members["a"].assignment = b"2"
    assert "b'2'" in str(found(topic))


def test_a_classic_group_is_ahead_of_its_record_while_it_rebalances_and_never_behind() -> None:
    topic = with_classic_group()
    group = broken_classic(topic.load())
    group.generation = 4
    assert "generation 4" in str(found(topic))
    group.state = ClassicGroupState.COMPLETING_REBALANCE
    assert found(topic) is None
    group.generation = 2
    assert "generation 3" in str(found(topic))


def test_an_empty_group_has_its_record_unless_the_log_may_have_refused_it() -> None:
    topic = with_classic_group()
    group = broken_classic(topic.load())
    group.generation, group.state = 4, ClassicGroupState.EMPTY
    group.members.members.clear()
    assert "Empty" in str(found(topic))
    assert found(topic, may_have_refused=True) is None
    topic.append(classic(4, {}))
    assert found(topic) is None


def test_a_removed_group_stays_for_whom_has_joined_before_that_was_committed() -> None:
    topic = with_classic_group()
    topic.append(classic(4, {}))
    group = topic.load().groups[GROUP]
    assert isinstance(group, ClassicGroup)
    tombstones, topic.shard = group.tombstones(), OffsetsTopic().shard  # the coordinator has its group still
    topic.append(*tombstones)
    topic.shard.groups[GROUP] = group
    assert "Empty, in generation 4; the log has None" in str(found(topic))
    group.members.pending["c"] = None
    assert found(topic) is None
    group.members.pending.clear()
    assert found(topic) is None, "its time is not over yet"
    topic.append(classic(5, {}))
    assert "generation 5" in str(found(topic))


def test_a_group_that_is_missing_is_told_of() -> None:
    topic = with_classic_group()
    del topic.load().groups[GROUP]
    assert "there is none" in str(found(topic))


@pytest.mark.parametrize("what", ["epoch", "target epoch", "target", "current assignments", "members"])
def test_a_consumer_group_that_differs_is_told_of(what: str) -> None:
    topic = with_consumer_group()
    group = topic.load().groups[GROUP]
    assert isinstance(group, ConsumerGroup)
    if what == "epoch":
        group.epoch += 1
    elif what == "target epoch":
        group.target_epoch -= 1
    elif what == "target":
        group.target = {}
    elif what == "members":
        subscription = replace_client(group)
        group.members["a"] = replace(group.members["a"], subscription=subscription)
    else:
        group.members["b"] = replace(group.members["b"], revoking=())
    assert str(found(topic)).startswith(f"{GROUP}: {what}: ")


def replace_client(group: ConsumerGroup) -> MemberMetadataValue:
    return group.members["a"].subscription._replace(client_id="another")
