"""The observers that count a node's traffic and time its requests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from raftwerk.cluster.metrics.counters import BrokerTopicStats, RequestMetrics, TopicStats
from raftwerk.controller.metadata.metadata_image import MetadataDelta, MetadataImage
from raftwerk.controller.metadata.metadata_records import RemoveTopicRecord, TopicRecord
from raftwerk.isr.ports import FetchKey, WantedPartition
from raftwerk.isr.results import FetchParams
from raftwerk.log.append_info import AppendInfo
from raftwerk.wire.fetch import FetchPartition, FetchPartitionResponse
from raftwerk.wire.produce import ProducePartitionResponse
from raftwerk.wire.types import TopicPartition

TP = TopicPartition("flights", 0)
RECORDS = memoryview(b"x" * 80)
WANTED = [WantedPartition(FetchKey("flights", 0), FetchPartition(0), TP)]


def row(records: bytes = b"", error_code: int = 0) -> FetchPartitionResponse:
    return FetchPartitionResponse(partition=0, error_code=error_code, high_watermark=0, records=records)


def test_appends_are_counted_and_duplicates_are_not() -> None:
    stats = BrokerTopicStats()
    answered: list[list[ProducePartitionResponse]] = []
    done = stats.on_append([(TP, RECORDS)], answered.append)
    stats.on_appended(TP, AppendInfo(10, 12, -1, -1, 80, False), RECORDS)
    stats.on_appended(TP, AppendInfo(10, 12, -1, -1, 0, True), RECORDS)
    done([ProducePartitionResponse(0, 0)])
    assert answered == [[ProducePartitionResponse(0, 0)]]
    assert stats.of("flights") == TopicStats(messages_in=3, bytes_in=80, produce_requests=1)


def test_a_failed_append_is_counted_when_it_is_answered() -> None:
    stats = BrokerTopicStats()
    answered: list[list[ProducePartitionResponse]] = []
    done = stats.on_append([(TP, RECORDS)], answered.append)
    assert stats.of("flights").failed_produce_requests == 0
    done([ProducePartitionResponse(0, 7)])
    assert len(answered) == 1
    assert stats.of("flights") == TopicStats(produce_requests=1, failed_produce_requests=1)


def test_fetches_of_consumers_and_followers_are_counted_apart() -> None:
    stats = BrokerTopicStats()
    for replica_id in (-1, 2):
        params = FetchParams(replica_id=replica_id)
        stats.on_fetch(params, WANTED)
        stats.on_fetched(params, WANTED, [row(b"x" * 10)])
    stats.on_fetched(FetchParams(), WANTED, [row(error_code=6)])
    stats.on_records_fetched(TP, 5)
    assert stats.of("flights") == TopicStats(
        bytes_out=10, replication_bytes_out=10, replication_bytes_in=5, fetch_requests=1, failed_fetch_requests=1
    )


def test_bytes_that_a_reassignment_moves_are_counted() -> None:
    partition = SimpleNamespace(adding_replicas=(3,))
    image: Any = SimpleNamespace(topics_by_name={"flights": SimpleNamespace(partitions={0: partition})})
    stats = BrokerTopicStats()
    stats.on_records_fetched(TP, 5)
    stats.know_metadata(3, image)
    stats.on_records_fetched(TP, 7)
    for replica_id in (2, 3):
        stats.on_fetched(FetchParams(replica_id=replica_id), WANTED, [row(b"x" * 10)])
    assert (stats.reassignment_bytes_in, stats.reassignment_bytes_out) == (7, 10)


def test_requests_are_timed_by_api() -> None:
    metrics = RequestMetrics()
    request: Any = SimpleNamespace(api_key=3)
    metrics.on_begun(request)
    metrics.on_completed(request)
    assert [(key, latency.count) for key, latency in metrics.by_api.items()] == [(3, 1)]
    assert 0 <= metrics.by_api[3].sum_s < 1


def test_what_is_answered_after_a_topic_is_deleted_counts_for_none() -> None:
    """A fetch that waited for its records, or an append for its replicas, is answered when a partition's role ends."""
    stats, image, created, deleted = BrokerTopicStats(), MetadataImage("c"), MetadataDelta(), MetadataDelta()
    stats.know_metadata(1, image)
    topic_id = UUID(int=5)
    image.replay(TopicRecord("flights", topic_id), 0, created)
    done = stats.on_append([(TP, RECORDS)], lambda responses: None)
    stats.on_fetch(FetchParams(), WANTED)
    assert list(stats.by_topic) == ["flights"]
    image.replay(RemoveTopicRecord(topic_id), 1, deleted)
    stats.forget_deleted(image, deleted)
    stats.on_fetched(FetchParams(), WANTED, [row(error_code=3)])
    done([ProducePartitionResponse(0, 3)])
    assert stats.by_topic == {}
