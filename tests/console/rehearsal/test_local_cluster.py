"""What the console says of a local cluster's faults before any node runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raftwerk.cluster.local.layout import ClusterShape, plan_cluster, write_properties
from raftwerk.console.errors import RequestRefusedError
from raftwerk.console.rehearsal.local_cluster import LocalCluster


def cluster_in(directory: Path, overrides: dict[str, str]) -> LocalCluster:
    plan = plan_cluster(str(directory), ClusterShape(2, port=0, overrides=overrides))
    write_properties(plan)
    (directory / "node-1").mkdir()
    (directory / "node-1" / "meta.properties").write_text(f"cluster.id={plan.cluster_id}\n")
    return LocalCluster(str(directory), lambda _: None)


def test_a_cluster_that_takes_no_faults_names_the_command_that_lets_it(tmp_path: Path) -> None:
    async def main() -> None:
        cluster = cluster_in(tmp_path, {})
        why = cluster.why_not_injected()
        commands = (
            f"raftwerk down -d {tmp_path}, then raftwerk up -d {tmp_path} --console -o fault.injection.enable=true"
        )
        assert why is not None and commands in why
        with pytest.raises(RequestRefusedError, match="raftwerk up"):
            await cluster.carry_out("cut", 1, {})
        with pytest.raises(RequestRefusedError, match="node 1 is not running"):
            await cluster.carry_out("pause", 1, {"duration_s": 5})
        assert {one["state"] for one in cluster.nodes().values()} == {"down"}
        cluster.stop()

    asyncio.run(main())


def test_a_node_that_was_taken_out_is_none_any_more(tmp_path: Path) -> None:
    async def main() -> None:
        cluster = cluster_in(tmp_path, {})
        (tmp_path / "s2.properties").unlink()  # as raftwerk shrink does
        assert list(cluster.nodes()) == [1]
        with pytest.raises(RequestRefusedError, match="there is no node 2"):
            await cluster.carry_out("start", 2, {})
        cluster.stop()

    asyncio.run(main())


def test_a_cluster_that_takes_faults_has_nothing_to_say(tmp_path: Path) -> None:
    async def main() -> None:
        assert cluster_in(tmp_path, {"fault.injection.enable": "true"}).why_not_injected() is None

    asyncio.run(main())
