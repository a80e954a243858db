"""The HTTP interface of a registry on a topic in memory: no process, no cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from raftwerk.registry.decisions import Decide
from raftwerk.registry.http_app import RegistryApp
from raftwerk.registry.image import RegistryImage
from raftwerk.registry.records import decode

T = TypeVar("T")


class TopicInMemory:
    """What `RegistryApp` uses of a `SchemasTopic`."""

    def __init__(self) -> None:
        self.image = RegistryImage()
        self.log: list[tuple[bytes, bytes | None]] = []

    async def ask(self, question: Callable[[RegistryImage], T]) -> T:
        return question(self.image)

    async def change(self, decide: Decide) -> Any:
        decision = decide(self.image)
        for one in decision.records:
            self.log.append(one.encode())
            self.image.replay(decode(*self.log[-1]))
        return decision.answer


class AskedApp:
    """Requests to an application as it stands."""

    def __init__(self, topic: TopicInMemory | None = None) -> None:
        self.topic = topic or TopicInMemory()
        self.app = RegistryApp(self.topic)  # type: ignore[arg-type]  # a twin of the topic

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The status of the answer, and its JSON."""
        return asyncio.run(answered(self.app, method, path, body))


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
