from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from raftwerk.runtime.files.file_slice import in_memory
from raftwerk.wire import codec
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import WireFormatError
from raftwerk.wire.fetch import (
    MAX_VERSION,
    MIN_VERSION,
    PARTITION_BYTES,
    ROWS_PER_STEP,
    UNKNOWN_HIGH_WATERMARK,
    AbortedTransaction,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
    ForgottenTopic,
    decode_fetch_request,
    decode_fetch_request_in_steps,
    decode_fetch_response,
    encode_fetch_request,
    encode_fetch_response,
)
from raftwerk.wire.primitives import NodeEndpoint
from raftwerk.wire.types import EpochEndOffset, LeaderIdAndEpoch, SnapshotId

VERSIONS = range(MIN_VERSION, MAX_VERSION + 1)


def topic_key(version: int, number: int) -> tuple[str | None, uuid.UUID | None]:
    return (None, uuid.UUID(int=number + 1)) if version >= 13 else (f"topic-{number}", None)


def arbitrary_request(version: int, rng: random.Random) -> FetchRequest:
    """A request with only the fields of the version, so that it is equal after decoding."""

    def since(first: int, value: Any, default: Any) -> Any:
        return value if version >= first else default

    def partition(index: int) -> FetchPartition:
        return FetchPartition(
            index,
            since(9, rng.randrange(-1, 5), -1),
            rng.randrange(1 << 40),
            since(12, rng.randrange(-1, 5), -1),
            since(5, rng.randrange(100), -1),
            rng.randrange(1 << 20),
            since(17, rng.choice((None, uuid.UUID(int=5))), None),
            since(18, rng.choice((UNKNOWN_HIGH_WATERMARK, 9)), UNKNOWN_HIGH_WATERMARK),
        )

    return FetchRequest(
        replica_id=rng.choice((-1, 3)),
        replica_epoch=since(15, rng.choice((-1, 9)), -1),
        max_wait_ms=rng.randrange(1000),
        min_bytes=rng.randrange(10),
        max_bytes=rng.randrange(1 << 20),
        isolation_level=rng.randrange(2),
        session_id=since(7, rng.randrange(10), 0),
        session_epoch=since(7, rng.randrange(10), -1),
        topics=[
            FetchTopic(*topic_key(version, number), [partition(index) for index in range(rng.randrange(4))])
            for number in range(rng.randrange(4))
        ],
        forgotten=since(7, [ForgottenTopic(*topic_key(version, n), [1, 2][:n]) for n in range(rng.randrange(4))], []),
        rack_id=since(11, rng.choice(("", "rack-1")), ""),
        cluster_id=since(12, rng.choice((None, "", "cluster")), None),
    )


def request_fields(request: FetchRequest) -> dict[str, Any]:
    def partition(row: FetchPartition) -> dict[str, Any]:
        fields = {name: getattr(row, name) for name in row.__slots__}
        return fields | {"partition_max_bytes": row.max_bytes}

    fields = {name: getattr(request, name) for name in request.__slots__}
    return fields | {
        "max_wait": request.max_wait_ms,
        "replica_state": {"replica_id": request.replica_id, "replica_epoch": request.replica_epoch},
        "topics": [
            {"topic": t.name, "topic_id": t.topic_id, "partitions": [partition(row) for row in t.partitions]}
            for t in request.topics
        ],
        "forgotten_topics_data": [
            {"topic": t.name, "topic_id": t.topic_id, "partitions": t.partitions} for t in request.forgotten
        ],
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_agree_with_the_schema(version: int) -> None:
    for seed in range(40):
        request = arbitrary_request(version, random.Random(seed))
        body = encode_fetch_request(version, request)
        assert body == codec.encode_request(ApiKey.FETCH, version, request_fields(request))
        assert decode_fetch_request(version, memoryview(b"header" + body), 6) == request


def arbitrary_response(version: int, rng: random.Random) -> FetchResponse:
    def since(first: int, value: Any, default: Any) -> Any:
        return value if version >= first else default

    def row(index: int) -> FetchPartitionResponse:
        aborted = rng.choice((None, [], [AbortedTransaction(1, 2), AbortedTransaction(3, 4)]))
        return FetchPartitionResponse(
            partition=index,
            error_code=rng.choice((0, 1, 6)),
            high_watermark=rng.randrange(1 << 40),
            last_stable_offset=rng.randrange(1 << 40),
            log_start_offset=since(5, rng.randrange(100), -1),
            diverging_epoch=since(12, rng.choice((None, EpochEndOffset(3, 100))), None),
            current_leader=since(12, rng.choice((None, LeaderIdAndEpoch(2, 7))), None),
            snapshot_id=since(12, rng.choice((None, SnapshotId(100, 3))), None),
            aborted_transactions=aborted,
            preferred_read_replica=since(11, rng.choice((-1, 2)), -1),
            records=rng.choice((b"", rng.randbytes(50), rng.randbytes(5000))),
        )

    endpoints = [NodeEndpoint(1, "host", 9092), NodeEndpoint(2, "other", 9093, "rack")]
    return FetchResponse(
        error_code=since(7, rng.choice((0, 70)), 0),
        session_id=since(7, rng.randrange(1 << 30), 0),
        topics=[
            FetchTopicResponse(*topic_key(version, number), [row(index) for index in range(rng.randrange(4))])
            for number in range(rng.randrange(4))
        ],
        node_endpoints=since(16, rng.choice(((), endpoints)), ()),
        throttle_ms=rng.randrange(1000),
    )


def response_fields(response: FetchResponse) -> dict[str, Any]:
    def row_fields(row: FetchPartitionResponse) -> dict[str, Any]:
        fields = {name: getattr(row, name) for name in row.__slots__}
        fields["partition_index"] = row.partition
        for name in ("diverging_epoch", "current_leader", "snapshot_id"):
            part = fields.pop(name)
            if part is not None:
                fields[name] = part._asdict()
        if row.aborted_transactions is not None:
            fields["aborted_transactions"] = [aborted._asdict() for aborted in row.aborted_transactions]
        return fields

    return {
        "throttle_time": response.throttle_ms,
        "error_code": response.error_code,
        "session_id": response.session_id,
        "responses": [
            {"topic": t.name, "topic_id": t.topic_id, "partitions": [row_fields(row) for row in t.partitions]}
            for t in response.topics
        ],
        "node_endpoints": [endpoint._asdict() for endpoint in response.node_endpoints],
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_agree_with_the_schema(version: int) -> None:
    for seed in range(40):
        response = arbitrary_response(version, random.Random(seed))
        body = in_memory(encode_fetch_response(version, response))
        assert body == codec.encode_response(ApiKey.FETCH, version, response_fields(response))
        assert decode_fetch_response(version, memoryview(b"header" + body), 6) == response


def test_large_records_are_not_copied() -> None:
    records = bytearray(10_000)
    row = FetchPartitionResponse(0, records=records)
    buffers = encode_fetch_response(12, FetchResponse(topics=[FetchTopicResponse("t", None, [row])]))
    assert any(buffer is records for buffer in buffers)


def test_no_records_are_sent_as_an_empty_set() -> None:
    for version in VERSIONS:
        topic = FetchTopicResponse("t", uuid.UUID(int=1), [FetchPartitionResponse(0)])
        body = in_memory(encode_fetch_response(version, FetchResponse(topics=[topic])))
        assert decode_fetch_response(version, body).topics[0].partitions[0].records == b""


@pytest.mark.parametrize("version", VERSIONS)
def test_hostile_bytes_raise_only_wire_format_error(version: int) -> None:
    rng = random.Random(version)
    request = encode_fetch_request(version, arbitrary_request(version, random.Random(4)))
    response = in_memory(encode_fetch_response(version, arbitrary_response(version, random.Random(1))))
    for body, decode in ((request, decode_fetch_request), (response[:400], decode_fetch_response)):
        for size in range(len(body) - 1):
            with pytest.raises(WireFormatError):
                decode(version, memoryview(body)[:size])
        for _ in range(1000):
            damaged = bytearray(body)
            for _ in range(rng.randint(1, 4)):
                damaged[rng.randrange(len(damaged))] = rng.choice((0, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            try:
                decode(version, memoryview(damaged))
            except WireFormatError:
                pass


def test_many_topics_of_a_request_are_read_in_steps_whether_or_not_they_have_partitions() -> None:
    topics = [FetchTopic("t", None, []) for _ in range(10 * ROWS_PER_STEP)]
    forgotten = [ForgottenTopic("t", None, []) for _ in range(10 * ROWS_PER_STEP)]
    for request in (FetchRequest(topics=topics), FetchRequest(forgotten=forgotten)):
        counted: list[int] = []
        work = decode_fetch_request_in_steps(12, encode_fetch_request(12, request), count_bytes=counted.append)
        assert sum(1 for _ in work) >= 9
        assert sum(counted) >= 10 * ROWS_PER_STEP * PARTITION_BYTES
