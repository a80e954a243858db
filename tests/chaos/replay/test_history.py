"""The history as data: states, windows, and how it is made small."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.chaos.replays import a_history, a_message, a_step

from raftwerk.chaos.sim.replay.encoding import encode
from raftwerk.chaos.sim.replay.history import FREQUENT, History, Step, StepKind, folded, state_at, within
from raftwerk.chaos.sim.replay.page_size import coarser, fitted
from raftwerk.chaos.sim.replay.page_text import render_replay

KEYS = ("n1.log_end_offset", "n1.t-0.log_end_offset", "n1.t-0.log_start_offset", "n2.t-0.high_watermark")
STEPS = st.lists(
    st.builds(
        a_step,
        st.integers(0, 200_000),
        st.sampled_from([*FREQUENT, StepKind.TRUNCATION, StepKind.LEADER]),
        st.dictionaries(st.sampled_from(KEYS), st.one_of(st.none(), st.integers(0, 9)), min_size=1, max_size=1),
    ),
    max_size=40,
).map(lambda steps: sorted(steps, key=lambda step: step.at_us))


@given(STEPS, st.integers(0, 200_000), st.integers(0, 200_000))
def test_a_window_has_the_states_of_the_whole(steps: list[Step], one: int, other: int) -> None:
    whole = a_history(steps)
    part = within(whole, min(one, other), max(one, other))
    skipped = sum(step.at_us < part.from_us for step in steps)
    assert all(part.from_us <= step.at_us <= part.to_us for step in part.steps)
    for number in range(-1, len(part.steps)):
        assert state_at(part, number) == state_at(whole, number + skipped)


@given(STEPS, st.sampled_from([1_000, 50_000, 1_000_000]))
def test_a_coarser_history_tells_each_rare_step_in_the_same_state(steps: list[Step], grid_us: int) -> None:
    whole = a_history(steps)
    found = coarser(whole, grid_us)
    rare = [number for number, step in enumerate(whole.steps) if step.kind not in FREQUENT]
    kept = [number for number, step in enumerate(found.steps) if step.kind not in FREQUENT]
    assert [whole.steps[number] for number in rare] == [found.steps[number] for number in kept]
    for before, now in zip(rare, kept, strict=True):
        for key in whole.steps[before].changes:
            subject = key.rpartition(".")[0]
            assert _about(state_at(whole, before), subject) == _about(state_at(found, now), subject)
    assert state_at(found, len(found.steps)) == state_at(whole, len(whole.steps))


def _about(state: dict[str, Any], subject: str) -> dict[str, Any]:
    return {key: value for key, value in state.items() if key.rpartition(".")[0] == subject}


def test_a_key_without_a_value_is_absent() -> None:
    steps = [a_step(1, StepKind.ROLE, {"n1.role": "leader"}), a_step(2, StepKind.ROLE, {"n1.role": None})]
    assert folded({}, steps[:1]) == {"n1.role": "leader"}
    assert folded({}, steps) == {}


def test_a_window_keeps_the_messages_that_are_on_their_way_in_it() -> None:
    messages = [a_message(10, 20), a_message(10, 150), a_message(90, None), a_message(120, None), a_message(300, 310)]
    part = within(a_history([], messages), 100, 200)
    assert part.messages == [messages[1], messages[3]]


def test_a_history_that_is_too_large_says_what_is_left_out() -> None:
    steps = [a_step(at, StepKind.APPEND, {"n1.t-0.log_end_offset": at}) for at in range(0, 400_000, 100)]
    steps.append(a_step(400_000, StepKind.LEADER, {"t-0.leader": 2}, "t-0", "leader 2"))
    messages = [a_message(at, at + 50) for at in range(0, 400_000, 100)]
    whole = a_history(steps, messages)
    assert fitted(whole, lambda one: True) is whole
    limit = 4_000
    found = fitted(whole, lambda one: len(encode(one)) <= limit)
    assert len(encode(found)) <= limit
    assert found.steps[-1] == steps[-1]
    assert len(found.left_out) == 2
    assert f"{len(messages) - len(found.messages):,} messages are not shown" in found.left_out[0]
    assert f"{len(steps) - len(found.steps):,} changes of offsets" in found.left_out[1]


def test_log_lines_go_before_rare_steps_do() -> None:
    lines = [a_step(at, StepKind.LOG_LINE, {}, text="x" * 200) for at in range(100)]
    leader = a_step(200, StepKind.LEADER, {"t-0.leader": 2}, "t-0", "leader 2")
    found = fitted(a_history([*lines, leader]), lambda one: len(encode(one)) <= 3_000)
    assert found.steps == [leader]
    assert found.left_out == ["100 lines of the nodes' logs are not shown."]


def test_the_page_is_bounded_and_asks_for_nothing() -> None:
    steps = [a_step(at, StepKind.LOG_LINE, {}, text="</script><b>" * 20) for at in range(100)]
    whole = render_replay(a_history(steps))
    small = render_replay(a_history(steps), 5_000)
    assert len(whole) - len(small) > 20_000
    assert "</script><b>" not in whole
    assert "http://" not in whole.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in whole
    assert "default-src 'none'; style-src 'sha256-" in whole


def test_the_encoding_names_each_key_once() -> None:
    history = a_history([a_step(at, StepKind.APPEND, {"n1.t-0.log_end_offset": at}) for at in range(5)])
    data = json.loads(encode(history))
    assert data["keys"] == ["n1.t-0.log_end_offset"]
    assert [row[0] for row in data["steps"]] == [0, 1, 1, 1, 1]
    assert [row[-1] for row in data["steps"]] == [0, 1, 2, 3, 4]


def test_an_unchanged_window_is_the_whole() -> None:
    whole: History = a_history([a_step(5, StepKind.ROLE, {"n1.role": "leader"})], [a_message(1, 2)])
    assert within(whole, 0, whole.to_us) == whole
