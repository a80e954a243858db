"""The wheel and the sdist: complete, without symbolic links, and enough to run a node."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_REGULAR_FILE = 0o10
"""The file type of a regular file in the upper bits of a Unix mode."""
_BUILD = """
import sys
from setuptools import build_meta
print(getattr(build_meta, "build_" + sys.argv[1])(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The committed and uncommitted files of this tree, apart from it: a build writes into the tree that it builds."""
    directory = tmp_path_factory.mktemp("clone")
    names = subprocess.check_output(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, text=True
    ).split("\0")
    present = [name for name in names if name and os.path.lexists(ROOT / name)]
    for name in present:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink():
            (directory / name).symlink_to(os.readlink(ROOT / name))
        else:
            (directory / name).write_bytes((ROOT / name).read_bytes())
    return directory


def build(kind: str, source: Path, out: Path) -> Path:
    command = [sys.executable, "-c", _BUILD, kind, str(out)]
    done = subprocess.run(command, cwd=source, check=True, capture_output=True, text=True)
    return out / done.stdout.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", clone, tmp_path_factory.mktemp("wheel"))


IN_CLONES_ONLY = ("raftwerk/bench/", "raftwerk/chaos/fuzz/")


def modules(clone: Path) -> set[str]:
    """The modules that are installed: all but those that are run from a clone."""
    links = [path for path in (clone / "raftwerk").iterdir() if path.is_dir()]
    own = {f"raftwerk/{path.name}" for path in (clone / "raftwerk").glob("*.py")}
    linked = {f"raftwerk/{link.name}/{path.relative_to(link)}" for link in links for path in link.rglob("*.py")}
    return {name for name in own | linked if not name.startswith(IN_CLONES_ONLY)}


def test_the_wheel_holds_one_package_with_every_module_and_no_link(clone: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        assert all(info.external_attr >> 28 == _REGULAR_FILE for info in archive.infolist() if not info.is_dir())
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"raftwerk"}
    assert {name for name in names if name.endswith(".py")} == modules(clone)
    assert "raftwerk/py.typed" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_the_sdist_has_no_link_and_gives_the_same_wheel(clone: Path, wheel: Path, tmp_path: Path) -> None:
    sdist = build("sdist", clone, tmp_path)
    with tarfile.open(sdist) as archive:
        assert [member.name for member in archive if not (member.isfile() or member.isdir())] == []
        archive.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    again = build("wheel", source, tmp_path)
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        assert {info.filename: info.CRC for info in first.infolist() if info.filename.endswith(".py")} == {
            info.filename: info.CRC for info in second.infolist() if info.filename.endswith(".py")
        }


def test_nothing_that_is_installed_imports_what_is_in_clones_only(clone: Path) -> None:
    for name in modules(clone):
        code = (clone / name).read_text()
        assert re.search(r"^\s*(from|import) \S*\.(bench|fuzz)\b", code, re.M) is None, name


@pytest.mark.process
def test_an_installed_wheel_runs_a_cluster(wheel: Path, tmp_path: Path) -> None:
    """In an environment of its own; the dependencies are borrowed from this one, so that nothing is downloaded."""
    home = tmp_path / "venv"
    venv.create(home, symlinks=True)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(
        "\n".join(dict.fromkeys(path for path in sys.path if "site-packages" in path))
    )
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    python = home / "bin" / "python"
    where = subprocess.check_output(
        [python, "-c", "import raftwerk; print(raftwerk.__file__)"], text=True, cwd=tmp_path
    )
    assert Path(where.strip()).is_relative_to(home)

    def raftwerk(*words: str, lines: str = "") -> str:
        done = subprocess.run(
            [python, "-m", "raftwerk", *words],
            cwd=tmp_path,
            input=lines,
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    started = raftwerk("up", "-n", "1", "--port", "0", "--dir", "data", "--detach", "--plain")
    try:
        (bootstrap,) = re.findall(r"bootstrap.servers=(\S+)", started)
        raftwerk("topics", "create", "t", "-b", bootstrap)
        raftwerk("produce", "t", "-b", bootstrap, lines="hello\n")
        assert raftwerk("consume", "t", "-n", "1", "-b", bootstrap) == "hello\n"
    finally:
        raftwerk("down", "--dir", "data")
