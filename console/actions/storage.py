"""Where replicas lie: log directories with their sizes, and partitions that move between brokers and directories."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ...cluster.client.admin_client import AdminClient, LogDir
from ...cluster.client.client_errors import RefusedError
from ...cluster.client.cluster_client import ClusterClient
from ...cluster.client.reassignment import (
    Move,
    copied_bytes,
    moves_between_directories,
    reassign,
    reassignments,
    throttle,
    unthrottle,
)
from ...wire.errors import ErrorCode
from ..errors import RequestRefusedError
from ..fields import INT64_MAX, Fields, is_to_execute, number, rows, text


class StorageActions:
    """Asks brokers for sizes, and the controller for moves. Methods raise `ClientError` where these refuse."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    async def log_dirs(self) -> dict[str, Any]:
        """The log directories of all brokers, with the size of each topic in them."""
        found = await AdminClient(self._client).describe_log_dirs()
        return {"log_dirs": [_dir_row(one) for one in found.rows], "missing": found.missing}

    async def reassignments(self) -> dict[str, Any]:
        """The moves that are under way between brokers and between directories, with what is copied."""
        moving = await reassignments(self._client)
        copied, between_dirs = await asyncio.gather(  # at once, so that a broker that hangs is waited for once
            copied_bytes(self._client, moving), moves_between_directories(self._client)
        )
        found = [
            {
                "topic": one.topic,
                "partition": one.partition,
                "replicas": one.replicas,
                "adding": one.adding,
                "removing": one.removing,
                "copied_bytes": copied[one.topic, one.partition].copied,
                "total_bytes": copied[one.topic, one.partition].total,
            }
            for one in moving
        ]
        copies = [
            {
                "topic": one.topic,
                "partition": one.partition,
                "broker": one.broker,
                "from": one.source,
                "to": one.target,
                "copied_bytes": one.copied_bytes,
                "total_bytes": one.total_bytes,
            }
            for one in between_dirs.rows
        ]
        return {"moves": found, "directory_moves": copies, "missing": between_dirs.missing}

    async def reassign(self, fields: Fields) -> dict[str, Any]:
        """The moves of `moves` (`topic`, `partition`, `replicas`), started if `execute` is true.

        `throttle` limits what each broker sends and receives for them, in bytes a second.
        """
        wanted = [_move(one) for one in rows(fields, "moves")]
        rate = number(fields, "throttle", -1, at_most=INT64_MAX)
        told = await self._plan(wanted)
        if is_to_execute(fields):
            await self._start(wanted, rate)
        return {"executed": is_to_execute(fields), "moves": told}

    async def cancel(self, fields: Fields) -> dict[str, Any]:
        """Cancel the move of `partition` of `topic`: it keeps the replicas that it had."""
        move = Move(text(fields, "topic"), number(fields, "partition"), None)
        await reassign(self._client, [move])
        return {"done": f"cancelled the move of {move.topic}-{move.partition}"}

    async def unthrottle(self) -> dict[str, Any]:
        """Remove all throttles of topics and brokers."""
        found = await unthrottle(self._client)
        named = ", ".join([*found.names, *found.unasked])
        return {"done": f"removed the throttles of {named}" if named else "nothing was throttled"}

    async def _plan(self, wanted: Sequence[Move]) -> list[dict[str, Any]]:
        """What each move changes, and how many bytes it copies."""
        view = await self._client.metadata(dict.fromkeys(one.topic for one in wanted))
        now = {(topic.name, one.partition): one.replicas for topic in view.topics for one in topic.partitions}
        alive = {one.node_id for one in view.brokers}
        sizes: dict[tuple[str, int], int] = {}
        for row in (await AdminClient(self._client).describe_log_dirs()).rows:
            for one in row.replicas:
                key = (one["topic"], one["partition"])
                sizes[key] = max(sizes.get(key, 0), one["size_bytes"])
        found = []
        for move in wanted:
            key, replicas = (move.topic, move.partition), move.replicas or ()
            if key not in now:
                raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{move.topic}-{move.partition}")
            missing = [one for one in replicas if one not in alive and one not in now[key]]
            if missing:
                raise RequestRefusedError(400, f"there is no broker {missing[0]} that could take a replica")
            added = [one for one in replicas if one not in now[key]]
            told = {"topic": move.topic, "partition": move.partition, "from": now[key], "to": replicas}
            found.append({**told, "copied_bytes": len(added) * sizes.get(key, 0)})
        return found

    async def _start(self, wanted: Sequence[Move], rate: int) -> None:
        throttled = await throttle(self._client, wanted, rate) if rate > 0 else None
        try:
            await reassign(self._client, wanted)
        except RefusedError:
            if throttled is not None:
                await throttled.remove_unless_moving(self._client, wanted)
            raise


def _dir_row(one: LogDir) -> dict[str, Any]:
    """Copies that are not complete count as bytes, and not as replicas."""
    topics: dict[str, dict[str, Any]] = {}
    for replica in one.replicas:
        name = replica["topic"]
        topic = topics.setdefault(name, {"topic": name, "replicas": 0, "moving_here": 0, "size_bytes": 0})
        topic["moving_here" if replica["moving_here"] else "replicas"] += 1
        topic["size_bytes"] += replica["size_bytes"]
    return {
        "broker": one.broker,
        "path": one.path,
        "has_failed": bool(one.error_code),
        "total_bytes": one.total_bytes,
        "usable_bytes": one.usable_bytes,
        **{key: sum(topic[key] for topic in topics.values()) for key in ("replicas", "moving_here", "size_bytes")},
        "topics": sorted(topics.values(), key=lambda topic: -topic["size_bytes"]),
    }


def _move(fields: Fields) -> Move:
    replicas = fields.get("replicas")
    is_list = isinstance(replicas, list) and replicas
    if not is_list or not all(isinstance(one, int) and not isinstance(one, bool) for one in replicas or ()):
        raise RequestRefusedError(400, "replicas is a list of the ids of brokers")
    return Move(text(fields, "topic"), number(fields, "partition"), tuple(replicas or ()))
