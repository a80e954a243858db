"""Produce requests and responses, versions 3 to 13.

They do not go through `codec.py`, because all produced data passes here. The records of a request are slices of its
frame, and nothing is copied. Version 9 brought tagged fields, version 10 the current leader (KIP-951), and version 13
topic ids in place of names (KIP-516).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from ..runtime.incremental_work import PLAIN_STEP, Pace, Work
from ..runtime.ports import Buffer
from .errors import WireFormatError
from .frames import read_uvarint
from .primitives import (
    MALFORMED,
    NodeEndpoint,
    check_end,
    read_count,
    read_records,
    read_string,
    read_topic_key,
    skip_tags,
    write_count,
    write_node_endpoints_tags,
    write_string,
    write_tag,
    write_topic_key,
)
from .types import LeaderIdAndEpoch

MIN_VERSION = 3
MAX_VERSION = 13
_FIRST_FLEXIBLE = 9
_FIRST_TOPIC_ID = 13
PARTITIONS_PER_STEP = 256
_PARTITION_BYTES_MIN = 6
PARTITION_BYTES = 500
"""About what a partition of a request takes in memory, without its records and with its place in the answer."""

_INT32 = struct.Struct(">i")
_ACKS_TIMEOUT = struct.Struct(">hi")
_RESULT_V3 = struct.Struct(">ihqq")
_RESULT_V5 = struct.Struct(">ihqqq")
_PLAIN_V9 = struct.Struct(">ihqqqBBB")
_LEADER = struct.Struct(">iiB")
_NO_LEADER = LeaderIdAndEpoch(-1, -1)
_new_tuple: Any = tuple.__new__  # faster than calling the class of a NamedTuple


class ProduceTopic(NamedTuple):
    """Batches for one topic. Versions up to 12 have its name, later ones its id; the other one is None."""

    name: str | None
    topic_id: UUID | None
    partitions: list[tuple[int, memoryview | None]]


class ProduceRequest(NamedTuple):
    """A decoded Produce request. The records are slices of its frame."""

    acks: int
    timeout_ms: int
    transactional_id: str | None
    topics: list[ProduceTopic]


class RecordError(NamedTuple):
    """A record that was refused: its place in the batch, counted from 0, and the reason."""

    batch_index: int
    message: str | None


@dataclass(slots=True)
class ProducePartitionResponse:
    """The result for one partition. -1 stands for no offset and no time."""

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch | None = None


@dataclass(slots=True)
class ProduceTopicResponse:
    """The results for one topic, by name or by id as in the request."""

    name: str | None
    topic_id: UUID | None
    partitions: list[ProducePartitionResponse]


def decode_small_produce_request(version: int, data: Buffer) -> ProduceRequest | None:
    """The request with this body, or None if it names more partitions than are handled in one step.

    Raises `WireFormatError` when it is malformed.
    """
    # Most requests come here, so it does without a generator.
    view = memoryview(data)
    flexible, by_id = version >= _FIRST_FLEXIBLE, version >= _FIRST_TOPIC_ID
    read_partitions = _read_partitions_flexible if flexible else _read_partitions_legacy
    topics: list[ProduceTopic] = []
    left = PARTITIONS_PER_STEP
    try:
        transactional_id, acks, timeout_ms, topic_count, position = _read_head(view, flexible)
        for _ in range(topic_count):
            name, topic_id, position = read_topic_key(view, position, flexible, by_id)
            count, position = read_count(view, position, flexible, _PARTITION_BYTES_MIN)
            left -= count + 1
            if left < 0:
                return None
            partitions: list[tuple[int, memoryview | None]] = []
            position = read_partitions(view, position, count, partitions)
            topics.append(_new_tuple(ProduceTopic, (name, topic_id, partitions)))
            if flexible:
                position = position + 1 if view[position] == 0 else skip_tags(view, position)
        if flexible:
            position = position + 1 if view[position] == 0 else skip_tags(view, position)
    except MALFORMED as error:
        raise WireFormatError(f"malformed Produce request: {error}") from error
    check_end(position, view, "Produce request")
    return _new_tuple(ProduceRequest, (acks, timeout_ms, transactional_id, topics))  # type: ignore[no-any-return]


def decode_produce_request_in_steps(
    version: int, data: Buffer, count_bytes: Callable[[int], None]
) -> Work[ProduceRequest]:
    """The work to decode a request with any number of partitions. A step reads some hundred of them.

    `count_bytes` is called, at least once in each step, with the bytes of memory that partitions about to be read will
    take. Raises `WireFormatError` when the request is malformed.
    """
    view = memoryview(data)
    flexible, by_id = version >= _FIRST_FLEXIBLE, version >= _FIRST_TOPIC_ID
    read_partitions = _read_partitions_flexible if flexible else _read_partitions_legacy
    topics: list[ProduceTopic] = []
    in_step = 0
    try:
        transactional_id, acks, timeout_ms, topic_count, position = _read_head(view, flexible)
        for _ in range(topic_count):
            name, topic_id, position = read_topic_key(view, position, flexible, by_id)
            left, position = read_count(view, position, flexible, _PARTITION_BYTES_MIN)
            count_bytes((left + 1) * PARTITION_BYTES)
            partitions: list[tuple[int, memoryview | None]] = []
            topics.append(ProduceTopic(name, topic_id, partitions))
            in_step += left + 1
            while in_step > PARTITIONS_PER_STEP:
                size = min(left, PARTITIONS_PER_STEP)
                position = read_partitions(view, position, size, partitions)
                left -= size
                in_step = left
                yield PLAIN_STEP
                count_bytes(0)
            position = read_partitions(view, position, left, partitions)
            if flexible:
                position = skip_tags(view, position)
        if flexible:
            position = skip_tags(view, position)
    except MALFORMED as error:
        raise WireFormatError(f"malformed Produce request: {error}") from error
    check_end(position, view, "Produce request")
    return ProduceRequest(acks, timeout_ms, transactional_id, topics)


def _read_head(view: memoryview, flexible: bool) -> tuple[str | None, int, int, int, int]:
    """The transactional id, the acks, the time-out, the number of topics, and where they begin."""
    transactional_id, position = read_string(view, 0, flexible)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(view, position)
    topic_count, position = read_count(view, position + 6, flexible, 3)
    return transactional_id, acks, timeout_ms, topic_count, position


def _read_partitions_flexible(
    view: memoryview, position: int, count: int, partitions: list[tuple[int, memoryview | None]]
) -> int:
    # This loop runs for every produced batch, so it does without the helpers for each part.
    size = len(view)
    for _ in range(count):
        (partition,) = _INT32.unpack_from(view, position)
        length, position = read_uvarint(view, position + 4)
        records = None
        if length:
            stop = position + length - 1
            if stop > size:
                raise WireFormatError(f"record set of {length - 1} bytes with {size - position} left")
            records = view[position:stop]
            position = stop
        partitions.append((partition, records))
        position = position + 1 if view[position] == 0 else skip_tags(view, position)
    return position


def _read_partitions_legacy(
    view: memoryview, position: int, count: int, partitions: list[tuple[int, memoryview | None]]
) -> int:
    for _ in range(count):
        (partition,) = _INT32.unpack_from(view, position)
        records, position = read_records(view, position + 4, False)
        partitions.append((partition, records))
    return position


def encode_produce_response(
    version: int,
    topics: Sequence[ProduceTopicResponse],
    throttle_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """A response's body. `node_endpoints` are the addresses of the leaders in `current_leader` (from version 10 on)."""
    flexible, by_id = version >= _FIRST_FLEXIBLE, version >= _FIRST_TOPIC_ID
    write_partitions = _write_results_flexible if flexible else _write_results_legacy
    out = bytearray()
    write_count(out, len(topics), flexible)
    for topic in topics:
        write_topic_key(out, topic.name, topic.topic_id, flexible, by_id)
        write_count(out, len(topic.partitions), flexible)
        write_partitions(out, version, topic.partitions)
        if flexible:
            out.append(0)
    return _with_tail(out, version, throttle_ms, node_endpoints)


def encode_produce_response_in_steps(
    version: int, topics: Sequence[ProduceTopicResponse], throttle_ms: int, node_endpoints: Sequence[NodeEndpoint]
) -> Work[bytes]:
    """The work of `encode_produce_response`. A step writes some hundred partitions."""
    flexible, by_id = version >= _FIRST_FLEXIBLE, version >= _FIRST_TOPIC_ID
    write_partitions = _write_results_flexible if flexible else _write_results_legacy
    out = bytearray()
    pace = Pace()
    write_count(out, len(topics), flexible)
    for topic in topics:
        write_topic_key(out, topic.name, topic.topic_id, flexible, by_id)
        write_count(out, len(topic.partitions), flexible)
        for start in range(0, len(topic.partitions), PARTITIONS_PER_STEP):
            rows = topic.partitions[start : start + PARTITIONS_PER_STEP]
            write_partitions(out, version, rows)
            if pace.ends_step(len(rows)):
                yield PLAIN_STEP
        if flexible:
            out.append(0)
        if pace.ends_step():
            yield PLAIN_STEP
    return _with_tail(out, version, throttle_ms, node_endpoints)


def _with_tail(out: bytearray, version: int, throttle_ms: int, node_endpoints: Sequence[NodeEndpoint]) -> bytes:
    out += _INT32.pack(throttle_ms)
    if version >= _FIRST_FLEXIBLE:
        write_node_endpoints_tags(out, node_endpoints if version >= 10 else ())
    return bytes(out)


def _write_results_flexible(out: bytearray, version: int, rows: Sequence[ProducePartitionResponse]) -> None:
    pack = _PLAIN_V9.pack
    for row in rows:
        if row.error_code == 0 and row.current_leader is None and not row.record_errors and row.error_message is None:
            # No errors, no message, no tags.
            out += pack(row.partition, 0, row.base_offset, row.log_append_time_ms, row.log_start_offset, 1, 0, 0)
        else:
            _write_result_v5(out, row)
            _write_errors(out, row, flexible=True)
            if version >= 10 and (row.current_leader or _NO_LEADER) != _NO_LEADER:
                out.append(1)
                write_tag(out, 0, _LEADER.pack(*(row.current_leader or _NO_LEADER), 0))
            else:
                out.append(0)


def _write_result_v5(out: bytearray, row: ProducePartitionResponse) -> None:
    out += _RESULT_V5.pack(row.partition, row.error_code, row.base_offset, row.log_append_time_ms, row.log_start_offset)


def _write_errors(out: bytearray, row: ProducePartitionResponse, flexible: bool) -> None:
    write_count(out, len(row.record_errors), flexible)
    for batch_index, message in row.record_errors:
        out += _INT32.pack(batch_index)
        write_string(out, message, flexible)
        if flexible:
            out.append(0)
    write_string(out, row.error_message, flexible)


def _write_results_legacy(out: bytearray, version: int, rows: Sequence[ProducePartitionResponse]) -> None:
    for row in rows:
        if version < 5:
            out += _RESULT_V3.pack(row.partition, row.error_code, row.base_offset, row.log_append_time_ms)
            continue
        _write_result_v5(out, row)
        if version >= 8:
            _write_errors(out, row, flexible=False)
