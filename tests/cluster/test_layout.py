"""Ports, directories and settings of a local cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftwerk.cluster.config import NodeConfig
from raftwerk.cluster.layout import (
    ClusterShape,
    existing_cluster_id,
    find_free_base_port,
    new_cluster_id,
    plan_cluster,
    write_properties,
)


def test_consecutive_ports_and_names(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(brokers=3, port=9092))
    assert [(node.node_id, node.port, node.controller_port) for node in plan.nodes] == [
        (1, 9092, 10093),
        (2, 9093, 10094),
        (3, 9094, 10095),
    ]
    assert plan.bootstrap == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
    second = plan.node(2)
    assert second.data_dir == str(tmp_path / "node-2")
    assert second.pid_file == str(tmp_path / "n2.pid")
    assert second.log_file == str(tmp_path / "n2.log")
    with pytest.raises(KeyError):
        plan.node(9)


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("brokers", [1, 2, 3, 5])
def test_every_plan_is_a_configuration(tmp_path: Path, brokers: int, separate: bool) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(brokers=brokers, separate=separate))
    configs = [NodeConfig.from_properties(node.properties) for node in plan.nodes]
    assert [config.node_id for config in configs if config.is_broker] == list(range(1, brokers + 1))
    for config, node in zip(configs, plan.nodes):
        assert config.log_dirs == (node.data_dir,)
        assert not [line for line in config.warnings if "unknown" in line]
    if separate:
        assert [config.node_id for config in configs if config.is_controller] == [101, 102, 103][: min(3, brokers)]


def test_what_is_written_loads(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(brokers=1, port=0, overrides={"num.partitions": "4"}))
    write_properties(plan)
    from raftwerk.cluster.config import load_config

    assert load_config(Path(plan.nodes[0].properties_file).read_text())["num.partitions"] == 4


def test_a_former_cluster_keeps_its_id(tmp_path: Path) -> None:
    assert existing_cluster_id([str(tmp_path)]) is None
    (tmp_path / "node-1").mkdir()
    (tmp_path / "node-1" / "meta.properties").write_text("version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n")
    assert plan_cluster(str(tmp_path), ClusterShape(port=9092)).cluster_id == "MkU3OEVBNTcwNTJENDM2Qg"


def test_cluster_ids() -> None:
    ids = [new_cluster_id() for _ in range(200)]
    assert len(set(ids)) == 200
    assert all(len(one) == 22 and not one.startswith("-") for one in ids)


def test_free_ports() -> None:
    assert 20000 <= find_free_base_port(ClusterShape(brokers=3)) < 30000


@pytest.mark.parametrize("shape", [{"brokers": 0}, {"brokers": 101}, {"port": 65000}])
def test_shapes_that_cannot_be(shape: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"nodes|too high"):
        ClusterShape(**shape)
