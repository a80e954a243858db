"""request_percentage: requests are measured, throttled for a second at most, and told so in any API's answer."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from support.broker.broker_harness import TOPIC, FakeTransport, Harness, decode_answer, run, settle

from raftwerk.controller.metadata.metadata_image import MetadataDelta
from raftwerk.controller.metadata.metadata_records import ClientQuotaRecord
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import begins_with_throttle_time
from raftwerk.wire.records import encode_batch

BATCH = bytes(encode_batch([(None, b"v", [], 1)]))
PRODUCE = {
    "acks": 1,
    "timeout": 1000,
    "topic_data": [{"name": TOPIC, "partition_data": [{"index": 0, "records": BATCH}]}],
}
ROWS = [{"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
FETCH = {"replica_id": -1, "max_wait": 5, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0, "session_id": 0,
         "session_epoch": -1, "topics": [{"topic": TOPIC, "partitions": ROWS}]}  # fmt: skip
MANY_TOPICS = {"topics": [{"name": f"unknown-{number}"} for number in range(500)], "allow_auto_topic_creation": False}


def limited(percentage: float = 50.0) -> Harness:
    """A broker on which each look at the clock finds that 0.3 s of work were done."""
    harness = Harness()
    seconds = count()
    harness.stopwatch = lambda: next(seconds) * 0.3
    entity = (("client-id", "test"),)
    delta = MetadataDelta()
    harness.image.replay(ClientQuotaRecord(entity, "request_percentage", percentage), harness.image.offset + 1, delta)
    harness.quotas.on_metadata(harness.image, delta)
    return harness


def throttle_times(key: ApiKey, version: int, transport: FakeTransport) -> list[int]:
    return [decode_answer(key, version, frame).throttle_time for frame in transport.frames()]


@pytest.mark.parametrize(
    ("key", "version", "fields"),
    [
        (ApiKey.METADATA, 9, {"topics": [], "allow_auto_topic_creation": False}),
        (ApiKey.METADATA, 9, MANY_TOPICS),
        (ApiKey.LIST_GROUPS, 4, {"states_filter": []}),
        (ApiKey.PRODUCE, 9, PRODUCE),
        (ApiKey.FETCH, 12, FETCH),
    ],
    ids=["metadata", "large metadata", "groups", "produce", "fetch"],
)
def test_the_answer_has_the_throttle_time(key: ApiKey, version: int, fields: Any) -> None:
    async def main() -> None:
        harness = limited()
        transport = harness.connect()
        for _ in range(30):
            transport.deliver(harness.frame(key, version, fields))
            await settle(30)
        told = throttle_times(key, version, transport)
        assert 1 <= len(told) < 30, "five seconds of work, and then its requests wait"
        assert told[:-2] == [0] * (len(told) - 2)
        assert key == ApiKey.FETCH or 0 < told[-1] <= 1000
        assert not transport.reading
        other = harness.connect()
        for _ in range(30):
            other.deliver(harness.frame(key, version, fields, "another"))
            await settle(30)
        assert throttle_times(key, version, other) == [0] * 30

    run(main())


@pytest.mark.parametrize(
    ("key", "version", "fields"),
    [
        (ApiKey.FETCH, 12, FETCH | {"replica_id": 2}),
        (ApiKey.WRITE_TXN_MARKERS, 1, {"markers": []}),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, 3, {"replica_id": 2, "topics": []}),
        (ApiKey.ADD_PARTITIONS_TO_TXN, 4, {"transactions": []}),
    ],
    ids=["fetch", "markers", "epochs", "verification"],
)
def test_requests_of_brokers_are_exempt(key: ApiKey, version: int, fields: Any) -> None:
    async def main() -> None:
        harness = limited()
        transport = harness.connect()
        for _ in range(30):
            transport.deliver(harness.frame(key, version, fields))
            await settle(30)
        assert len(transport.frames()) == 30

    run(main())


def test_where_the_throttle_time_is_the_first_field() -> None:
    first = [(key, version) for key, version in ((ApiKey.PRODUCE, 9), (ApiKey.FETCH, 12), (ApiKey.API_VERSIONS, 3),
             (ApiKey.METADATA, 3), (ApiKey.METADATA, 2)) if begins_with_throttle_time(key, version)]  # fmt: skip
    assert first == [(ApiKey.FETCH, 12), (ApiKey.METADATA, 3)]
