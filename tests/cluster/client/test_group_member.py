"""What a `GroupMember` returns and counts as read while one of its partitions is refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from raftwerk.cluster.client.cluster_client import ClusterClient, ClusterView, PartitionView, TopicView, WaitsFor
from raftwerk.cluster.client.consumer import EARLIEST
from raftwerk.cluster.client.group_member import GroupMember
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.records import NewRecord, encode_batch

_FIRST_OF_0 = 5
_LONG_POLL_S = 0.2


class _TwoLeaders(ClusterClient):
    """Broker 1 leads t-0, from which retention has deleted five records. Broker 2 leads t-1, which gets two records.

    The first fetch from t-1 is answered with one record as soon as there is a second one, or at the end of its wait.
    """

    def __init__(self) -> None:
        super().__init__("localhost:9092")
        self._is_asked_again = asyncio.Event()
        self._fetches_of_1 = 0

    async def metadata(self, topics: Iterable[str] | None = None, **_: Any) -> ClusterView:
        partitions = (PartitionView(0, 1, 0, (1,), (1,)), PartitionView(1, 2, 0, (2,), (2,)))
        return ClusterView("c", 1, (), (TopicView("t", None, False, partitions),))

    async def request_node(
        self, node_id: int, api: ApiKey, version: int, fields: Mapping[str, Any], waits_for: WaitsFor | None = None
    ) -> Struct:
        asked = fields["topics"][0]["partitions"]
        if api is ApiKey.LIST_OFFSETS:
            offsets = {0: _FIRST_OF_0, 1: 0}
            rows = [
                Struct({"partition_index": one, "error_code": 0, "offset": offsets[one]})
                for one in (row["partition_index"] for row in asked)
            ]
            return Struct({"topics": [Struct({"partitions": rows})]})
        (row,) = asked
        error, records = ErrorCode.NONE, b""
        if row["partition"] == 0:
            error = ErrorCode.NONE if row["fetch_offset"] >= _FIRST_OF_0 else ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            records = await self._records_of_1(row["fetch_offset"])
        found = {"partition_index": row["partition"], "error_code": error, "records": records}
        return Struct(
            {
                "responses": [
                    Struct({"partitions": [Struct({**found, "high_watermark": -1, "aborted_transactions": None})]})
                ]
            }
        )

    async def _records_of_1(self, offset: int) -> bytes:
        self._fetches_of_1 += 1
        if self._fetches_of_1 == 1:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_asked_again.wait(), _LONG_POLL_S)
            return _batch(0)
        self._is_asked_again.set()
        for _ in range(10):  # a connection answers in the order of the requests
            await asyncio.sleep(0)
        return b"".join(_batch(one) for one in range(offset, 2))


def _batch(offset: int) -> bytes:
    return bytes(encode_batch([NewRecord(None, b"value", (), 0)], base_offset=offset))


def _broker_1_coordinates(api: ApiKey) -> Struct:
    assert api is ApiKey.FIND_COORDINATOR
    return Struct({"coordinators": [Struct({"error_code": 0, "node_id": 1})]})


class _CreatedAnew(ClusterClient):
    """A topic with a hundred records in one partition; with another id it is another topic of the same name.

    Broker 1 leads the partition, and coordinates the group, which has committed nothing.
    """

    def __init__(self) -> None:
        super().__init__("localhost:9092")
        self.topic_id = UUID(int=1)
        self.told: list[dict[str, Any]] = []
        """What members said that they have."""
        self.commits = 0

    async def metadata(self, topics: Iterable[str] | None = None, **_: Any) -> ClusterView:
        rows = (PartitionView(0, 1, 0, (1,), (1,)),)
        return ClusterView("c", 1, (), (TopicView("t", self.topic_id, False, rows),))

    async def request(self, api: ApiKey, *_: Any, **__: Any) -> Struct:
        return _broker_1_coordinates(api)

    async def request_node(
        self, node_id: int, api: ApiKey, version: int, fields: Mapping[str, Any], waits_for: WaitsFor | None = None
    ) -> Struct:
        if api is ApiKey.CONSUMER_GROUP_HEARTBEAT:
            self.told = fields["topic_partitions"]
            assigned = Struct({"topic_id": self.topic_id, "partitions": [0]})
            head = {"error_code": 0, "error_message": None, "member_epoch": 1, "heartbeat_interval": 5000}
            return Struct({**head, "assignment": Struct({"topic_partitions": [assigned]})})
        if api is ApiKey.OFFSET_FETCH:
            return Struct({"groups": [Struct({"error_code": 0, "topics": []})]})
        if api is ApiKey.OFFSET_COMMIT:
            self.commits += 1
            return Struct({"topics": []})
        assert api is ApiKey.LIST_OFFSETS
        (asked,) = fields["topics"][0]["partitions"]
        row = Struct({"partition_index": 0, "error_code": 0, "offset": 0 if asked["timestamp"] == EARLIEST else 100})
        return Struct({"topics": [Struct({"partitions": [row]})]})


def test_a_topic_that_is_created_anew_is_read_from_its_beginning() -> None:
    """The partitions of the new topic have the same numbers; what was read of the former one is none of it."""

    async def run() -> None:
        client = _CreatedAnew()
        member = GroupMember(client, "g", "t", member_id="m")
        await member._consumer.start(at=0)
        member._consumer.positions = {}
        await member._heartbeat()
        assert member._consumer.positions == {0: 0}
        member._consumer.positions[0] = member._done[0] = 60
        await member._heartbeat()
        assert (member._consumer.positions, client.told) == (
            {0: 60},
            [{"topic_id": UUID(int=1), "partitions": [0]}],
        )
        client.topic_id = UUID(int=2)
        await member.commit()
        assert client.commits == 0, "the offset would count for the new topic"
        await member._heartbeat()
        assert (member._consumer.positions, member._done) == ({0: 0}, {0: 0})
        assert client.told == [{"topic_id": UUID(int=2), "partitions": [0]}]

    asyncio.run(run())


def test_a_partition_whose_offset_is_deleted_costs_no_records_of_another() -> None:
    """What the other leader answered was counted as read, and committed, although nobody got it."""

    async def run() -> tuple[list[int], dict[int, int]]:
        member = GroupMember(_TwoLeaders(), "g", "t", member_id="m")
        member._next_heartbeat = member._next_commit = float("inf")
        await member._consumer.start(at=0)
        member._done = dict(member._consumer.positions)
        found = [one.record.offset for _ in range(5) for one in await member.poll()]
        return found, member._done

    assert asyncio.run(run()) == ([0, 1], {0: _FIRST_OF_0, 1: 2})


class _Committed(_TwoLeaders):
    """The group has committed these offsets; broker 1 coordinates it."""

    def __init__(self, committed: dict[int, int]) -> None:
        super().__init__()
        self.committed = committed

    async def request(self, api: ApiKey, *_: Any, **__: Any) -> Struct:
        return _broker_1_coordinates(api)

    async def request_node(
        self, node_id: int, api: ApiKey, version: int, fields: Mapping[str, Any], waits_for: WaitsFor | None = None
    ) -> Struct:
        assert (node_id, api) == (1, ApiKey.OFFSET_FETCH)
        rows = [
            Struct({"partition_index": partition, "committed_offset": offset, "error_code": 0})
            for partition, offset in self.committed.items()
        ]
        topic = Struct({"name": "t", "partitions": rows})
        return Struct({"groups": [Struct({"error_code": 0, "topics": [topic]})]})


def test_a_member_without_partitions_sees_by_what_others_commit_when_all_is_read() -> None:
    """It waited for partitions of its own, for ever where the group has more members than partitions."""

    async def run() -> None:
        client = _Committed({0: 7})
        member = GroupMember(client, "g", "t", member_id="m")
        ends = {0: 7, 1: 2}
        assert not await member.is_past(ends)
        client.committed[1] = 1
        assert not await member.is_past(ends)
        client.committed[1] = 2
        assert await member.is_past(ends)

    asyncio.run(run())
