"""The metrics of a node one of whose disks is gone."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from raftwerk.cluster.local.layout import ClusterShape, plan_cluster
from raftwerk.cluster.metrics.exporter import Exporter, ExporterConfig
from raftwerk.cluster.node.formatting import FirstVoters, format_node
from raftwerk.cluster.node.node import Node
from raftwerk.cluster.settings.node_config import NodeConfig
from raftwerk.runtime.loop import real_runtime, run


def directories_of(text: str) -> list[str]:
    """The log directories whose free space a scrape tells."""
    return [
        sample.labels["directory"]
        for one in text_string_to_metric_families(text)
        for sample in one.samples
        if sample.name == "raftwerk_log_dir_free_bytes"
    ]


def test_a_directory_whose_free_space_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    """It has not failed yet, as none of its files was used since its disk was unmounted."""
    plan = plan_cluster(str(tmp_path), ClusterShape(1, port=0))
    first, second = plan.nodes[0].data_dir, tmp_path / "second"
    config = NodeConfig.from_properties({**plan.nodes[0].properties, "log.dirs": f"{first},{second}"})

    async def main() -> None:
        runtime, exporter = real_runtime(), Exporter(ExporterConfig("127.0.0.1", 0, 100))
        voters = FirstVoters(initial=plan.first_voters)
        format_node(config, runtime, plan.cluster_id, ignore_formatted=False, first_voters=voters)
        node = Node(config, exporter.with_timed_disk(runtime), observers=exporter.observers)
        await exporter.listen(node)
        try:
            await node.start()
            await node.ready()
            assert directories_of((await exporter.render()).decode()) == [first, str(second)]
            second.rename(tmp_path / "unmounted")
            assert directories_of((await exporter.render()).decode()) == [first]
            (tmp_path / "unmounted").rename(second)
        finally:
            await node.stop()
            await exporter.stop()

    run(main())
