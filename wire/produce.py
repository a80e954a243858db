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

from ..runtime.incremental_work import PLAIN_STEP, Work, run_at_once
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


def decode_produce_request(version: int, data: Buffer, offset: int = 0) -> ProduceRequest:
    """The request whose body starts at `offset` and ends with `data`. Raises `WireFormatError` when it is malformed."""
    return run_at_once(decode_produce_request_in_steps(version, data, offset))


def decode_produce_request_in_steps(
    version: int, data: Buffer, offset: int = 0, count: Callable[[int], None] | None = None
) -> Work[ProduceRequest]:
    """The work of `decode_produce_request`: one step, if the request names no more partitions than are read in one.

    `count` is called, at least once in each step, with the bytes of memory that partitions about to be read will take.
    """
    view = memoryview(data)
    flexible, by_id = version >= _FIRST_FLEXIBLE, version >= _FIRST_TOPIC_ID
    read_partitions = _read_partitions_flexible if flexible else _read_partitions_legacy
    partition_bytes = 6 if flexible else 8
    topics: list[ProduceTopic] = []
    in_step = 0
    try:
        transactional_id, position = read_string(view, offset, flexible)
        acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(view, position)
        topic_count, position = read_count(view, position + 6, flexible, 3)
        for _ in range(topic_count):
            name, topic_id, position = read_topic_key(view, position, flexible, by_id)
            left, position = read_count(view, position, flexible, partition_bytes)
            if count is not None:
                count((left + 1) * PARTITION_BYTES)
            partitions: list[tuple[int, memoryview | None]] = []
            topics.append(_new_tuple(ProduceTopic, (name, topic_id, partitions)))
            in_step += left + 1
            while in_step > PARTITIONS_PER_STEP:
                size = min(left, PARTITIONS_PER_STEP)
                position = read_partitions(view, position, size, partitions)
                left -= size
                in_step = left
                yield PLAIN_STEP
                if count is not None:
                    count(0)
            position = read_partitions(view, position, left, partitions)
            if flexible:
                position = position + 1 if view[position] == 0 else skip_tags(view, position)
        if flexible:
            position = position + 1 if view[position] == 0 else skip_tags(view, position)
    except MALFORMED as error:
        raise WireFormatError(f"malformed Produce request: {error}") from error
    check_end(position, view, "Produce request")
    return _new_tuple(ProduceRequest, (acks, timeout_ms, transactional_id, topics))  # type: ignore[no-any-return]


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
    return run_at_once(encode_produce_response_in_steps(version, topics, throttle_ms, node_endpoints))


def encode_produce_response_in_steps(
    version: int,
    topics: Sequence[ProduceTopicResponse],
    throttle_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> Work[bytes]:
    """The work of `encode_produce_response`."""
    flexible, by_id = version >= _FIRST_FLEXIBLE, version >= _FIRST_TOPIC_ID
    write_partitions = _write_results_flexible if flexible else _write_results_legacy
    out = bytearray()
    in_step = 0
    write_count(out, len(topics), flexible)
    for topic in topics:
        rows = topic.partitions
        write_topic_key(out, topic.name, topic.topic_id, flexible, by_id)
        write_count(out, len(rows), flexible)
        in_step += len(rows) + 1
        if in_step <= PARTITIONS_PER_STEP:
            write_partitions(out, version, rows)
        else:
            for start in range(0, len(rows), PARTITIONS_PER_STEP):
                write_partitions(out, version, rows[start : start + PARTITIONS_PER_STEP])
                yield PLAIN_STEP
            in_step = 0
        if flexible:
            out.append(0)
    out += _INT32.pack(throttle_ms)
    if flexible:
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
