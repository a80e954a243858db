"""The simulator's replay of `__consumer_offsets`, and what it says of the records themselves."""

from __future__ import annotations

import random

import pytest
from support.chaos.offsets_topic import GROUP, KEY, TOPIC_ID, OffsetsTopic, classic, epochs, member

from raftwerk.broker.groups.records.consumer_group_records import (
    ConsumerGroupKey,
    EpochValue,
    RecordType,
    epoch_record,
    group_tombstones,
    member_tombstones,
)
from raftwerk.broker.groups.records.offset_and_classic_records import OffsetAndMetadata, classic_group_record
from raftwerk.chaos.sim.invariants.groups.target_assignments import why_wrong
from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken

AHEAD = "no member is ahead of its group"
SHARED = "no partition is in two assignments"
FALLS = "generations of a group do not fall"
REMOVED = "a group with members is not removed"


def offset_of(value: OffsetAndMetadata | None) -> int | None:
    return None if value is None else value.offset


def committed(topic: OffsetsTopic) -> int | None:
    return offset_of(topic.log.committed(KEY))


def test_the_last_commit_of_an_offset_counts() -> None:
    topic = OffsetsTopic()
    assert committed(topic) is None
    topic.commit(5)
    topic.commit(3)
    assert committed(topic) == 3
    (removal,) = topic.commit(None, at_ms=9)
    assert (removal.key, removal.removed.offset, removal.timestamp_ms) == (KEY, 3, 9)
    assert committed(topic) is None
    assert topic.commit(None) == []


def test_commits_of_a_transaction_count_from_its_marker_on() -> None:
    topic = OffsetsTopic()
    topic.commit(1)
    topic.commit(2, producer=8)
    assert committed(topic) == 1
    assert topic.log.is_unstable(KEY, topic.log.end_offset)
    topic.end(8)
    assert committed(topic) == 2
    topic.commit(3, producer=8)
    topic.end(8, commit=False)
    assert committed(topic) == 2
    assert not topic.log.pending


def test_the_place_in_the_log_counts_and_not_that_of_the_marker() -> None:
    topic = OffsetsTopic()
    topic.commit(1, producer=8)
    topic.commit(2, producer=9)
    topic.commit(3, producer=8)
    assert {offset_of(value) for value in topic.log.offsets_if_all_commit().values()} == {3}
    topic.end(8)
    topic.end(9)
    assert committed(topic) == 3
    topic.commit(4, producer=8)
    topic.commit(5)
    topic.end(8)
    assert committed(topic) == 5
    topic.commit(6, producer=8)
    topic.commit(None)
    topic.end(8)
    assert committed(topic) is None


def test_what_may_be_answered_to_a_request_of_a_time() -> None:
    topic = OffsetsTopic()
    ends = [topic.log.end_offset]
    for offset in (1, 2, None):
        topic.commit(offset)
        ends.append(topic.log.end_offset)
    allowed = [[offset_of(value) for value in topic.log.values_since(KEY, end)] for end in ends]
    assert allowed == [[None, 1, 2, None], [1, 2, None], [2, None], [None]]


@pytest.mark.parametrize("seed", range(30))
def test_offsets_are_those_of_the_records_with_the_highest_positions(seed: int) -> None:
    """Compared with what a list of all records says, at each step."""
    rng = random.Random(seed)
    topic = OffsetsTopic()
    records: list[tuple[int | None, int | None]] = []
    ended: dict[int, bool] = {}
    for number in range(40):
        deed, producer = rng.choice(("plain", "transaction", "transaction", "end", "tombstone")), rng.randrange(2)
        if deed == "end":
            is_commit = rng.random() < 0.6
            topic.end(producer, commit=is_commit)
            for position, row in enumerate(records):
                if row[1] == producer and position not in ended:
                    ended[position] = is_commit
        elif deed == "transaction":
            topic.commit(number, producer=producer)
            records.append((number, producer))
        else:
            offset = None if deed == "tombstone" else number
            topic.commit(offset)
            if offset is None:
                ended |= {at: False for at, row in enumerate(records) if row[1] is not None and at not in ended}
            records.append((offset, None))
        counts = [row[0] for at, row in enumerate(records) if row[1] is None or ended.get(at, False)]
        assert committed(topic) == (counts[-1] if counts else None)


def test_a_consumer_group_may_move_a_partition_when_it_was_given_up() -> None:
    topic = OffsetsTopic()
    topic.append(*epochs(1), *member("a", 1, (0, 1)))
    topic.append(*epochs(2), *member("a", 1, (0,), revoking=(1,)), *member("b", 2, ()))
    topic.append(*member("a", 2, (0,)), *member("b", 2, (1,)))
    topic.append(*member_tombstones(GROUP, "b"), *epochs(3), *member("a", 3, (0, 1)))
    topic.append(*member_tombstones(GROUP, "a"), *epochs(4))
    topic.append(*group_tombstones(GROUP, []))
    assert list(topic.log.groups()) == []
    topic.append(classic(1, {"a": b""}))


@pytest.mark.parametrize("revoking", [(), (1,)], ids=["assigned", "revoking"])
def test_a_partition_of_two_members(revoking: tuple[int, ...]) -> None:
    topic = OffsetsTopic()
    topic.append(*epochs(1), *member("a", 1, (0,), revoking=revoking or ()))
    with pytest.raises(InvariantBroken, match=SHARED):
        topic.append(*epochs(2), *member("b", 2, revoking or (0,)))


def test_a_member_ahead_of_its_group() -> None:
    topic = OffsetsTopic()
    with pytest.raises(InvariantBroken, match=AHEAD):
        topic.append(*epochs(1), *member("a", 2, ()))


def test_a_target_ahead_of_its_group() -> None:
    group, _ = epochs(1)
    _, target = epochs(2)
    with pytest.raises(InvariantBroken, match=AHEAD):
        OffsetsTopic().append(group, target)


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_generation_that_falls(kind: str) -> None:
    topic = OffsetsTopic()
    steps = [
        [classic(generation, {"a": b""})] if kind == "classic" else [*epochs(generation), *member("a", 1, ())]
        for generation in (3, 3, 2)
    ]
    topic.append(*steps[0])
    topic.append(*steps[1])
    with pytest.raises(InvariantBroken, match=FALLS):
        topic.append(*steps[2])


def test_a_group_is_removed_when_it_is_empty() -> None:
    topic = OffsetsTopic()
    topic.append(classic(1, {"a": b""}))
    topic.append(classic(2, {}))
    topic.append(classic_group_record(GROUP, None))
    topic.append(classic(1, {"a": b""}))
    with pytest.raises(InvariantBroken, match=REMOVED):
        topic.append(classic_group_record(GROUP, None))


def test_a_group_with_members_may_change_its_protocol() -> None:
    topic = OffsetsTopic()
    topic.append(classic(4, {"a": b""}))
    topic.append(classic_group_record(GROUP, None), *epochs(5), *member("a", 4, (0,)))
    with pytest.raises(InvariantBroken, match=REMOVED):
        topic.append(*group_tombstones(GROUP, ["a"]))


def test_the_records_before_a_commit_say_who_may_commit() -> None:
    topic = OffsetsTopic()

    def why(name: str, epoch: int) -> str | None:
        return topic.log.why_not_allowed(GROUP, name, epoch, topic.log.end_offset)

    assert why("a", 0) is None
    topic.append(classic(4, {"a": b""}))
    assert (why("a", 4), why("a", 5)) == (None, None)
    assert why("a", 3) == "generation is 4"
    topic.append(classic_group_record(GROUP, None), *epochs(5), *member("a", 4, (0,)))
    assert why("a", 4) is None
    topic.append(*member("a", 5, (0,)))
    assert (why("a", 4), why("a", 5)) == ("its epoch is 5", None)
    topic.append(*member_tombstones(GROUP, "a"), *epochs(6))
    assert why("a", 5) == "it has left"


def test_an_epoch_of_a_group_needs_a_change() -> None:
    topic = OffsetsTopic()
    topic.append(*epochs(4), *member("a", 4, (0,)))
    topic.append(epoch_record(ConsumerGroupKey(RecordType.GROUP, GROUP), EpochValue(5, 5)))
    with pytest.raises(InvariantBroken, match="an epoch of a group begins with a change"):
        topic.append(epoch_record(ConsumerGroupKey(RecordType.GROUP, GROUP), EpochValue(6, 5)))


def test_a_target_assignment_has_all_partitions_of_subscribed_topics() -> None:
    topic = OffsetsTopic()
    topic.append(*epochs(4), *member("a", 4, (0, 1)))
    group = topic.log.consumer[GROUP]
    assert list(topic.log.targeted) == [GROUP]
    assert why_wrong(group, {TOPIC_ID: "t"}) is None
    assert "which subscribes to" in str(why_wrong(group, {TOPIC_ID: "other"}))
    group.target["a"] = ((TOPIC_ID, 0), (TOPIC_ID, 2))
    assert why_wrong(group, {TOPIC_ID: "t"}) == "of t there are [0, 2]"


def test_an_offset_of_a_topic_that_a_member_subscribes_to() -> None:
    topic = OffsetsTopic()
    topic.commit(5)
    topic.append(*epochs(4), *member("a", 4, (0,)))
    assert [one.is_subscribed for one in topic.commit(None)] == [True]
