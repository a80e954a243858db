"""Keys and values that are not what `raftwerk consume -s` was told."""

from __future__ import annotations

import json

import pytest

from raftwerk.cli.records.decoding import as_json, decode, line_of


@pytest.mark.parametrize(
    ("how", "data"),
    [
        pytest.param("json", b"[" * 100_000, id="too deep"),
        pytest.param("json", rb'{"a":"\ud83d"}', id="half of a pair of surrogates"),
        pytest.param("msgpack", b"\x81\xc4\x01a\x01", id="a key that is bytes"),
        pytest.param("msgpack", b"\xc7\x0c\xff\x00\x00\x00\x00\x7f" + b"\xff" * 7, id="a time after the year 9999"),
    ],
)
def test_what_cannot_be_decoded_or_shown_is_shown_as_text(how: str, data: bytes) -> None:
    text = data.decode("utf-8", "backslashreplace")
    assert decode(data, how) == text
    assert line_of(data, how) == text.encode()
    assert json.loads(as_json({"value": decode(data, how)})) == {"value": text}


def test_what_can_be_decoded_is() -> None:
    assert line_of(rb'{"a": "\ud83d\ude00"}', "json") == '{"a":"\U0001f600"}'.encode()
    assert line_of(b"\x81\xa1a\x01", "msgpack") == b'{"a":1}'
