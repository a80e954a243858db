"""Which functions a diff has changed, from a repository of git's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from raftwerk.chaos.sim.changes.changed_functions import NoChangesError, changed_functions, names_at

BEFORE = """\
LIMIT = 3
BOUND = (
    4
)

def first():
    return 1

class Log:
    size = 0

    @property
    def end(self):
        def inner():
            return 2
        return inner()

    def cut(self):
        return 3
        return 4

    def grow(self):
        self.size += BOUND

def second():
    return [BOUND for _ in (1,)]
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "log.py").write_text(BEFORE)
    (tmp_path / "notes.txt").write_text("a\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "-c", "user.name=t", "-c", "user.email=t@t.example", "commit", "-q", "-m", "first")
    return tmp_path


def git(directory: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=directory, check=True)


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("return 1", "return 5", {"first"}),
        ("return 2", "return 5", {"Log.end"}),
        ("    @property\n", "", {"Log.end"}),
        ("        return 4\n", "", {"Log.cut"}),
        ("size = 0", "size = 1", {"Log"}),
        ("LIMIT = 3", "LIMIT = 4", {""}),
        ("    4\n", "    5\n", {"Log.grow", "second"}),
        ("def cut(self):", "def cut(self):\n        self.size = 1", {"Log.cut"}),
    ],
)
def test_a_change_is_told_by_what_is_around_it(repository: Path, old: str, new: str, changed: set[str]) -> None:
    (repository / "below" / "log.py").write_text(BEFORE.replace(old, new))
    (repository / "notes.txt").write_text("b\n")
    assert changed_functions(str(repository / "below"), "HEAD") == {f"below/log.py:{name}" for name in changed}


def test_nothing_and_what_is_gone_have_no_functions(repository: Path) -> None:
    assert changed_functions(str(repository), "HEAD") == set()
    (repository / "below" / "log.py").unlink()
    assert changed_functions(str(repository), "HEAD") == set()


def test_what_cannot_be_told_is_refused(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoChangesError, match=r"git cannot tell what has changed: .*nothing-there"):
        changed_functions(str(repository), "nothing-there")
    (repository / "below" / "log.py").write_text("def first(:\n")
    with pytest.raises(NoChangesError, match="is no Python"):
        changed_functions(str(repository), "HEAD")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NoChangesError, match="git is not installed"):
        changed_functions(str(repository), "HEAD")


def test_a_line_belongs_to_the_outermost_function_and_its_classes() -> None:
    assert names_at(BEFORE, [15]) == {"Log.end"}
    assert names_at(BEFORE, [1, 8]) == {""}
    assert names_at(BEFORE, [1, 7, 10]) == {"first", "Log"}, "what is within tells more than what is around it"
