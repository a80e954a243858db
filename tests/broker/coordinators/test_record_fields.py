"""Fields of the coordinators' records, in both encodings: what is written is read, and no other bytes do harm."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.broker.coordinators.record_fields import EPOCH_MAX, BadRecord, FieldReader, FieldWriter

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FIELDS = st.one_of(
    st.tuples(st.just("int8"), st.integers(-(2**7), 2**7 - 1)),
    st.tuples(st.just("int16"), st.integers(-(2**15), 2**15 - 1)),
    st.tuples(st.just("int32"), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just("int64"), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just("uuid"), st.uuids()),
    st.tuples(st.just("string"), TEXTS),
    st.tuples(st.just("nullable_string"), st.none() | TEXTS),
    st.tuples(st.just("blob"), st.binary(max_size=200)),
    st.tuples(st.just("array"), st.lists(st.integers(-(2**15), 2**15 - 1), max_size=200)),
)
TAGS = st.dictionaries(st.integers(0, 1_000), st.binary(max_size=200), max_size=3)


def write(writer: FieldWriter, kind: str, value: Any) -> None:
    if kind == "array":
        writer.count(len(value))
        for one in value:
            writer.int16(one)
    else:
        getattr(writer, kind.removeprefix("nullable_"))(value)


def read(reader: FieldReader, kind: str) -> Any:
    return reader.array(reader.int16) if kind == "array" else getattr(reader, kind)()


@given(st.lists(FIELDS, max_size=6), TAGS, st.booleans())
def test_what_is_written_is_read_and_a_record_that_ends_early_is_bad(
    fields: list[tuple[str, Any]], tags: dict[int, bytes], compact: bool
) -> None:
    writer = FieldWriter(compact=compact)
    for kind, value in fields:
        write(writer, kind, value)
    data = bytes(writer.tagged(tags).data)

    def read_all(length: int) -> tuple[list[Any], dict[int, bytes]]:
        reader = FieldReader(b"before" + data[:length], compact=compact, position=6)
        return [read(reader, kind) for kind, _ in fields], reader.tags()

    assert read_all(len(data)) == ([value for _, value in fields], tags if compact else {})
    for length in range(len(data)):
        with pytest.raises(BadRecord):
            read_all(length)


def test_fields_are_written_as_apache_kafka_does() -> None:
    def written(*, compact: bool) -> str:
        writer = FieldWriter(compact=compact).int8(-2).int16(1).int32(-1).int64(2**40).uuid(UUID(int=7))
        return bytes(writer.string("ab").string(None).blob(b"xyz").count(2).null_array().tagged({3: b"t"}).data).hex()

    numbers = "fe" + "0001" + "ffffffff" + "0000010000000000" + f"{7:032x}"
    assert written(compact=False) == numbers + "00026162" + "ffff" + "0000000378797a" + "00000002" + "ffffffff"
    assert written(compact=True) == numbers + "036162" + "00" + "0478797a" + "03" + "00" + "01030174"
    assert bytes(FieldWriter(compact=True).tags().data) == b"\0"
    assert bytes(FieldWriter().tags().data) == b""


@pytest.mark.parametrize("compact", [False, True])
def test_what_is_null_is_read_as_empty_where_it_may_be_null(compact: bool) -> None:
    null = bytes(FieldWriter(compact=compact).null_array().data)
    assert FieldReader(null, compact=compact).array(lambda: 1) == []
    assert FieldReader(null, compact=compact).blob() == b""
    text = bytes(FieldWriter(compact=compact).string(None).data)
    assert FieldReader(text, compact=compact).nullable_string() is None
    with pytest.raises(BadRecord):
        FieldReader(text, compact=compact).string()


@pytest.mark.parametrize(
    ("value", "least", "is_good"),
    [
        (0, 0, True), (-1, 0, False), (-1, -1, True), (-2, -1, False), (EPOCH_MAX, 0, True), (EPOCH_MAX + 1, 0, False),
    ],
)  # fmt: skip
def test_an_epoch_that_no_group_can_have_is_bad(value: int, least: int, is_good: bool) -> None:
    """The next ones after it might not fit into the field."""
    reader = FieldReader(struct.pack(">i", value))
    if is_good:
        assert reader.epoch(least) == value
    else:
        with pytest.raises(BadRecord):
            reader.epoch(least)


def test_without_another_limit_an_epoch_is_not_negative() -> None:
    assert FieldReader(struct.pack(">i", 0)).epoch() == 0
    with pytest.raises(BadRecord):
        FieldReader(struct.pack(">i", -1)).epoch()


def test_a_text_that_the_plain_encoding_could_not_hold_is_bad_in_the_compact_one_too() -> None:
    """A record that was read must be written again, in whichever encoding: the plain one has 16 bits for a length."""
    for length, is_good in ((32_767, True), (32_768, False)):
        reader = FieldReader(bytes(FieldWriter(compact=True).string("x" * length).data), compact=True)
        if is_good:
            assert reader.string() == "x" * length
        else:
            with pytest.raises(BadRecord):
                reader.string()


def test_bytes_that_are_no_text_are_bad() -> None:
    with pytest.raises(BadRecord):
        FieldReader(b"\x00\x02\xff\xff").string()


@pytest.mark.parametrize("compact", [False, True])
def test_an_array_cannot_have_more_items_than_bytes(compact: bool) -> None:
    """A hostile record would else make a list of billions of items."""
    calls = 0

    def item() -> int:
        nonlocal calls
        calls += 1
        return calls

    def array(count: int) -> Callable[[], list[int]]:
        data = bytes(FieldWriter(compact=compact).count(count).data) + bytes(4)
        return lambda: FieldReader(data, compact=compact).array(item)

    with pytest.raises(BadRecord):
        array(5)()
    assert calls == 0
    assert array(4)() == [1, 2, 3, 4]


@pytest.mark.parametrize("length", [b"", b"\x80", b"\xff\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f"])
def test_a_length_that_ends_early_or_is_too_long_is_bad(length: bytes) -> None:
    for kind in ("nullable_string", "blob", "tags"):
        with pytest.raises(BadRecord):
            getattr(FieldReader(length, compact=True), kind)()
