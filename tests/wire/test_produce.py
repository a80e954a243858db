from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import TypeAlias

import pytest

from raftwerk.runtime.incremental_work import run_at_once
from raftwerk.runtime.ports import Buffer
from raftwerk.wire import codec
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import WireFormatError
from raftwerk.wire.primitives import NodeEndpoint
from raftwerk.wire.produce import (
    MAX_VERSION,
    MIN_VERSION,
    PARTITION_BYTES,
    PARTITIONS_PER_STEP,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceTopicResponse,
    RecordError,
    decode_produce_request_in_steps,
    decode_small_produce_request,
    encode_produce_response,
)
from raftwerk.wire.types import LeaderIdAndEpoch

VERSIONS = range(MIN_VERSION, MAX_VERSION + 1)


def request_fields(rng: random.Random) -> dict[str, object]:
    return {
        "transactional_id": rng.choice((None, "", "tx-1")),
        "acks": rng.choice((-1, 0, 1)),
        "timeout": rng.randrange(100_000),
        "topic_data": [
            {
                "name": f"topic-{topic}",
                "topic_id": uuid.UUID(int=topic + 1),
                "partition_data": [
                    {"index": index, "records": rng.choice((None, b"", rng.randbytes(10), rng.randbytes(300)))}
                    for index in range(rng.randrange(4))
                ],
            }
            for topic in range(rng.randrange(4))
        ],
    }


Decode: TypeAlias = Callable[[int, Buffer], ProduceRequest]


def decode_small(version: int, body: Buffer) -> ProduceRequest:
    request = decode_small_produce_request(version, body)
    assert request is not None
    return request


def decode_large(version: int, body: Buffer) -> ProduceRequest:
    return run_at_once(decode_produce_request_in_steps(version, body, lambda size_bytes: None))


@pytest.mark.parametrize("decode", [decode_small, decode_large])
@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_read_as_the_schema_says(version: int, decode: Decode) -> None:
    for seed in range(20):
        fields = request_fields(random.Random(seed))
        body = codec.encode_request(ApiKey.PRODUCE, version, fields)
        expected = codec.decode_request(ApiKey.PRODUCE, version, body)
        request = decode(version, memoryview(b"header" + body)[6:])
        assert (request.acks, request.timeout_ms) == (expected.acks, expected.timeout)
        assert request.transactional_id == expected.transactional_id
        assert len(request.topics) == len(expected.topic_data)
        for topic, wanted in zip(request.topics, expected.topic_data):
            assert topic.name == wanted.get("name")
            assert topic.topic_id == wanted.get("topic_id")
            assert topic.partitions == [(row.index, row.records) for row in wanted.partition_data]


def test_records_are_slices_of_the_frame() -> None:
    fields = {"topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": b"abc"}]}]}
    frame = bytearray(codec.encode_request(ApiKey.PRODUCE, 9, fields))
    records = decode_small(9, memoryview(frame)).topics[0].partitions[0][1]
    assert records is not None
    records[0] = ord("X")
    assert b"Xbc" in frame


@pytest.mark.parametrize("decode", [decode_small, decode_large])
@pytest.mark.parametrize("version", VERSIONS)
def test_truncated_or_prolonged_requests_are_refused(version: int, decode: Decode) -> None:
    body = codec.encode_request(ApiKey.PRODUCE, version, request_fields(random.Random(7)))
    for size in range(len(body)):
        with pytest.raises(WireFormatError):
            decode(version, memoryview(body)[:size])
    with pytest.raises(WireFormatError):
        decode(version, body + b"\0")


@pytest.mark.parametrize("decode", [decode_small, decode_large])
@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_requests_raise_only_wire_format_error(version: int, decode: Decode) -> None:
    rng = random.Random(version)
    body = codec.encode_request(ApiKey.PRODUCE, version, request_fields(random.Random(3)))
    for _ in range(2000):
        damaged = bytearray(body)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.choice((0, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        try:
            decode(version, memoryview(damaged))
        except WireFormatError:
            pass


def result_rows(rng: random.Random) -> list[ProducePartitionResponse]:
    return [
        ProducePartitionResponse(
            partition=partition,
            error_code=rng.choice((0, 0, 3, 87)),
            base_offset=rng.randrange(1 << 40),
            log_append_time_ms=rng.choice((-1, 1_700_000_000_000)),
            log_start_offset=rng.randrange(100),
            record_errors=rng.choice(((), (RecordError(0, None), RecordError(5, "bad key")))),
            error_message=rng.choice((None, "", "because")),
            current_leader=rng.choice((None, LeaderIdAndEpoch(-1, -1), LeaderIdAndEpoch(2, 7))),
        )
        for partition in range(rng.randrange(4))
    ]


def row_fields(row: ProducePartitionResponse) -> dict[str, object]:
    leader = row.current_leader or LeaderIdAndEpoch(-1, -1)
    return {
        "index": row.partition,
        "error_code": row.error_code,
        "base_offset": row.base_offset,
        "log_append_time": row.log_append_time_ms,
        "log_start_offset": row.log_start_offset,
        "record_errors": [
            {"batch_index": index, "batch_index_error_message": message} for index, message in row.record_errors
        ],
        "error_message": row.error_message,
        "current_leader": leader._asdict(),
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_are_written_as_the_schema_says(version: int) -> None:
    for seed in range(40):
        rng = random.Random(seed)
        topics = [
            ProduceTopicResponse(f"topic-{topic}", uuid.UUID(int=topic), result_rows(rng))
            for topic in range(rng.randrange(4))
        ]
        endpoints = rng.choice(((), (NodeEndpoint(1, "host", 9092), NodeEndpoint(2, "host", 9093, "rack"))))
        wanted = {
            "responses": [
                {
                    "name": topic.name,
                    "topic_id": topic.topic_id,
                    "partition_responses": [row_fields(row) for row in topic.partitions],
                }
                for topic in topics
            ],
            "throttle_time": seed,
            "node_endpoints": [endpoint._asdict() for endpoint in endpoints],
        }
        body = encode_produce_response(version, topics, seed, endpoints)
        assert body == codec.encode_response(ApiKey.PRODUCE, version, wanted)


@pytest.mark.parametrize("topics", [1, 50])
def test_a_request_is_small_up_to_the_partitions_of_one_step(topics: int) -> None:
    partitions = PARTITIONS_PER_STEP // topics - 1
    for more in (0, 1):
        rows = [{"index": index, "records": None} for index in range(partitions + more)]
        fields = {"topic_data": [{"name": "t", "partition_data": rows}] * topics}
        body = codec.encode_request(ApiKey.PRODUCE, 9, fields)
        steps = 0
        counted: list[int] = []
        for _ in decode_produce_request_in_steps(9, body, counted.append):
            steps += 1
        assert (decode_small_produce_request(9, body) is None) == bool(more) == bool(steps)
        assert sum(counted) == topics * (partitions + more + 1) * PARTITION_BYTES
