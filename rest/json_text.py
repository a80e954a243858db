"""JSON as the proxy reads and writes it: UTF-8, no numbers beyond JSON, and objects one after the other in a stream."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from .errors import BAD_REQUEST, RestError

_MARKS = re.compile(rb'["\\{}\[\]]')
_NOT_BLANK = re.compile(rb"[^ \t\r\n]")
_BLANKS = b" \t\r\n"
_SHOWN_CHARACTERS = 40


def parse_json(data: bytes) -> Any:
    """The value that the bytes stand for. Raises `RestError` with the place of a mistake."""
    try:
        return json_value(data)
    except UnicodeDecodeError as error:
        raise RestError(BAD_REQUEST, f"The body is no JSON: byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise RestError(BAD_REQUEST, "The body is no JSON that is taken: it is nested too deeply") from None
    except ValueError as error:
        raise RestError(BAD_REQUEST, f"The body is no JSON: {str(error)[:200]}") from None


def json_value(data: bytes) -> Any:
    """The value that the bytes stand for. Raises `ValueError`, and `RecursionError` for one nested too deeply."""
    return json.loads(data.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite)


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        raise ValueError(f"{text[:40]} is too large a number")
    return found


def json_bytes(value: object) -> bytes:
    """The value as compact JSON in UTF-8. Raises `ValueError` for a number that JSON has not."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace")  # of a surrogate, which is an escape of JSON, too


class JsonSplitter:
    """Splits a stream of bytes into JSON objects that follow each other, with blanks between them or without.

    It looks at each byte once, and keeps at most one object of `max_bytes`. What is left of the stream after a
    mistake cannot be split, since nobody knows where the next object begins.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._data = bytearray()
        self._depth = 0
        self._is_in_string = False
        self._scanned = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take in bytes, and yield the objects that are complete. Raises `RestError` where no object begins."""
        self._data += data
        while (cut := self._end()) is not None:
            found = bytes(self._data[:cut])
            del self._data[:cut]
            self._scanned = 0
            yield found
        if len(self._data) > self._max_bytes:
            raise RestError(413, f"A record has more than {self._max_bytes:,} bytes")

    def finish(self) -> None:
        """Raise `RestError` when the stream has ended within an object."""
        if self._data.strip(_BLANKS):
            raise RestError(BAD_REQUEST, "The body is no JSON: it ends within an object")

    def _end(self) -> int | None:
        """Where the first object of the data ends; None if it is not complete."""
        if not self._depth:
            begin = _NOT_BLANK.search(self._data)
            del self._data[: len(self._data) if begin is None else begin.start()]
            if begin is None:
                return None
            if self._data[0] != ord("{"):
                shown = self._data[:_SHOWN_CHARACTERS].decode("utf-8", "replace")
                raise RestError(BAD_REQUEST, f"The body is no sequence of JSON objects: {shown!r}")
        at = self._scanned
        while (mark := _MARKS.search(self._data, at)) is not None:
            at = mark.end()
            found = mark.group()
            if found == b"\\":
                if at == len(self._data):  # the escaped character comes with the next bytes
                    at -= 1
                    break
                at += self._is_in_string
            elif found == b'"':
                self._is_in_string = not self._is_in_string
            elif not self._is_in_string:
                self._depth += 1 if found in b"{[" else -1
                if not self._depth:
                    return at
        else:
            at = len(self._data)
        self._scanned = at
        return None
