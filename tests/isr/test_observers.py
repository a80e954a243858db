"""What is told to the observer of a replica manager, which counts records and bytes."""

from __future__ import annotations

from collections.abc import Sequence

from support.isr.manager_cluster import Cluster

from raftwerk.isr.ports import ReplicaObserver, WantedPartition
from raftwerk.isr.results import AppendDone, FetchParams
from raftwerk.log.append_info import AppendInfo
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.fetch import FetchPartitionResponse
from raftwerk.wire.produce import ProducePartitionResponse
from raftwerk.wire.types import TopicPartition

TP = TopicPartition("t", 0)


class Observer(ReplicaObserver):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.appended: list[tuple[int, int]] = []
        self.asked: list[tuple[int, TopicPartition | None]] = []
        self.read: list[tuple[int, int]] = []
        self.replicated_bytes = 0

    def on_append(self, entries: Sequence[tuple[TopicPartition, memoryview | None]], done: AppendDone) -> AppendDone:
        def answer(rows: list[ProducePartitionResponse]) -> None:
            self.answers += [int(row.error_code) for row in rows]
            done(rows)

        return answer

    def on_appended(self, topic_partition: TopicPartition, info: AppendInfo, records: memoryview) -> None:
        self.appended.append((info.first_offset, len(records)))

    def on_fetch(self, params: FetchParams, wanted: Sequence[WantedPartition]) -> None:
        self.asked += [(params.replica_id, one.topic_partition) for one in wanted]

    def on_fetched(
        self, params: FetchParams, wanted: Sequence[WantedPartition], rows: Sequence[FetchPartitionResponse]
    ) -> None:
        self.read += [(params.replica_id, len(row.records or b"")) for row in rows if row.records]

    def on_records_fetched(self, topic_partition: TopicPartition, size_bytes: int) -> None:
        self.replicated_bytes += size_bytes


def observed(nodes: tuple[int, ...] = (1,)) -> tuple[Cluster, Observer]:
    """A topic on some brokers; the observer is that of the last one."""
    cluster = Cluster(nodes=nodes)
    for node in nodes:
        cluster.observer = Observer()
        cluster.boot(node)
    cluster.create_topic("t", 7, nodes)
    cluster.tell()
    cluster.sleep(1.0)
    assert isinstance(cluster.observer, Observer)
    return cluster, cluster.observer


def test_batches_that_are_appended_are_told_and_the_answers_pass_through_it() -> None:
    cluster, observer = observed()
    size_bytes = 0
    for offset in range(2):
        answer = cluster.produce(1, TP)
        assert answer.row.base_offset == offset
        size_bytes = cluster.managers[1].partitions[TP].log.size_bytes - size_bytes
    refused = cluster.produce(1, TopicPartition("nowhere", 0))
    assert refused.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert observer.appended == [(0, size_bytes), (1, size_bytes)]
    assert observer.answers == [0, 0, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_a_fetch_is_told_when_it_comes_and_when_it_is_answered() -> None:
    cluster, observer = observed()
    waiting = cluster.consume(1, TP, 0, max_wait_ms=500)
    assert observer.asked == [(-1, TP)]
    assert observer.read == []
    cluster.produce(1, TP)
    assert observer.read == [(-1, len(waiting.row.records))]
    assert observer.asked == [(-1, TP)], "it came once"


def test_a_leader_tells_what_its_followers_read_and_not_each_of_their_fetches() -> None:
    """A follower fetches all the time, and names a partition only when it has changed."""
    cluster, observer = observed(nodes=(2, 1))
    cluster.change(cluster.managers[1].partitions[TP].topic_id, 0, leader=1)
    cluster.tell()
    cluster.sleep(1.0)
    observer.asked.clear()
    cluster.produce(1, TP)
    cluster.sleep(2.0)
    assert observer.asked == []
    assert observer.read == [(2, cluster.managers[1].partitions[TP].log.size_bytes)]


def test_a_follower_tells_what_it_has_fetched() -> None:
    cluster, observer = observed(nodes=(1, 2))
    cluster.produce(1, TP)
    cluster.sleep(1.0)
    assert observer.replicated_bytes == cluster.managers[2].partitions[TP].log.size_bytes > 0
