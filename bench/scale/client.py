"""The client of the scale benchmark: it asks again at once, and only for what is missing.

A client that waits for a second after "no leader" would measure its own wait. And to ask for all of 20,000 partitions
again and again would take the time of the nodes that shall elect leaders.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ...wire import codec
from ...wire.api_keys import ApiKey
from ...wire.client import Connection, connect
from ...wire.errors import ErrorCode, WireFormatError

_CLIENT_ID = "bench"
_HOST = "127.0.0.1"
_PAUSE_S = 0.02
_CONNECT_TIMEOUT_S = 1.0
_ANSWER_TIMEOUT_S = 120.0
_LOST = (OSError, WireFormatError)
_METADATA_VERSION = 12
_LIST_OFFSETS_VERSION = 7
_CREATE_TOPICS_VERSION = 7
_DELETE_TOPICS_VERSION = 6
_CREATE_PARTITIONS_VERSION = 3
_DESCRIBE_QUORUM_VERSION = 1
_LATEST_TIMESTAMP = -1

Key = tuple[str, int]
"""Topic and partition."""


class State(NamedTuple):
    """A partition in an answer to Metadata."""

    leader: int
    in_sync: int


class Moved(NamedTuple):
    """Seconds until new leaders were there: named by Metadata for all, and answering ListOffsets for all."""

    named_s: float
    serving_s: float


class RefusedError(Exception):
    """The cluster has answered with an error code."""


class Client:
    """Sends requests to the brokers, whose `ports` are by node id. One coroutine at a time uses a connection."""

    def __init__(self, ports: Mapping[int, int]) -> None:
        self.ports = dict(ports)
        self._connections: dict[int, Connection] = {}

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def _connection(self, node: int) -> Connection:
        connection = self._connections.get(node)
        if connection is None or connection.is_closed:
            connection = await connect(_HOST, self.ports[node], client_id=_CLIENT_ID, timeout_s=_CONNECT_TIMEOUT_S)
            self._connections[node] = connection
        return connection

    async def ask(self, node: int, api: ApiKey, version: int, fields: codec.Fields) -> codec.Struct:
        """Send a request to a node. `OSError` or `WireFormatError` if it does not answer."""
        connection = await self._connection(node)
        return await connection.request(api, version, fields, timeout_s=_ANSWER_TIMEOUT_S)

    # ---- metadata -------------------------------------------------------------------------------------------------

    async def states(self, node: int, topics: Iterable[str] | None = None) -> dict[Key, State]:
        """All partitions of the topics (default: all topics) that `node` knows."""
        answer = await self.ask(node, ApiKey.METADATA, _METADATA_VERSION, _metadata(topics))
        return {
            (topic.name, one.partition_index): State(one.leader_id, len(one.isr_nodes))
            for topic in answer.topics
            if not topic.error_code
            for one in topic.partitions
        }

    async def time_metadata(self, node: int) -> tuple[float, int]:
        """Seconds until `node` has answered Metadata for all topics, and the size of the answer; it is not decoded."""
        connection = await self._connection(node)
        body = codec.encode_request(ApiKey.METADATA, _METADATA_VERSION, _metadata(None))
        began = time.monotonic()
        answer = await connection.send_raw(ApiKey.METADATA, _METADATA_VERSION, [body], timeout_s=_ANSWER_TIMEOUT_S)
        return time.monotonic() - began, len(answer)

    async def controller(self, nodes: Iterable[int]) -> int:
        """The active controller as one of `nodes` knows it; -1 if none knows it."""
        fields = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}
        for node in nodes:
            try:
                answer = await self.ask(node, ApiKey.DESCRIBE_QUORUM, _DESCRIBE_QUORUM_VERSION, fields)
            except _LOST:
                continue
            row = answer.topics[0].partitions[0] if answer.topics else None
            if row is not None and not row.error_code and row.leader_id >= 0:
                return int(row.leader_id)
        return -1

    # ---- changes --------------------------------------------------------------------------------------------------

    async def create_topics(self, nodes: Iterable[int], topics: Mapping[str, int], replicas: int = 3) -> None:
        """Create topics with numbers of partitions; ask one node after the other until it is done."""
        rows = [
            {"name": name, "num_partitions": count, "replication_factor": replicas, "assignments": [], "configs": []}
            for name, count in topics.items()
        ]
        done = {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
        await self._change(nodes, ApiKey.CREATE_TOPICS, _CREATE_TOPICS_VERSION, "topics", rows, done)

    async def delete_topics(self, nodes: Iterable[int], names: Iterable[str]) -> None:
        """Delete topics."""
        rows = [{"name": name, "topic_id": None} for name in names]
        done = {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        await self._change(nodes, ApiKey.DELETE_TOPICS, _DELETE_TOPICS_VERSION, "responses", rows, done)

    async def grow_topics(self, nodes: Iterable[int], topics: Mapping[str, int]) -> None:
        """Increase the numbers of partitions of topics."""
        rows = [{"name": name, "count": count, "assignments": None} for name, count in topics.items()]
        done = {ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS}
        await self._change(nodes, ApiKey.CREATE_PARTITIONS, _CREATE_PARTITIONS_VERSION, "results", rows, done)

    async def _change(
        self, nodes: Iterable[int], api: ApiKey, version: int, rows: str, asked: list[Any], done: set[ErrorCode]
    ) -> None:
        fields = {"topics": asked, "timeout": int(_ANSWER_TIMEOUT_S * 1000)}
        if api != ApiKey.DELETE_TOPICS:
            fields["validate_only"] = False
        order = list(nodes)
        deadline = time.monotonic() + _ANSWER_TIMEOUT_S
        while True:
            order.append(order.pop(0))
            try:
                answer = await self.ask(order[0], api, version, fields)
                bad = [row for row in getattr(answer, rows) if row.error_code not in done]
                if not bad:
                    return
                reason = f"{ErrorCode(bad[0].error_code).name} {bad[0].error_message or ''}"
            except _LOST as error:
                reason = str(error) or type(error).__name__
            if time.monotonic() > deadline:
                raise RefusedError(f"{api.name} was not carried out: {reason}")
            await asyncio.sleep(_PAUSE_S)

    # ---- waiting --------------------------------------------------------------------------------------------------

    async def until(self, node: int, what: Callable[[State], bool], missing: set[Key], timeout_s: float) -> float:
        """Seconds until `what` holds for each partition in `missing`, as `node` answers; empties `missing`."""
        began = time.monotonic()
        while missing:
            states = await self.states(node, sorted({topic for topic, _ in missing}))
            missing -= {key for key, state in states.items() if what(state)}
            _check_time(began, timeout_s, f"{len(missing)} partitions are not what is waited for")
            if missing:
                await asyncio.sleep(_PAUSE_S)
        return time.monotonic() - began

    async def until_moved(self, nodes: list[int], away_from: int, keys: Iterable[Key], timeout_s: float) -> Moved:
        """Wait until leaders other than `away_from` serve all of `keys`; `nodes` are asked for metadata in turn."""
        began = time.monotonic()
        unnamed, unserved = set(keys), dict[Key, int]()
        named_s = 0.0
        while unnamed or unserved:
            if unnamed:
                nodes = [*nodes[1:], nodes[0]]
                states = await self.states(nodes[0], sorted({topic for topic, _ in unnamed}))
                for key in [key for key in unnamed if states.get(key, _NONE).leader not in (-1, away_from)]:
                    unserved[key] = states[key].leader
                    unnamed.discard(key)
                named_s = time.monotonic() - began
            await self._drop_served(unserved)
            _check_time(began, timeout_s, f"{len(unnamed)} partitions have no leader, {len(unserved)} are not served")
            if unnamed or unserved:
                await asyncio.sleep(_PAUSE_S)
        return Moved(named_s, time.monotonic() - began)

    async def _drop_served(self, unserved: dict[Key, int]) -> None:
        """Ask the leaders for end offsets, and remove the partitions that are answered."""
        by_leader: dict[int, dict[str, list[int]]] = {}
        for (topic, index), leader in unserved.items():
            by_leader.setdefault(leader, {}).setdefault(topic, []).append(index)
        for leader, topics in by_leader.items():
            answer = await self.ask(leader, ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, _list_offsets(topics))
            for topic in answer.topics:
                for one in topic.partitions:
                    if not one.error_code:
                        unserved.pop((topic.name, one.partition_index), None)


_NONE = State(-1, 0)


def _check_time(began: float, timeout_s: float, what: str) -> None:
    if time.monotonic() - began > timeout_s:
        raise TimeoutError(f"after {timeout_s:.0f} s {what}")


def _metadata(topics: Iterable[str] | None) -> codec.Fields:
    wanted = None if topics is None else [{"name": name, "topic_id": None} for name in topics]
    return {"topics": wanted, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}


def _list_offsets(topics: Mapping[str, list[int]]) -> codec.Fields:
    rows = [
        {
            "name": name,
            "partitions": [
                {"partition_index": index, "current_leader_epoch": -1, "timestamp": _LATEST_TIMESTAMP}
                for index in indexes
            ],
        }
        for name, indexes in topics.items()
    ]
    return {"replica_id": -1, "isolation_level": 0, "topics": rows}
