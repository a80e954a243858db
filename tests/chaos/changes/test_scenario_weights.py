"""Which scenarios a change prefers, by the table of what they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.chaos.reached_code import table

from raftwerk.chaos.sim import changes
from raftwerk.chaos.sim.changes.changed_functions import functions_of
from raftwerk.chaos.sim.changes.scenario_weights import ReachedCode, drawn, parse, weights
from raftwerk.chaos.sim.scenarios import SCENARIOS

ROOT = Path(__file__).parents[3]
NAMES = ("kill", "cut", "voters", "groups")
CODE = ReachedCode(
    parse(
        "scenarios kill cut voters gone\n"
        "raft/log.py:Log.append 2=800 0=200\n"
        "raft/log.py:Log.cut 1=600\n"
        "raft/log.py:read 0=500 1=500\n"
        "isr/x.py:f 3=1000\n"
    )
)


def shares(*functions: str) -> dict[str, float]:
    return {name: round(share, 3) for name, share in weights(functions, CODE, NAMES).items()}


OF_FILE = {"kill": 0.278, "cut": 0.367, "voters": 0.311, "groups": 0.044}
"""The mean of its three functions; its folder has no other file."""


def with_file(own: Mapping[str, float], code_around: Mapping[str, float] = OF_FILE) -> dict[str, float]:
    return {name: 0.025 + 0.9 * (0.6 * own.get(name, 0) + 0.4 * code_around[name]) for name in NAMES}


def test_a_tenth_of_the_runs_takes_any_scenario_and_four_tenths_of_the_others_go_by_what_is_around() -> None:
    assert shares("raft/log.py:Log.append") == pytest.approx(with_file({"voters": 0.8, "kill": 0.2}), abs=0.001)


def test_who_is_not_named_shares_the_rest() -> None:
    left = 0.4 / 3
    own = {"kill": left, "cut": 0.6, "voters": left, "groups": left}
    assert shares("raft/log.py:Log.cut") == pytest.approx(with_file(own), abs=0.001)


def test_a_class_and_a_file_are_all_that_is_known_within() -> None:
    of_class = shares("raft/log.py:Log")
    left = 0.4 / 3 / 2
    own = {"kill": 0.1 + left, "cut": 0.3, "voters": 0.4 + left, "groups": left}
    assert of_class == pytest.approx(with_file(own), abs=0.001)
    assert shares("raft/log.py:") == pytest.approx(with_file(OF_FILE), abs=0.001)
    assert sum(of_class.values()) == pytest.approx(1, abs=0.005)


@pytest.mark.parametrize("name", ["Log.new", "new", "New", "New.append"])
def test_what_is_new_or_runs_everywhere_goes_by_what_is_around_it(name: str) -> None:
    assert shares(f"raft/log.py:{name}") == pytest.approx(with_file(dict.fromkeys(NAMES, 0.25)), abs=0.001)


def test_the_folder_counts_beside_the_file() -> None:
    rows = "raft/log.py:f 0=1000", "raft/end.py:f 1=1000", "raft/deep/x.py:f 2=1000"
    code = ReachedCode(parse("\n".join(["scenarios kill cut voters", *rows])))
    found = weights(["raft/log.py:f"], code, NAMES)
    around = {"kill": 0.85 + 0.15 / 2, "cut": 0.15 / 2}
    assert found == pytest.approx({name: 0.025 + 0.9 * around.get(name, 0) for name in NAMES})


def test_several_functions_count_alike_and_unknown_ones_not_at_all() -> None:
    both = shares("raft/log.py:Log.append", "raft/log.py:read", "tests/test_x.py:f")
    own = {"kill": 0.35, "cut": 0.25, "voters": 0.4}
    assert both == pytest.approx(with_file(own), abs=0.001)
    assert weights(["tests/test_x.py:f"], CODE, NAMES) == {}


def test_a_seed_draws_the_same_scenario_and_many_draw_by_the_weights() -> None:
    chosen = weights(["raft/log.py:Log.append"], CODE, NAMES)
    drawn_by = [drawn(chosen, seed) for seed in range(400)]
    assert drawn_by == [drawn(chosen, seed) for seed in range(400)]
    assert 200 < drawn_by.count("voters") < 255
    assert set(drawn_by) == set(NAMES)


def test_a_line_counts_the_more_the_fewer_scenarios_run_it() -> None:
    source = "def even():\n    return 1\n\n\nclass C:\n    def rare(self):\n        if self:\n            return 2\n"
    everywhere = {("a.py", 2): 2, ("a.py", 7): 2}
    reached = {name: Counter(everywhere) for name in NAMES}
    reached["voters"]["a.py", 8] = 1
    share = round(1000 * 1.25**2 / (1.25**2 + 3 * 0.25**2))
    told = table(reached, 2, {"a.py": source})
    assert told == ["scenarios kill cut voters groups", f"a.py:C.rare 2={share}"]
    assert parse("\n".join(told)) == {"a.py:C.rare": {"voters": share / 1000}}


def test_the_table_is_of_the_scenarios_and_the_code_that_there_are() -> None:
    text = Path(changes.__path__[0], "reached_code.txt").read_text()
    found = parse(text)
    assert {scenario for of_function in found.values() for scenario in of_function} <= set(SCENARIOS)
    there = {f"{path}:{name}" for path in {one.split(":")[0] for one in found} for name in functions_in(path)}
    known = sum(name in there for name in found)
    assert known > 0.8 * len(found), "much has changed: run write_reached_code.py"
    chosen = weights(["raft/voters/voter_change_handler.py:"], ReachedCode.load(), tuple(SCENARIOS))
    assert max(chosen, key=lambda name: chosen[name]) in ("voters", "hasty-voters")


def functions_in(path: str) -> set[str]:
    file = ROOT / path
    return {name for name, _, _ in functions_of(file.read_text())} if file.exists() else set()


def test_a_function_of_voters_that_every_run_calls_draws_the_scenarios_of_voters() -> None:
    chosen = weights(["raft/voters/voter_set.py:VoterHistory.truncate_to"], ReachedCode.load(), tuple(SCENARIOS))
    assert chosen["voters"] + chosen["hasty-voters"] > 0.2
