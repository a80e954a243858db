"""Groups: members, lag now and over time, offsets that are reset, and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from ...cluster.client.client_errors import ClientError
from ...cluster.client.cluster_client import ClusterClient
from ...cluster.client.group_client import GroupClient, all_assigned
from ...runtime.ports import Clock
from ...wire.types import TopicPartition
from ..errors import RequestRefusedError
from ..fields import Fields, is_to_execute, text
from ..lag_history import LagHistory, lag_of

LAG_PERIOD_MS = 2000
_WITH_OFFSETS = ("classic", "consumer")
_GROUPS_MAX = 200
"""So many groups are asked for their offsets at a time; the others show their lag on their own page."""
_ASKED_AT_ONCE = 8

EndOffsets = Callable[[], Mapping[TopicPartition, int]]
"""The high watermarks, as the live view saw them last."""


class GroupActions:
    """Asks the coordinators of groups. Every method raises `ClientError` where the cluster refuses."""

    def __init__(self, client: ClusterClient, clock: Clock, end_offsets: EndOffsets) -> None:
        self._client = client
        self._clock = clock
        self._end_offsets = end_offsets
        self._groups = GroupClient(client)
        self._history = LagHistory()
        self._noted_ms = 0

    async def groups(self) -> dict[str, Any]:
        """All groups with their lag over time, and the brokers that did not tell theirs."""
        found = await self._groups.list_groups()
        await self._note_lags([one.group_id for one in found.rows if one.kind in _WITH_OFFSETS])
        rows = [
            {"group": one.group_id, "state": one.state, "kind": one.kind, "coordinator": one.coordinator}
            | {"lag": self._history.of(one.group_id)}
            for one in found.rows
        ]
        return {"groups": rows, "missing": found.missing}

    async def _note_lags(self, group_ids: list[str]) -> None:
        """See how far the groups are behind, unless that was seen a moment ago. Silent ones are left out."""
        ends, now_ms = self._end_offsets(), self._clock.wall_ms()
        if not ends or now_ms - self._noted_ms < LAG_PERIOD_MS:
            return
        self._noted_ms = now_ms
        places = asyncio.Semaphore(_ASKED_AT_ONCE)

        async def lag(group_id: str) -> int | None:
            async with places:
                try:
                    return lag_of(await self._groups.committed(group_id), ends)
                except (ClientError, OSError):
                    return None

        asked = group_ids[:_GROUPS_MAX]
        lags = await asyncio.gather(*map(lag, asked))
        self._history.note(now_ms, dict(zip(asked, lags, strict=True)))

    async def group(self, group_id: str) -> dict[str, Any]:
        """A group with its members and the lag in each partition, and what is missing where no leader answers."""
        state, members = await self._groups.members(group_id)
        lags = await self._groups.lags(group_id, all_assigned(members))
        known = [one.lag for one in lags.rows if one.lag is not None]
        self._history.note(self._clock.wall_ms(), {group_id: sum(known) if known else None})
        return {
            "group": group_id,
            "state": state,
            "members": [one.to_json() for one in members],
            "lags": [
                {"topic": one.topic, "partition": one.partition, "committed": one.committed, "end": one.end}
                | {"lag": one.lag}
                for one in lags.rows
            ],
            "missing": lags.missing,
            "history": self._history.of(group_id),
        }

    async def reset_group(self, group_id: str, fields: Fields) -> dict[str, Any]:
        """The offsets that a group without members would get in a topic; they are set if `execute` is true.

        `to` is `earliest`, `latest`, an offset, or `time:MS`.
        """
        topic, to = text(fields, "topic"), str(fields.get("to", ""))
        await self._groups.check_empty(group_id)
        before = await self._groups.committed(group_id)
        goals = await self._goals(topic, to)
        after = await self._groups.clamp(goals)
        if is_to_execute(fields):
            await self._groups.commit(group_id, after)
        rows = [
            {"topic": key.topic, "partition": key.partition, "from": before.get(key), "to": offset}
            for key, offset in sorted(after.items())
        ]
        return {"executed": is_to_execute(fields), "offsets": rows}

    async def _goals(self, topic: str, to: str) -> dict[TopicPartition, int]:
        if to in ("earliest", "latest"):
            return await self._groups.targets(topic, to)
        kind, _, number = to.rpartition(":")
        if kind not in ("", "time") or not number.isdecimal() or len(number) > 18:
            raise RequestRefusedError(400, "to is earliest, latest, an offset, or time:MILLISECONDS")
        if kind == "time":
            return await self._groups.targets(topic, int(number))
        view = (await self._client.metadata([topic])).topic(topic)
        return {TopicPartition(topic, one.partition): int(number) for one in view.partitions}

    async def delete_group(self, group_id: str) -> dict[str, Any]:
        """Delete a group without members, with its offsets."""
        await self._groups.delete(group_id)
        return {"done": f"deleted group {group_id}"}
