"""Apache Kafka's Java client as load: runs VerifiableProducer and turns its output into a history.

`python -m raftwerk.chaos.live.load.java_producer TASK`.

The tool does not print when a send began. Each send is taken to have begun with the tool, and has no latency. Of a send
that was not acked it does not print the partition either, which the client chose by the key.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import IO, Any

from ..history import HistoryWriter, Send
from .child_process import tied
from .load_task import Task

_NOT_TOLD = -1
"""The partition of a send that was not acked."""
_END_LIMIT_S = 10.0
"""How long a tool may take to end after it has closed its output."""
TOOL = "org.apache.kafka.tools.VerifiableProducer"
_CONFIG = "enable.idempotence=true\nretries=2147483647\ndelivery.timeout.ms=120000\nlinger.ms=2\nretry.backoff.ms=50\n"


def why_unavailable() -> str | None:
    """The reason why this machine cannot run the tool; None if it can."""
    if shutil.which("java") is None:
        return "there is no java"
    if not os.path.isdir(jars()):
        return f"no Kafka jars in {jars()} (set KAFKA_LIBS)"
    return None


def jars() -> str:
    """The directory of Apache Kafka's jars."""
    return os.environ.get("KAFKA_LIBS") or os.path.expanduser("~/.cache/kafka-4.2.0")


class JavaProducer:
    """Runs one VerifiableProducer and writes its history."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.history = HistoryWriter(task.history, task.process)
        self.history.begin(producer=task.number, idempotent=True, timed=False)
        self.start_ns = time.monotonic_ns()
        self.answered = bytearray()

    def run(self) -> None:
        """Run until standard input ends; then stop the tool, and wait for its end up to the time limit.

        A tool that ends by itself ends this process, with its exit code in the reason.
        """
        with subprocess.Popen(tied(self._command()), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as tool:
            try:
                was_stopped = self._follow(tool)
                if not was_stopped:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        tool.wait(_END_LIMIT_S)
            finally:
                tool.kill()
        for number, answered in enumerate(self.answered):
            if not answered:
                self.history.send_done(
                    self._send(number, _NOT_TOLD), "info", time.monotonic_ns(), error="the tool did not tell"
                )
        self.history.close()
        if not was_stopped:
            sys.exit(f"{TOOL} has ended by itself with exit code {tool.returncode}")

    def _follow(self, tool: subprocess.Popen[bytes]) -> bool:
        """Read what the tool prints; whether it was stopped, and did not end by itself."""
        output = tool.stdout
        stopping_at: float | None = None
        rest = b""
        while output is not None and (stopping_at is None or time.monotonic() < stopping_at + self.task.limit_s):
            wanted: list[IO[Any]] = [output] if stopping_at is not None else [output, sys.stdin]
            readable, _, _ = select.select(wanted, [], [], 1.0)
            if sys.stdin in readable:
                tool.terminate()
                stopping_at = time.monotonic()
            if output in readable:
                data = os.read(output.fileno(), 1 << 16)
                if not data:
                    break
                *lines, rest = (rest + data).split(b"\n")
                for text in lines:
                    with contextlib.suppress(ValueError):
                        self._on_line(json.loads(text))
        return stopping_at is not None

    def _on_line(self, line: Mapping[str, Any]) -> None:
        name, now_ns = line.get("name"), time.monotonic_ns()
        if name == "producer_send_success":
            number = self._answered(line["value"])
            offset = line["offset"] if line["offset"] >= 0 else None
            self.history.send_done(self._send(number, line["partition"]), "ok", now_ns, offset=offset)
        elif name == "producer_send_error":
            number = self._answered(line["value"])
            self.history.send_done(self._send(number, _NOT_TOLD), "info", now_ns, error=str(line.get("message")))
        elif name == "tool_data":
            self._grow(line["sent"])

    def _answered(self, value: str) -> int:
        number = int(value.partition(".")[2])
        self._grow(number + 1)
        self.answered[number] = 1
        return number

    def _grow(self, count: int) -> None:
        self.answered.extend(bytes(max(0, count - len(self.answered))))

    def _send(self, number: int, partition: int) -> Send:
        task = self.task
        return Send(task.number, number, number % task.keys, task.topic, partition, self.start_ns)

    def _command(self) -> list[str]:
        config = self.task.history + ".properties"
        task = self.task
        with open(os.open(config, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(_CONFIG)
            if task.client_properties is not None:
                with open(task.client_properties, encoding="utf-8") as login:
                    file.write(login.read())
        options = ["--bootstrap-server", task.bootstrap, "--topic", task.topic, "--throughput", str(task.rate)]
        options += ["--acks", "-1", "--value-prefix", str(task.number), "--repeating-keys", str(task.keys)]
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars()}/*", TOOL]
        return [*command, *options, "--command-config", config]


if __name__ == "__main__":
    JavaProducer(Task.from_argument(sys.argv[1])).run()
