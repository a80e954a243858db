"""The pass over a produced batch's records: by hand, and the compiled one against the one in Python."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raftwerk.wire.record_scan import (
    Fault,
    ListedRecord,
    RecordScan,
    list_records,
    list_records_in_python,
    scan_compiled,
    scan_records,
    scan_records_in_python,
)
from raftwerk.wire.records import BATCH_HEADER_SIZE, CorruptBatchError, NewRecord, encode_batch, iter_records

CONTENT = st.none() | st.binary(max_size=150)
RECORDS = st.lists(
    st.builds(
        NewRecord,
        CONTENT,
        CONTENT,
        st.lists(st.tuples(st.text(max_size=5), CONTENT), max_size=3).map(tuple),
        st.integers(-(2**62), 2**62),
    ),
    min_size=1,
    max_size=20,
)


def body(records: list[NewRecord]) -> bytes:
    return bytes(encode_batch(records)[BATCH_HEADER_SIZE:])


ONE = body([NewRecord(b"k", b"v", (("h", b"x"),), 5)])
"""Size, attributes, timestamp delta, offset delta, key, value, one header."""


@given(RECORDS)
def test_what_a_producer_writes_has_no_fault(records: list[NewRecord]) -> None:
    deltas = [record.timestamp - records[0].timestamp for record in records]
    without_key = sum(record.key is None for record in records)
    assert scan_records(body(records), len(records)) == (
        Fault.NONE,
        len(records),
        min(deltas),
        max(deltas),
        without_key,
    )


@given(RECORDS, st.integers(-2, 2))
def test_another_count_is_a_fault(records: list[NewRecord], more: int) -> None:
    scan = scan_records(body(records), len(records) + more)
    assert scan.fault == (Fault.TRAILING_BYTES if more < 0 else Fault.CUT_OFF if more else Fault.NONE)


@pytest.mark.parametrize(
    ("damaged", "fault"),
    [
        (b"", Fault.CUT_OFF),
        (ONE[:-1], Fault.CUT_OFF),
        (ONE + b"\0", Fault.TRAILING_BYTES),
        (b"\0", Fault.WRONG_LENGTH),
        (b"\x01", Fault.BAD_SIZE),
        (b"\xff\xff\xff\xff\xff\x01", Fault.BAD_VARINT),
        (b"\x80", Fault.BAD_VARINT),
        (ONE[:3] + b"\x02" + ONE[4:], Fault.WRONG_OFFSET_DELTA),
        (ONE[:4] + b"\x03" + ONE[5:], Fault.BAD_SIZE),
        (ONE[:4] + b"\x40" + ONE[5:], Fault.BAD_SIZE),
        (ONE[:8] + b"\x01" + ONE[9:], Fault.BAD_SIZE),
        (ONE[:8] + b"\x00" + ONE[9:], Fault.WRONG_LENGTH),
        (ONE[:9] + b"\x01" + ONE[10:], Fault.BAD_SIZE),
    ],
)
def test_each_fault(damaged: bytes, fault: Fault) -> None:
    assert scan_records(damaged, 1).fault == fault
    assert scan_records_in_python(damaged, 1)[0] == fault


def test_the_first_fault_is_told_by_its_index() -> None:
    three = body([NewRecord(b"k", b"v", (), 5), NewRecord(None, b"v", (), 3), NewRecord(b"k", None, (), 9)])
    assert scan_records(three, 3) == RecordScan(Fault.NONE, 3, -2, 4, 1)
    assert scan_records(three[:-1], 3) == RecordScan(Fault.CUT_OFF, 2, -2, 0, 1)


@given(st.binary(max_size=60), st.integers(-1, 5))
@example(b"\x0a\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", 1)
def test_the_compiled_pass_agrees_on_any_bytes(data: bytes, count: int) -> None:
    assert tuple(scan_records(data, count)) == scan_records_in_python(data, count)


@given(RECORDS, st.data())
def test_the_compiled_pass_agrees_on_damaged_batches(records: list[NewRecord], data: st.DataObject) -> None:
    damaged = bytearray(body(records))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    assert tuple(scan_records(damaged, len(records))) == scan_records_in_python(damaged, len(records))


@given(RECORDS, st.data())
def test_records_without_a_fault_can_be_read(records: list[NewRecord], data: st.DataObject) -> None:
    batch = encode_batch(records)
    at = data.draw(st.integers(BATCH_HEADER_SIZE, len(batch) - 1))
    batch[at] = data.draw(st.integers(0, 255))
    if scan_records(memoryview(batch)[BATCH_HEADER_SIZE:], len(records)).fault == Fault.NONE:
        try:
            assert len(list(iter_records(batch))) == len(records)
        except CorruptBatchError as error:
            assert "utf-8" in str(error)  # a header's key is text for clients only


def test_records_without_key_or_out_of_range_are_listed() -> None:
    keys = [b"k", None, b"k", None, b"k"]
    data = body([NewRecord(key, b"v", (), timestamp) for key, timestamp in zip(keys, (5, 6, 9, -1, 0), strict=True)])
    everything = {"oldest": -(2**63), "newest": 2**63 - 1, "exempt": 0}
    rows = list_records(data, 5, without_key=True, most=9, **everything)
    assert rows == [ListedRecord(1, 1, False), ListedRecord(3, -6, False)]
    assert list_records(data, 5, without_key=True, most=1, **everything) == rows[:1]
    in_range = {"oldest": -2, "newest": 3, "exempt": -6}
    assert list_records(data, 5, without_key=False, most=9, **in_range) == [
        ListedRecord(2, 4, True),
        ListedRecord(4, -5, True),
    ]


@given(st.binary(max_size=60) | RECORDS.map(body), st.integers(-1, 20), st.booleans(), st.data())
def test_the_compiled_list_agrees(data: bytes, count: int, without_key: bool, drawn: st.DataObject) -> None:
    numbers = st.integers(-(2**63), 2**63 - 1)
    oldest, newest, exempt = drawn.draw(numbers), drawn.draw(numbers), drawn.draw(numbers)
    most = drawn.draw(st.integers(0, 20))
    rows = list_records(data, count, without_key=without_key, oldest=oldest, newest=newest, exempt=exempt, most=most)
    assert [tuple(row) for row in rows] == list_records_in_python(
        data, count, without_key, oldest, newest, exempt, most
    )


def test_this_machine_has_the_compiled_pass() -> None:
    """The tests above would compare the pass in Python with itself."""
    if not scan_compiled:
        pytest.skip("no C compiler when the package was installed: the compiled pass is NOT tested")
