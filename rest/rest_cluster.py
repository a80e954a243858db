"""The cluster behind the proxy: one client for what is described and changed, and what is remembered of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..cluster.client.client_errors import RefusedError
from ..cluster.client.cluster_client import ClusterClient, ClusterView, TopicView
from ..cluster.client.group_client import GroupClient
from ..security.client_login import ClientLogin
from ..wire.api_keys import ApiKey
from ..wire.codec import Struct
from ..wire.errors import ErrorCode
from .errors import RestError, unknown_topic_or_partition

_RETRY_PAUSE_S = 0.05
_REMEMBERED_S = 2.0
_REMEMBERED_TOPICS = 1000


class RestCluster:
    """Asks a cluster. An async context manager; every method raises `ClientError`."""

    def __init__(self, bootstrap: str, login: ClientLogin | None, timeout_s: float = 10.0) -> None:
        self.client = ClusterClient(bootstrap, client_id="raftwerk-rest", timeout_s=timeout_s, login=login)
        self.groups = GroupClient(self.client)
        self._cluster_id: str | None = None
        self._partition_counts: dict[str, tuple[float, int]] = {}

    async def __aenter__(self) -> RestCluster:
        await self.client.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.__aexit__()

    async def view(self, topics: Iterable[str] | None = ()) -> ClusterView:
        """The brokers and these topics, or all topics for None."""
        found = await self.client.metadata(topics)
        self._cluster_id = found.cluster_id
        return found

    async def check_id(self, cluster_id: str) -> None:
        """Raise `RestError` when the cluster has another id."""
        if self._cluster_id is None:
            await self.view()
        if cluster_id != self._cluster_id:
            raise RestError(404, f"Cluster {cluster_id} cannot be found.")

    async def topic(self, name: str) -> TopicView:
        """A topic. Raises `RestError` when there is none."""
        try:
            return (await self.view([name])).topic(name)
        except RefusedError as error:
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise unknown_topic_or_partition() from None
            raise

    async def partition_count(self, topic: str) -> int:
        """How many partitions a topic has, as it was known some moments ago. Raises `RestError` for an unknown topic.

        Kafka's clients wait for a topic that they do not know, since it may be new.
        """
        now = asyncio.get_running_loop().time()
        known = self._partition_counts.get(topic)
        if known is not None and now - known[0] < _REMEMBERED_S:
            return known[1]
        count = len((await self.topic(topic)).partitions)
        self._partition_counts.pop(topic, None)
        self._partition_counts[topic] = (now, count)
        while len(self._partition_counts) > _REMEMBERED_TOPICS:
            del self._partition_counts[next(iter(self._partition_counts))]
        return count

    def forget(self, topic: str) -> None:
        """Ask for the partitions of a topic anew the next time."""
        self._partition_counts.pop(topic, None)

    async def change(self, api: ApiKey, version: int, fields: Mapping[str, Any], rows: str) -> Struct:
        """The first row of the answer to a request that the controller decides, asked again while it is elected."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.client.timeout_s
        while True:
            answer: Struct = getattr(await self.client.request(api, version, fields), rows)[0]
            is_temporary = answer.error_code in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)
            if not is_temporary or loop.time() > deadline:
                return answer
            await asyncio.sleep(_RETRY_PAUSE_S)

    async def until(self, topic: str, holds: Callable[[TopicView | None], bool]) -> None:
        """Wait until the brokers show a change of a topic that was accepted; give up after the client's time-out."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.client.timeout_s
        while True:
            found = [one for one in (await self.view([topic])).topics if one.name == topic]
            if holds(found[0] if found else None) or loop.time() > deadline:
                self.forget(topic)
                return
            await asyncio.sleep(_RETRY_PAUSE_S)
