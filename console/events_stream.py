"""The live view as server-sent events: first the whole picture, then what changes, with the story and the history."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from .picture import changes
from .service import ConsoleService

PROBE_PERIOD_S = 0.2
_KEEP_ALIVE_S = 15.0


class EventsStream:
    """One browser's stream. It ends when the browser goes, or the console stops."""

    def __init__(self, service: ConsoleService) -> None:
        self._service = service
        self._shown = service.watch.picture
        self._told = 0
        self._points = 0
        self._chaos_version = 0

    async def run(
        self,
        receive: Callable[[], Awaitable[Mapping[str, Any]]],
        send: Callable[[Mapping[str, Any]], Awaitable[None]],
        headers: list[tuple[bytes, bytes]],
    ) -> None:
        """Send events until the browser goes."""
        kind = (b"content-type", b"text/event-stream")
        await send({"type": "http.response.start", "status": 200, "headers": [kind, *headers]})
        watch = self._service.watch
        watch.open()
        parts = (self._pictures(send), self._probe(send), _gone(receive), self._service.stopped.wait())
        sending = [asyncio.ensure_future(part) for part in parts]
        try:
            await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
            watch.close()
        await send({"type": "http.response.body", "body": b""})

    async def _pictures(self, send: Callable[[Mapping[str, Any]], Awaitable[None]]) -> None:
        watch = self._service.watch
        if not watch.picture.at_ms:
            await self._next_picture()
        whole = changes(None, watch.picture) | {"history": list(watch.history), "story": list(watch.story)}
        self._shown, self._told = watch.picture, watch.told
        await _event(send, "picture", whole | {"about": self._service.about()})
        while True:
            await self._next_picture()
            news = changes(self._shown, watch.picture)
            if watch.told > self._told:
                news["story"] = watch.story_since(self._told)
                self._told = watch.told
            self._shown = watch.picture
            await _event(send, "picture", news)

    async def _next_picture(self) -> None:
        async with self._service.watch.changed:
            await self._service.watch.changed.wait()

    async def _probe(self, send: Callable[[Mapping[str, Any]], Awaitable[None]]) -> None:
        """The probe's figures while it runs, and once after it has ended; the chaos run when it has news."""
        was_running = False
        idle_s = 0.0
        while True:
            if self._service.chaos_version != self._chaos_version:
                self._chaos_version = self._service.chaos_version
                await _event(send, "chaos", self._service.chaos())
            probe = self._service.probe
            if probe.is_running or was_running:
                row = probe.as_row(self._points)
                self._points = probe.number
                await _event(send, "probe", row)
                idle_s = 0.0
            elif idle_s >= _KEEP_ALIVE_S:
                await send({"type": "http.response.body", "body": b":\n\n", "more_body": True})
                idle_s = 0.0
            was_running = probe.is_running
            await asyncio.sleep(PROBE_PERIOD_S)
            idle_s += PROBE_PERIOD_S


async def _event(send: Callable[[Mapping[str, Any]], Awaitable[None]], name: str, fields: Mapping[str, Any]) -> None:
    data = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
    body = f"event: {name}\ndata: {data}\n\n".encode()
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _gone(receive: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
