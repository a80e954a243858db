"""A node whose disk is full at its start, which is told, or later, which ends no process."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import pytest

from raftwerk.chaos.live.nemesis import machine_capabilities
from raftwerk.chaos.live.nemesis.node_filesystems import NodeFilesystems
from raftwerk.cluster.client.admin_client import AdminClient, NewTopic
from raftwerk.cluster.client.client_errors import ClientError
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.cluster.doctor.disk_checks import RESERVE, RESERVE_DEFAULT_BYTES
from raftwerk.cluster.local.layout import ClusterShape, plan_cluster, write_properties
from raftwerk.cluster.local.supervisor import Supervisor, full_disk, node_pid
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


@pytest.mark.process
def test_a_node_whose_metadata_log_finds_no_space_starts_again_by_itself(tmp_path: Path) -> None:
    reasons = machine_capabilities.unmet_needs(["tmpfs"])
    if reasons:
        pytest.skip(f"no small file systems here ({reasons[0]}): NOT tested")
    settings = {"metadata.log.spare.bytes": "0", RESERVE: "0", "offsets.topic.num.partitions": "1"}
    plan = plan_cluster(str(tmp_path), ClusterShape(1, port=0, overrides=settings))
    filesystems = NodeFilesystems(plan, ext4=False, size_mb=24)
    try:
        filesystems.open()
        with Supervisor(plan) as supervisor:
            supervisor.start(60)
            pid = supervisor.children[1].pid
            create(plan.bootstrap, "before")
            filesystems.fill(1)
            log = Path(plan.nodes[0].log_file)
            number = 0
            while "the node starts again when there is space" not in log.read_text():
                number += 1
                assert number < 500
                with contextlib.suppress(ClientError):
                    create(plan.bootstrap, f"t-{number}", timeout_s=1.0)
            assert node_pid(plan.nodes[0]) == pid, "the process lives"
            filesystems.make_room(1)
            deadline = time.monotonic() + 60
            while True:
                try:
                    create(plan.bootstrap, "after", timeout_s=2.0)
                    break
                except ClientError:
                    assert time.monotonic() < deadline, log.read_text()[-2000:]
            assert {"before", "after"} <= set(names(plan.bootstrap))
            assert node_pid(plan.nodes[0]) == pid
    finally:
        filesystems.close()


def create(bootstrap: str, topic: str, timeout_s: float = 10.0) -> None:
    async def run() -> None:
        async with ClusterClient(bootstrap, timeout_s=timeout_s) as client:
            await AdminClient(client).create_topic(NewTopic(topic, 1, 1))

    asyncio.run(run())


def names(bootstrap: str) -> list[str]:
    async def run() -> list[str]:
        async with ClusterClient(bootstrap) as client:
            return [one.name for one in (await client.metadata()).topics]

    return asyncio.run(run())
