"""The codec in steps against the codec at once, for every request and response of every version."""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from support.wire import kio_oracle as oracle

from raftwerk.broker.network.decoded_memory import DecodedItems, DecodedMemory
from raftwerk.broker.network.incremental_codec import (
    FREED_PER_STEP,
    ResponseTooLargeError,
    decode_request_in_steps,
    encode_response_in_steps,
    free_in_steps,
)
from raftwerk.runtime.incremental_work import ITEMS_PER_STEP, run_at_once
from raftwerk.wire import codec, schemas
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import WireFormatError

NOT_COUNTED = DecodedItems(DecodedMemory(1 << 40), None, 0, lambda items: None)
REQUESTS = oracle.all_entities("request")
RESPONSES = oracle.all_entities("response")


@pytest.mark.parametrize("seed", range(3))
def test_requests_are_decoded_as_at_once_whole_and_damaged(seed: int) -> None:
    rng = random.Random(seed)
    for name, version, kind, entity in REQUESTS:
        key = ApiKey[name.upper()]
        fields = oracle.random_fields(schemas.load_api_schema(key, version, kind), entity, rng)
        data = bytearray(codec.encode_request(key, version, fields))
        for damaged in (False, True):
            for _ in range(min(len(data), 4) if damaged else 0):
                data[rng.randrange(len(data))] = rng.randrange(256)
            try:
                expected = codec.decode_request(key, version, memoryview(data))
            except WireFormatError:
                with pytest.raises(WireFormatError):
                    run_at_once(decode_request_in_steps(key, version, memoryview(data), NOT_COUNTED))
            else:
                found = run_at_once(decode_request_in_steps(key, version, memoryview(data), NOT_COUNTED))
                assert codec.encode_request(key, version, found) == codec.encode_request(key, version, expected)


@pytest.mark.parametrize("seed", range(3))
def test_responses_are_encoded_as_at_once(seed: int) -> None:
    rng = random.Random(seed)
    for name, version, kind, entity in RESPONSES:
        key = ApiKey[name.upper()]
        fields = oracle.random_fields(schemas.load_api_schema(key, version, kind), entity, rng)
        data = codec.encode_response(key, version, fields)
        for values in (fields, codec.decode_response(key, version, memoryview(data))):
            assert run_at_once(encode_response_in_steps(key, version, values)) == data


def test_long_arrays_are_done_in_steps_however_they_are_nested() -> None:
    topics = [{"name": "t", "partitions": [{"partition_index": n} for n in range(10)]} for _ in range(1000)]
    data = codec.encode_request(ApiKey.LIST_OFFSETS, 6, {"topics": topics})
    assert (
        len(list(decode_request_in_steps(ApiKey.LIST_OFFSETS, 6, memoryview(data), NOT_COUNTED)))
        == 11_000 // ITEMS_PER_STEP
    )
    assert len(list(encode_response_in_steps(ApiKey.LIST_OFFSETS, 6, {"topics": topics}))) == 11_000 // ITEMS_PER_STEP


@pytest.mark.parametrize("version", [5, 7])
def test_an_array_that_many_rows_share_is_encoded_once(version: int) -> None:
    many, few = [_config_row("a"), _config_row("b")] * 20, [_config_row("c")]
    topics = [_topic_row(f"t{n}", few if n % 100 == 50 else many) for n in range(1000)]
    found, steps = _encode(version, topics)
    assert found == codec.encode_response(ApiKey.CREATE_TOPICS, version, {"topics": topics})
    assert steps < 1000 * len(many) // ITEMS_PER_STEP // 10
    assert _encode(version, [_topic_row(f"t{n}", list(many)) for n in range(1000)])[1] >= 1000 * 41 // ITEMS_PER_STEP


def test_arrays_that_are_copied_count_towards_the_limit_of_a_response() -> None:
    rows = [_config_row("x" * 30_000)] * 100
    with pytest.raises(ResponseTooLargeError):
        _encode(5, [_topic_row(f"t{n}", rows) for n in range(100)])


def _encode(version: int, topics: list[Any]) -> tuple[bytearray, int]:
    work, steps = encode_response_in_steps(ApiKey.CREATE_TOPICS, version, {"topics": topics}), 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value, steps
        steps += 1


def _topic_row(name: str, configs: list[Any]) -> dict[str, Any]:
    row = {"name": name, "error_code": 0, "error_message": None, "num_partitions": 1, "replication_factor": 1}
    return {**row, "topic_id": UUID(int=1), "topic_config_error_code": 0, "configs": configs}


def _config_row(value: str) -> dict[str, Any]:
    return {"name": "a", "value": value, "read_only": False, "config_source": 5, "is_sensitive": False}


def test_an_array_that_many_rows_share_is_freed_once() -> None:
    shared = [codec.Struct({"index": n}) for n in range(50)]
    values: list[Any] = [codec.Struct({"partitions": shared}) for _ in range(2000)]
    del shared
    assert len(list(free_in_steps(values))) <= 2 * 2000 // FREED_PER_STEP


@pytest.mark.parametrize("rows", [lambda items: {"topics": items}, lambda items: codec.Struct({"topics": items})])
def test_a_long_array_is_freed_some_items_a_step(rows: Callable[[list[Any]], Any]) -> None:
    topics = [codec.Struct({"partitions": [codec.Struct({"index": n})]}) for n in range(20_000)]
    kept = topics[7]
    left = [weakref.ref(one) for topic in topics for one in (topic, topic.partitions[0])]
    values = [rows([{"topics": topics}])]
    del topics
    work = free_in_steps(values)
    for _ in work:
        before = len(left)
        left = [one for one in left if one() is not None]
        assert before - len(left) <= FREED_PER_STEP
    assert [one() for one in left] == [kept, kept.partitions[0]]
    assert kept == {"partitions": [{"index": 7}]}
