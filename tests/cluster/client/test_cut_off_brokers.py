"""After an error clients ask another broker, since one that is cut off from the others knows former leaders."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any, cast

import pytest

from raftwerk.cluster.client.client_errors import RefusedError
from raftwerk.cluster.client.cluster_client import ClusterClient, PartitionView, TopicView
from raftwerk.cluster.client.consumer import Consumer
from raftwerk.cluster.client.group_client import GroupClient
from raftwerk.cluster.client.perf import PerfResult, ProduceLoad, ProducePerf
from raftwerk.cluster.client.producer import Producer
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.client import Connection, RequestTimedOutError
from raftwerk.wire.codec import Struct
from raftwerk.wire.errors import ErrorCode

TOPIC_ID = uuid.UUID(int=7)


class _Cluster:
    """Three brokers. Each tells a leader and its epoch of the only partition of `t`, or does not know the topic.

    The broker that leads by the highest epoch takes records and has the groups; others refuse.
    """

    def __init__(self, *told: tuple[int, int] | None) -> None:
        self.told = dict(enumerate(told, 1))
        self.asked: list[tuple[int, ApiKey]] = []
        self.silent: set[int] = set()
        self.topic_id = TOPIC_ID

    @property
    def leader(self) -> int:
        return max((one for one in self.told.values() if one is not None), key=lambda one: one[1], default=(-1, -1))[0]

    def asked_for(self, api: ApiKey) -> list[int]:
        return [broker for broker, asked in self.asked if asked is api]

    def answer(self, broker: int, api: ApiKey, fields: Mapping[str, Any]) -> Struct:
        self.asked.append((broker, api))
        if api is ApiKey.METADATA:
            return self._metadata(broker)
        if api is ApiKey.INIT_PRODUCER_ID:
            return Struct({"error_code": 0, "producer_id": 5, "producer_epoch": 0})
        if api is ApiKey.FIND_COORDINATOR:
            leader = (self.told[broker] or (-1, 0))[0]
            return Struct({"coordinators": [Struct({"error_code": 0, "node_id": leader})]})
        code = ErrorCode.NONE if broker == self.leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
        row = {"error_code": int(code), "base_offset": 0, "error_message": None}
        if api is ApiKey.PRODUCE:
            return Struct({"responses": [Struct({"partition_responses": [Struct(row)]})]})
        if api is ApiKey.OFFSET_FETCH:
            code = ErrorCode.NONE if broker == self.leader else ErrorCode.NOT_COORDINATOR
            return Struct({"groups": [Struct({"error_code": int(code), "topics": []})]})
        rows = [Struct({"partition_index": 0, "offset": 3, **row})]
        return Struct({"topics": [Struct({"partitions": rows})]})

    def _metadata(self, broker: int) -> Struct:
        brokers = [Struct({"node_id": one, "host": "b", "port": one, "rack": None}) for one in self.told]
        found = self.told[broker]
        leader, epoch = found or (-1, -1)
        partition = {"partition_index": 0, "leader_id": leader, "leader_epoch": epoch}
        code = ErrorCode.NONE if found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic = {"error_code": int(code), "name": "t", "topic_id": self.topic_id, "is_internal": False}
        rows = [Struct({**partition, "replica_nodes": [1, 2, 3], "isr_nodes": [1, 2, 3]})]
        topics = [Struct({**topic, "partitions": rows})]
        return Struct({"cluster_id": "c", "controller_id": 1, "brokers": brokers, "topics": topics})


class _Peer:
    """A connection to one of them."""

    is_closed = False
    in_flight = 0

    def __init__(self, cluster: _Cluster, broker: int) -> None:
        self._cluster = cluster
        self._broker = broker

    async def api_versions(self, *, timeout_s: float | None = None) -> Any:
        return await self.request(ApiKey.API_VERSIONS, 0, {}, timeout_s=timeout_s) and {ApiKey.METADATA}

    async def request(
        self, api: ApiKey, version: int, fields: Mapping[str, Any], *, timeout_s: float | None = None
    ) -> Struct:
        await asyncio.sleep(0)
        if self._broker in self._cluster.silent:
            self._cluster.asked.append((self._broker, api))
            if timeout_s is None:
                await asyncio.Event().wait()
            self.is_closed = True
            raise RequestTimedOutError("no answer")
        return self._cluster.answer(self._broker, api, fields)

    def close(self) -> None:
        self.is_closed = True


class _Client(ClusterClient):
    """A client of these brokers, which knows the first one."""

    def __init__(self, cluster: _Cluster, probe_timeout_s: float) -> None:
        super().__init__("b:1", probe_timeout_s=probe_timeout_s)
        self.cluster = cluster

    async def _connect(self, host: str, port: int, timeout_s: float | None = None) -> Connection:
        connection = self._connections.get((host, port))
        if connection is None or connection.is_closed:
            connection = self._connections[host, port] = cast(Connection, _Peer(self.cluster, port))
        return connection

    def peer(self, broker: int) -> _Peer:
        return cast(_Peer, self._connections["b", broker])


def client_of(*told: tuple[int, int] | None, probe_timeout_s: float = 1.0) -> _Client:
    return _Client(_Cluster(*told), probe_timeout_s)


async def topic_of(client: ClusterClient) -> TopicView:
    return (await client.metadata(["t"])).topic("t")


CUT_OFF = ((1, 3), (2, 4), (2, 4))
"""Broker 1, which is asked first, is cut off and takes itself for the leader; the others have elected another."""


def test_a_producer_finds_the_new_leader_though_the_broker_that_it_asked_first_is_cut_off() -> None:
    async def run() -> None:
        producer = Producer(client_of(*CUT_OFF), "t", timeout_s=5)
        await producer.start()
        assert (await producer.send([(b"k", b"v")]))[0].count == 1

    asyncio.run(run())


def test_so_does_the_measurement_of_throughput() -> None:
    async def run() -> None:
        result = PerfResult()
        async with asyncio.timeout(5):
            await ProducePerf(client_of(*CUT_OFF), ProduceLoad("t", records=10), result).run()
        assert result.records == 10

    asyncio.run(run())


def test_so_does_a_consumer() -> None:
    async def run() -> dict[int, int]:
        consumer = Consumer(client_of(*CUT_OFF), "t")
        await consumer.start(at=0)
        async with asyncio.timeout(5):
            return await consumer.offsets(-1, [0])

    assert asyncio.run(run()) == {0: 3}


def test_a_coordinator_that_has_moved_is_asked_for_at_another_broker() -> None:
    async def run() -> None:
        async with asyncio.timeout(5):
            assert await GroupClient(client_of(*CUT_OFF)).committed("g") == {}

    asyncio.run(run())


def test_the_broker_is_asked_that_has_not_answered_for_the_longest_time() -> None:
    client = client_of(*CUT_OFF)

    async def run() -> None:
        found = await topic_of(client)
        for _ in range(5):
            found = await client.topic_again("t", found)
        await topic_of(client)

    asyncio.run(run())
    assert client.cluster.asked_for(ApiKey.METADATA) == [1, 2, 3, 1, 2, 3, 1]


def test_a_former_leader_is_not_believed() -> None:
    async def run() -> list[tuple[int, int]]:
        client = client_of(*CUT_OFF)
        found = await topic_of(client)
        seen = []
        for _ in range(3):
            found = await client.topic_again("t", found)
            seen.append((found.partitions[0].leader, found.partitions[0].leader_epoch))
        return seen

    assert asyncio.run(run()) == [(2, 4)] * 3


def test_a_topic_that_is_created_anew_begins_with_new_epochs() -> None:
    async def run() -> int:
        client = client_of((1, 3), (2, 0), (2, 0))
        found = await topic_of(client)
        client.cluster.topic_id = uuid.UUID(int=8)
        return (await client.topic_again("t", found)).partitions[0].leader

    assert asyncio.run(run()) == 2


def test_partitions_that_one_broker_does_not_know_yet_are_kept() -> None:
    def view(*epochs: int) -> TopicView:
        rows = tuple(PartitionView(number, 1, epoch, (1,), (1,)) for number, epoch in enumerate(epochs))
        return TopicView("t", TOPIC_ID, False, rows)

    assert view(5, 1).after(view(4, 2, 0)) == view(5, 2, 0)
    assert view(4, 2, 0).after(view(5, 1)) == view(5, 2, 0)


def test_a_topic_that_one_broker_does_not_know_yet_is_asked_for_at_others() -> None:
    async def run() -> None:
        client = client_of((1, 0), None, (3, 1))
        found = await client.topic_again("t", await topic_of(client))
        assert found.partitions[0].leader == 3
        client.cluster.told = dict.fromkeys((1, 2, 3))
        with pytest.raises(RefusedError, match="there is no such topic"):
            await client.topic_again("t", found)

    asyncio.run(run())


def test_a_broker_that_is_asked_again_has_to_answer_within_the_time_of_a_probe() -> None:
    """Its connection may be open while it is paused. Requests that wait there already are not lost."""
    client = client_of(*CUT_OFF, probe_timeout_s=0.01)

    async def run() -> None:
        found = await topic_of(client)
        for _ in range(2):
            found = await client.topic_again("t", found)
        client.peer(1).in_flight = 1
        client.cluster.silent = {1, 2}
        client.cluster.asked.clear()
        await client.topic_again("t", found)
        assert (client.peer(1).is_closed, client.peer(2).is_closed) == (False, True)

    asyncio.run(run())
    probes = [(broker, ApiKey.API_VERSIONS) for broker in (1, 2, 3)]
    assert client.cluster.asked == [*probes, (3, ApiKey.METADATA)]


def test_a_broker_that_gives_no_answer_to_a_request_for_it_is_asked_last_for_metadata() -> None:
    client = client_of(*CUT_OFF)

    async def run() -> None:
        await topic_of(client)
        client.cluster.silent = {1}
        with pytest.raises(RequestTimedOutError):
            await client.request_node(1, ApiKey.PRODUCE, 9, {})
        client.cluster.silent = set()
        client.cluster.asked.clear()
        await topic_of(client)

    asyncio.run(run())
    assert client.cluster.asked_for(ApiKey.METADATA) == [2]
