"""What a browser is told of two pictures of a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from raftwerk.console.picture import Partition, Picture, changes, events, key_of, records_between, summary

NODE = {"state": "up", "leads": 1}
QUORUM = {"leader": 1, "epoch": 3, "high_watermark": 9, "members": []}


def picture(*partitions: Partition, at_ms: int = 1000, **rest: Any) -> Picture:
    rows = {key_of("t", number): one for number, one in enumerate(partitions)}
    whole: dict[str, Any] = {"nodes": {1: NODE, 2: NODE}, "quorum": QUORUM, **rest}
    return Picture(at_ms, "id", partitions=rows, **whole)


def partition(leader: int = 1, epoch: int = 0, isr: tuple[int, ...] = (1, 2), end: int = 5) -> Partition:
    return Partition(leader, epoch, (1, 2), isr, end)


def test_states_and_numbers_at_a_glance() -> None:
    found = picture(partition(), partition(isr=(1,)), partition(leader=-1, isr=(1,)))
    assert [one.state for one in found.partitions.values()] == ["in-sync", "under-replicated", "offline"]
    down = replace(found, nodes={1: NODE, 2: {**NODE, "state": "down"}})
    assert summary(down) == {"partitions": 3, "under_replicated": 1, "offline": 1, "nodes": 2, "nodes_up": 1}


def test_a_failover_is_told_in_order() -> None:
    before = picture(partition(1), partition(2), partition(1), partition(1), partition(1))
    lost = [partition(2, 1, (2,)) for _ in range(4)]
    after = picture(lost[0], partition(2, 0, (2,)), *lost[1:], at_ms=2000)
    after = replace(after, nodes={1: {**NODE, "state": "down"}, 2: NODE}, quorum={**QUORUM, "leader": 2, "epoch": 4})
    assert events(before, after) == [
        "node 1: up → down",
        "node 2 is the active controller, epoch 4",
        "t-0, t-2 and 2 more: leader 1 → 2",
        "t-0, t-1 and 3 more: replica 1 out of sync",
    ]
    assert events(after, before)[2:] == [
        "t-0, t-2 and 2 more: leader 2 → 1",
        "t-0, t-1 and 3 more: replica 1 in sync again",
    ]


def test_internal_topics_come_last_and_a_leader_may_begin_a_new_epoch() -> None:
    names = ("__consumer_offsets", "__transaction_state", "orders", "zoo")

    def led(leader: int, epoch: int) -> Picture:
        rows = {key_of(name, 0): partition(leader, epoch) for name in names}
        return replace(picture(), partitions=rows)

    assert events(led(1, 0), led(2, 1)) == ["orders-0, zoo-0 and 2 more: leader 1 → 2"]
    assert events(led(2, 1), led(2, 2)) == ["orders-0, zoo-0 and 2 more: led by 2 in a new epoch"]


def test_losses_of_everything_are_told() -> None:
    before = picture(partition(1))
    after = picture(partition(-1, 1, (1,)), quorum=None, nodes={1: NODE})
    assert events(before, after) == [
        "node 2 is no longer registered",
        "the quorum has no leader",
        "t-0: has no leader",
        "t-0: replica 2 out of sync",
    ]
    assert events(after, before)[:2] == ["node 2 is known", "node 1 is the active controller, epoch 3"]


def test_new_and_deleted_partitions_are_no_events() -> None:
    assert events(picture(partition()), picture(partition(), partition(2))) == []
    assert events(picture(partition(), partition(2)), picture(partition())) == []


def test_records_are_counted_where_both_pictures_know_the_ends() -> None:
    before = picture(partition(end=5), partition(end=-1), partition(end=9))
    after = picture(partition(end=8), partition(end=100), partition(end=3), partition(end=50))
    assert records_between(before, after) == 3
    assert changes(before, replace(after, at_ms=3000))["records_per_s"] == 1.5


rows = st.dictionaries(
    st.integers(0, 5),
    st.builds(
        partition, st.integers(-1, 2), st.integers(0, 2), st.sampled_from([(1,), (1, 2), ()]), st.integers(-1, 4)
    ),
)


@given(rows, rows, st.booleans(), st.booleans())
def test_who_applies_the_changes_has_the_new_picture(
    old: dict[int, Partition], new: dict[int, Partition], same_nodes: bool, same_quorum: bool
) -> None:
    def of(partitions: dict[int, Partition], at_ms: int, **rest: Any) -> Picture:
        return replace(picture(at_ms=at_ms, **rest), partitions={key_of("t", n): one for n, one in partitions.items()})

    before = of(old, 1000)
    nodes = before.nodes if same_nodes else {1: {**NODE, "state": "down"}}
    after = of(new, 2000, nodes=nodes, quorum=QUORUM if same_quorum else None)
    shown = changes(None, before)
    partitions = dict(shown.get("partitions", {}))
    told = changes(before, after)
    partitions.update(told.get("partitions", {}))
    for key in told.get("gone", ()):
        del partitions[key]
    assert partitions == {key: one.as_row() for key, one in after.partitions.items()}
    assert told.get("nodes", shown["nodes"]) == list(after.nodes.values())
    assert (told["quorum"] if "quorum" in told else shown["quorum"]) == after.quorum
    assert ("whole" in told, "whole" in shown) == (False, True)
