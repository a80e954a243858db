"""How `raftwerk produce` reads lines from its standard input, and makes records of them."""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.cli.records import produce
from raftwerk.cli.records.produce import LineParser, LineReader


class Trickle(io.RawIOBase):
    """A stream that returns its bytes in the pieces in which they were written, as a pipe does."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = [piece for piece in pieces if piece]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self.pieces:
            return 0
        piece = self.pieces[0][: len(buffer)]
        self.pieces[0] = self.pieces[0][len(piece) :]
        if not self.pieces[0]:
            self.pieces.pop(0)
        buffer[: len(piece)] = piece
        return len(piece)


def read_all(pieces: list[bytes]) -> list[bytes]:
    reader = LineReader(Trickle(pieces))
    lines = []
    while chunk := reader.take():
        lines += chunk
    return lines


@given(st.lists(st.binary(max_size=12).map(lambda data: data.replace(b"\r", b""))))
def test_no_line_is_lost_wherever_the_pieces_end(pieces: list[bytes]) -> None:
    assert read_all(pieces) == [line.removesuffix(b"\n") for line in io.BytesIO(b"".join(pieces))]


def test_input_that_another_program_made_non_blocking_is_read_to_its_end() -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    with io.FileIO(read_end) as stream, ThreadPoolExecutor(1) as thread:
        reader = LineReader(stream)
        taken = thread.submit(reader.take)  # there is nothing yet
        with pytest.raises(TimeoutError):
            taken.result(0.1)
        os.write(write_end, b"one\n")
        assert taken.result(10) == [b"one"]
        os.write(write_end, b"two")
        os.close(write_end)
        assert [reader.take(), reader.take()] == [[b"two"], []]


def test_a_line_without_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "_LINE_BYTES_MAX", 100)
    assert read_all([b"a" * 60, b"a" * 40, b"\nb\n"]) == [b"a" * 100, b"b"]
    with pytest.raises(produce.LineTooLongError):
        read_all([b"b\n" + b"a" * 60, b"a" * 41, b"\n"])


def test_arguments_need_not_be_text() -> None:
    assert LineParser("\udcff", None, None).parse([b"a"]) == [(b"\xff", b"a")]
    parser = LineParser(None, "\udcfe", "\udcff")
    assert parser.parse([b"\xff\xfea"]) == [(None, b"a")]
    parser.parse([b"no separator"])
    assert parser.error.startswith("line 2 has no")


def test_a_hundred_thousand_lines() -> None:
    text = "".join(f"{i}\n" for i in range(100_000)).encode()
    assert len(read_all([text])) == 100_000


@pytest.mark.parametrize("pieces", [[b"a\r\nb\r\n"], [b"a\r", b"\nb"], [b"a\nb"]])
def test_line_ends(pieces: list[bytes]) -> None:
    assert read_all(pieces) == [b"a", b"b"]


def test_a_finished_line_is_returned_at_once() -> None:
    reader = LineReader(Trickle([b"one\ntw", b"o\n"]))
    assert reader.take() == [b"one"]
    assert reader.take() == [b"two"]


def test_a_line_without_its_separator_ends_the_input() -> None:
    parser = LineParser(None, ":", None)
    assert parser.parse([b"a:1", b":2"]) == [(b"a", b"1"), (b"", b"2")]
    assert parser.error == ""
    assert parser.parse([b"b:3:4", b"c" * 100, b"d:5"]) == [(b"b", b"3:4")]
    assert parser.error.startswith("line 4 has no ':' between key and value, it and the lines after it were not sent")
    assert len(parser.error) < 200


def test_keys_and_nulls() -> None:
    assert LineParser("k", None, None).parse([b"a:1", b""]) == [(b"k", b"a:1"), (b"k", b"")]
    assert LineParser(None, ":", "null").parse([b"a:null", b"null:b", b"null:null"]) == [
        (b"a", None),
        (None, b"b"),
        (None, None),
    ]
    assert LineParser(None, None, "").parse([b""]) == [(None, None)]
