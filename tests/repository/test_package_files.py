"""What the `__init__` of the top-level packages may hold."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.name for path in (ROOT / "raftwerk").iterdir() if path.is_symlink())


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_nothing_by_itself(package: str) -> None:
    """A folder of tests has the name of the package that it tests. The type checker takes the package at the top of the
    tree for the parent of these tests, and cannot follow relative imports from there.
    """
    tree = ast.parse((ROOT / package / "__init__.py").read_text())
    assert [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)] == []


def test_no_merge_is_left_half_done() -> None:
    """Python with the marks of a conflict does not run; documents have no such guard."""
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "pyproject.toml", ROOT / "Makefile"]
    marked = [path.name for path in documents if re.search(r"^(<{7}|>{7}) ", path.read_text(), re.MULTILINE)]
    assert marked == []
