"""What `raftwerk status` advises where no broker answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raftwerk.cli.local_cluster.status import (
    _ask,
    _hindered,
    _leader_among_controllers,
    _no_broker_answers,
    _not_paused,
    _states,
)
from raftwerk.cluster.local import supervisor
from raftwerk.cluster.local.layout import ClusterShape, plan_cluster


def row(node: int, roles: str, state: str) -> dict[str, Any]:
    return {"node": node, "roles": roles, "state": state}


CONTROLLER = row(101, "controller", "up")


def test_brokers_that_do_not_run_are_to_be_started() -> None:
    down = [row(1, "broker", "down"), row(2, "broker", "down")]
    told = _no_broker_answers([*down, CONTROLLER], "nothing", " -d c")
    assert told == "No broker answers, since none is up: raftwerk start -d c starts all nodes that are down."
    told = _no_broker_answers([*down, row(101, "controller", "down")], "nothing", "")
    assert told == "No broker answers: raftwerk up starts the cluster, raftwerk start N one node."
    told = _no_broker_answers(down, "nothing", "", is_up=True)  # another raftwerk up would be refused
    assert told == "No broker answers: raftwerk start starts all nodes, raftwerk start N one node."


def test_brokers_that_are_paused_are_to_go_on() -> None:
    told = _no_broker_answers([row(1, "broker", "paused"), row(2, "broker", "down"), CONTROLLER], "nothing", "")
    assert told.endswith("starts all nodes that are down, raftwerk kill 1 --signal CONT ends the pause.")


def test_brokers_that_run_and_do_not_answer_are_named() -> None:
    told = _no_broker_answers([row(1, "broker", "up"), CONTROLLER], "raftwerk logs shows what they do", "")
    assert told == "No broker answers, although node 1 is up: raftwerk logs shows what they do."


def test_brokers_that_run_and_do_not_listen_are_not_called_up() -> None:
    silent = [row(1, "broker,controller", "not serving"), row(2, "broker,controller", "not serving")]
    told = _no_broker_answers(silent, "raftwerk logs shows what they do", " -d c")
    assert told == "No broker answers, since none listens: raftwerk logs shows what they do."
    told = _no_broker_answers([*silent, row(3, "broker", "down")], "nothing", " -d c")
    assert told.endswith("since none listens: nothing; raftwerk start -d c starts all nodes that are down.")


@pytest.mark.parametrize("silent", [[], [2], [1, 2]])
def test_a_node_that_runs_and_does_not_listen_does_not_serve(
    silent: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while metadata has it fenced, or up, as one that has just died and is back."""
    plan = plan_cluster(str(tmp_path / "c"), ClusterShape(brokers=3, port=0))
    monkeypatch.setattr(supervisor, "node_pid", lambda node: None if node.node_id == 3 else 4710 + node.node_id)
    monkeypatch.setattr(supervisor, "paused_nodes", lambda nodes: {})
    monkeypatch.setattr(supervisor, "brokers_that_do_not_listen", lambda nodes: dict.fromkeys(silent, 4711))
    states = {1: "up", 2: "fenced", 3: "down"} | dict.fromkeys(silent, "not serving")
    assert _states(plan, {2}) == states
    rows = [row(node_id, "broker", state) for node_id, state in states.items() if node_id in silent]
    told = " ".join(_hindered(plan, rows))
    assert ("not listen for clients" in told) == bool(silent)
    if silent:
        assert f"raftwerk logs {' '.join(map(str, silent))} -d {plan.directory} shows which." in told
    monkeypatch.setattr(supervisor, "full_disk", lambda node: "; its disk is full")
    told = " ".join(_hindered(plan, rows))
    assert told.count("takes no records; its disk is full.") == len(silent) and "not listen" not in told


@pytest.mark.parametrize("paused", [[2], [1, 2]])
def test_nodes_that_are_paused_are_not_waited_for(
    paused: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "paused_nodes", lambda nodes: dict.fromkeys(paused, 4711))
    asked = _not_paused(plan_cluster(str(tmp_path / "c"), ClusterShape(brokers=2, port=0)))
    assert [node.node_id for node in asked.nodes] == [one for one in (1, 2) if one not in paused]
    if not asked.nodes:
        assert _ask(asked)[:3] == (None, None, set())
        assert _leader_among_controllers(asked) is None
