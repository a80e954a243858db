"""The task of a load process: JSON in its first argument. The process ends when its standard input ends."""

from __future__ import annotations

import json
import select
import sys
import zlib
from dataclasses import asdict, dataclass
from typing import Any

from ....cluster.client.access.current_login import CURRENT_LOGIN
from ....cluster.settings.client_properties import librdkafka_login, load_properties, read_properties
from ....runtime.loop import real_runtime
from ..history import ReadRecord

CLIENT = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "socket.timeout.ms": 10_000,
    "log_level": 0,
}
_JAVA_MARK = b"."


@dataclass(frozen=True, slots=True)
class Task:
    """One load process. `number` distinguishes producers, and consumers."""

    role: str
    number: int
    bootstrap: str
    topic: str
    partitions: int
    history: str
    rate: int = 0
    keys: int = 60
    value_bytes: int = 100
    limit_s: float = 120.0
    acks: str = "all"
    incarnation: int = 0
    """Which process with this transactional id it is, from 1 on; 0 for all that have none."""
    seed: int = 0
    client_properties: str | None = None
    """The file that says how to log in, in the properties of Kafka's clients; None for PLAINTEXT."""

    @property
    def process(self) -> str:
        """The name of the process in the history."""
        return f"{self.name}.{self.incarnation}" if self.incarnation else self.name

    @property
    def name(self) -> str:
        """What all incarnations of the process have in common; a transactional id begins with it."""
        return f"{self.role}-{self.number}"

    def to_argument(self) -> str:
        """The task as JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_argument(text: str) -> Task:
        """The task of this JSON."""
        return Task(**json.loads(text))


def asked_to_stop() -> bool:
    """Whether standard input has ended, because the run stops the load or has ended itself."""
    readable, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(readable)


def encode_value(producer: int, number: int, key: int, size_bytes: int) -> bytes:
    """The value of a record: a checksum, the record's name, and padding."""
    body = f"{producer}:{number}:{key}:".encode().ljust(max(0, size_bytes - 9), b"x")
    return b"%08x:%b" % (zlib.crc32(body), body)


def decode_record(offset: int, key: bytes | None, value: bytes | None) -> ReadRecord:
    """The record that these bytes name; producer -1 if no producer of the run wrote them, or if they were changed."""
    try:
        if value is None:
            return (offset, -1, 0, 0)
        if _JAVA_MARK in value and b":" not in value:
            producer, _, number = value.partition(_JAVA_MARK)
            return (offset, int(producer), int(number), int(key or b"0"))
        checksum, _, body = value.partition(b":")
        sent_by, number, sent_key, _ = body.split(b":", 3)
        if int(checksum, 16) != zlib.crc32(body) or key != sent_key:
            return (offset, -1, 0, 0)
        return (offset, int(sent_by), int(number), int(sent_key))
    except ValueError:
        return (offset, -1, 0, 0)


def client_config(task: Task, **more: Any) -> dict[str, Any]:
    """The settings that producers and consumers share."""
    path, login = task.client_properties, {}
    if path is not None:
        login = librdkafka_login(read_properties(path, real_runtime()), real_runtime())
    return {"bootstrap.servers": task.bootstrap, "client.id": task.process, **CLIENT, **login, **more}


def use_login(client_properties: str | None) -> None:
    """Let our own clients in this process log in as the file says, and nowhere without one.

    Raises `ClientPropertiesError`.
    """
    login = None if client_properties is None else load_properties(client_properties, real_runtime()).login
    CURRENT_LOGIN.set(login)
