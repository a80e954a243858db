"""Looks at the cluster when all transactions should have ended: stable offsets, open transactions, groups' offsets.

`python -m raftwerk.chaos.live.load.transactions.end_state TASK`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from .....broker.coordinators.partition_for import partition_for
from .....cluster.client.client_errors import ClientError
from .....cluster.client.cluster_client import ClusterClient
from .....cluster.client.group_client import GroupClient
from .....cluster.client.transactions.transaction_client import OpenTransaction, TransactionClient
from .....wire.types import TopicPartition as TopicPlace
from ...history import HistoryWriter
from ..load_task import Task, client_config, use_login
from .transactional_topics import PARTITIONS, TransactionalTopics

_NO_OFFSET = -1
_OFFSETS_TOPIC = "__consumer_offsets"
_PAUSE_S = 0.3
_CALL_S = 5.0
Offsets = Mapping[tuple[str, int], int]


class EndState:
    """Waits until nothing is open any more, up to the time limit of the task, and writes what it finds."""

    def __init__(self, task: Task) -> None:
        self.task = task
        use_login(task.client_properties)
        self.topics = TransactionalTopics.of(task.topic)
        self.history = HistoryWriter(task.history, task.process)
        self.history.begin()
        self._admin = AdminClient(client_config(task))
        self.no_answer = ""
        """The last error, where an answer of the cluster is missing."""

    async def run(self) -> bool:
        """Write everything; whether the cluster answered in time."""
        start_ns, deadline = time.monotonic_ns(), time.monotonic() + self.task.limit_s
        while True:
            seen = await self._look()
            if time.monotonic() > deadline or (seen is not None and seen[0] == seen[1] and not seen[2]):
                break
            await asyncio.sleep(_PAUSE_S)
        if seen is not None:
            self._write(*seen, start_ns)
        offsets = await self._group_offsets()
        self.history.close()
        return seen is not None and offsets

    async def _look(self) -> tuple[Offsets, Offsets, list[OpenTransaction]] | None:
        """Stable offsets, high watermarks, and open transactions of all topics; None if the cluster does not answer."""
        with self._noted():
            stable = self._ends(IsolationLevel.READ_COMMITTED)
            async with ClusterClient(self.task.bootstrap, timeout_s=_CALL_S) as client:
                opened = await self._open(client)
            return stable, self._ends(IsolationLevel.READ_UNCOMMITTED), opened
        return None

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        """Go on after an error of the cluster, and remember it."""
        try:
            yield
        except (ClientError, KafkaException, OSError, TimeoutError) as error:
            self.no_answer = f"{type(error).__name__}: {error}"

    async def _open(self, client: ClusterClient) -> list[OpenTransaction]:
        """The open transactions in the topics of the run, and in the partitions that have its groups' offsets."""
        found = [one for topic in self.topics.all for one in await TransactionClient(client).open_transactions(topic)]
        partitions = len((await client.metadata([_OFFSETS_TOPIC])).topic(_OFFSETS_TOPIC).partitions)
        places = [partition_for(group, partitions) for group in self.topics.inputs_of]
        others = await TransactionClient(client).open_transactions(_OFFSETS_TOPIC)
        return found + [one for one in others if one.partition.partition in places]

    def _ends(self, isolation: IsolationLevel) -> Offsets:
        places = [TopicPartition(topic, index) for topic in self.topics.all for index in range(PARTITIONS)]
        latest: Any = OffsetSpec
        wanted = {place: latest.latest() for place in places}
        found = self._admin.list_offsets(wanted, isolation_level=isolation, request_timeout=_CALL_S)
        return {(place.topic, place.partition): future.result().offset for place, future in found.items()}

    def _write(self, stable: Offsets, ends: Offsets, opened: list[OpenTransaction], start_ns: int) -> None:
        times = {"start": start_ns, "end": time.monotonic_ns()}
        for (topic, partition), offset in sorted(stable.items()):
            end = ends[topic, partition]
            where = {"topic": topic, "partition": partition, "stable": offset, "high_watermark": end}
            self.history.event("ok" if offset == end else "fail", "stable", **where, **times)
        for one in opened:
            where = {"topic": one.partition.topic, "partition": one.partition.partition, "offset": one.start_offset}
            self.history.event("fail", "hanging", **where, producer_id=one.producer_id, **times)

    async def _group_offsets(self) -> bool:
        deadline = time.monotonic() + self.task.limit_s
        while time.monotonic() < deadline:
            with self._noted():
                async with ClusterClient(self.task.bootstrap, timeout_s=_CALL_S) as client:
                    found = {group: await GroupClient(client).committed(group) for group in self.topics.inputs_of}
                self.write_group_offsets(found)
                return True
            await asyncio.sleep(_PAUSE_S)
        self.write_group_offsets(None)
        return False

    def write_group_offsets(self, found: Mapping[str, Mapping[TopicPlace, int]] | None) -> None:
        """Write the groups' offsets in all their input partitions, -1 for none; None: the cluster did not tell them."""
        for group, topic in self.topics.inputs_of.items():
            places = {TopicPlace(topic, index): _NO_OFFSET for index in range(PARTITIONS)}
            for place, offset in sorted((places | dict((found or {}).get(group, {}))).items()):
                fields: dict[str, Any] = {"group": group, "topic": place.topic, "partition": place.partition}
                fields |= {"error": self.no_answer} if found is None else {"offset": offset}
                type_ = "info" if found is None else "ok"
                self.history.event(type_, "group-offset", **fields, end=time.monotonic_ns())


def main() -> None:
    """Look at the cluster; exit code 1, and why, when it does not answer in time."""
    end_state = EndState(Task.from_argument(sys.argv[1]))
    if not asyncio.run(end_state.run()):
        sys.exit(f"the cluster does not answer: {end_state.no_answer}")


if __name__ == "__main__":
    main()
