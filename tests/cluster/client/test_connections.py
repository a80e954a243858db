"""The connections of a cluster client: one for each broker, however many requests begin at the same time."""

from __future__ import annotations

import asyncio

import pytest

from raftwerk import testing
from raftwerk.cluster.client import cluster_client
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.client import connect


async def requests_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    async def noted(*args: object, **options: object) -> object:
        connection = await connect(*args, **options)  # type: ignore[arg-type]
        made.append(connection)
        return connection

    async with testing.cluster(nodes=1) as cluster, ClusterClient(cluster.bootstrap) as client:
        (broker,) = (await client.metadata([])).brokers
        for connection in list(client._connections.values()):
            connection.close()
        monkeypatch.setattr(cluster_client, "connect", noted)
        fields = {"replica_id": -1, "isolation_level": 0, "topics": []}
        asking = [client.request_node(broker.node_id, ApiKey.LIST_OFFSETS, 7, fields) for _ in range(5)]
        await asyncio.gather(*asking)
        assert len(made) > 1, "the requests did not begin at the same time"
        assert sum(not one.is_closed for one in made) == 1


def test_requests_at_the_same_time_leave_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(requests_at_the_same_time(monkeypatch))
