"""Takes pictures of a cluster while somebody looks, and keeps the last one and the story of the last minutes.

Nobody is asked anything while no browser is connected. A node that does not answer costs a picture at most the client's
time-out: nodes are asked side by side, and what is not known is shown as it was seen last.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..cluster.client.admin_client import AdminClient
from ..cluster.client.client_errors import ClientError, RefusedError
from ..cluster.client.cluster_client import NO_ANSWER, ClusterClient, ClusterView
from ..cluster.client.consumer import LATEST
from ..cluster.client.quorum_client import QuorumClient, QuorumView
from ..runtime.ports import Clock
from ..wire.api_keys import ApiKey
from .logins.rights import needs_right
from .picture import DOWN, FENCED, PAUSED, UP, Partition, Picture, Row, events, key_of, records_between

PERIOD_S = 1.0
STORY_MAX = 500
POINTS_MAX = 300
"""Points of the history: five minutes."""
TIMEOUT_S = 2.0
"""Of a request of the watch: a node that hangs must not keep the others from being seen."""
_LIST_OFFSETS_VERSION = 7
_ANSWERS_WITHOUT_LEADER = 3
"""Pictures without a leader of the quorum before the console says that there is none; an election takes a moment."""
_logger = logging.getLogger(__name__)

LocalNodes = Callable[[], Mapping[int, Row]]
"""The state of the processes of a local cluster, by node: `state`, `pid`, `memory_bytes`, `faults` in words."""


class ClusterWatch:
    """The last picture, the story, and the rates of the last minutes. `changed` is notified after each picture."""

    def __init__(self, client: ClusterClient, clock: Clock, local_nodes: LocalNodes | None = None) -> None:
        self._client = client
        self._clock = clock
        self._local_nodes = local_nodes
        self._viewers = 0
        self._task: asyncio.Task[None] | None = None
        self._unled = 0
        self._why_no_quorum: str | None = None
        self.picture = Picture(0)
        self.changed = asyncio.Condition()
        self.story: deque[tuple[int, str]] = deque(maxlen=STORY_MAX)
        """The last sentences with their times, in milliseconds since 1970."""
        self.told = 0
        """How many sentences there have ever been."""
        self.history: deque[tuple[int, float, int]] = deque(maxlen=POINTS_MAX)
        """Times in milliseconds, records a second, and partitions that are not in sync."""

    @property
    def is_watched(self) -> bool:
        """Whether a browser looks."""
        return self._viewers > 0

    def open(self) -> None:
        """One more browser looks."""
        self._viewers += 1
        if self._task is None:
            self._task = asyncio.create_task(self._watch())

    def close(self) -> None:
        """A browser looks no more; after the last one, nothing is asked."""
        self._viewers -= 1
        if not self._viewers:
            self.stop()

    def stop(self) -> None:
        """Ask nothing any more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def tell(self, sentence: str) -> None:
        """Add a sentence to the story."""
        self._tell_at(self._clock.wall_ms(), sentence)

    def story_since(self, told: int) -> list[tuple[int, str]]:
        """The sentences that came after the first `told` ones, as far as they are kept."""
        return list(self.story)[max(len(self.story) - (self.told - told), 0) :]

    def _tell_at(self, at_ms: int, sentence: str) -> None:
        self.story.append((at_ms, sentence))
        self.told += 1

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        self.picture = replace(self.picture, at_ms=0)  # what happened while nobody looked is no event of now
        while True:
            began = loop.time()
            try:
                after = await self._look()
            except Exception as error:
                # Whatever an answer holds, the console goes on.
                _logger.exception("a picture of the cluster failed")
                after = replace(self.picture, at_ms=self._clock.wall_ms(), problem=str(error))
            self._take(after)
            async with self.changed:
                self.changed.notify_all()
            await asyncio.sleep(max(PERIOD_S - (loop.time() - began), PERIOD_S / 10))

    def _take(self, after: Picture) -> None:
        before, self.picture = self.picture, after
        if not before.at_ms:
            return
        for sentence in events(before, after):
            self._tell_at(after.at_ms, sentence)
        rate = records_between(before, after) * 1000 / max(after.at_ms - before.at_ms, 1)
        troubled = sum(one.state != "in-sync" for one in after.partitions.values())
        self.history.append((after.at_ms, round(rate, 1), troubled))

    # The parts of a picture

    async def _look(self) -> Picture:
        try:
            view = await self._client.metadata()
        except (ClientError, OSError) as error:
            problem = str(error) or "no broker answers in time"
            is_local = self._local_nodes is not None  # then the processes tell more
            seen = self.picture.nodes.items()
            nodes = self._with_processes({one: row if is_local else {**row, "state": DOWN} for one, row in seen})
            return replace(self.picture, at_ms=self._clock.wall_ms(), problem=problem, nodes=nodes, quorum=None)
        ends, quorum, nodes = await asyncio.gather(self._end_offsets(view), self._quorum(), self._nodes(view))
        controller = quorum["leader"] if quorum else -1
        nodes = {one: {**row, "controller": one == controller} for one, row in nodes.items()}
        partitions = self._partitions(view, ends)
        return Picture(self._clock.wall_ms(), view.cluster_id, None, nodes, quorum, self._why_no_quorum, partitions)

    def _partitions(self, view: ClusterView, ends: Mapping[str, int]) -> dict[str, Partition]:
        found = {}
        for topic in view.topics:
            for one in topic.partitions:
                key = key_of(topic.name, one.partition)
                known = self.picture.partitions.get(key)
                end = ends.get(key, -1 if known is None else known.end_offset)
                found[key] = Partition(one.leader, one.leader_epoch, one.replicas, one.isr, end)
        return found

    async def _end_offsets(self, view: ClusterView) -> dict[str, int]:
        """The high watermarks; partitions of leaders that do not answer are missing."""
        by_leader: dict[int, dict[str, list[int]]] = {}
        for topic in view.topics:
            for one in topic.partitions:
                if one.leader >= 0:
                    by_leader.setdefault(one.leader, {}).setdefault(topic.name, []).append(one.partition)
        answers = await asyncio.gather(*(self._ends_of(leader, topics) for leader, topics in by_leader.items()))
        return {key: end for answer in answers for key, end in answer.items()}

    async def _ends_of(self, leader: int, topics: Mapping[str, list[int]]) -> dict[str, int]:
        rows = [
            {
                "name": name,
                "partitions": [
                    {"partition_index": one, "current_leader_epoch": -1, "timestamp": LATEST} for one in partitions
                ],
            }
            for name, partitions in topics.items()
        ]
        fields = {"replica_id": -1, "isolation_level": 0, "topics": rows}
        try:
            async with asyncio.timeout(TIMEOUT_S):
                answer = await self._client.request_node(leader, ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, fields)
        except (ClientError, TimeoutError, *NO_ANSWER):
            return {}
        return {
            key_of(topic.name, one.partition_index): one.offset
            for topic in answer.topics
            for one in topic.partitions
            if not one.error_code
        }

    async def _quorum(self) -> Row | None:
        """The quorum; as it was seen last during an election, None after that."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                found = await QuorumClient(self._client).describe()
        except (ClientError, OSError, TimeoutError) as error:
            if isinstance(error, RefusedError) and error.missing_right is not None:
                self._why_no_quorum = needs_right(error.missing_right)
                return None
            self._unled += 1
            return self.picture.quorum if self._unled < _ANSWERS_WITHOUT_LEADER else None
        self._unled, self._why_no_quorum = 0, None
        return _quorum_row(found)

    async def _nodes(self, view: ClusterView) -> dict[int, Row]:
        try:
            async with asyncio.timeout(2 * TIMEOUT_S):
                brokers = await AdminClient(self._client).broker_states()
        except (ClientError, OSError, TimeoutError):
            return self._with_processes(dict(self.picture.nodes))
        found: dict[int, Row] = {}
        for broker in brokers:
            found[broker.node_id] = {
                "node": broker.node_id,
                "address": f"{broker.host}:{broker.port}",
                "rack": broker.rack,
                "state": broker.state,
                "why": "it may not lead" if broker.state == FENCED else broker.why_down,
                **view.counts_of(broker.node_id),
            }
        return self._with_processes(found)

    def _with_processes(self, nodes: dict[int, Row]) -> dict[int, Row]:
        """The nodes with what is known of their processes, which tell a pause or an end at once."""
        processes = {} if self._local_nodes is None else self._local_nodes()
        for node_id, process in processes.items():
            known: dict[str, Any] = {"node": node_id, "address": "", "rack": None, "leads": 0, "replicas": 0}
            row = {**known, "in_sync": 0, "why": None, "state": UP, **nodes.get(node_id, {}), "pid": process["pid"]}
            row |= {"memory_bytes": process["memory_bytes"], "faults": process["faults"]}
            if process["state"] in (DOWN, PAUSED):
                row |= {"state": process["state"], "why": None}
            nodes[node_id] = row
        return nodes


def _quorum_row(view: QuorumView) -> Row:
    end = max((one.log_end_offset for one in view.replicas), default=0)
    members = [
        {
            "node": one.node_id,
            "voter": one.is_voter,
            "lag": max(end - one.log_end_offset, 0) if one.log_end_offset >= 0 else None,
            "late": view.is_late(one),
        }
        for one in sorted(view.replicas, key=lambda one: (not one.is_voter, one.node_id))
    ]
    return {
        "leader": view.leader_id,
        "epoch": view.leader_epoch,
        "high_watermark": view.high_watermark,
        "members": members,
    }
