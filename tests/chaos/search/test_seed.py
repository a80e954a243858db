"""Seeds and forks as text, and runs that they fork."""

from __future__ import annotations

import pytest

from raftwerk.chaos.sim.run import Outcome, Run
from raftwerk.chaos.sim.scenarios import SCENARIOS
from raftwerk.chaos.sim.seed import Fork, Seed


@pytest.mark.parametrize(
    ("text", "seed"),
    [
        ("0", Seed(0)),
        ("123~4.5:77", Seed(123, (Fork(4.5, 77),))),
        ("123~4.5:77~5.25:0", Seed(123, (Fork(4.5, 77), Fork(5.25, 0)))),
        ("9~15:1", Seed(9, (Fork(15.0, 1),))),
    ],
)
def test_a_seed_is_what_its_text_says(text: str, seed: Seed) -> None:
    assert Seed.parse(text) == seed
    assert str(seed) == text
    assert seed.in_json == (text if seed.forks else int(text))


@pytest.mark.parametrize("text", ["", "-1", "x", "1~", "1~2", "1~2:", "1~:3", "1~2:3~", "1~0.1234:5", "1 ~2:3"])
def test_other_texts_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"is neither a seed, such as 123, nor a fork of one, such as 123~4\.5:77"):
        Seed.parse(text)


def test_forks_are_in_the_order_of_their_times() -> None:
    with pytest.raises(ValueError, match="1~3:0~2:0: each fork is later than the one before it"):
        Seed.parse("1~3:0~2:0")


def test_a_fork_leaves_out_what_came_after_it() -> None:
    seed = Seed.parse("1~2:3~4:5")
    assert str(seed.forked(4.9996, 6)) == "1~2:3~4:5~5:6"
    assert str(seed.forked(4.0, 6)) == "1~2:3~4:6"
    assert str(seed.forked(1.0, 6)) == "1~1:6"


def run(text: str, scenario: str = "kill") -> Outcome:
    return Run(SCENARIOS[scenario], Seed.parse(text)).execute()


def at_s(line: str) -> float:
    return float(line.split()[0])


def last_lines_before(outcome: Outcome, time_s: float) -> list[str]:
    return [line for line in outcome.timeline if at_s(line) < time_s][-20:]


def test_a_forked_run_replays_exactly_and_keeps_the_history_before_the_fork() -> None:
    whole, fork, again, other = (run(text) for text in ("2", "2~2.5:1", "2~2.5:1", "2~2.5:7"))
    assert fork == again
    healed_at_s = next(at_s(line) for line in whole.timeline if line.endswith("HEAL"))
    fork_at_s = healed_at_s - SCENARIOS["kill"].faults_s + 2.5
    kept = last_lines_before(whole, fork_at_s)
    assert len(kept) == 20
    assert last_lines_before(fork, fork_at_s) == last_lines_before(other, fork_at_s) == kept
    assert len({one.digest for one in (whole, fork, other)}) == 3


def test_where_faults_come_one_at_a_time_a_fork_begins_with_a_fault() -> None:
    whole, fork, again = (run(text, "leader-crash") for text in ("1", "1~0.6:1", "1~0.6:1"))
    assert fork.digest == again.digest != whole.digest
    kept = [fault for fault in whole.faults if float(fault.split()[0]) < 0.6]
    assert kept
    assert fork.faults[: len(kept)] == tuple(kept)
    assert fork.faults[len(kept) :] != whole.faults[len(kept) :]
