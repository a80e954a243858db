"""The batches of the measuring client, and the figures that it reports."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from raftwerk.cluster.client.cluster_client import ClusterClient, ClusterView, PartitionView, TopicView
from raftwerk.cluster.client.perf import PerfProgress, PerfResult, ProduceLoad, ProducePerf, _Batch, reported
from raftwerk.runtime.clock import SystemClock
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.client import ConnectionLostError
from raftwerk.wire.codec import Struct
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
    result.latency.observe(0.001)
    found = result.to_json()
    assert 1.0 <= found["latency_p50_ms"] <= 1.07
    assert (found["longest_gap_ms"], found["retries"]) == (250.0, 1)
    assert re.fullmatch(
        r"1,000 records in 2\.00 s: 500 records/s, 0\.05 MB/s; "
        r"latency p50 1\.\d ms .*p99 1\.\d ms.*; longest gap 250 ms; 1 retries",
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


class _Outage(ClusterClient):
    """Two partitions whose leader acks two batches; after that one has no leader, and the other's is silent."""

    acked = 0

    async def metadata(self, topics: Iterable[str] | None = None) -> ClusterView:
        leaders = (1, -1 if self.acked == 2 else 1)
        partitions = tuple(PartitionView(number, leader, 0, (1,), (1,)) for number, leader in enumerate(leaders))
        return ClusterView("c", 1, (), (TopicView("t", None, False, partitions),))

    async def request_node(self, node_id: int, api: ApiKey, version: int, fields: Mapping[str, Any]) -> Struct:
        row = fields["topic_data"][0]["partition_data"][0]
        if self.acked == 2:
            if row["index"]:
                raise ConnectionLostError("closed by the peer")
            await asyncio.get_running_loop().create_future()
        self.acked += 1
        await asyncio.sleep(0)
        return Struct({"responses": [Struct({"partition_responses": [Struct({"error_code": 0})]})]})


def test_the_figures_go_on_in_an_outage() -> None:
    reports: list[tuple[str, dict[str, float]]] = []

    async def run() -> PerfResult:
        result = PerfResult()
        load = ProduceLoad("t", batch_records=20, record_size=10, in_flight=1)
        perf = ProducePerf(_Outage("localhost:9092"), load, result)

        def on_report(progress: PerfProgress) -> None:
            reports.append((str(progress), progress.to_json()))
            if progress.waiting_s > 1.0:
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


@pytest.mark.parametrize("records", [1, 19, 20, 21, 1_003])
def test_as_many_records_are_sent_as_were_asked_for(records: int) -> None:
    sent: list[int] = []

    class TwoPartitions(ClusterClient):
        async def metadata(self, topics: Iterable[str] | None = None) -> ClusterView:
            partitions = tuple(PartitionView(number, 1, 0, (1,), (1,)) for number in range(2))
            return ClusterView("c", 1, (), (TopicView("t", None, False, partitions),))

        async def request_node(self, node_id: int, api: ApiKey, version: int, fields: Mapping[str, Any]) -> Struct:
            await asyncio.sleep(0)
            data = fields["topic_data"][0]["partition_data"][0]["records"]
            sent.extend(header.record_count for _, header in iter_headers(data))
            return Struct({"responses": [Struct({"partition_responses": [Struct({"error_code": 0})]})]})

    result = PerfResult()
    load = ProduceLoad("t", records=records, batch_records=20, record_size=10)
    asyncio.run(ProducePerf(TwoPartitions("localhost:9092"), load, result).run())
    assert (sum(sent), result.records, result.size_bytes) == (records, records, 10 * records)
