"""The ports, directories and settings of a local cluster."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raftwerk.cluster.local.layout import (
    AUTO_JOIN_KEY,
    ClusterPlan,
    ClusterShape,
    existing_cluster_id,
    find_free_base_port,
    load_plan,
    new_cluster_id,
    plan_cluster,
    shape_of,
    write_properties,
)
from raftwerk.cluster.local.voters_on_disk import has_dynamic_voters
from raftwerk.cluster.node.formatting import parse_controllers
from raftwerk.cluster.settings.node_config import NodeConfig
from raftwerk.raft.messages.control_records import encode_control
from raftwerk.raft.voters.voter_set import KRaftVersion
from raftwerk.wire.records import encode_batch


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


@pytest.mark.parametrize(
    ("host", "controller_host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("localhost", "localhost"),
        ("0.0.0.0", "127.0.0.1"),
        ("10.1.2.3", "127.0.0.1"),
        ("some.host", "127.0.0.1"),
        ("::1", "[::1]"),
        ("::", "[::1]"),
    ],
)
@pytest.mark.parametrize("static", [False, True])
def test_controllers_listen_on_loopback(tmp_path: Path, host: str, controller_host: str, static: bool) -> None:
    overrides = {VOTERS: "1@h:1"} if static else {}
    plan = plan_cluster(str(tmp_path), ClusterShape(brokers=2, host=host, overrides=overrides))
    assert [node.controller_address for node in plan.nodes] == [f"{controller_host}:{port}" for port in (10093, 10094)]


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("brokers", [1, 2, 3, 5])
def test_every_plan_is_a_configuration(tmp_path: Path, brokers: int, separate: bool) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(brokers=brokers, separate=separate))
    configs = [NodeConfig.from_properties(node.properties) for node in plan.nodes]
    assert [config.node_id for config in configs if config.is_broker] == list(range(1, brokers + 1))
    for config, node in zip(configs, plan.nodes):
        assert config.log_dirs == (node.data_dir,)
        assert config.warnings == ()
    if separate:
        assert [config.node_id for config in configs if config.is_controller] == [101, 102, 103][: min(3, brokers)]


def test_what_is_written_loads(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(brokers=1, port=0, overrides={"num.partitions": "4"}))
    write_properties(plan)
    from raftwerk.cluster.settings.node_config import load_config

    assert load_config(Path(plan.nodes[0].properties_file).read_text())["num.partitions"] == 4


def test_an_existing_cluster_keeps_its_id(tmp_path: Path) -> None:
    assert existing_cluster_id([str(tmp_path)]) is None
    (tmp_path / "node-1").mkdir()
    (tmp_path / "node-1" / "meta.properties").write_text("version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n")
    assert plan_cluster(str(tmp_path), ClusterShape(port=9092)).cluster_id == "MkU3OEVBNTcwNTJENDM2Qg"


def test_a_directory_without_its_id_is_named(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(1, port=0))
    formatted(plan)
    (tmp_path / "node-1" / "meta.properties").write_bytes(b"\xf6")
    with pytest.raises(ValueError, match=r"node-1/meta.properties has no cluster.id: restore it, or remove"):
        load_plan(str(tmp_path))


def formatted(plan: ClusterPlan) -> None:
    """Write what a started cluster leaves in its directory."""
    write_properties(plan)
    for node in plan.nodes:
        Path(node.data_dir).mkdir(exist_ok=True)
        (Path(node.data_dir) / "meta.properties").write_text(f"version=1\ncluster.id={plan.cluster_id}\n")


def controllers(plan: ClusterPlan) -> dict[int, str | None]:
    return {node.node_id: node.controller_address for node in plan.nodes}


SERVERS, VOTERS = "controller.quorum.bootstrap.servers", "controller.quorum.voters"


@pytest.mark.parametrize("separate", [False, True])
def test_a_new_cluster_has_dynamic_voters(tmp_path: Path, separate: bool) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(brokers=3, port=9092, separate=separate))
    first = parse_controllers(str(plan.first_voters), ["CONTROLLER"])
    at = {voter.key.id: f"{voter.listeners[0].host}:{voter.listeners[0].port}" for voter in first}
    assert at == {node.node_id: node.controller_address for node in plan.nodes if node.controller_port is not None}
    assert len({voter.key.directory_id for voter in first}) == 3
    for node in plan.nodes:
        assert node.properties[SERVERS] == ",".join(at.values())
        assert VOTERS not in node.properties
        assert ("controller.quorum.auto.join.enable" in node.properties) == (node.controller_port is not None)


def test_controllers_keep_their_addresses(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(brokers=3, port=9092))
    formatted(plan)
    again = plan_cluster(str(tmp_path), ClusterShape(brokers=5, port=19092))
    assert again.first_voters == load_plan(str(tmp_path)).first_voters == plan.first_voters, "not all have started"
    Path(plan.initial_controllers_file).unlink()
    again = plan_cluster(str(tmp_path), ClusterShape(brokers=5, port=19092))
    assert again.first_voters is load_plan(str(tmp_path)).first_voters is None
    assert controllers(again) == {**controllers(plan), 4: "127.0.0.1:20096", 5: "127.0.0.1:20097"}
    assert [node.port for node in again.nodes] == [19092, 19093, 19094, 19095, 19096]
    for node in again.nodes:
        NodeConfig.from_properties(node.properties)
    for shape in (ClusterShape(brokers=2), ClusterShape(brokers=3, separate=True)):
        with pytest.raises(ValueError, match="controllers 1, 2, 3, and without"):
            plan_cluster(str(tmp_path), shape)


def test_controllers_have_ports_of_their_own_if_asked(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(brokers=2, port=65000, controller_port=29092))
    assert controllers(plan) == {1: "127.0.0.1:29092", 2: "127.0.0.1:29093"}
    formatted(plan)
    again = plan_cluster(str(tmp_path), ClusterShape(brokers=2, port=65000, controller_port=29092))
    assert controllers(again) == controllers(plan)
    with pytest.raises(ValueError, match=r"controllers at .*:29092, .*:29093, and they keep"):
        plan_cluster(str(tmp_path), ClusterShape(brokers=2, port=65000, controller_port=29094))


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("given", [{}, {"num.partitions": "3", "group.initial.rebalance.delay.ms": "7"}])
def test_the_shape_of_an_existing_cluster(tmp_path: Path, separate: bool, given: dict[str, str]) -> None:
    shape = ClusterShape(3, "localhost", 19092, separate=separate, overrides=given, metrics_port=9404)
    formatted(plan_cluster(str(tmp_path), shape))
    assert shape_of(load_plan(str(tmp_path))) == shape


@pytest.mark.parametrize(
    ("racks", "of_brokers"),
    [((), [None] * 3), (("a",), ["a"] * 3), (("a", "b"), ["a", "b", "a"]), (("a", "b", "c"), ["a", "b", "c"])],
)
def test_brokers_have_racks_in_turn_also_those_that_come_later(
    tmp_path: Path, racks: tuple[str, ...], of_brokers: list[str | None]
) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(3, port=9092, separate=True, racks=racks))
    assert [node.properties.get("broker.rack") for node in plan.nodes] == [*of_brokers, None, None, None]
    formatted(plan)
    shape = shape_of(load_plan(str(tmp_path)))
    assert (shape.racks, shape.overrides) == (racks, {})
    grown = plan_cluster(str(tmp_path), replace(shape, brokers=4))
    assert grown.nodes[3].properties.get("broker.rack") == (racks[3 % len(racks)] if racks else None)


def test_a_rack_has_a_name() -> None:
    with pytest.raises(ValueError, match="the racks a,,b have one without a name"):
        ClusterShape(racks=("a", "", "b"))


def test_a_cluster_with_static_voters_keeps_them(tmp_path: Path) -> None:
    asked = {VOTERS: "1@127.0.0.1:10093"}
    plan = plan_cluster(str(tmp_path), ClusterShape(brokers=1, port=9092, overrides=asked))
    assert (plan.first_voters, plan.nodes[0].properties[VOTERS]) == (None, "1@127.0.0.1:10093")
    formatted(plan)
    again = plan_cluster(str(tmp_path), ClusterShape(brokers=3, port=9092))
    assert again.first_voters is None
    for node in again.nodes:
        assert node.properties[VOTERS] == "1@127.0.0.1:10093,2@127.0.0.1:10094,3@127.0.0.1:10095"
        assert SERVERS not in node.properties


def test_a_cluster_of_which_the_voters_became_dynamic_lists_no_static_ones(tmp_path: Path) -> None:
    asked = {VOTERS: "1@127.0.0.1:10093"}
    plan = plan_cluster(str(tmp_path), ClusterShape(brokers=1, port=9092, overrides=asked))
    formatted(plan)
    log = Path(plan.nodes[0].data_dir) / "__cluster_metadata-0" / "00000000000000000000.log"
    log.parent.mkdir()
    log.write_bytes(encode_batch([encode_control(KRaftVersion(0), 0)], is_control=True))
    assert not has_dynamic_voters(plan)
    with open(log, "ab") as file:
        file.write(encode_batch([encode_control(KRaftVersion(1), 0)], base_offset=1, is_control=True) + b"partial")
    assert has_dynamic_voters(load_plan(str(tmp_path)))
    again = plan_cluster(str(tmp_path), ClusterShape(brokers=2, port=9092), is_dynamic=True)
    assert again.first_voters is None and shape_of(again).overrides == {}
    for node in again.nodes:
        assert VOTERS not in node.properties
        assert node.properties[SERVERS] == "127.0.0.1:10093,127.0.0.1:10094"
        assert node.properties[AUTO_JOIN_KEY] == "true"


def test_cluster_ids() -> None:
    ids = [new_cluster_id() for _ in range(200)]
    assert len(set(ids)) == 200
    assert all(len(one) == 22 and not one.startswith("-") for one in ids)


def test_free_ports() -> None:
    assert 20000 <= find_free_base_port(ClusterShape(brokers=3)) < 30000


@pytest.mark.parametrize("shape", [{"brokers": 0}, {"brokers": 101}, {"port": 65000}, {"controller_port": 65534}])
def test_impossible_shapes_are_refused(shape: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"nodes|too high"):
        ClusterShape(**shape)


def test_settings_are_for_their_owner_only(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(1, port=0))
    Path(plan.nodes[0].properties_file).touch(0o644)
    write_properties(plan)
    assert os.stat(plan.nodes[0].properties_file).st_mode & 0o777 == 0o600
