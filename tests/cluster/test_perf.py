"""The batches of the measuring client, and the figures that it reports."""

from __future__ import annotations

import re

import pytest

from raftwerk.cluster.client.perf import PerfResult, ProduceLoad, _Batch
from raftwerk.runtime.clock import SystemClock
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
    first = batch.data()
    now_ms[0] += 50
    assert batch.data() is first
    now_ms[0] += 10_000
    (header,) = [header for _, header in iter_headers(batch.data())]
    assert (header.base_timestamp, header.max_timestamp, header.record_count) == (1_010_050, 1_010_050, 20)
