"""Reads the pages of docs/: fenced blocks, what they need, and what their commands should print."""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
_BLOCK = re.compile(r"(?:<!-- needs: (\w+) -->\n)?```(\w+)\n(.*?)```", re.S)
_END = "__end of command__"


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: str
    line: int
    language: str
    text: str
    needs: str = ""


def blocks(page: str) -> list[Block]:
    """The blocks of a page of docs/, in their order."""
    text = (DOCS / page).read_text()
    return [
        Block(page, text.count("\n", 0, found.start(3)) + 1, found[2], found[3], found[1] or "")
        for found in _BLOCK.finditer(text)
    ]


def commands(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Each `$ command` of a console block with the lines that are to follow."""
    command: str | None = None
    expected: list[str] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            if command is not None:
                yield command, expected
            command, expected = line[2:], []
        else:
            expected.append(line)
    if command is not None:
        yield command, expected


def matches(expected: Sequence[str], told: Sequence[str]) -> bool:
    """Whether the output is as expected; `...` stands for the rest of a line, or for any number of lines."""
    if not expected:
        return not told
    if expected[0] == "...":
        return any(matches(expected[1:], told[skipped:]) for skipped in range(len(told) + 1))
    pattern = ".*".join(re.escape(part) for part in expected[0].split("..."))
    return bool(told) and re.fullmatch(pattern, told[0]) is not None and matches(expected[1:], told[1:])


class Shell:
    """A shell that keeps its variables from one command to the next, as a reader's does."""

    def __init__(self, directory: Path, environ: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env={**os.environ, **environ},
        )

    def run(self, command: str, limit_s: float = 90.0) -> list[str]:
        """Its output and errors by line; a last line tells an exit code other than 0."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{{ {command}\n}} < /dev/null\nprintf '\\n{_END} %d\\n' $?\n".encode())
        process.stdin.flush()
        output, deadline = b"", time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not (found := re.search(rf"\n{_END} (\d+)\n$".encode(), output)):
                assert selector.select(deadline - time.monotonic()), f"{command}: no end; {output.decode()}"
                data = os.read(process.stdout.fileno(), 65536)
                assert data, f"{command}: the shell has ended; {output.decode()}"
                output += data
        lines = output[: found.start()].decode().splitlines()
        return lines if found[1] == b"0" else [*lines, f"(exit code {int(found[1])})"]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
