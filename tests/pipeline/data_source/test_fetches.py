"""What a task makes of answers to its fetches that Raftwerk's brokers do not give, or give for a damaged log."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="no pyarrow: the data source is NOT tested")

from raftwerk.cluster.client.cluster_client import BrokerView, ClusterClient, ClusterView, PartitionView, TopicView
from raftwerk.pipeline.errors import PipelineError
from raftwerk.pipeline.source.arrow_columns import OffsetRange
from raftwerk.pipeline.source.kafka_client import KafkaClient
from raftwerk.pipeline.source.options import ClientOptions
from raftwerk.runtime.files.file_slice import in_memory
from raftwerk.wire.fetch import FetchPartitionResponse, FetchResponse, FetchTopicResponse, encode_fetch_response
from raftwerk.wire.records import NewRecord, encode_batch

VERSION = 12
RECORDS = 5
THROTTLED = FetchResponse(throttle_ms=20)
"""KafkaApis.handleFetchRequest: FetchContext.getThrottledResponse has no topics when a quota is exceeded."""
_BATCH_LENGTH = slice(8, 12)
_BASE_OFFSET = slice(0, 8)


class Broker:
    """A leader of t-0 that gives these answers to fetches, one after the other."""

    def __init__(self, *answers: FetchResponse) -> None:
        self.answers = list(answers)
        self.events: list[str] = []

    async def metadata(self, _topics: Any = None, **_: Any) -> ClusterView:
        brokers = (BrokerView(1, "localhost", 9092, None),)
        return ClusterView("c", 1, brokers, (TopicView("t", None, False, (PartitionView(0, 1, 0, (1,), (1,)),)),))

    async def connection(self, _node_id: int) -> Broker:
        return self

    async def unthrottled(self, _timeout_s: float) -> None:
        self.events.append("waited")

    def throttle(self, throttle_ms: int) -> None:
        self.events.append(f"throttled for {throttle_ms} ms")

    async def send_raw(self, *_: Any, **__: Any) -> memoryview:
        return memoryview(in_memory(encode_fetch_response(VERSION, self.answers.pop(0))))


def of_records(records: bytes) -> FetchResponse:
    row = FetchPartitionResponse(0, 0, RECORDS, RECORDS, 0, records=records)
    return FetchResponse(topics=[FetchTopicResponse("t", None, [row])])


def whole_batch() -> bytearray:
    return bytearray(encode_batch([NewRecord(b"k", b"%d" % number) for number in range(RECORDS)], base_offset=0))


def read(monkeypatch: pytest.MonkeyPatch, broker: Broker, poll_timeout_ms: int = 30_000) -> list[int]:
    """The offsets of all records that a task reads."""
    monkeypatch.setattr(ClusterClient, "metadata", broker.metadata)
    monkeypatch.setattr(ClusterClient, "connection", broker.connection)
    with KafkaClient(ClientOptions("localhost:9092", poll_timeout_ms=poll_timeout_ms)) as client:
        batches = list(client.read(OffsetRange("t", 0, 0, RECORDS), ["offset"], True))
    return [row["offset"] for batch in batches for row in batch.to_pylist()]


def test_a_fetch_that_was_throttled_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(THROTTLED, THROTTLED, of_records(bytes(whole_batch())))
    assert read(monkeypatch, broker) == list(range(RECORDS))
    assert broker.events == ["waited", "throttled for 20 ms"] * 2 + ["waited", "throttled for 0 ms"]


def test_a_read_that_is_throttled_for_too_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PipelineError, match="records 0 to 5 have not come in 1 ms, its leader throttles this client"):
        read(monkeypatch, Broker(THROTTLED), poll_timeout_ms=1)


@pytest.mark.parametrize(
    ("field", "number"),
    [
        pytest.param(_BATCH_LENGTH, 10_000_000, id="a length beyond the bytes that came"),
        pytest.param(_BASE_OFFSET, -RECORDS, id="offsets that were read before"),
    ],
)
def test_a_damaged_batch_without_an_end_is_told(monkeypatch: pytest.MonkeyPatch, field: slice, number: int) -> None:
    """The CRC covers neither field. A read that asked for the same offset again would never end."""
    damaged = whole_batch()
    damaged[field] = number.to_bytes(field.stop - field.start, "big", signed=True)
    broker = Broker(of_records(bytes(damaged)), of_records(bytes(damaged)))
    with pytest.raises(PipelineError, match=r"the records from offset 0 on cannot be read: .* no whole batch"):
        read(monkeypatch, broker)
