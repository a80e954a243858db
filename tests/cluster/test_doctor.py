"""What is found wrong, and the way out that is told."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from raftwerk.cluster import doctor
from raftwerk.cluster.admin import BrokerView, ClusterView, PartitionView, TopicView
from raftwerk.cluster.doctor import FAILURE, OK, WARNING, examine_cluster, examine_config
from raftwerk.cluster.layout import ClusterShape, load_plan, plan_cluster, write_properties


def view(*partitions: PartitionView) -> ClusterView:
    brokers = tuple(BrokerView(node_id, "localhost", 9090 + node_id, None) for node_id in (1, 2, 3))
    return ClusterView("c", 1, brokers, (TopicView("t", None, False, partitions),))


def partition(isr: tuple[int, ...], *, leader: int = 1, number: int = 0) -> PartitionView:
    return PartitionView(number, leader, 0, (1, 2, 3), isr)


def test_partitions_in_order_are_one_good_finding() -> None:
    (found,) = doctor._partitions(view(partition((1, 2, 3))))
    assert (found.level, found.what) == (OK, "all replicas of 1 partitions are in sync")


def test_what_is_missing_is_named() -> None:
    found = list(doctor._partitions(view(partition((1, 2)), partition((3,), leader=-1, number=1))))
    assert [(one.level, one.what) for one in found] == [
        (FAILURE, "1 partitions have no leader: t-1 (last in sync: 3)"),
        (WARNING, "1 partitions lack a replica in sync: t-0 (without 3)"),
    ]
    many = [partition((1,), number=number) for number in range(8)]
    (found_many,) = doctor._partitions(view(*many))
    assert found_many.what.endswith("; and 3 more")


def test_min_isr_above_what_can_be() -> None:
    healthy = view(partition((1, 2, 3)))
    assert [one.level for one in doctor._min_isr(healthy, {"t": 2})] == []
    (tight,) = doctor._min_isr(healthy, {"t": 3})
    assert (tight.level, tight.way_out) == (WARNING, "set it to 2")
    (impossible,) = doctor._min_isr(healthy, {"t": 4})
    assert impossible.what == "t: min.insync.replicas=4 is more than its 3 replicas"
    (refused,) = doctor._min_isr(view(partition((1,))), {"t": 2})
    assert refused.level == FAILURE and "acks=all is refused" in refused.what


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    found = asyncio.run(examine_cluster(f"127.0.0.1:{port}"))
    assert [one.level for one in found] == [FAILURE, FAILURE]
    assert "nothing listens there" in found[0].what and found[0].way_out


def test_a_name_that_does_not_resolve() -> None:
    found = asyncio.run(examine_cluster("no-such-host.invalid:9092"))
    assert found[0].level == FAILURE


def test_a_configuration_is_tried_on_this_machine(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(1, port=0))
    write_properties(plan)
    path = plan.nodes[0].properties_file
    found = examine_config(path)
    assert FAILURE not in [one.level for one in found]
    assert any("is not formatted" in one.what and "raftwerk format" in one.way_out for one in found)
    (tmp_path / "node-1").mkdir()
    (tmp_path / "node-1" / "meta.properties").write_text("cluster.id=4L6g3nShT-eMCtK--X86sw\nnode.id=7\nversion=1\n")
    assert any("belongs to node 7" in one.what for one in examine_config(path) if one.level == FAILURE)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", plan.nodes[0].port or 0))
        taken.listen()
        assert any("cannot be listened on" in one.what for one in examine_config(path))
    assert examine_config(str(tmp_path / "none"))[0].level == FAILURE


def test_a_cluster_is_found_again_from_its_files(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(2, port=21992, separate=True))
    write_properties(plan)
    (tmp_path / "node-1").mkdir()
    (tmp_path / "node-1" / "meta.properties").write_text(f"cluster.id={plan.cluster_id}\nnode.id=1\nversion=1\n")
    found = load_plan(str(tmp_path))
    assert (found.cluster_id, found.bootstrap) == (plan.cluster_id, plan.bootstrap)
    assert [(one.node_id, one.port, one.controller_port) for one in found.nodes] == [
        (one.node_id, one.port, one.controller_port) for one in plan.nodes
    ]
