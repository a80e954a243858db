"""Keys and values that are not what `raftwerk consume -s` was told."""

from __future__ import annotations

import json

import pytest

from raftwerk.cli.records.decoding import json_of, line_of


@pytest.mark.parametrize(
    ("how", "data"),
    [
        pytest.param("json", b"[" * 100_000, id="too deep"),
        pytest.param("json", rb'{"a":"\ud83d"}', id="half of a pair of surrogates"),
        pytest.param("msgpack", b"\x81\xc4\x01a\x01", id="a key that is bytes"),
        pytest.param("msgpack", b"\xc7\x0c\xff\x00\x00\x00\x00\x7f" + b"\xff" * 7, id="a time after the year 9999"),
        pytest.param("json", b'{"a":[NaN]}', id="not a number"),
        pytest.param("json", b"-Infinity", id="infinity"),
        pytest.param("msgpack", b"\x91\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00", id="not a number of msgpack"),
    ],
)
def test_what_cannot_be_decoded_or_shown_is_shown_as_text(how: str, data: bytes) -> None:
    text = data.decode("utf-8", "backslashreplace")
    assert json.loads(json_of(data, how)) == text
    assert line_of(data, how) == text.encode()


def test_what_can_be_decoded_is() -> None:
    assert line_of(rb'{"a": "\ud83d\ude00"}', "json") == '{"a":"\U0001f600"}'.encode()
    assert line_of(b"\x81\xa1a\x01", "msgpack") == b'{"a":1}'


def test_numbers_are_those_of_the_record() -> None:
    """A number of 64-bit floating point would have other digits."""
    data = b'{"price": 12345678901234567.89, "rate": 1.10, "mass": 1e400, "id": ' + b"7" * 5000 + b', "at": [0 , -0.0]}'
    assert line_of(data, "json") == data.replace(b" ", b"")
    assert json_of(data, "json").encode() == data.replace(b" ", b"")


def test_blanks_and_quotes_in_strings_stay() -> None:
    data = rb'[ "a b", "\" [ 1 , 2 ]", "\\" , "\u0000 \/" ]'
    assert json.loads(json_of(data, "json")) == json.loads(data)
    assert json_of(data, "json") == r'["a b","\" [ 1 , 2 ]","\\","\u0000 /"]'


def test_null_and_single_values() -> None:
    assert [json_of(one, "json") for one in (None, b"null", b" 1.0 ", b'"a"')] == ["null", "null", "1.0", '"a"']
    assert [line_of(one, "json") for one in (None, b"null", b" 1.0 ", b'"a"')] == [b"", b"null", b"1.0", b"a"]
