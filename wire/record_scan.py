"""One pass over the records of a produced batch: whether they are what the batch's header says.

A broker moves batches as they came, so a record that no consumer can read would stick every consumer behind it. Apache
Kafka's leader therefore walks over every record (LogValidator, DefaultRecord.readFrom); so does ours. A walk in Python
takes microseconds a record, and a hundredth of that compiled: `_record_scan.c` is built where there is a C compiler
when the package is installed, and this module has the same in Python, for all others and as the oracle of the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from ..runtime.ports import Buffer


class Fault(IntEnum):
    """What is wrong with a record. The numbers are those of `_record_scan.c`."""

    NONE = 0
    CUT_OFF = 1
    """The body ends before the record does, or before the last record."""
    BAD_VARINT = 2
    """A number has more bytes than its type allows, or does not end within the record."""
    WRONG_LENGTH = 3
    """The record's fields end elsewhere than its length says."""
    WRONG_OFFSET_DELTA = 4
    """The offset delta is not the record's place in the batch."""
    BAD_SIZE = 5
    """A size is negative where it may not be, or larger than the record."""
    TRAILING_BYTES = 6
    """There are bytes after the last record."""


class RecordScan(NamedTuple):
    """What one pass found: the first fault with the index of its record, and facts about the records before it.

    Without a fault `record_index` is the number of records. Timestamp deltas are in ms from the batch's base
    timestamp, 0 where there is no record. `without_key` counts records whose key is null.
    """

    fault: int
    record_index: int
    timestamp_delta_min: int
    timestamp_delta_max: int
    without_key: int


def scan_records_in_python(records: Buffer, count: int) -> tuple[int, int, int, int, int]:
    """The fields of `RecordScan` for `count` records that fill the decompressed body `records`."""
    data = bytes(records)
    position, end = 0, len(data)
    oldest = newest = without_key = 0
    for index in range(count):
        try:
            position, timestamp_delta, has_key = _scan_record(data, position, end, index)
        except _FaultFound as found:
            return found.fault, index, oldest, newest, without_key
        oldest = timestamp_delta if index == 0 else min(oldest, timestamp_delta)
        newest = timestamp_delta if index == 0 else max(newest, timestamp_delta)
        without_key += not has_key
    fault = Fault.NONE if position == end else Fault.TRAILING_BYTES
    return fault, max(count, 0), oldest, newest, without_key


def list_records_in_python(
    records: Buffer, count: int, without_key: bool, oldest: int, newest: int, exempt: int, most: int
) -> list[tuple[int, int, int]]:
    """The rows of `list_records`, as tuples."""
    data = bytes(records)
    position, end = 0, len(data)
    found: list[tuple[int, int, int]] = []
    for index in range(count):
        if len(found) >= most:
            break
        try:
            position, timestamp_delta, has_key = _scan_record(data, position, end, index)
        except _FaultFound:
            break
        if (without_key and not has_key) or not (oldest <= timestamp_delta <= newest or timestamp_delta == exempt):
            found.append((index, timestamp_delta, int(has_key)))
    return found


class _FaultFound(Exception):
    def __init__(self, fault: Fault) -> None:
        self.fault = fault


def _scan_record(data: bytes, position: int, end: int, index: int) -> tuple[int, int, bool]:
    if position >= end:
        raise _FaultFound(Fault.CUT_OFF)
    size, position = _read_size(data, position, end)
    if size < 0:
        raise _FaultFound(Fault.BAD_SIZE)
    stop = position + size
    if stop > end:
        raise _FaultFound(Fault.CUT_OFF)
    if size == 0:
        raise _FaultFound(Fault.WRONG_LENGTH)
    timestamp_delta, position = _read_varint(data, position + 1, stop, _VARLONG_BYTES)
    offset_delta, position = _read_varint(data, position, stop, _VARINT_BYTES)
    if offset_delta != index:
        raise _FaultFound(Fault.WRONG_OFFSET_DELTA)
    key_length, position = _skip_bytes(data, position, stop, -1)
    _, position = _skip_bytes(data, position, stop, -1)
    headers, position = _read_varint(data, position, stop, _VARINT_BYTES)
    if headers < 0 or headers > stop - position:
        raise _FaultFound(Fault.BAD_SIZE)
    for _ in range(headers):
        _, position = _skip_bytes(data, position, stop, 0)
        _, position = _skip_bytes(data, position, stop, -1)
    if position != stop:
        raise _FaultFound(Fault.WRONG_LENGTH)
    return position, timestamp_delta, key_length >= 0


_VARINT_BYTES, _VARLONG_BYTES = 5, 10


def _read_size(data: bytes, position: int, end: int) -> tuple[int, int]:
    return _read_varint(data, position, end, _VARINT_BYTES)


def _read_varint(data: bytes, position: int, end: int, bytes_max: int) -> tuple[int, int]:
    """A zigzag varint, and the position after it. What exceeds the type's bits is cut off, as Java does it."""
    raw = shift = 0
    for at in range(position, min(position + bytes_max, end)):
        byte = data[at]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 0xFFFFFFFF if bytes_max == _VARINT_BYTES else 0xFFFFFFFFFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), at + 1
        shift += 7
    raise _FaultFound(Fault.BAD_VARINT)


def _skip_bytes(data: bytes, position: int, end: int, least: int) -> tuple[int, int]:
    length, position = _read_varint(data, position, end, _VARINT_BYTES)
    if length < least or length > end - position:
        raise _FaultFound(Fault.BAD_SIZE)
    return length, position + max(length, 0)


class ListedRecord(NamedTuple):
    """A record that `list_records` was asked for. The timestamp delta is in ms from the batch's base timestamp."""

    record_index: int
    timestamp_delta: int
    has_key: bool


try:
    from ._record_scan import list_records as _list
    from ._record_scan import scan_records as _scan
except ImportError:
    _list, _scan = list_records_in_python, scan_records_in_python

scan_compiled: bool = _scan is not scan_records_in_python
"""Whether the compiled pass is in use."""
SLOW_VALIDATION = (
    "records of produced batches are validated in Python, some microseconds for each: compiled code is missing"
)
"""What the operator is told where it is not."""
scan_fields: Callable[[Buffer, int], tuple[int, int, int, int, int]] = _scan
"""As `scan_records`, with a plain tuple as its result: for the path of every produced batch."""


def scan_records(records: Buffer, count: int) -> RecordScan:
    """Walk over the `count` records that the decompressed body of a batch should hold."""
    return RecordScan._make(_scan(records, count))


def list_records(
    records: Buffer, count: int, *, without_key: bool, oldest: int, newest: int, exempt: int, most: int
) -> list[ListedRecord]:
    """The first `most` records that have no key (where `without_key` is set) or a timestamp delta out of range.

    Deltas from `oldest` to `newest` are in range, and so is `exempt`; all three are numbers of 64 bits. Records from
    the first malformed one on are not listed.
    """
    rows = _list(records, count, without_key, oldest, newest, exempt, most)
    return [ListedRecord(index, timestamp_delta, bool(has_key)) for index, timestamp_delta, has_key in rows]
