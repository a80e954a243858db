"""What tests do with clusters, in any kind of cluster."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from support.broker.broker_harness import TOPIC, Harness

from raftwerk.broker.network.server import Server, ServerConfig
from raftwerk.cluster.client.client_errors import ClientError
from raftwerk.controller.metadata.metadata_image import MetadataDelta
from raftwerk.controller.metadata.metadata_records import PartitionRecord, TopicRecord
from raftwerk.testkit import cluster_operations
from raftwerk.testkit.cluster_operations import wait_until_known


def test_a_broker_that_hears_late_of_a_topic_is_waited_for_and_a_dead_one_is_not() -> None:
    async def main() -> None:
        harness = Harness()
        server = Server(ServerConfig("PLAINTEXT", "127.0.0.1", 0), harness.server.dispatcher)
        await server.start()
        broker = f"127.0.0.1:{server.port}"
        await asyncio.wait_for(wait_until_known(TOPIC, [broker, "127.0.0.1:1"]), 10)
        waiting = asyncio.ensure_future(wait_until_known("late", [broker, "127.0.0.1:1"]))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        records: list[Any] = [TopicRecord("late", UUID(int=99)), PartitionRecord(UUID(int=99), 0, (1,), (1,), 1)]
        for offset, record in enumerate(records, 1000):
            harness.image.replay(record, offset, MetadataDelta())
        await asyncio.wait_for(waiting, 10)
        await server.stop()

    asyncio.run(main())


def test_a_broker_that_never_hears_of_a_topic_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_operations, "_HEARS_WITHIN_S", 0.2)

    async def main() -> None:
        harness = Harness()
        server = Server(ServerConfig("PLAINTEXT", "127.0.0.1", 0), harness.server.dispatcher)
        await server.start()
        with pytest.raises(ClientError, match=r"topic never was created, and the broker at 127\.0\.0\.1"):
            await wait_until_known("never", [f"127.0.0.1:{server.port}"])
        await server.stop()

    asyncio.run(main())
