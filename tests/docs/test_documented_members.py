"""The members of clusters for tests take what the tables of the documentation say, by position or by name."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

import pytest
from support.docs.documentation import DOCS

from raftwerk.testkit.process_cluster import TestCluster
from raftwerk.testkit.simulation.sim_cluster import SimCluster

_CALL = re.compile(r"`(?:await )?(\w+)\(([^`]*)\)(?: -> [^`]*)?`")
_WITHOUT_A_DEFAULT = inspect.Parameter.empty


def documented(page: str, head: str) -> list[tuple[str, str]]:
    """Name and parameters of each member in the first column of the table that begins with `head`."""
    table = (DOCS / page).read_text().partition(head)[2].partition("\n\n")[0]
    cells = [re.split(r"(?<!\\)\|", line)[1] for line in table.splitlines() if line.startswith("| `")]
    return [(found[1], found[2]) for cell in cells for found in _CALL.finditer(cell)]


def described(parameters: str) -> list[tuple[str, str, Any]]:
    """Name, kind and default of each parameter; `...` stands for a default that is not told."""
    space: dict[str, Any] = {}
    exec(compile(ast.parse(f"def f({parameters}): pass"), "<documentation>", "exec"), space)
    return _parameters(inspect.signature(space["f"]))


def _parameters(signature: inspect.Signature) -> list[tuple[str, str, Any]]:
    return [
        (one.name, one.kind.description, one.default) for one in signature.parameters.values() if one.name != "self"
    ]


MEMBERS = [
    (owner, name, parameters)
    for owner, page, head in (
        (SimCluster, "simulate.md", "| Member of `cluster` | |"),
        (TestCluster, "pytest.md", "| Member | |"),
    )
    for name, parameters in documented(page, head)
]
SHORTENED = {(SimCluster, "kill"), (SimCluster, "pause"), (SimCluster, "cut")}
"""Their text says what they take."""


def test_the_tables_are_found() -> None:
    assert len(MEMBERS) > 25
    assert (SimCluster, "create_topic", "name, *, partitions=1, replicas=-1, config=None") in MEMBERS


@pytest.mark.parametrize(("owner", "name", "parameters"), MEMBERS, ids=lambda one: getattr(one, "__name__", str(one)))
def test_a_member_takes_what_its_page_says(owner: type, name: str, parameters: str) -> None:
    if (owner, name) in SHORTENED:
        return
    actual = _parameters(inspect.signature(getattr(owner, name)))
    said = described(parameters)
    assert [one[:2] for one in said] == [one[:2] for one in actual]
    for (_, _, default), (_, _, actual_default) in zip(said, actual, strict=True):
        assert (default is _WITHOUT_A_DEFAULT) == (actual_default is _WITHOUT_A_DEFAULT)
        assert default in (..., actual_default) or default is actual_default
