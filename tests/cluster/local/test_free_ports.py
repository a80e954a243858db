"""The ports of a local cluster are looked at before any of its nodes starts."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftwerk.cluster.local.free_ports import check_ports
from raftwerk.cluster.local.layout import ClusterShape, find_free_base_port, plan_cluster


@pytest.fixture
def base() -> int:
    return find_free_base_port(ClusterShape(3))


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def refusal(directory: Path, shape: ClusterShape, *, is_new: bool = True) -> str:
    with pytest.raises(ValueError) as raised:
        check_ports(plan_cluster(str(directory), shape), is_new=is_new)
    return str(raised.value)


def test_free_ports_are_no_problem(tmp_path: Path, base: int) -> None:
    check_ports(plan_cluster(str(tmp_path), ClusterShape(3, port=base)), is_new=True)


def test_a_taken_port_is_named_with_the_option_that_changes_it(tmp_path: Path, base: int, taken: int) -> None:
    told = refusal(tmp_path, ClusterShape(1, port=taken))
    assert f"port {taken} for the broker of node 1" in told and "--port" in told
    told = refusal(tmp_path, ClusterShape(1, port=base, controller_port=taken))
    assert f"port {taken} for the controller of node 1" in told and "--controller-port" in told
    told = refusal(tmp_path, ClusterShape(1, port=base, metrics_port=taken))
    assert f"port {taken} for the metrics of node 1" in told and "--metrics-port" in told


def test_the_console_s_port_is_looked_at_with_those_of_the_nodes(tmp_path: Path, base: int, taken: int) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(1, port=base))
    check_ports(plan, is_new=True, console=("127.0.0.1", 0))
    with pytest.raises(ValueError, match=f"port {taken} for the console: .*; --console-port chooses another"):
        check_ports(plan, is_new=True, console=("127.0.0.1", taken))
    with pytest.raises(ValueError, match=f"port {base} is planned for the broker of node 1 and for the console"):
        check_ports(plan, is_new=True, console=("127.0.0.1", base))


def test_free_ports_are_found_beside_those_that_are_chosen(tmp_path: Path, taken: int) -> None:
    told = refusal(tmp_path, ClusterShape(1, port=0, controller_port=taken))
    assert (
        told.startswith(f"cannot listen on port {taken} for the controller of node 1: ") and "--controller-port" in told
    )
    told = refusal(tmp_path, ClusterShape(1, port=0, metrics_port=taken))
    assert told.startswith(f"cannot listen on port {taken} for the metrics of node 1: ") and "--metrics-port" in told
    told = refusal(tmp_path, ClusterShape(1, port=0, host="192.0.2.1"))
    assert told.endswith(": no such address here; 192.0.2.1 is not of this machine: --host chooses another")


def test_ports_that_are_chosen_are_not_taken_for_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    bases = iter([20001, 20005, 20010])
    monkeypatch.setattr("raftwerk.cluster.local.layout.random.randrange", lambda *_: next(bases))
    monkeypatch.setattr("raftwerk.cluster.local.layout.why_not_free", lambda *_: None)
    assert find_free_base_port(ClusterShape(3, controller_port=20000, metrics_port=20007)) == 20010


def test_metrics_beside_brokers_have_free_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bases = iter([20001, 20010])
    monkeypatch.setattr("raftwerk.cluster.local.layout.random.randrange", lambda *_: next(bases))
    taken = {20503: "in use"}
    monkeypatch.setattr("raftwerk.cluster.local.layout.why_not_free", lambda _, port: taken.get(port))
    plan = plan_cluster(str(tmp_path), ClusterShape(3, port=0, metrics_port=0))
    assert [node.port for node in plan.nodes] == [20010, 20011, 20012]
    assert [node.properties["metrics.port"] for node in plan.nodes] == ["20510", "20511", "20512"]


def test_the_controllers_of_an_existing_cluster_keep_their_ports(tmp_path: Path, base: int, taken: int) -> None:
    told = refusal(tmp_path, ClusterShape(1, port=base, controller_port=taken), is_new=False)
    assert "--controller-port" not in told and told.endswith(
        f"end the process that has it (ss -ltnp 'sport = :{taken}')"
    )
    told = refusal(tmp_path, ClusterShape(2, port=base, controller_port=taken - 1), is_new=False)
    assert told.count("ss -ltnp") == 1


def test_no_option_is_advised_where_an_existing_cluster_s_controller_has_no_port(
    tmp_path: Path, taken: int, base: int
) -> None:
    """Two clusters that were made with the same --port: only the end of the other one helps."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", base))
        other.listen()
        told = refusal(tmp_path, ClusterShape(1, port=base, controller_port=taken), is_new=False)
    ports = f"(ss -ltnp 'sport = :{base} or sport = :{taken}')"
    assert told.endswith(f"keep their ports, which no option changes: end the processes that have them {ports}")
    assert "--port" not in told and "--controller-port" not in told


def test_other_ports_for_brokers_are_advised_where_they_meet_those_that_controllers_keep(
    tmp_path: Path, base: int
) -> None:
    told = refusal(tmp_path, ClusterShape(2, port=base, controller_port=base + 1), is_new=False)
    assert told.endswith("; --port chooses other ports (0: free ones)")


def test_a_port_that_is_planned_twice(tmp_path: Path, base: int) -> None:
    told = refusal(tmp_path, ClusterShape(3, port=base, controller_port=base + 2))
    assert told == (
        f"port {base + 2} is planned for the controller of node 1 and for the broker of node 3; --port chooses other "
        "ports (0: free ones)"
    )


def test_a_reason_that_several_ports_share_is_told_once(tmp_path: Path, base: int, taken: int) -> None:
    told = refusal(tmp_path, ClusterShape(1, port=taken, controller_port=taken))
    assert told.count(str(taken)) == 2 and told.startswith(f"port {taken} is planned for the broker of node 1 and for")
    told = refusal(tmp_path, ClusterShape(2, port=base, host="192.0.2.1"))
    assert told.startswith(f"cannot listen on port {base} for the broker of node 1, port {base + 1} for the broker of ")
    assert told.count("no such address here") == 1


def test_an_address_of_another_machine_is_named(tmp_path: Path, base: int) -> None:
    told = refusal(tmp_path, ClusterShape(1, port=base, host="192.0.2.1"))
    assert "192.0.2.1" in told and "--host" in told and "--port" not in told
