"""A node whose disk was full waits for space, and then starts again."""

from __future__ import annotations

import asyncio
from pathlib import Path

from raftwerk.cluster.doctor.disk_checks import RESERVE
from raftwerk.cluster.node.process import _until_space
from raftwerk.cluster.settings.node_config import load_config
from raftwerk.runtime.files.real_disk import RealDisk


def test_a_directory_that_cannot_be_read_does_not_keep_a_node_from_starting_again(tmp_path: Path) -> None:
    """Its disk has failed, and the node goes on without it, as at any other start."""
    dirs = f"log.dirs={tmp_path},{tmp_path / 'unmounted'}"
    overrides = ["node.id=1", "process.roles=broker", "controller.quorum.voters=2@127.0.0.1:9093", dirs]
    overrides += ["listeners=PLAINTEXT://127.0.0.1:9092", "controller.listener.names=CONTROLLER", f"{RESERVE}=0"]
    config = load_config(None, overrides=overrides)

    async def main() -> None:
        await asyncio.wait_for(_until_space(config, RealDisk(), asyncio.Event()), 10)

    asyncio.run(main())
