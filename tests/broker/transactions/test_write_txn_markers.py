"""WriteTxnMarkers: what goes to the partitions, and how the answer names producers and partitions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from support.broker.broker_harness import TOPIC, Harness, run

from raftwerk.isr.leader.transaction_markers import TransactionMarker
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import TopicPartition

HERE, ALSO_HERE = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


def marker(producer_id: int, *topics: tuple[str, list[int]], commit: bool = True, version: int = 2) -> dict[str, Any]:
    return {
        "producer_id": producer_id,
        "producer_epoch": 4,
        "transaction_result": commit,
        "topics": [{"name": name, "partition_indexes": indexes} for name, indexes in topics],
        "coordinator_epoch": 9,
        "transaction_version": version,
    }


class Partitions:
    """Two partitions; the second refuses."""

    def __init__(self, harness: Harness) -> None:
        self.written: list[tuple[TopicPartition, TransactionMarker]] = []
        replicas: Any = harness.replicas
        replicas.partitions |= {HERE: SimpleNamespace(offline=False), ALSO_HERE: SimpleNamespace(offline=False)}
        replicas.write_markers = self.write

    def write(self, timeout_ms: int, entries: Any, done: Any) -> None:
        assert timeout_ms == 30_000
        self.written += entries
        done([ErrorCode.NONE if key == HERE else ErrorCode.INVALID_PRODUCER_EPOCH for key, _ in entries])


def codes(answer: Any) -> dict[tuple[int, str, int], int]:
    return {
        (one.producer_id, topic.name, partition.partition_index): partition.error_code
        for one in answer.markers
        for topic in one.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", [1, 2])
def test_every_partition_of_every_producer_is_answered(version: int) -> None:
    async def main() -> None:
        harness = Harness()
        partitions = Partitions(harness)
        markers = [marker(7, (TOPIC, [0, 1]), ("elsewhere", [3])), marker(8, (TOPIC, [0]), commit=False)]
        answer = await harness.call(ApiKey.WRITE_TXN_MARKERS, version, {"markers": markers})
        assert codes(answer) == {
            (7, TOPIC, 0): 0,
            (7, TOPIC, 1): int(ErrorCode.INVALID_PRODUCER_EPOCH),
            (7, "elsewhere", 3): int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (8, TOPIC, 0): 0,
        }
        told = 2 if version == 2 else 0
        assert partitions.written == [
            (HERE, TransactionMarker(7, 4, 9, True, told)),
            (ALSO_HERE, TransactionMarker(7, 4, 9, True, told)),
            (HERE, TransactionMarker(8, 4, 9, False, told)),
        ]

    run(main())


def test_a_replica_that_is_offline_counts_as_none() -> None:
    async def main() -> None:
        harness = Harness()
        partitions = Partitions(harness)
        harness.replicas.partitions[HERE].offline = True
        answer = await harness.call(ApiKey.WRITE_TXN_MARKERS, 1, {"markers": [marker(7, (TOPIC, [0]))]})
        assert codes(answer) == {(7, TOPIC, 0): int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
        assert not partitions.written

    run(main())


def test_markers_are_written_in_steps() -> None:
    async def main() -> None:
        harness = Harness()
        partitions = Partitions(harness)
        markers = [marker(producer, (TOPIC, [0])) for producer in range(130)]
        answer = await harness.call(ApiKey.WRITE_TXN_MARKERS, 2, {"markers": markers})
        assert len(codes(answer)) == len(partitions.written) == 130
        assert not (await harness.call(ApiKey.WRITE_TXN_MARKERS, 2, {"markers": []})).markers

    run(main())
