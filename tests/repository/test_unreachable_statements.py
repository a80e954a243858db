"""No statement stands where no run can come: after a `return`, `raise`, `break` or `continue`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENDS = (ast.Return, ast.Raise, ast.Break, ast.Continue)


def unreachable_lines(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list):
                yield from (after.lineno for one, after in pairwise(block) if isinstance(one, ENDS))


def test_each_statement_can_be_reached() -> None:
    packages = [path for path in (ROOT / "raftwerk").iterdir() if path.is_dir()]
    files = [file for package in (*packages, ROOT / "tests") for file in sorted(package.resolve().rglob("*.py"))]
    found = [
        f"{file.relative_to(ROOT)}:{line}" for file in files for line in unreachable_lines(ast.parse(file.read_text()))
    ]
    if found:
        pytest.fail("\n".join(found), pytrace=False)
    assert len(files) > 500


def test_what_stands_after_a_return_is_found() -> None:
    assert list(unreachable_lines(ast.parse("def f(a):\n  if a:\n    return 1\n    g()\n  return 2"))) == [4]
    assert list(unreachable_lines(ast.parse("def f(a):\n  if a:\n    return 1\n  g()\n  return 2"))) == []
