"""How the simulator names its faults."""

from __future__ import annotations

import pytest

from raftwerk.chaos.sim.faults.fault import Fault, FaultKind, fault_text, hosts_of


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (FaultKind.CUT_OFF, "n1 is cut off from everybody"),
        (FaultKind.CLIENTS_CUT, "n1 is cut off from clients"),
        (FaultKind.KILL, "kill n1"),
        (FaultKind.SLOW_DISK, "slow disk: n1"),
        (FaultKind.CUT, "cut between n1 and n3"),
        (FaultKind.CUT_ONE_WAY, "cut one way from n1 to n3"),
        (FaultKind.BRIDGE, "two halves that only one node joins: n1"),
        (FaultKind.KILL_ALL, "kill all"),
    ],
)
def test_a_fault_names_only_the_hosts_that_it_concerns(kind: FaultKind, told: str) -> None:
    assert fault_text(kind, "n1", "n3") == told


def test_every_fault_of_one_host_names_that_one_and_no_other() -> None:
    for kind in FaultKind:
        if hosts_of(kind, "n1", "n3", ("n1", "n2", "n3")) == ("n1",):
            told = fault_text(kind, "n1", "n3")
            assert "n1" in told and "n3" not in told


def test_a_fault_is_told_with_its_time() -> None:
    told = str(Fault(0.7163, FaultKind.CUT_OFF, "controller", "n3", 5.755))
    assert told == "0.716 controller is cut off from everybody for 5.755 s"
    assert str(Fault(2.0, FaultKind.BIT_ROT, "n2", "n2", 1.5)) == "2.000 bit rot: n2", "it is done at once"
