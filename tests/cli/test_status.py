"""What `raftwerk status` advises where no broker answers."""

from __future__ import annotations

from typing import Any

from raftwerk.cli.local_cluster.status import _no_broker_answers


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
