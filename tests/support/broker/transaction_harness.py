"""A broker that leads all of `__transaction_state`; the log is a list, and markers are answered by a script."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from uuid import UUID

from support.broker.broker_harness import TOPIC, settle
from support.broker.group_harness import FakeLeader, FakeLog, GroupHarness, on_virtual_time

from raftwerk.broker.transactions.transaction_config import TRANSACTION_TOPIC
from raftwerk.broker.transactions.transaction_metadata import TransactionMetadata
from raftwerk.broker.transactions.transaction_records import decode_key, decode_value
from raftwerk.controller.metadata.metadata_records import (
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct, decode_request, decode_response, encode_request, encode_response
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import TopicPartition

TRANSACTION_TOPIC_ID = UUID(int=0x7A)
PARTITIONS = 3
A, B = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)

Marker = tuple[int, int, bool, int, tuple[TopicPartition, ...]]
"""Producer id and epoch, commit, coordinator epoch, partitions."""


class TransactionHarness(GroupHarness):
    """`transaction_logs` outlive coordinators: a second harness may be made with the first one's."""

    def __init__(
        self, version: int = 2, transaction_logs: dict[TopicPartition, FakeLog] | None = None, *, starts: bool = True
    ) -> None:
        super().__init__()
        keys = [TopicPartition(TRANSACTION_TOPIC, index) for index in range(PARTITIONS)]
        self.transaction_logs = transaction_logs or {key: FakeLog() for key in keys}
        self.logs |= self.transaction_logs
        self.replay(FeatureLevelRecord("transaction.version", version))
        self.replay(TopicRecord(TRANSACTION_TOPIC, TRANSACTION_TOPIC_ID))
        for index, key in enumerate(keys):
            self.replay(PartitionRecord(TRANSACTION_TOPIC_ID, index, (1, 2, 3), (1, 2, 3), 1))
            self.replicas.partitions[key] = FakeLeader(key, self.logs[key])
        self.markers: list[tuple[int, Marker]] = []
        """Every marker that was sent, with the broker."""
        self.marker_answers: Callable[[int, TopicPartition], ErrorCode | None] = lambda broker, one: ErrorCode.NONE
        """The code for a broker and a partition; None: the broker is not reached."""
        self.marker_gate: asyncio.Event | None = None
        self.marker_channels.request = self.answer_markers
        if starts:
            self.transactions.start()

    async def answer_markers(self, broker_id: int, key: ApiKey, version: int, fields: Any, **_: Any) -> Struct:
        request = decode_request(key, version, encode_request(key, version, fields))
        rows = []
        for one in request.markers:
            partitions = [
                TopicPartition(topic.name, index) for topic in one.topics for index in topic.partition_indexes
            ]
            marker = one.producer_id, one.producer_epoch, one.transaction_result, one.coordinator_epoch
            self.markers.append((broker_id, (*marker, tuple(partitions))))
        if self.marker_gate is not None:
            await self.marker_gate.wait()
        for one in request.markers:
            topics: list[dict[str, Any]] = []
            for topic in one.topics:
                codes = [self.marker_answers(broker_id, TopicPartition(topic.name, i)) for i in topic.partition_indexes]
                if None in codes:
                    raise ConnectionRefusedError("nobody listens")
                row = [
                    {"partition_index": index, "error_code": int(code or 0)}
                    for index, code in zip(topic.partition_indexes, codes, strict=True)
                ]
                topics.append({"name": topic.name, "partitions": row})
            rows.append({"producer_id": one.producer_id, "topics": topics})
        return decode_response(key, version, encode_response(key, version, {"markers": rows}))

    def lead_transactions(self, broker_id: int) -> None:
        """Every partition of `__transaction_state` has a new leader."""
        for index in range(PARTITIONS):
            delta = self.replay(PartitionChangeRecord(TRANSACTION_TOPIC_ID, index, leader=broker_id))
            self.transactions.on_metadata(self.image, delta)

    def recorded(self, transactional_id: str) -> list[TransactionMetadata | None]:
        """The records of the id, in the order of the log."""
        return [
            None if record.value is None else decode_value(record.value)
            for log in self.transaction_logs.values()
            for record in log.records()
            if record.key is not None and decode_key(record.key) == transactional_id
        ]

    def states(self, transactional_id: str = "t") -> list[str]:
        """The labels of the recorded states."""
        return ["tombstone" if one is None else one.state.label for one in self.recorded(transactional_id)]

    async def init(self, version: int = 6, transactional_id: str | None = "t", **fields: Any) -> tuple[int, int, int]:
        """InitProducerId: the code, the producer id, the epoch."""
        asked = {
            "transactional_id": transactional_id,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
            **fields,
        }
        answer = await self.call(ApiKey.INIT_PRODUCER_ID, version, asked)
        return answer.error_code, answer.producer_id, answer.producer_epoch

    async def add(
        self,
        producer: tuple[int, int],
        *partitions: TopicPartition,
        version: int = 3,
        transactional_id: str = "t",
        verify_only: bool = False,
    ) -> list[int]:
        """AddPartitionsToTxn: the codes of the partitions."""
        topics = [{"name": one.topic, "partitions": [one.partition]} for one in partitions]
        if version < 4:
            fields: dict[str, Any] = {
                "v3_and_below_transactional_id": transactional_id,
                "v3_and_below_producer_id": producer[0],
                "v3_and_below_producer_epoch": producer[1],
                "v3_and_below_topics": topics,
            }
            answer = await self.call(ApiKey.ADD_PARTITIONS_TO_TXN, version, fields)
            return codes_of(answer.results_by_topic_v3_and_below)
        one = {
            "transactional_id": transactional_id,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "verify_only": verify_only,
            "topics": topics,
        }
        answer = await self.call(ApiKey.ADD_PARTITIONS_TO_TXN, version, {"transactions": [one]})
        assert answer.error_code == 0
        assert answer.results_by_transaction[0].transactional_id == transactional_id
        return codes_of(answer.results_by_transaction[0].topic_results)

    async def end(
        self, producer: tuple[int, int], *, commit: bool = True, version: int = 5, transactional_id: str = "t"
    ) -> tuple[int, int, int]:
        """EndTxn: the code, the producer id and the epoch of the next transaction."""
        fields = {
            "transactional_id": transactional_id,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "committed": commit,
        }
        answer = await self.call(ApiKey.END_TXN, version, fields)
        return answer.error_code, answer.get("producer_id", -1), answer.get("producer_epoch", -1)

    async def describe(self, transactional_id: str = "t") -> Struct:
        """The row of DescribeTransactions."""
        answer = await self.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [transactional_id]})
        row: Struct = answer.transaction_states[0]
        return row


def codes_of(topics: Iterable[Any]) -> list[int]:
    return [row.partition_error_code for topic in topics for row in topic.results_by_partition]


TransactionTest = Callable[[TransactionHarness], Awaitable[None]]


def played(test: TransactionTest) -> Callable[[], None]:
    """The test on virtual time, with a harness of its own."""

    def run() -> None:
        play(test)

    run.__name__ = test.__name__
    return run


def play(test: TransactionTest, version: int = 2) -> None:
    """Run `test` on virtual time, at that level of `transaction.version`."""

    async def main() -> None:
        harness = TransactionHarness(version)
        try:
            await test(harness)
        finally:
            harness.transactions.stop()

    on_virtual_time(main)


__all__ = ["A", "B", "TransactionHarness", "play", "played", "settle"]
