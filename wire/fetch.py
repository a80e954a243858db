"""Fetch requests and responses, versions 4 to 18, in both directions.

They do not go through `codec.py`, because they are half of all traffic: consumers fetch from brokers, and brokers from
each other. Records are never copied: a response is encoded to a list of buffers, and decoded to slices of its frame.

The versions brought: 5 log start offset; 7 sessions (KIP-227); 9 leader epochs (KIP-320); 11 rack (KIP-392); 12 tagged
fields, divergence (KIP-595); 13 topic ids (KIP-516); 15 replica state (KIP-903); 16 node endpoints (KIP-951);
17 replica directory (KIP-853); 18 the follower's high watermark (KIP-1166).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from ..runtime.files.file_slice import FileSlice, Sendable, in_memory
from ..runtime.incremental_work import PLAIN_STEP, Pace, Work, run_at_once
from ..runtime.ports import Buffer
from .codec import uuid_from_bytes
from .errors import WireFormatError
from .frames import write_uvarint
from .primitives import (
    MALFORMED,
    NodeEndpoint,
    check_end,
    read_count,
    read_node_endpoints,
    read_records,
    read_string,
    read_tags,
    read_text,
    read_topic_key,
    skip_tags,
    write_count,
    write_node_endpoints_tags,
    write_string,
    write_tag,
    write_topic_key,
)
from .types import EpochEndOffset, LeaderIdAndEpoch, SnapshotId

MIN_VERSION = 4
MAX_VERSION = 18
UNKNOWN_HIGH_WATERMARK = (1 << 63) - 1
"""The value that stands for no high watermark in a request (KIP-1166)."""

ROWS_PER_STEP = 256
PARTITION_BYTES = 400
"""About what a partition of a request takes in memory, with its place in the answer."""
_FORGOTTEN_BYTES = 60

_FIRST_FLEXIBLE = 12
_FIRST_TOPIC_ID = 13
# Records up to this size are copied, because a buffer of their own would cost more.
_INLINE_BYTES = 1024

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_UUID = struct.Struct("16s")
_REPLICA_STATE = struct.Struct(">iq")
_LIMITS = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_PARTITION_V4 = struct.Struct(">iqi")
_PARTITION_V5 = struct.Struct(">iqqi")
_PARTITION_V9 = struct.Struct(">iiqqi")
_PARTITION_V12 = struct.Struct(">iiqiqi")
_RESULT_V4 = struct.Struct(">ihqq")
_RESULT_V5 = struct.Struct(">ihqqq")
_PLAIN_V12 = struct.Struct(">ihqqqBi")
_EPOCH_END = struct.Struct(">iqB")
_LEADER = struct.Struct(">iiB")
_SNAPSHOT = struct.Struct(">qiB")
_ABORTED = struct.Struct(">qq")
_ERROR_SESSION = struct.Struct(">ihi")


@dataclass(slots=True)
class FetchPartition:
    """What is to be fetched from one partition. -1 stands for what is not known, or what the version does not have."""

    partition: int
    current_leader_epoch: int = -1
    fetch_offset: int = 0
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    max_bytes: int = 1 << 20
    replica_directory_id: UUID | None = None
    high_watermark: int = UNKNOWN_HIGH_WATERMARK


class FetchTopic(NamedTuple):
    """The partitions of one topic. Versions up to 12 have its name, later ones its id; the other one is None."""

    name: str | None
    topic_id: UUID | None
    partitions: list[FetchPartition]


class ForgottenTopic(NamedTuple):
    """Partitions of one topic that leave the fetch session."""

    name: str | None
    topic_id: UUID | None
    partitions: list[int]


@dataclass(slots=True)
class FetchRequest:
    """A Fetch request of a consumer (`replica_id` is -1) or of a broker."""

    replica_id: int = -1
    replica_epoch: int = -1
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 0x7FFFFFFF
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: list[FetchTopic] = field(default_factory=list)
    forgotten: list[ForgottenTopic] = field(default_factory=list)
    rack_id: str = ""
    cluster_id: str | None = None


class AbortedTransaction(NamedTuple):
    """An aborted transaction: a consumer with read_committed skips its records, from the first offset on."""

    producer_id: int
    first_offset: int


@dataclass(slots=True)
class FetchPartitionResponse:
    """The result for one partition. -1 stands for an unknown offset; `records` is None when there are none."""

    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    diverging_epoch: EpochEndOffset | None = None
    current_leader: LeaderIdAndEpoch | None = None
    snapshot_id: SnapshotId | None = None
    aborted_transactions: list[AbortedTransaction] | None = None
    preferred_read_replica: int = -1
    records: Sendable | None = None

    def records_in_memory(self) -> Buffer:
        """All records. A slice of a file is read from the disk; raises `OSError`."""
        records = self.records
        if isinstance(records, FileSlice):
            return in_memory((records,))
        return records or b""


class FetchTopicResponse(NamedTuple):
    """The results for one topic, by name or by id as in the request."""

    name: str | None
    topic_id: UUID | None
    partitions: list[FetchPartitionResponse]


@dataclass(slots=True)
class FetchResponse:
    """A Fetch response. `node_endpoints` are the addresses of the leaders in `current_leader`.

    `is_long` is not sent: the response has so many partitions that it is to be encoded in steps.
    """

    error_code: int = 0
    session_id: int = 0
    topics: list[FetchTopicResponse] = field(default_factory=list)
    node_endpoints: Sequence[NodeEndpoint] = ()
    throttle_ms: int = 0
    is_long: bool = False


# --- requests --------------------------------------------------------------------------------------------------------


def decode_fetch_request(version: int, data: Buffer, offset: int = 0) -> FetchRequest:
    """The request whose body starts at `offset` and ends with `data`. Raises `WireFormatError` when it is malformed."""
    return run_at_once(decode_fetch_request_in_steps(version, data, offset))


def decode_fetch_request_in_steps(
    version: int, data: Buffer, offset: int = 0, count_bytes: Callable[[int], None] | None = None
) -> Work[FetchRequest]:
    """The work of `decode_fetch_request`. A step reads some hundred partitions.

    `count_bytes` is called with the bytes of memory that partitions about to be read will take.
    """
    view = memoryview(data)
    try:
        request, end = yield from _decode_request(version, view, offset, count_bytes)
    except MALFORMED as error:
        raise WireFormatError(f"malformed Fetch request: {error}") from error
    check_end(end, view, "Fetch request")
    return request


def _decode_request(
    version: int, view: memoryview, position: int, count_bytes: Callable[[int], None] | None
) -> Work[tuple[FetchRequest, int]]:
    request = FetchRequest()
    if version < 15:
        request.replica_id, position = _INT32.unpack_from(view, position)[0], position + 4
    limits = _LIMITS.unpack_from(view, position)
    request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level = limits
    position += _LIMITS.size
    if version >= 7:
        request.session_id, request.session_epoch = _SESSION.unpack_from(view, position)
        position += 8
    flexible = version >= _FIRST_FLEXIBLE
    topic_count, position = read_count(view, position, flexible, 3 if flexible else 6)
    read_rows = _read_rows_v12 if flexible else _read_rows_legacy
    row_bytes = 33 if flexible else 28 if version >= 9 else 24 if version >= 5 else 16
    in_step = 0
    for _ in range(topic_count):
        name, topic_id, position = read_topic_key(view, position, flexible, version >= _FIRST_TOPIC_ID)
        left, position = read_count(view, position, flexible, row_bytes)
        partitions: list[FetchPartition] = []
        request.topics.append(FetchTopic(name, topic_id, partitions))
        if count_bytes is not None:
            count_bytes((left + 1) * PARTITION_BYTES)
        in_step += left + 1
        while in_step > ROWS_PER_STEP:
            count = min(left, ROWS_PER_STEP)
            position = read_rows(version, view, position, count, partitions)
            left -= count
            in_step = left
            yield PLAIN_STEP
        position = read_rows(version, view, position, left, partitions)
        if flexible:
            position = skip_tags(view, position)
    if version >= 7:
        position = yield from _read_forgotten(request, version, view, position, count_bytes)
    if version >= 11:
        request.rack_id, position = read_text(view, position, flexible)
    if flexible:
        position = _read_request_tags(request, version, view, position)
    return request, position


def _read_rows_legacy(
    version: int, view: memoryview, position: int, count: int, partitions: list[FetchPartition]
) -> int:
    layout = _PARTITION_V9 if version >= 9 else _PARTITION_V5 if version >= 5 else _PARTITION_V4
    size = layout.size
    for _ in range(count):
        row = layout.unpack_from(view, position)
        position += size
        epoch = row[1] if version >= 9 else -1
        start = row[-2] if version >= 5 else -1
        fetch_offset = row[2] if version >= 9 else row[1]
        partitions.append(FetchPartition(row[0], epoch, fetch_offset, -1, start, row[-1]))
    return position


def _read_rows_v12(version: int, view: memoryview, position: int, count: int, partitions: list[FetchPartition]) -> int:
    unpack_from = _PARTITION_V12.unpack_from
    for _ in range(count):
        partition = FetchPartition(*unpack_from(view, position))
        position += 32
        if view[position] == 0:
            position += 1
        else:
            position = _read_partition_tags(partition, version, view, position)
        partitions.append(partition)
    return position


def _read_partition_tags(partition: FetchPartition, version: int, view: memoryview, position: int) -> int:
    def on_tag(tag: int, start: int) -> int | None:
        if tag == 0 and version >= 17:
            partition.replica_directory_id = uuid_from_bytes(_UUID.unpack_from(view, start)[0])
            return start + 16
        if tag == 1 and version >= 18:
            partition.high_watermark = _INT64.unpack_from(view, start)[0]
            return start + 8
        return None

    return read_tags(view, position, on_tag)


def _read_forgotten(
    request: FetchRequest, version: int, view: memoryview, position: int, count_bytes: Callable[[int], None] | None
) -> Work[int]:
    flexible = version >= _FIRST_FLEXIBLE
    count, position = read_count(view, position, flexible, 3)
    in_step = 0
    for _ in range(count):
        name, topic_id, position = read_topic_key(view, position, flexible, version >= _FIRST_TOPIC_ID)
        left, position = read_count(view, position, flexible, 4)
        partitions: list[int] = []
        request.forgotten.append(ForgottenTopic(name, topic_id, partitions))
        if count_bytes is not None:
            count_bytes(PARTITION_BYTES + left * _FORGOTTEN_BYTES)
        in_step += left + 1
        while in_step > ROWS_PER_STEP:
            size = min(left, ROWS_PER_STEP)
            partitions += struct.unpack_from(f">{size}i", view, position)
            position += 4 * size
            left -= size
            in_step = left
            yield PLAIN_STEP
        partitions += struct.unpack_from(f">{left}i", view, position)
        position += 4 * left
        if flexible:
            position = skip_tags(view, position)
    return position


def _read_request_tags(request: FetchRequest, version: int, view: memoryview, position: int) -> int:
    def on_tag(tag: int, start: int) -> int | None:
        if tag == 0:
            request.cluster_id, end = read_string(view, start, True)
            return end
        if tag == 1 and version >= 15:
            request.replica_id, request.replica_epoch = _REPLICA_STATE.unpack_from(view, start)
            return skip_tags(view, start + _REPLICA_STATE.size)
        return None

    return read_tags(view, position, on_tag)


def encode_fetch_request(version: int, request: FetchRequest) -> bytes:
    """A request's body. Fields that the version does not have are left out."""
    flexible = version >= _FIRST_FLEXIBLE
    out = bytearray()
    if version < 15:
        out += _INT32.pack(request.replica_id)
    out += _LIMITS.pack(request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level)
    if version >= 7:
        out += _SESSION.pack(request.session_id, request.session_epoch)
    write_count(out, len(request.topics), flexible)
    for topic in request.topics:
        write_topic_key(out, topic.name, topic.topic_id, flexible, version >= _FIRST_TOPIC_ID)
        write_count(out, len(topic.partitions), flexible)
        if flexible:
            _write_partitions_v12(out, version, topic.partitions)
        else:
            _write_partitions_legacy(out, version, topic.partitions)
    if version >= 7:
        _write_forgotten(out, version, request.forgotten)
    if version >= 11:
        write_string(out, request.rack_id, flexible)
    if flexible:
        _write_request_tags(out, version, request)
    return bytes(out)


def _write_partitions_legacy(out: bytearray, version: int, partitions: Sequence[FetchPartition]) -> None:
    for row in partitions:
        if version >= 9:
            out += _PARTITION_V9.pack(
                row.partition, row.current_leader_epoch, row.fetch_offset, row.log_start_offset, row.max_bytes
            )
        elif version >= 5:
            out += _PARTITION_V5.pack(row.partition, row.fetch_offset, row.log_start_offset, row.max_bytes)
        else:
            out += _PARTITION_V4.pack(row.partition, row.fetch_offset, row.max_bytes)


def _write_partitions_v12(out: bytearray, version: int, partitions: Sequence[FetchPartition]) -> None:
    pack = _PARTITION_V12.pack
    for row in partitions:
        out += pack(
            row.partition,
            row.current_leader_epoch,
            row.fetch_offset,
            row.last_fetched_epoch,
            row.log_start_offset,
            row.max_bytes,
        )
        directory_id = row.replica_directory_id if version >= 17 else None
        high_watermark = row.high_watermark if version >= 18 else UNKNOWN_HIGH_WATERMARK
        if directory_id is None and high_watermark == UNKNOWN_HIGH_WATERMARK:
            out.append(0)
            continue
        out.append((directory_id is not None) + (high_watermark != UNKNOWN_HIGH_WATERMARK))
        if directory_id is not None:
            write_tag(out, 0, directory_id.bytes)
        if high_watermark != UNKNOWN_HIGH_WATERMARK:
            write_tag(out, 1, _INT64.pack(high_watermark))
    out.append(0)


def _write_forgotten(out: bytearray, version: int, topics: Sequence[ForgottenTopic]) -> None:
    flexible = version >= _FIRST_FLEXIBLE
    write_count(out, len(topics), flexible)
    for name, topic_id, partitions in topics:
        write_topic_key(out, name, topic_id, flexible, version >= _FIRST_TOPIC_ID)
        write_count(out, len(partitions), flexible)
        out += struct.pack(f">{len(partitions)}i", *partitions)
        if flexible:
            out.append(0)


def _write_request_tags(out: bytearray, version: int, request: FetchRequest) -> None:
    tags: list[tuple[int, Buffer]] = []
    if request.cluster_id is not None:
        cluster_id = bytearray()
        write_string(cluster_id, request.cluster_id, True)
        tags.append((0, cluster_id))
    if version >= 15 and (request.replica_id != -1 or request.replica_epoch != -1):
        tags.append((1, _REPLICA_STATE.pack(request.replica_id, request.replica_epoch) + b"\0"))
    out.append(len(tags))
    for tag, content in tags:
        write_tag(out, tag, content)


# --- responses -------------------------------------------------------------------------------------------------------


class EncodedTopics(NamedTuple):
    """Topics of a response whose bytes are there already."""

    topic_count: int
    buffers: list[Sendable]


def encode_topics_in_steps(version: int, topics: Sequence[FetchTopicResponse]) -> Work[EncodedTopics]:
    """The work to encode topics of a response. A step writes some hundred partitions."""
    flexible = version >= _FIRST_FLEXIBLE
    write_partitions = _write_results_v12 if flexible else _write_results_legacy
    buffers: list[Sendable] = []
    out, pace = bytearray(), Pace()
    for topic in topics:
        write_topic_key(out, topic.name, topic.topic_id, flexible, version >= _FIRST_TOPIC_ID)
        write_count(out, len(topic.partitions), flexible)
        for start in range(0, len(topic.partitions), ROWS_PER_STEP):
            rows = topic.partitions[start : start + ROWS_PER_STEP]
            out = write_partitions(buffers, out, version, rows)
            if pace.ends_step(len(rows)):
                yield PLAIN_STEP
        if flexible:
            out.append(0)
        if pace.ends_step():
            yield PLAIN_STEP
    return EncodedTopics(len(topics), [*buffers, out])


def encode_fetch_response(version: int, response: FetchResponse, last: EncodedTopics | None = None) -> list[Sendable]:
    """A response's body, in parts that are sent in this order; the `last` topics follow those of `response`.

    Large records are not copied.
    """
    flexible = version >= _FIRST_FLEXIBLE
    buffers: list[Sendable] = []
    out = bytearray(_INT32.pack(response.throttle_ms))
    if version >= 7:
        out += _INT16.pack(response.error_code)
        out += _INT32.pack(response.session_id)
    write_count(out, len(response.topics) + (0 if last is None else last.topic_count), flexible)
    write_partitions = _write_results_v12 if flexible else _write_results_legacy
    for topic in response.topics:
        write_topic_key(out, topic.name, topic.topic_id, flexible, version >= _FIRST_TOPIC_ID)
        write_count(out, len(topic.partitions), flexible)
        out = write_partitions(buffers, out, version, topic.partitions)
        if flexible:
            out.append(0)
    if last is not None:
        buffers += (out, *last.buffers)
        out = bytearray()
    if flexible:
        write_node_endpoints_tags(out, response.node_endpoints if version >= 16 else ())
    if out:
        buffers.append(out)
    return buffers


def _write_results_v12(
    buffers: list[Sendable], out: bytearray, _version: int, partitions: Sequence[FetchPartitionResponse]
) -> bytearray:
    for row in partitions:
        if row.aborted_transactions is None:
            out += _PLAIN_V12.pack(
                row.partition,
                row.error_code,
                row.high_watermark,
                row.last_stable_offset,
                row.log_start_offset,
                0,
                row.preferred_read_replica,
            )
        else:
            _write_result_aborted_v12(out, row, row.aborted_transactions)
        # Where there are no records, the field is empty and not null, because some clients do not accept null.
        records = row.records or b""
        write_uvarint(out, len(records) + 1)
        if not isinstance(records, FileSlice) and len(records) <= _INLINE_BYTES:
            out += records
        else:
            buffers += (out, records)
            out = bytearray()
        if row.diverging_epoch is None and row.current_leader is None and row.snapshot_id is None:
            out.append(0)
        else:
            _write_result_tags(out, row)
    return out


def _write_result_aborted_v12(
    out: bytearray, row: FetchPartitionResponse, aborted: Sequence[AbortedTransaction]
) -> None:
    out += _RESULT_V5.pack(
        row.partition, row.error_code, row.high_watermark, row.last_stable_offset, row.log_start_offset
    )
    write_uvarint(out, len(aborted) + 1)
    for producer_id, first_offset in aborted:
        out += _ABORTED.pack(producer_id, first_offset)
        out.append(0)
    out += _INT32.pack(row.preferred_read_replica)


def _write_result_tags(out: bytearray, row: FetchPartitionResponse) -> None:
    tags = []
    if row.diverging_epoch is not None and row.diverging_epoch != (-1, -1):
        tags.append((0, _EPOCH_END.pack(*row.diverging_epoch, 0)))
    if row.current_leader is not None and row.current_leader != (-1, -1):
        tags.append((1, _LEADER.pack(*row.current_leader, 0)))
    if row.snapshot_id is not None and row.snapshot_id != (-1, -1):
        tags.append((2, _SNAPSHOT.pack(*row.snapshot_id, 0)))
    out.append(len(tags))
    for tag, content in tags:
        write_tag(out, tag, content)


def _write_results_legacy(
    buffers: list[Sendable], out: bytearray, version: int, partitions: Sequence[FetchPartitionResponse]
) -> bytearray:
    for row in partitions:
        out += _RESULT_V4.pack(row.partition, row.error_code, row.high_watermark, row.last_stable_offset)
        if version >= 5:
            out += _INT64.pack(row.log_start_offset)
        aborted = row.aborted_transactions
        out += _INT32.pack(-1 if aborted is None else len(aborted))
        for producer_id, first_offset in aborted or ():
            out += _ABORTED.pack(producer_id, first_offset)
        if version >= 11:
            out += _INT32.pack(row.preferred_read_replica)
        records = row.records or b""
        out += _INT32.pack(len(records))
        if not isinstance(records, FileSlice) and len(records) <= _INLINE_BYTES:
            out += records
        else:
            buffers += (out, records)
            out = bytearray()
    return out


def decode_fetch_response(version: int, data: Buffer, offset: int = 0) -> FetchResponse:
    """The response whose body starts at `offset` and ends with `data`. Its records are slices of `data`.

    Raises `WireFormatError` when it is malformed.
    """
    view = memoryview(data)
    try:
        response, end = _decode_response(version, view, offset)
    except MALFORMED as error:
        raise WireFormatError(f"malformed Fetch response: {error}") from error
    check_end(end, view, "Fetch response")
    return response


def _decode_response(version: int, view: memoryview, position: int) -> tuple[FetchResponse, int]:
    response = FetchResponse()
    if version >= 7:
        response.throttle_ms, response.error_code, response.session_id = _ERROR_SESSION.unpack_from(view, position)
        position += 10
    else:
        response.throttle_ms, position = _INT32.unpack_from(view, position)[0], position + 4
    flexible = version >= _FIRST_FLEXIBLE
    count, position = read_count(view, position, flexible, 6)
    for _ in range(count):
        name, topic_id, position = read_topic_key(view, position, flexible, version >= _FIRST_TOPIC_ID)
        size, position = read_count(view, position, flexible, 30)
        partitions = []
        for _ in range(size):
            row, position = _read_result(version, view, position)
            partitions.append(row)
        if flexible:
            position = skip_tags(view, position)
        response.topics.append(FetchTopicResponse(name, topic_id, partitions))
    if flexible:
        position = _read_response_tags(response, version, view, position)
    return response, position


def _read_result(version: int, view: memoryview, position: int) -> tuple[FetchPartitionResponse, int]:
    flexible = version >= _FIRST_FLEXIBLE
    layout = _RESULT_V5 if version >= 5 else _RESULT_V4
    row = FetchPartitionResponse(*layout.unpack_from(view, position))
    row.aborted_transactions, position = _read_aborted(view, position + layout.size, flexible)
    if version >= 11:
        row.preferred_read_replica, position = _INT32.unpack_from(view, position)[0], position + 4
    row.records, position = read_records(view, position, flexible)
    if flexible:
        position = position + 1 if view[position] == 0 else _read_result_tags(row, view, position)
    return row, position


def _read_aborted(view: memoryview, position: int, flexible: bool) -> tuple[list[AbortedTransaction] | None, int]:
    null = view[position] == 0 if flexible else _INT32.unpack_from(view, position)[0] == -1
    if null:
        return None, position + (1 if flexible else 4)
    count, position = read_count(view, position, flexible, 16)
    aborted = []
    for _ in range(count):
        aborted.append(AbortedTransaction(*_ABORTED.unpack_from(view, position)))
        position += 16
        if flexible:
            position = skip_tags(view, position)
    return aborted, position


def _read_result_tags(row: FetchPartitionResponse, view: memoryview, position: int) -> int:
    def on_tag(tag: int, start: int) -> int | None:
        if tag == 0:
            row.diverging_epoch = EpochEndOffset(*_EPOCH_END.unpack_from(view, start)[:2])
            return skip_tags(view, start + 12)
        if tag == 1:
            row.current_leader = LeaderIdAndEpoch(*_LEADER.unpack_from(view, start)[:2])
            return skip_tags(view, start + 8)
        if tag == 2:
            row.snapshot_id = SnapshotId(*_SNAPSHOT.unpack_from(view, start)[:2])
            return skip_tags(view, start + 12)
        return None

    return read_tags(view, position, on_tag)


def _read_response_tags(response: FetchResponse, version: int, view: memoryview, position: int) -> int:
    def on_tag(tag: int, start: int) -> int | None:
        if tag == 0 and version >= 16:
            response.node_endpoints, end = read_node_endpoints(view, start)
            return end
        return None

    return read_tags(view, position, on_tag)
