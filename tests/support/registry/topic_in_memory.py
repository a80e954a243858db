"""The HTTP interface of a registry on a topic in memory: no process, no cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from raftwerk.registry.decisions import Decide
from raftwerk.registry.forwarding import Forwarding
from raftwerk.registry.http_app import RegistryApp
from raftwerk.registry.image import RegistryImage
from raftwerk.registry.records import decode
from raftwerk.registry.schemas_topic import FencedError
from raftwerk.registry.writer_election import Writer

T = TypeVar("T")


class TopicInMemory:
    """What `RegistryApp` uses of a `SchemasTopic`."""

    def __init__(self) -> None:
        self.image = RegistryImage()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.is_fenced = False
        self.caught_up = 0

    async def catch_up(self) -> None:
        self.caught_up += 1

    async def ask(self, question: Callable[[RegistryImage], T]) -> T:
        return question(self.image)

    async def change(self, decide: Decide) -> Any:
        if self.is_fenced:
            raise FencedError
        decision = decide(self.image)
        for one in decision.records:
            self.log.append(one.encode())
            self.image.replay(decode(*self.log[-1]))
        return decision.answer


class ElectedWriter:
    """Who was elected: at first this registry."""

    def __init__(self, url: str = "") -> None:
        self.current = Writer(url, is_here=not url)
        self.lost = 0
        self.is_going = False

    async def writer(self) -> Writer:
        return self.current

    async def is_replaced(self, writer: Writer) -> None:
        if not self.is_going:
            await asyncio.Event().wait()

    async def lose(self) -> None:
        self.lost += 1


class AskedApp:
    """Requests to an application as it stands."""

    def __init__(self, writers: ElectedWriter | None = None, forwarding: Forwarding | None = None) -> None:
        self.topic = TopicInMemory()
        self.writers = writers or ElectedWriter()
        topic: Any = self.topic
        self.app = RegistryApp(topic, self.writers, forwarding or Forwarding())

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """The status of the answer, and its JSON."""
        return asyncio.run(answered(self.app, method, path, body, headers))


async def answered(
    app: RegistryApp, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> tuple[int, Any]:
    """The status of the answer of an application, and its JSON."""
    raw, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": raw,
        "raw_path": raw.encode(),
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
    }
    sent: list[Mapping[str, Any]] = []

    async def receive() -> Mapping[str, Any]:
        return {"type": "http.request", "body": b"" if body is None else json.dumps(body).encode()}

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])
