"""A node that does not start because its disk is full: whoever starts it is told."""

from __future__ import annotations

from pathlib import Path

from raftwerk.cluster.doctor.disk_checks import RESERVE, RESERVE_DEFAULT_BYTES
from raftwerk.cluster.local.layout import ClusterShape, plan_cluster, write_properties
from raftwerk.cluster.local.supervisor import full_disk
from raftwerk.cluster.settings.node_config import load_config


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(1, port=0))
    write_properties(plan)
    (node,) = plan.nodes
    with open(node.properties_file, encoding="utf-8") as file:
        assert load_config(file.read())[RESERVE] == RESERVE_DEFAULT_BYTES
    assert full_disk(node) == ""  # it has no directory yet
    Path(node.data_dir).mkdir()
    with open(node.properties_file, "a", encoding="utf-8") as file:
        file.write("log.dirs.reserve.bytes=0\n")
    assert full_disk(node) == ""
    with open(node.properties_file, "a", encoding="utf-8") as file:
        file.write(f"log.dirs.reserve.bytes={1 << 60}\n")
    told = full_disk(node)
    assert told.startswith(f"; {node.data_dir}: the disk is full: ") and "free space: " in told
