"""A node that starts again in its process, when its full disk has space, leaves nothing of its former start behind."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from raftwerk.cluster.client.admin_client import AdminClient, NewTopic
from raftwerk.cluster.client.client_errors import ClientError
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.cluster.local.layout import ClusterShape, plan_cluster
from raftwerk.cluster.node import node as node_module
from raftwerk.cluster.node.node import Node
from raftwerk.cluster.node.process import NodeOptions, serve
from raftwerk.cluster.settings.node_config import NodeConfig
from raftwerk.runtime.faults.fault_socket import FaultConnection, NodeFaults
from raftwerk.runtime.files import real_disk
from raftwerk.runtime.files.real_disk import RealDisk
from raftwerk.runtime.loop import run

STARTS = 3


class Messages(logging.Handler):
    """Keeps the text of each line of the log. A record would keep the errors that it tells of, and what they hold."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())

    def has(self, text: str, times: int) -> Callable[[], bool]:
        """Asks whether so many lines have this text."""
        return lambda: sum(text in one for one in self.texts) == times


@pytest.fixture(autouse=True)
def _collector_as_before() -> Iterator[None]:
    threshold, callbacks = gc.get_threshold(), gc.callbacks[:]
    yield
    gc.set_threshold(*threshold)
    gc.callbacks[:] = callbacks
    gc.unfreeze()


@contextmanager
def messages_only() -> Iterator[Messages]:
    """The messages of the package's loggers, whose records reach no handler of pytest meanwhile."""
    found, logger = Messages(), logging.getLogger("raftwerk")
    level, propagate = logger.level, logger.propagate
    logger.addHandler(found)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield found
    finally:
        logger.propagate = propagate
        logger.setLevel(level)
        logger.removeHandler(found)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def fill_until(has_failed: Callable[[], bool], bootstrap: str) -> None:
    """Let the disk of this process be full until its node has failed, for want of space in the metadata log."""
    faults = await asyncio.to_thread(FaultConnection, os.getpid())
    await asyncio.to_thread(faults.inject, NodeFaults(is_disk_full=True))
    with suppress(ClientError):
        async with ClusterClient(bootstrap, timeout_s=1.0) as client:
            await AdminClient(client).create_topic(NewTopic("t", 1, 1))
    await until(has_failed)
    faults.close()


def test_the_former_start_is_collected_and_its_disk_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk has its share of the descriptors of the process, which each disk that is left makes smaller."""
    settings = {"fault.injection.enable": "true", "metadata.log.spare.bytes": "0", "log.dirs.reserve.bytes": "0"}
    plan = plan_cluster(str(tmp_path), ClusterShape(1, port=0, overrides=settings))
    config = NodeConfig.from_properties(plan.nodes[0].properties)
    options = NodeOptions(None, format_id=plan.cluster_id, initial_controllers=plan.first_voters)
    nodes: weakref.WeakSet[Node] = weakref.WeakSet()
    disks: weakref.WeakSet[RealDisk] = weakref.WeakSet()

    class SeenNode(Node):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            nodes.add(self)

    monkeypatch.setattr(node_module, "Node", SeenNode)
    monkeypatch.setattr(real_disk, "_disks", disks)

    async def main(messages: Messages) -> None:
        serving = asyncio.get_running_loop().create_task(serve(config, options))
        for starts in range(1, STARTS + 1):
            await until(messages.has("is ready and listens", starts))
            assert (len(nodes), len(disks)) == (1, 1)
            if starts < STARTS:
                has_failed = messages.has("the node starts again when there is space", starts)
                await fill_until(has_failed, plan.bootstrap)
        os.kill(os.getpid(), signal.SIGTERM)
        assert await serving == 0

    with messages_only() as messages:
        run(main(messages))
