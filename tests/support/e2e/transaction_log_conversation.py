"""More steps for `Conversation`: what a partition's leader is asked by coordinators, consumers and tools.

`marker` sends WriteTxnMarkers itself, with `coordinator=` its epoch and `version=` its transaction.version; `read`,
`latest` and `at` look at the partition as a consumer, with `committed` as read_committed; `producers` is
DescribeProducers and `delete` is DeleteRecords. They name `x`, which is no producer. Others are named by their words.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from support.e2e.transaction_conversation import Conversation, Options, Producer, _names

from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.records import iter_headers


class LogConversation(Conversation):
    """A conversation that reads the partition, too."""

    def _steps(self) -> Mapping[str, Callable[[Producer, Options], Awaitable[str]]]:
        own = {
            "marker": self._marker,
            "read": self._read,
            "latest": self._latest,
            "at": self._at,
            "producers": self._producers_of_partition,
            "delete": self._delete,
        }
        return {**super()._steps(), **own}

    def _name_of(self, producer_id: int) -> str:
        found = [name for name, one in self._producers.items() if one.producer_id == producer_id and name != "x"]
        return found[0] if found else "?"

    async def _ask_leader(self, api: ApiKey, version: int, fields: Any) -> Any:
        return await self._client.request_node(self._leader, api, version, fields)

    async def _marker(self, producer: Producer, options: Options) -> str:
        name = "nowhere" if "nowhere" in options.words else self._topic
        row = {
            "producer_id": options.producer_id,
            "producer_epoch": options.epoch,
            "transaction_result": "abort" not in options.words,
            "topics": [{"name": name, "partition_indexes": [options.number("partition", 0)]}],
            "coordinator_epoch": options.number("coordinator", 0),
            "transaction_version": options.number("version", 0),
        }
        answer = await self._ask_leader(ApiKey.WRITE_TXN_MARKERS, options.version, {"markers": [row]})
        return _names([one.error_code for one in answer.markers[0].topics[0].partitions])

    async def _read(self, producer: Producer, options: Options) -> str:
        partition = {
            "partition": 0,
            "current_leader_epoch": -1,
            "fetch_offset": options.number("from", 0),
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": options.number("bytes", 1 << 20),
        }
        fields = {
            "replica_id": -1,
            "max_wait": 100,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": int("committed" in options.words),
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": self._topic, "partitions": [partition]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        answer = await self._ask_leader(ApiKey.FETCH, 12, fields)
        row = answer.responses[0].partitions[0]
        if row.error_code:
            return ErrorCode(row.error_code).name
        batches = [header.base_offset for _, header in iter_headers(bytes(row.records or b""), allow_partial_tail=True)]
        aborted = row.aborted_transactions
        named = (
            "none" if aborted is None else sorted((self._name_of(one.producer_id), one.first_offset) for one in aborted)
        )
        ends = f"high watermark {row.high_watermark} stable {row.last_stable_offset}"
        return f"batches {batches} {ends} start {row.log_start_offset} aborted {named}"

    async def _latest(self, producer: Producer, options: Options) -> str:
        return await self._list_offset(-1, options)

    async def _at(self, producer: Producer, options: Options) -> str:
        return await self._list_offset(options.number("time", -3), options)

    async def _list_offset(self, timestamp: int, options: Options) -> str:
        row = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
        fields = {
            "replica_id": -1,
            "isolation_level": int("committed" in options.words),
            "topics": [{"name": self._topic, "partitions": [row]}],
        }
        answer = await self._ask_leader(ApiKey.LIST_OFFSETS, 7, fields)
        found = answer.topics[0].partitions[0]
        return f"{ErrorCode(found.error_code).name} {found.offset}"

    async def _producers_of_partition(self, producer: Producer, options: Options) -> str:
        fields = {"topics": [{"name": self._topic, "partition_indexes": [options.number("partition", 0)]}]}
        answer = await self._ask_leader(ApiKey.DESCRIBE_PRODUCERS, 0, fields)
        row = answer.topics[0].partitions[0]
        if row.error_code:
            return ErrorCode(row.error_code).name
        told = []
        for one in row.active_producers:
            name = self._name_of(one.producer_id)
            coordinator = f" coordinator {one.coordinator_epoch}" if one.coordinator_epoch >= 100 else ""
            where = f" open from {one.current_txn_start_offset}" if one.current_txn_start_offset >= 0 else ""
            told.append(f"{name} epoch {one.producer_epoch} sequence {one.last_sequence}{coordinator}{where}")
        return "; ".join(sorted(told)) or "nobody"

    async def _delete(self, producer: Producer, options: Options) -> str:
        row = {"partition_index": 0, "offset": options.number("before", -1)}
        fields = {"topics": [{"name": self._topic, "partitions": [row]}], "timeout": 10_000}
        answer = await self._ask_leader(ApiKey.DELETE_RECORDS, 2, fields)
        found = answer.topics[0].partitions[0]
        return f"{ErrorCode(found.error_code).name} {found.low_watermark}"
