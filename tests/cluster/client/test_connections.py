"""The connections of a cluster client: one for each broker, however many requests begin at the same time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raftwerk import testing
from raftwerk.cluster.client import cluster_client
from raftwerk.cluster.client.client_errors import ClientError
from raftwerk.cluster.client.cluster_client import BrokerView, ClusterClient
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.client import Connection, ConnectionLostError, connect
from raftwerk.wire.codec import Struct


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


async def a_request_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Connection] = []
    async with testing.cluster(nodes=1) as cluster:
        async with ClusterClient(cluster.bootstrap) as client:
            (broker,) = (await client.metadata([])).brokers

        async def closed_meanwhile(*args: object, **options: object) -> Connection:
            made.append(await connect(*args, **options))  # type: ignore[arg-type]
            await late.__aexit__()
            return made[-1]

        monkeypatch.setattr(cluster_client, "connect", closed_meanwhile)
        with pytest.raises(ClientError, match="the client was closed"):
            await client.metadata([])
        with pytest.raises(ConnectionLostError):
            await client.request_node(broker.node_id, ApiKey.METADATA, 12, {})
        assert made == []
        async with ClusterClient(cluster.bootstrap) as late:
            with pytest.raises(ClientError, match="the client was closed"):
                await late.metadata([])
        assert [one.is_closed for one in made] == [True]


def test_a_client_that_was_closed_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request goes on when its client is closed, as that of a user whose session ends, and would connect again."""
    asyncio.run(a_request_after_the_end(monkeypatch))


def test_a_broker_that_metadata_leaves_out_stays_known_while_others_ask_for_metadata() -> None:
    """A fenced broker answers for its log directories, and a console asks for many things at a time."""

    class Cluster(ClusterClient):
        async def request(self, *_: Any, **__: Any) -> Struct:
            broker = Struct({"node_id": 1, "host": "a", "port": 1, "rack": None})
            return Struct({"brokers": [broker], "topics": [], "cluster_id": "c", "controller_id": 1})

    client = Cluster("a:1")
    client.add_brokers([BrokerView(2, "b", 2, None)])
    asyncio.run(client.metadata(()))
    assert [client.broker_text(one) for one in (1, 2)] == ["broker 1 (a:1)", "broker 2 (b:2)"]
