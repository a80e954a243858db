"""JSON as it is split and read: any cut of a stream gives the same objects."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.rest.errors import RestError
from raftwerk.rest.json_text import JsonSplitter, json_bytes, parse_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.lists(st.dictionaries(st.text(), VALUES, max_size=3), max_size=5)


@given(OBJECTS, st.sampled_from([b"", b" ", b"\n", b"\r\n\t "]), st.data())
def test_a_stream_gives_its_objects_however_it_is_cut(objects: list[object], blank: bytes, data: st.DataObject) -> None:
    text = blank.join(json.dumps(one, ensure_ascii=data.draw(st.booleans())).encode() for one in objects) + blank
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    splitter = JsonSplitter(1 << 20)
    found = []
    for begin, end in zip([0, *cuts], [*cuts, len(text)]):
        found += [parse_json(one) for one in splitter.feed(text[begin:end])]
    splitter.finish()
    assert found == objects


@given(VALUES)
def test_what_is_written_is_read_again(value: object) -> None:
    assert json.loads(json_bytes(value)) == value


@pytest.mark.parametrize("text", [b"5", b'{"a": 1}]', b"[{}]", b'"a"', b"}", b"\xff"])
def test_what_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises(RestError, match="no sequence of JSON objects") as caught:
        list(JsonSplitter(100).feed(text))
    assert caught.value.status == 400


def test_objects_before_a_mistake_are_found() -> None:
    splitter = JsonSplitter(100)
    found = splitter.feed(b'{"a": 1} {"b": "}"} nonsense {}')
    assert [next(found), next(found)] == [b'{"a": 1}', b'{"b": "}"}']
    with pytest.raises(RestError):
        next(found)


def test_an_object_that_is_too_long_is_refused() -> None:
    splitter = JsonSplitter(100)
    with pytest.raises(RestError) as caught:
        list(splitter.feed(b'{"a": "' + b"x" * 100))
    assert caught.value.status == 413


def test_a_stream_that_ends_within_an_object_is_refused() -> None:
    splitter = JsonSplitter(100)
    assert list(splitter.feed(b'{"a": "\\')) == []
    with pytest.raises(RestError, match="ends within an object"):
        splitter.finish()


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"NaN", b"[Infinity]", b"[" * 100_000, b"\xff", b'"\\x"', b"1" * 5000, b"1e400", b"[1,]", b"{1: 2}"],
)
def test_what_is_no_json_is_told(text: bytes) -> None:
    with pytest.raises(RestError, match="no JSON") as caught:
        parse_json(text)
    assert caught.value.status == 400


def test_surrogates_are_written_as_escapes() -> None:
    assert json_bytes({"a": "\ud800"}) == b'{"a":"\\ud800"}'
