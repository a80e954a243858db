"""The body of a request, as ASGI hands it out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from raftwerk.runtime.http.request_body import BodyTooLongError, ClientGoneError, read_body

GONE = {"type": "http.disconnect"}


def part(data: bytes, *, more: bool = False) -> Mapping[str, Any]:
    return {"type": "http.request", "body": data, "more_body": more}


def read(*messages: Mapping[str, Any], max_bytes: int = 4) -> bytes:
    left = iter(messages)

    async def receive() -> Mapping[str, Any]:
        return next(left)

    return asyncio.run(read_body(receive, max_bytes))


def test_the_parts_are_put_together() -> None:
    assert read(part(b"ab", more=True), part(b"", more=True), part(b"cd"), GONE) == b"abcd"
    assert read({"type": "http.request"}) == b""


def test_a_long_body_is_not_read_to_its_end() -> None:
    with pytest.raises(BodyTooLongError):
        read(part(b"abc", more=True), part(b"de", more=True))


def test_a_client_that_goes_is_told_apart_from_a_body_that_ends() -> None:
    with pytest.raises(ClientGoneError):
        read(part(b"ab", more=True), GONE)
