"""The lines in which `raftwerk consume` prints records."""

from __future__ import annotations

import json

import pytest

from raftwerk.broker.groups.records.offset_and_classic_records import OffsetAndMetadata, offset_record
from raftwerk.cli.records.decoding import readable
from raftwerk.cli.records.formats import FormatError, Formatter, key_and_value, parse, unescaped
from raftwerk.cluster.client.consumer import Consumed
from raftwerk.wire.records import Record
from raftwerk.wire.types import TopicPartition

FULL = Consumed(3, Record(17, 1_357_017_300_000, b"N1", b"up", (("a", b"1"), ("b", None))))
NULLS = Consumed(0, Record(0, 5, None, None))
EMPTY = Consumed(0, Record(0, 5, b"", b""))


def line(text: str, consumed: Consumed = FULL, null: str = "null", how: str = "raw") -> bytes:
    return Formatter("flights", parse(text), how, null).line(consumed)


def test_every_field_as_kcat_prints_it() -> None:
    assert line(r"%t-%p@%o %k(%K)=%s(%S) %T %h%%\n") == b"flights-3@17 N1(2)=up(2) 1357017300000 a=1,b=null%\n"
    assert line(r"%R%s") == b"\x00\x00\x00\x02up"
    assert line(r"\x41\xff\t\r\\") == b"A\xff\t\r\\"
    assert line("é\n") == "é\n".encode()


def test_null_is_not_empty() -> None:
    assert line("%k=%s %K %S", NULLS) == b"null=null -1 -1"
    assert line("%k=%s %K %S", EMPTY) == b"= 0 0"
    assert line("%k=%s", NULLS, null="NULL") == b"NULL=NULL"
    pair = Formatter("t", key_and_value(":"), "raw", "null")
    assert [pair.line(one) for one in (NULLS, EMPTY)] == [b"null:null\n", b":\n"]


def test_a_separator_has_the_same_escapes_and_no_fields() -> None:
    assert Formatter("t", key_and_value(r"\t%s\x01é"), "raw", "null").line(EMPTY) == "\t%s\x01é\n".encode()
    assert unescaped("%") == b"%"
    with pytest.raises(FormatError, match="is not an escape"):
        key_and_value("\\")


def test_keys_and_values_are_decoded() -> None:
    assert line("%k=%s", how="hex") == b"4e31=7570"


@pytest.mark.parametrize("wrong", ["%q", "%", "\\q", "\\x4", "\\"])
def test_what_is_no_format(wrong: str) -> None:
    with pytest.raises(FormatError, match="s are "):
        parse(wrong)


def test_records_of_internal_topics_become_json() -> None:
    key, value = offset_record("g", TopicPartition("t", 3), OffsetAndMetadata(17))
    shown = readable("__consumer_offsets", Consumed(0, Record(5, 1000, key, value))).record
    assert (shown.offset, shown.timestamp) == (5, 1000)
    assert json.loads(shown.key or b"") == {"type": "offset", "group": "g", "topic": "t", "partition": 3}
    assert json.loads(shown.value or b"")["offset"] == 17
    assert readable("__consumer_offsets", Consumed(0, Record(5, 1000, key, None))).record.value is None
    strange = Consumed(0, Record(5, 1000, b"\x00\x63", b"?"))
    assert readable("__consumer_offsets", strange) is strange
