"""The files of a local cluster beside those of others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from raftwerk.cluster.local.cluster_directory import check_not_foreign, delete_files, make_directory, size_bytes
from raftwerk.cluster.local.layout import ClusterShape, plan_cluster, write_properties


def make_cluster(directory: Path) -> None:
    plan = plan_cluster(str(directory), ClusterShape(2, port=9092))
    make_directory(str(directory))
    write_properties(plan)
    for node in plan.nodes:
        os.makedirs(os.path.join(node.data_dir, "t-0"))
        Path(node.data_dir, "t-0", "0.log").write_bytes(b"x" * 1000)
        Path(node.log_file).write_text("started\n")
        Path(node.pid_file).write_text("1\n")


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    check_not_foreign(str(tmp_path / "new"))
    check_not_foreign(str(tmp_path))
    (tmp_path / "lost+found").mkdir()
    make_cluster(tmp_path)
    check_not_foreign(str(tmp_path))
    for name in ("setup.py", "src", "s.properties", "node-x"):
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=r"holds other files \(node-x, s.properties, setup.py, \.\.\.\)"):
        check_not_foreign(str(tmp_path))


def test_a_cluster_is_left_out_of_version_control(tmp_path: Path) -> None:
    make_directory(str(tmp_path / "c"))
    assert (tmp_path / "c" / ".gitignore").read_text().splitlines()[-1] == "*"
    (tmp_path / "c" / ".gitignore").write_text("mine\n")
    make_directory(str(tmp_path / "c"))
    assert (tmp_path / "c" / ".gitignore").read_text() == "mine\n"


def test_only_the_cluster_s_files_are_deleted(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    make_cluster(directory)
    assert size_bytes(str(directory)) > 2000
    (directory / "notes.txt").touch()
    delete_files(str(directory))
    assert os.listdir(directory) == ["notes.txt"]


def test_the_directory_goes_with_its_last_file(tmp_path: Path) -> None:
    make_cluster(tmp_path / "c")
    delete_files(str(tmp_path / "c"))
    assert not (tmp_path / "c").exists()


def test_what_an_interrupted_shrink_left_goes_with_the_cluster(tmp_path: Path) -> None:
    make_cluster(tmp_path / "c")
    gone = plan_cluster(str(tmp_path / "c"), ClusterShape(2, port=9092)).node(2)
    os.rename(gone.properties_file, gone.leaving_file)
    check_not_foreign(str(tmp_path / "c"))
    delete_files(str(tmp_path / "c"))
    assert not (tmp_path / "c").exists()


def test_what_a_link_points_to_stays(tmp_path: Path) -> None:
    make_cluster(tmp_path / "c")
    data = tmp_path / "data"
    data.mkdir()
    (data / "kept").touch()
    os.symlink(data, tmp_path / "c" / "node-3")
    delete_files(str(tmp_path / "c"))
    assert (data / "kept").exists() and not (tmp_path / "c").exists()
