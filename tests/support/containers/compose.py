"""Compose and the engine, as a user calls them."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

ROOT = Path(__file__).resolve().parents[3]


def docker(*arguments: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    """One `docker` command; its output and errors together."""
    return subprocess.run(
        ["docker", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def wait_for(what: str, condition: Callable[[], Any], limit_s: float = 60.0) -> Any:
    """What the condition gives as soon as it is true; AssertionError after the limit."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.2)
    raise AssertionError(f"{what}: not within {limit_s:g} s")


class Compose:
    """One project."""

    def __init__(self, command: Sequence[str], file: Path, name: str, environ: Mapping[str, str]) -> None:
        self.name = name
        self.environ = dict(environ)
        self._command = [*command, "-f", str(file), "-p", name]

    def run(self, *arguments: str, check: bool = True, stdin: str | None = None, timeout_s: float = 240.0) -> str:
        """One compose command; its standard output, and with an error all that it said."""
        done = subprocess.run(
            [*self._command, *arguments],
            env={**os.environ, **self.environ},
            cwd=ROOT,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert not check or done.returncode == 0, f"{' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    @property
    def bootstrap(self) -> str:
        """As seen from the host."""
        return ",".join(f"localhost:{self.environ[f'PORT_{number}']}" for number in (1, 2, 3))

    def inspect(self, service: str) -> dict[str, Any]:
        """The engine's view of a service's container."""
        labels = (f"com.docker.compose.project={self.name}", f"com.docker.compose.service={service}")
        filters = [word for label in labels for word in ("--filter", f"label={label}")]
        container = docker("ps", "-a", "-q", "--no-trunc", *filters).stdout.strip()
        found: list[dict[str, Any]] = json.loads(docker("inspect", container).stdout)
        return found[0]

    def is_healthy(self, *services: str) -> bool:
        """Whether every service's health check says so."""
        return all(self.inspect(one)["State"].get("Health", {}).get("Status") == "healthy" for one in services)


def get_json(url: str) -> Any:
    """A JSON document; None while nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)
    except OSError:
        return None


class Sending:
    """Sends numbers, acks=all, until it is told to stop; knows which were acked."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.acked: list[bytes] = []
        self.failed: list[str] = []
        self._sent = 0
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )

    def send_for(self, seconds: float) -> None:
        """Some hundred records a second."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._producer.produce(self.topic, b"%d" % self._sent, on_delivery=self._on_delivery)
            self._sent += 1
            self._producer.poll(0.002)

    def finish(self) -> None:
        """Wait for every answer."""
        assert self._producer.flush(60) == 0

    def _on_delivery(self, error: object, message: Any) -> None:
        if error:
            self.failed.append(str(error))
        else:
            self.acked.append(message.value())


def read_all(bootstrap: str, topic: str) -> list[bytes]:
    """Every record of a topic, up to what its ends are now."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False})
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    ends = {number: consumer.get_watermark_offsets(TopicPartition(topic, number), 30)[1] for number in partitions}
    consumer.assign([TopicPartition(topic, number, 0) for number, end in ends.items() if end])
    values: list[bytes] = []
    while len(values) < sum(ends.values()):
        batch = consumer.consume(10_000, 10.0)
        assert batch, f"{len(values)} of {sum(ends.values())} records read, and no more come"
        values += [message.value() or b"" for message in batch]
    consumer.close()
    return values
