"""How changes become steps with sentences."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.chaos.sim.replay.history import StepKind, Value
from raftwerk.chaos.sim.replay.message_recorder import FrameSplitter
from raftwerk.chaos.sim.replay.step_text import link_text, sorted_changes

HOSTS = ("n1", "n2", "n3")
BEFORE: dict[str, Value] = {
    "n1.role": "candidate",
    "n1.epoch": 2,
    "n1.voted": 1,
    "n1.votes": (1,),
    "n1.t-0.role": "follower",
    "n1.t-0.leader_epoch": 1,
    "n1.t-0.log_start_offset": 0,
    "n1.t-0.log_end_offset": 12,
    "n1.t-0.high_watermark": 10,
    "t-0.leader": 2,
    "t-0.leader_epoch": 1,
    "t-0.isr": (1, 2),
    "t-0.elr": (),
    "t-0.replicas": (1, 2, 3),
}


@pytest.mark.parametrize(
    ("news", "kind", "where", "text"),
    [
        ({"n1.votes": (1, 2)}, StepKind.ELECTION, "n1", "has the votes of [1, 2] as candidate of epoch 2"),
        ({"n1.role": "leader", "n1.leader": 1}, StepKind.ELECTION, "n1", "leader of epoch 2"),
        ({"n1.role": "follower", "n1.leader": 3}, StepKind.ROLE, "n1", "follower of epoch 2, leader 3"),
        (
            {"n1.role": "unattached", "n1.epoch": 3, "n1.voted": 2},
            StepKind.ROLE,
            "n1",
            "unattached of epoch 3, voted for 2",
        ),
        ({"n1.active": True}, StepKind.CONTROLLER, "n1", "is the active controller"),
        ({"n1.active": None}, StepKind.CONTROLLER, "n1", "is no longer the active controller"),
        ({"n2.fenced": True}, StepKind.BROKER, "n2", "broker is fenced"),
        ({"n1.log_end_offset": 5}, StepKind.METADATA_LOG, "n1", "metadata log: log end 5"),
        ({"t-0.leader": 1, "t-0.leader_epoch": 2}, StepKind.LEADER, "t-0", "leader 1, leader epoch 2"),
        ({"t-0.leader": -1}, StepKind.LEADER, "t-0", "has no leader, leader epoch 1"),
        ({"t-0.leader": None}, StepKind.LEADER, "t-0", "is deleted"),
        ({"t-0.isr": (2,), "t-0.elr": (1,)}, StepKind.ISR, "t-0", "ISR [2] of [1, 2, 3], ELR [1]"),
        ({"n1.t-0.role": "leader"}, StepKind.REPLICA, "n1", "leads t-0 in leader epoch 1"),
        ({"n1.t-0.role": "offline"}, StepKind.REPLICA, "n1", "cannot use its replica of t-0 in leader epoch 1"),
        ({"n1.t-0.isr": (1, 3)}, StepKind.REPLICA, "n1", "leads t-0 with the maximal ISR [1, 3]"),
        ({"n1.t-0.log_end_offset": 13}, StepKind.APPEND, "n1", "t-0: log end 12 → 13"),
        ({"n1.t-0.log_end_offset": 9}, StepKind.TRUNCATION, "n1", "t-0: log end offset back from 12 to 9"),
        ({"n1.t-0.high_watermark": 12}, StepKind.HIGH_WATERMARK, "n1", "t-0: high watermark 10 → 12"),
    ],
)
def test_a_change_is_told(news: dict[str, Value], kind: StepKind, where: str, text: str) -> None:
    assert list(sorted_changes(news, BEFORE, HOSTS)) == [(kind, where, text, news)]


def test_what_concerns_several_things_is_several_steps() -> None:
    news: dict[str, Value] = {"n1.t-0.log_end_offset": 13, "n1.t-0.high_watermark": 13, "t-0.isr": (1, 2, 3)}
    kinds = [kind for kind, *_ in sorted_changes(news, BEFORE, HOSTS)]
    assert kinds == [StepKind.APPEND, StepKind.HIGH_WATERMARK, StepKind.ISR]


@pytest.mark.parametrize(
    ("links", "text"),
    [
        (["n1>n2"], "n1 → n2: cut"),
        (["n1>n2", "n2>n1"], "n1 ↔ n2: cut"),
        (["n2>"], "n2: cut"),
        ([f"n1>m{n}" for n in range(9)], "n1 → m0, n1 → m1, n1 → m2, n1 → m3, n1 → m4, n1 → m5, 3 more: cut"),
    ],
)
def test_links_are_named_in_few_words(links: Iterable[str], text: str) -> None:
    assert link_text(dict.fromkeys(links, "cut")) == text


def test_a_link_that_works_again_is_told() -> None:
    assert link_text({"n1>n2": None, "n1>n3": "slow"}) == "n1 → n2: works again; n1 → n3: slow"


@given(st.lists(st.binary(max_size=20), max_size=8), st.data())
def test_frames_are_found_however_their_bytes_come(frames: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    splitter, found, position = FrameSplitter(), [], 0
    while position < len(stream):
        size = data.draw(st.integers(1, len(stream) - position))
        found += splitter.feed(stream[position : position + size])
        position += size
    assert [frame for frame, _ in found] == frames
    assert splitter.position == len(stream)
    assert [end for _, end in found] == [sum(len(one) + 4 for one in frames[: n + 1]) for n in range(len(frames))]
