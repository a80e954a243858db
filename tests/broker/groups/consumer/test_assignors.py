"""Properties of the assignors: complete, only to subscribers, balanced, sticky."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftwerk.broker.groups.consumer.assignors import ASSIGNORS, PartitionIds, range_assignment, uniform_assignment

TOPICS = [UUID(int=number) for number in range(1, 5)]
counts = st.fixed_dictionaries({topic: st.integers(0, 9) for topic in TOPICS})
members = st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True)
some_topics = st.lists(st.sampled_from(TOPICS), min_size=1, unique=True).map(tuple)


@st.composite
def mixed(draw: st.DrawFn) -> dict[str, tuple[UUID, ...]]:
    """Members that read different topics."""
    return {member: draw(some_topics) for member in draw(members)}


@st.composite
def alike(draw: st.DrawFn) -> dict[str, tuple[UUID, ...]]:
    """Members that all read the same topics."""
    topics = draw(some_topics)
    return dict.fromkeys(draw(members), topics)


def known(counts: Mapping[UUID, int], subscriptions: Mapping[str, tuple[UUID, ...]]) -> dict[UUID, int]:
    return {topic: count for topic, count in counts.items() if any(topic in one for one in subscriptions.values())}


def check_complete(
    result: Mapping[str, PartitionIds], subscriptions: Mapping[str, tuple[UUID, ...]], counts: Mapping[UUID, int]
) -> None:
    given_away = sorted(part for parts in result.values() for part in parts)
    assert given_away == sorted((topic, index) for topic, count in counts.items() for index in range(count))
    assert sorted(result) == sorted(subscriptions)
    for member, parts in result.items():
        assert all(topic in subscriptions[member] for topic, _ in parts)


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(subscriptions=mixed(), counts=counts)
def test_every_partition_has_one_reader(
    name: str, subscriptions: dict[str, tuple[UUID, ...]], counts: dict[UUID, int]
) -> None:
    counts = known(counts, subscriptions)
    result = ASSIGNORS[name](subscriptions, counts, {})
    check_complete(result, subscriptions, counts)
    assert ASSIGNORS[name](subscriptions, counts, result) == result, "nothing changed, so nothing moves"


@given(alike(), alike(), counts)
def test_uniform_is_balanced_and_moves_as_little_as_possible(
    before: dict[str, tuple[UUID, ...]], after: dict[str, tuple[UUID, ...]], counts: dict[UUID, int]
) -> None:
    old = uniform_assignment(before, known(counts, before), {})
    counts = known(counts, after)
    new = uniform_assignment(after, counts, old)
    check_complete(new, after, counts)
    sizes = sorted(map(len, new.values()))
    assert sizes[-1] - sizes[0] <= 1
    kept = {member: [part for part in old.get(member, ()) if part[0] in counts] for member in after}
    moved = sum(part not in new[member] for member, parts in kept.items() for part in parts)
    held = sorted((len(parts) for parts in kept.values()), reverse=True)
    least = sum(max(have - share, 0) for have, share in zip(held, sorted(sizes, reverse=True), strict=True))
    assert moved == least


@settings(max_examples=200)
@given(mixed(), mixed(), counts)
def test_uniform_leaves_no_move_that_improves_the_balance(
    before: dict[str, tuple[UUID, ...]], after: dict[str, tuple[UUID, ...]], counts: dict[UUID, int]
) -> None:
    old = uniform_assignment(before, known(counts, before), {})
    counts = known(counts, after)
    new = uniform_assignment(after, counts, old)
    check_complete(new, after, counts)
    for member, parts in new.items():
        for topic, _ in parts:
            for other in after:
                if topic in after[other]:
                    assert len(new[member]) <= len(new[other]) + 1


def test_range_assigns_ranges() -> None:
    first, second = TOPICS[:2]
    result = range_assignment({"a": (first, second), "b": (first, second), "c": (first,)}, {first: 7, second: 3}, {})
    assert result == {
        "a": ((first, 0), (first, 1), (first, 2), (second, 0), (second, 1)),
        "b": ((first, 3), (first, 4), (second, 2)),
        "c": ((first, 5), (first, 6)),
    }


def test_a_free_partition_goes_to_the_smallest_member_so_that_the_others_keep_theirs() -> None:
    """Also where members read different topics: only `a` reads the second topic."""
    both, other = TOPICS[:2]
    subscriptions = {"a": (both, other), "b": (both,)}
    previous = {"a": ((both, 0), (other, 0)), "b": ((both, 1),)}
    found = uniform_assignment(subscriptions, {both: 4, other: 1}, previous)
    assert sorted(map(len, found.values())) == [2, 3]
    for member, parts in previous.items():
        assert set(parts) <= set(found[member])
