"""Topics that are created because clients ask for them: in whose name, and each once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from raftwerk.broker.config import TopicDefaults
from raftwerk.broker.to_controller.auto_topic_creation_manager import AutoTopicCreationManager
from raftwerk.broker.to_controller.controller_channel import ControllerChannel
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import decode_response, encode_response


class RecordingChannel(ControllerChannel):
    """Notes in whose name topics are created; the controller creates all of them."""

    def __init__(self) -> None:
        self.created: list[tuple[Any, list[str]]] = []

    async def request(self, api_key: ApiKey, version: int, fields: Any, **_: Any) -> Any:
        return await self.request_for(None, api_key, version, fields)

    async def request_for(self, client: Any, api_key: ApiKey, version: int, fields: Any) -> Any:
        self.created.append((client, [topic["name"] for topic in fields["topics"]]))
        await asyncio.sleep(0)
        rows = [{"name": topic["name"], "error_code": 0} for topic in fields["topics"]]
        return decode_response(api_key, version, encode_response(api_key, version, {"topics": rows}))


def test_topics_are_created_in_the_name_of_the_client_and_once() -> None:
    async def main() -> None:
        channel = RecordingChannel()
        manager = AutoTopicCreationManager(channel, TopicDefaults(), {})
        alice: Any = SimpleNamespace(name="alice")
        bob: Any = SimpleNamespace(name="bob")
        manager.request_topics(["a", "b"], alice)
        manager.request_topics(["b", "c"], bob)
        manager.request_topics(["__consumer_offsets"])
        for _ in range(5):
            await asyncio.sleep(0)
        assert channel.created == [(alice, ["a", "b"]), (bob, ["c"]), (None, ["__consumer_offsets"])]
        manager.request_topics(["a"], bob)
        for _ in range(5):
            await asyncio.sleep(0)
        assert channel.created[3:] == [(bob, ["a"])]

    asyncio.run(main())
