"""Kafka's command line tools, run one after the other in one JVM."""

from __future__ import annotations

import select
import subprocess
import time
from pathlib import Path
from typing import IO

SOURCE = Path(__file__).parent / "java" / "Tools.java"
TIMEOUT_S = 60.0


class JavaTools:
    """`command` starts java with Kafka's jars. One tool at a time."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            [*command, str(SOURCE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def run(self, tool: str, *arguments: str, fails: bool = False) -> str:
        """What `org.apache.kafka.tools.<tool>`, or the class of that whole name, prints. It has to succeed or fail."""
        name = tool if tool.startswith(("kafka.", "org.")) else f"org.apache.kafka.tools.{tool}"
        stdin, stdout = _pipe(self._process.stdin), _pipe(self._process.stdout)
        stdin.write("\t".join([name, *arguments]).encode() + b"\n")
        stdin.flush()
        deadline = time.monotonic() + TIMEOUT_S
        head = b""
        while not head.endswith(b"\n"):
            head += self._read(stdout, 1, deadline)
        size, code = map(int, head.split())
        told = b""
        while len(told) < size:
            told += self._read(stdout, size - len(told), deadline)
        text = "".join(line for line in told.decode().splitlines(True) if not line.startswith("SLF4J:"))
        assert (code != 0) == fails, f"{tool} {' '.join(arguments)}: exit {code}\n{text}"
        return text

    def _read(self, stdout: IO[bytes], count: int, deadline: float) -> bytes:
        ready, _, _ = select.select([stdout], [], [], max(deadline - time.monotonic(), 0))
        assert ready, "a tool did not end in time"
        data = stdout.read1(count)  # type: ignore[attr-defined]
        assert data, "the JVM has died"
        return bytes(data)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
