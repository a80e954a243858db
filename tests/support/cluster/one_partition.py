"""A cluster that has one partition, for what reads records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from raftwerk.cluster.client.cluster_client import ClusterClient, ClusterView, PartitionView, TopicView, WaitsFor
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct
from raftwerk.wire.compression import Compression
from raftwerk.wire.records import NewRecord, encode_batch, read_header


def batch(offset: int, *values: bytes, producer: int = -1, codec: Compression = Compression.NONE) -> bytes:
    """A batch of these values, all of the same time."""
    records = [NewRecord(None, value, (), 0) for value in values]
    is_transactional = producer >= 0
    return bytes(
        encode_batch(
            records, base_offset=offset, compression=codec, producer_id=producer, is_transactional=is_transactional
        )
    )


class OnePartition(ClusterClient):
    """A cluster with one partition, whose Fetch answers end at whole batches."""

    def __init__(
        self, batches: Iterable[bytes], aborted: Iterable[tuple[int, int]] = (), tail: bytes = b"", first: int = 0
    ) -> None:
        super().__init__("localhost:9092")
        self.batches = list(batches)
        self.asked_isolation: list[int] = []
        self._tail = tail
        self._first = first
        self._aborted = [Struct({"producer_id": one, "first_offset": first}) for one, first in aborted]

    async def metadata(self, topics: Iterable[str] | None = None, **_: Any) -> ClusterView:
        return ClusterView("c", 1, (), (TopicView("t", None, False, (PartitionView(0, 1, 0, (1,), (1,)),)),))

    async def request_node(
        self, node_id: int, api: ApiKey, version: int, fields: Mapping[str, Any], waits_for: WaitsFor | None = None
    ) -> Struct:
        self.asked_isolation.append(fields["isolation_level"])
        asked = fields["topics"][0]["partitions"][0]
        if api is ApiKey.LIST_OFFSETS:
            offset = self._first if asked["timestamp"] == -2 else read_header(self.batches[-1]).next_offset
            row = Struct({"partition_index": 0, "error_code": 0, "offset": offset})
            return Struct({"topics": [Struct({"partitions": [row]})]})
        found = [one for one in self.batches if read_header(one).last_offset >= asked["fetch_offset"]]
        row = Struct(
            {
                "partition_index": 0,
                "error_code": 0,
                "high_watermark": read_header(self.batches[-1]).next_offset,
                "records": b"".join(found) + self._tail,
                "aborted_transactions": self._aborted if fields["isolation_level"] else None,
            }
        )
        return Struct({"responses": [Struct({"partitions": [row]})]})
