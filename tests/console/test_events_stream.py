"""The stream of events that feeds a page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from raftwerk.cluster.client.client_errors import ClientError
from raftwerk.console import cluster_watch
from raftwerk.console.cluster_watch import STORY_MAX, ClusterWatch
from raftwerk.console.events_stream import EventsStream


class NoCluster:
    """A client of a cluster that does not answer."""

    async def metadata(self) -> None:
        raise ClientError("no broker answers")


def watch_at_rest() -> ClusterWatch:
    """A watch whose clock stands still."""
    client: Any = NoCluster()
    clock: Any = SimpleNamespace(wall_ms=lambda: 1)
    return ClusterWatch(client, clock)


def test_sentences_of_the_same_millisecond_are_all_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_watch, "PERIOD_S", 0.01)

    async def main() -> None:
        watch = watch_at_rest()
        stopped = asyncio.Event()
        probe = SimpleNamespace(is_running=False)
        service: Any = SimpleNamespace(watch=watch, about=dict, stopped=stopped, probe=probe, chaos_version=0)
        told: list[str] = []

        async def send(message: Mapping[str, Any]) -> None:
            event = bytes(message.get("body", b"")).decode().partition("data: ")[2]
            fields = json.loads(event) if event else {}
            told.extend(sentence for _, sentence in fields.get("story", ()))
            if "whole" in fields:
                watch.tell("told while the whole picture is on its way")
            elif told[-1:] == ["told while the whole picture is on its way"]:
                watch.tell("told a moment later")
            elif told[-1:] == ["told a moment later"]:
                stopped.set()

        async def receive() -> Mapping[str, Any]:
            await stopped.wait()
            return {"type": "http.disconnect"}

        watch.tell("told before")
        async with asyncio.timeout(10):
            await EventsStream(service).run(receive, send, [])
        assert told == ["told before", "told while the whole picture is on its way", "told a moment later"]

    asyncio.run(main())


def test_a_story_that_is_longer_than_what_is_kept_has_its_last_sentences() -> None:
    watch = watch_at_rest()
    for count in range(STORY_MAX + 5):
        watch.tell(str(count))
    assert [sentence for _, sentence in watch.story_since(0)] == [str(one) for one in range(5, STORY_MAX + 5)]
    assert watch.story_since(STORY_MAX + 3) == [(1, str(STORY_MAX + 3)), (1, str(STORY_MAX + 4))]
    assert watch.story_since(STORY_MAX + 5) == []
