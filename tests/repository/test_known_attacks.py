"""The tests that docs/security.md names beside known attacks are there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "security.md"
NAMED = re.compile(r"`([a-z0-9_/]+\.py)::(\w+)`")
SHOWN_BY_NO_TEST = {"CVE-2026-35554", "CVE-2024-31141", "CVE-2019-12399"}
"""What concerns clients of others, and what there is not here."""


def rows() -> Iterator[tuple[str, str, str]]:
    """Attack, how it stands, and the cell with the names of the tests."""
    section = PAGE.read_text().partition("## Known attacks\n")[2].partition("\n## ")[0]
    for line in section.splitlines():
        if line.startswith("|") and not line.startswith(("|---", "| Vulnerability", "| Class")):
            attack, stands, tests = (cell.strip() for cell in line.strip("|").split("|"))
            yield attack, stands, tests


def functions(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_each_attack_has_a_test_that_is_there() -> None:
    missing = []
    for attack, stands, tests in rows():
        assert stands, attack
        named = NAMED.findall(tests)
        assert named or any(attack.startswith(one) for one in SHOWN_BY_NO_TEST), attack
        for path, name in named:
            file = ROOT / "tests" / path
            if not file.exists() or name not in functions(file):
                missing.append(f"{path}::{name}")
    assert not missing


def test_what_is_no_test_would_be_noticed() -> None:
    assert len(list(rows())) > 20
    assert "test_plain_refuses" in functions(ROOT / "tests" / "security" / "test_sasl.py")
    assert "test_that_is_not_there" not in functions(ROOT / "tests" / "security" / "test_sasl.py")
