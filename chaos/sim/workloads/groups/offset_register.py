"""The committed offsets of a group without members as registers: one client writes them, others read them anywhere.

The writer asks any broker for the coordinator, so it goes on with the next one as soon as there is one. The readers ask
every broker for stable offsets, also one that was the coordinator before. What they are answered is judged where it is
answered: "a stable offset is not older than its request", "no offset is answered that was not committed".
"""

from __future__ import annotations

import asyncio
from typing import Any

from .....cluster.client.client_errors import ClientError
from .....cluster.client.cluster_client import NO_ANSWER
from .....wire.api_keys import ApiKey
from ..clients import ClientContext, TopicClient, find_coordinator

_GROUP = "register"
_PARTITIONS = 3
_READERS = 2
_TIMEOUT_S = 0.5
_COMMIT_EVERY_S = 0.05
_READ_EVERY_S = 0.15


class OffsetRegister:
    """The writer and the readers. A `Workload`."""

    name = "offset register"

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._stopping = False
        self._left = 1 + _READERS

    def stop(self) -> None:
        """See `Workload`."""
        self._stopping = True

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        return f"{self._left} still act" if self._left else None

    def check(self) -> None:
        """Each answer was judged when it was given."""

    async def run(self) -> None:
        """See `Workload`."""
        await asyncio.gather(self._write(), *(self._read(f"{self.name} reader {n}") for n in range(_READERS)))

    async def _write(self) -> None:
        client = await self._client(f"{self.name} writer")
        rng, offset = self._context.rng, 0
        coordinator: tuple[str, int] | None = None
        while not self._stopping:
            offset += 1
            try:
                if coordinator is None:
                    coordinator = await self._find(client)
                code = await self._commit(client, coordinator, offset)
            except (ClientError, *NO_ANSWER):
                code = -1
            if code:
                coordinator = None
            await asyncio.sleep(rng.expovariate(1 / _COMMIT_EVERY_S))
        self._left -= 1

    async def _read(self, name: str) -> None:
        client = await self._client(name)
        rng = self._context.rng
        while not self._stopping:
            topics = [{"name": self._context.topic, "partition_indexes": list(range(_PARTITIONS))}]
            group = {"group_id": _GROUP, "topics": topics, "member_id": None, "member_epoch": -1}
            fields = {"groups": [group], "require_stable": rng.random() < 0.8}
            try:
                await client.cluster.request_at(rng.choice(client.cluster.bootstrap), ApiKey.OFFSET_FETCH, 9, fields)
            except (ClientError, *NO_ANSWER):
                pass
            await asyncio.sleep(rng.expovariate(1 / _READ_EVERY_S))
        self._left -= 1

    async def _client(self, name: str) -> TopicClient:
        client = TopicClient(self._context, name)
        await client.until_known()
        client.cluster.timeout_s = _TIMEOUT_S
        return client

    async def _find(self, client: TopicClient) -> tuple[str, int]:
        """The coordinator, as any broker says. Raises `ClientError` or one of `NO_ANSWER`."""
        row = await find_coordinator(client.cluster, _GROUP, at=self._context.rng.choice(client.cluster.bootstrap))
        return row.host, row.port

    async def _commit(self, client: TopicClient, coordinator: tuple[str, int], offset: int) -> int:
        """Commit the offset for one partition; returns the error code, 0 for none."""
        index = self._context.rng.randrange(_PARTITIONS)
        partitions = [{"partition_index": index, "committed_offset": offset, "committed_metadata": ""}]
        topics = [{"name": self._context.topic, "partitions": partitions}]
        who: dict[str, Any] = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
        fields = {"group_id": _GROUP, **who, "topics": topics}
        answer = await client.cluster.request_at(coordinator, ApiKey.OFFSET_COMMIT, 8, fields)
        return int(answer.topics[0].partitions[0].error_code)
