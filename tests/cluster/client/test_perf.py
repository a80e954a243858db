"""The batches of the measuring client, and the figures that it reports."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from raftwerk.cluster.client.client_errors import ClientError
from raftwerk.cluster.client.cluster_client import ClusterClient, ClusterView, PartitionView, TopicView, WaitsFor
from raftwerk.cluster.client.perf import (
    PerfProgress,
    PerfResult,
    ProduceLoad,
    ProducePerf,
    _another,
    _Batch,
    reported,
)
from raftwerk.cluster.client.producer import Producer, TopicLeaders
from raftwerk.runtime.clock import SystemClock
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.client import ConnectionLostError
from raftwerk.wire.codec import Struct
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.records import iter_headers


def test_a_batch_is_64_kb_unless_the_load_is_paced() -> None:
    assert ProduceLoad("t", record_size=100).batch_size == 595
    assert ProduceLoad("t", record_size=1_000_000).batch_size == 1
    assert ProduceLoad("t", throughput=1000).batch_size == 20
    assert ProduceLoad("t", throughput=10).batch_size == 1
    assert ProduceLoad("t", throughput=10, batch_records=7).batch_size == 7


def test_the_figures_of_a_result() -> None:
    result = PerfResult(records=1000, size_bytes=100_000, seconds=2.0, retries=1, longest_gap_s=0.25)
    assert result.to_json() == {"records": 1000, "seconds": 2.0, "records_per_s": 500, "mb_per_s": 0.05}
    assert replace(result, throttled_s=12.34).to_json()["throttled_ms"] == 12_340
    assert str(replace(result, throttled_s=12.34)).endswith(" MB/s; throttled by a quota for 12.3 s")
    result.observe(0.001)
    found = result.to_json()
    assert found["latency_p50_ms"] == 1.0
    assert (found["longest_gap_ms"], found["retries"]) == (250.0, 1)
    assert re.fullmatch(
        r"1,000 records in 2\.00 s: 500 records/s, 0\.05 MB/s; "
        r"latency p50 1\.\d ms .*p99 1\.\d ms.*; longest gap 250 ms; 1 retry",
        str(result),
    ), str(result)


def test_records_have_the_time_at_which_they_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = [1_000_000]
    monkeypatch.setattr(SystemClock, "wall_ms", lambda _: now_ms[0])
    batch = _Batch(ProduceLoad("t", throughput=1000))
    first = batch.data(20)
    now_ms[0] += 50
    assert batch.data(20) is first
    now_ms[0] += 10_000
    (header,) = [header for _, header in iter_headers(batch.data(20))]
    assert (header.base_timestamp, header.max_timestamp, header.record_count) == (1_010_050, 1_010_050, 20)
    (header,) = [header for _, header in iter_headers(batch.data(7))]
    assert (header.base_timestamp, header.record_count) == (1_010_050, 7)


_ACKED = {"error_code": 0, "error_message": None}


class _Outage(ClusterClient):
    """Two partitions whose leader acks two batches; after that one has no leader, and the other's is silent."""

    acked = 0

    async def metadata(self, topics: Iterable[str] | None = None, **_: Any) -> ClusterView:
        leaders = (1, -1 if self.acked == 2 else 1)
        partitions = tuple(PartitionView(number, leader, 0, (1,), (1,)) for number, leader in enumerate(leaders))
        return ClusterView("c", 1, (), (TopicView("t", None, False, partitions),))

    async def request_node(
        self, node_id: int, api: ApiKey, version: int, fields: Mapping[str, Any], waits_for: WaitsFor | None = None
    ) -> Struct:
        row = fields["topic_data"][0]["partition_data"][0]
        if self.acked == 2:
            if row["index"]:
                raise ConnectionLostError("closed by the peer")
            await asyncio.get_running_loop().create_future()
        self.acked += 1
        await asyncio.sleep(0)
        return Struct({"responses": [Struct({"partition_responses": [Struct(_ACKED)]})]})


def test_the_figures_go_on_in_an_outage() -> None:
    reports: list[tuple[str, dict[str, float]]] = []

    async def run() -> PerfResult:
        result = PerfResult()
        load = ProduceLoad("t", batch_records=20, record_size=10, in_flight=1)
        perf = ProducePerf(_Outage("localhost:9092"), load, result)

        def on_report(progress: PerfProgress) -> None:
            reports.append((str(progress), progress.to_json()))
            if progress.waiting_s > 1.2:  # the gap is shorter, as it begins with the last ack
                running.cancel()

        running = asyncio.get_running_loop().create_task(reported(perf, 0.2, on_report))
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(running, 30)
        return result

    result = asyncio.run(run())
    figures = [found for _, found in reports]
    assert [one["records"] for one in figures] == [40] * len(figures)
    assert all(one["waiting_records"] == 40 for one in figures)
    assert figures[0]["interval_records_per_s"] > 0
    assert figures[-1]["interval_records_per_s"] == 0
    assert [one["seconds"] for one in figures] == sorted({one["seconds"] for one in figures})
    assert "s: 0 records/s" not in reports[0][0].split("; ")[1]
    assert re.search(r"; last 0\.\d s: 0 records/s; 40 records without ack, the oldest for 1\.\d s", reports[-1][0])
    assert result.longest_gap_s > 1.0
    assert result.seconds > 1.0


def test_the_line_of_an_outage_says_why() -> None:
    progress = PerfProgress(PerfResult(), 5.0, 0, 600, 12.34, "t-0: the partition has no leader now")
    waiting = "600 records without ack, the oldest for 12.3 s: t-0: the partition has no leader now"
    assert str(progress).endswith(f"; last 5.0 s: 0 records/s; {waiting}")


def _late(load: ProduceLoad) -> tuple[PerfResult, str]:
    """The figures of a load that meets the outage, and the error with which it ends."""
    result = PerfResult()

    async def run() -> str:
        with pytest.raises(ClientError) as raised:
            await asyncio.wait_for(ProducePerf(_Outage("localhost:9092"), load, result).run(), 30)
        return str(raised.value)

    return result, asyncio.run(run())


@pytest.mark.parametrize("limit", [{"seconds": 0.3}, {"records": 1000}, {"records": 80}])
def test_a_load_with_a_limit_ends_in_an_outage(limit: dict[str, Any]) -> None:
    result, told = _late(
        ProduceLoad("t", batch_records=20, record_size=10, in_flight=1, delivery_timeout_s=0.2, **limit)
    )
    assert re.fullmatch(
        r"40 records without ack, the oldest for 0\.\d s: t-\d: [^;]+; they may be written all the same; "
        r"raftwerk doctor shows what is wrong",
        told,
    ), told
    assert (result.records, result.unacked) == (40, 40)
    assert str(result).endswith("; 40 records without ack")
    assert result.to_json()["unacked_records"] == 40


def test_what_stops_a_load_leaves_its_unacked_records_in_the_figures() -> None:
    result = PerfResult()

    async def run() -> None:
        load = ProduceLoad("t", batch_records=20, record_size=10, in_flight=1)
        perf = ProducePerf(_Outage("localhost:9092"), load, result)

        def on_report(progress: PerfProgress) -> None:
            if progress.result.records == progress.waiting_records == 40:
                running.cancel()

        running = asyncio.get_running_loop().create_task(reported(perf, 0.05, on_report))
        await asyncio.wait([running], timeout=30)

    asyncio.run(run())
    assert "; 40 records without ack" in str(result)


def test_no_latency_is_longer_than_the_longest() -> None:
    result = PerfResult(records=1, seconds=10.1)
    result.observe(10.0)
    assert {value for name, value in result.to_json().items() if name.startswith("latency")} == {10_000.0}
    assert "p99.9 10,000.0 ms" in str(result)


def test_a_slow_rate_does_not_outlast_the_seconds() -> None:
    result = PerfResult()
    load = ProduceLoad("t", seconds=0.2, throughput=1, record_size=10)
    asyncio.run(asyncio.wait_for(ProducePerf(_TwoPartitions("localhost:9092"), load, result).run(), 30))
    assert (result.records, result.unacked) == (1, 0)
    assert result.seconds < 5


class _TwoPartitions(ClusterClient):
    """Two partitions whose leader acks everything. `sent` has how many records each batch had."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.sent: list[int] = []

    async def metadata(self, topics: Iterable[str] | None = None, **_: Any) -> ClusterView:
        partitions = tuple(PartitionView(number, 1, 0, (1,), (1,)) for number in range(2))
        return ClusterView("c", 1, (), (TopicView("t", None, False, partitions),))

    async def request_node(
        self, node_id: int, api: ApiKey, version: int, fields: Mapping[str, Any], waits_for: WaitsFor | None = None
    ) -> Struct:
        await asyncio.sleep(0)
        data = fields["topic_data"][0]["partition_data"][0]["records"]
        self.sent.extend(header.record_count for _, header in iter_headers(data))
        return Struct({"responses": [Struct({"partition_responses": [Struct(_ACKED)]})]})


@pytest.mark.parametrize("records", [1, 19, 20, 21, 1_003])
def test_as_many_records_are_sent_as_were_asked_for(records: int) -> None:
    cluster = _TwoPartitions("localhost:9092")
    result = PerfResult()
    load = ProduceLoad("t", records=records, batch_records=20, record_size=10)
    asyncio.run(ProducePerf(cluster, load, result).run())
    assert (sum(cluster.sent), result.records, result.size_bytes) == (records, records, 10 * records)


class _CreatedAnew(_Outage):
    """The topic is deleted after two batches, and created again with one partition, whose leader is silent."""

    async def metadata(self, topics: Iterable[str] | None = None, **_: Any) -> ClusterView:
        view = await super().metadata(topics)
        (topic,) = view.topics
        partitions = topic.partitions[: 1 if self.acked == 2 else 2]
        return replace(view, topics=(replace(topic, partitions=partitions),))


def test_a_partition_that_its_topic_no_longer_has_is_without_a_leader() -> None:
    load = ProduceLoad("t", batch_records=20, record_size=10, in_flight=1, delivery_timeout_s=0.2, records=1000)
    with pytest.raises(ClientError, match="40 records without ack"):
        asyncio.run(asyncio.wait_for(ProducePerf(_CreatedAnew("localhost:9092"), load, PerfResult()).run(), 10))


class _MovingLeader(ClusterClient):
    """The leader of the only partition moves from broker 1 to 2, and to 3. The answer that says 2 comes late."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.views = 0
        self.in_flight = self.most_in_flight = 0
        self.asked: list[int] = []

    async def metadata(self, topics: Iterable[str] | None = None, **_: Any) -> ClusterView:
        self.views += 1
        leader = min(self.views, 3)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(0.1 if leader == 2 else 0.01)
        self.in_flight -= 1
        partitions = (PartitionView(0, leader, leader, (1, 2, 3), (1, 2, 3)),)
        return ClusterView("c", 1, (), (TopicView("t", UUID(int=1), False, partitions),))

    async def request_node(
        self, node_id: int, api: ApiKey, version: int, fields: Mapping[str, Any], waits_for: WaitsFor | None = None
    ) -> Struct:
        self.asked.append(node_id)
        await asyncio.sleep(0.01)
        code = 0 if node_id == 3 else int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        row = Struct({"error_code": code, "error_message": None, "base_offset": 0})
        return Struct({"responses": [Struct({"partition_responses": [row]})]})


def test_all_that_is_under_way_asks_once_for_the_new_leader() -> None:
    """Each would ask for itself otherwise, and a late answer take the place of a newer one."""
    cluster = _MovingLeader("localhost:9092")
    load = ProduceLoad("t", records=1_000, batch_records=1, in_flight=20)
    asyncio.run(asyncio.wait_for(ProducePerf(cluster, load, PerfResult()).run(), 10))
    assert cluster.asked == sorted(cluster.asked)
    assert (cluster.views, cluster.most_in_flight) == (3, 1)


def test_the_batches_of_a_producer_ask_once_for_new_leaders() -> None:
    cluster = _MovingLeader("localhost:9092")

    async def main() -> None:
        producer = Producer(cluster, "t", acks=1)
        await producer.start()
        await asyncio.gather(*(producer.send([(None, b"v")]) for _ in range(20)))

    asyncio.run(asyncio.wait_for(main(), 10))
    assert cluster.asked == sorted(cluster.asked)
    assert (cluster.views, cluster.most_in_flight) == (3, 1)


def test_nobody_asks_again_at_once_where_a_question_has_failed() -> None:
    class Silent(_MovingLeader):
        async def metadata(self, topics: Iterable[str] | None = None, **_: Any) -> ClusterView:
            view = await super().metadata(topics)
            if self.views > 1:
                raise ClientError("no broker answers")
            return view

    async def main() -> None:
        cluster = Silent("localhost:9092")
        leaders = TopicLeaders(cluster, "t")
        await leaders.start()
        found = await asyncio.gather(*(leaders.refresh() for _ in range(20)), return_exceptions=True)
        assert cluster.views == 2 and [one for one in found if one is not None]
        first = asyncio.ensure_future(leaders.refresh())
        second = asyncio.ensure_future(leaders.refresh())
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(ClientError):
            await second
        assert cluster.views == 4, "the one that asked was cancelled"

    asyncio.run(asyncio.wait_for(main(), 10))


def test_another_client_of_a_cluster_on_ipv6() -> None:
    bootstrap = [("::1", 9092), ("localhost", 9093)]
    assert _another(ClusterClient("[::1]:9092,localhost:9093")).bootstrap == bootstrap
