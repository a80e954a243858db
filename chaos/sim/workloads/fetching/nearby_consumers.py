"""Consumers in the simulator that read from replicas in their own rack, as KIP-392 has it, at either isolation level.

A partition is read from a replica in the rack of the consumer; from its leader where there is none, and for a while
after that replica was out of range, refused or gone. Some consumers choose by the racks that the metadata tells, others
ask the leader, which names a replica if its brokers have a selector, and ask it again from time to time. All that is
committed is read once and in order, and at read_committed nothing of an
aborted transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from .....cluster.client.client_errors import ClientError, is_retriable
from .....cluster.client.cluster_client import NO_ANSWER, ClusterClient, PartitionView
from .....isr.results import READ_COMMITTED
from .....wire.errors import ErrorCode
from .....wire.fetch import FetchPartition, FetchPartitionResponse
from .....wire.records import AbortedTransactions, BatchHeader, iter_headers, iter_records
from ....specification.transactions.log_replay import LogReplay
from ...invariants.invariant_broken import InvariantBroken
from ..clients import ClientContext
from .near_fetcher import NearFetcher, Read

_TIMEOUT_S = 3.0
_PAUSE_S = 0.05
_AT_LEADER_S = 0.5
"""For so long a partition is read from its leader when the near replica was of no use."""
_REFRESH_S = 1.0
_PREFERRED_S = 2.0
"""For so long a replica that the leader has named is read from, before the leader is asked again."""
_FORMER_EPOCH_PROBABILITY = 0.05
_ASKING_PROBABILITY = 0.7


class NearbyConsumers:
    """A consumer in each rack. A `Workload`."""

    name = "nearby consumers"

    def __init__(self, context: ClientContext, topics: Sequence[str], racks: Sequence[str]) -> None:
        """`racks` are those of the brokers 1, 2, ... in their order."""
        self._consumers = [
            _NearbyConsumer(context, topics, rack, dict(enumerate(racks, 1))) for rack in dict.fromkeys(racks)
        ]

    async def run(self) -> None:
        """See `Workload`."""
        await asyncio.gather(*(consumer.run() for consumer in self._consumers))

    def stop(self) -> None:
        """See `Workload`. They read on to the end."""

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        return next((reason for one in self._consumers if (reason := one.why_behind()) is not None), None)

    def check(self) -> None:
        """See `Workload`."""
        for consumer in self._consumers:
            consumer.check()


class _NearbyConsumer:
    def __init__(self, context: ClientContext, topics: Sequence[str], rack: str, racks: dict[int, str]) -> None:
        self.from_followers = 0
        """Batches that followers have given."""
        self._context = context
        self._topics = topics
        self._rack = rack
        self._racks = racks
        self._cluster = ClusterClient(
            context.bootstrap, client_id=f"in rack {rack}", timeout_s=_TIMEOUT_S, probe_timeout_s=None
        )
        self._ids: dict[str, UUID] = {}
        self._views: dict[Read, PartitionView] = {}
        self._told_racks: dict[int, str | None] = {}
        self._positions: dict[Read, int] = {}
        self._shown: dict[Read, list[int]] = {}
        """The offsets of the records that are not left out."""
        self._at_leader_until: dict[Read, float] = {}
        self._asks_leaders = context.rng.random() < _ASKING_PROBABILITY
        self._preferred: dict[Read, tuple[int, float]] = {}
        """The replica that the leader has named, and until when it is read from."""
        self._fetcher = NearFetcher(self._cluster, context.rng, rack, self._ids)

    async def run(self) -> None:
        """Read; does not return."""
        await asyncio.gather(self._follow_metadata(), *(self._read_from(broker) for broker in self._racks))

    # -- metadata

    async def _follow_metadata(self) -> None:
        while True:
            await self._refresh()
            await asyncio.sleep(_REFRESH_S if self._views else _PAUSE_S)

    async def _refresh(self) -> None:
        try:
            view = await self._cluster.metadata(list(self._topics))
        except ClientError:
            return
        for broker in view.brokers:
            if broker.rack != self._racks[broker.node_id]:
                detail = f"{broker.node_id} is in {self._racks[broker.node_id]}, told is {broker.rack}"
                raise InvariantBroken("clients are told the racks of brokers", detail)
            self._told_racks[broker.node_id] = broker.rack
        for topic in view.topics:
            if topic.topic_id is None or topic.name is None:
                continue
            self._ids[topic.name] = topic.topic_id
            for one in topic.partitions:
                known = self._views.get(Read(topic.name, one.partition))
                if known is None or one.leader_epoch >= known.leader_epoch:
                    self._views[Read(topic.name, one.partition)] = one

    def _broker_for(self, key: Read, view: PartitionView) -> int:
        now_s = asyncio.get_running_loop().time()
        if self._at_leader_until.get(key, 0.0) > now_s:
            return view.leader
        if self._asks_leaders:
            preferred, until_s = self._preferred.get(key, (view.leader, now_s))
            return preferred if now_s < until_s else view.leader
        return next((one for one in view.replicas if self._told_racks.get(one) == self._rack), view.leader)

    # -- reading

    async def _read_from(self, broker: int) -> None:
        while True:
            views = {key: view for key, view in self._views.items() if self._broker_for(key, view) == broker}
            if not views:
                await asyncio.sleep(_PAUSE_S)
                continue
            wanted = {
                key: FetchPartition(key.partition, view.leader_epoch, self._positions.setdefault(key, 0))
                for key, view in views.items()
            }
            try:
                rows = await self._fetcher.fetch(broker, wanted)
                refused = [
                    key for key, row in rows.items() if not self._take(key, views[key], broker, wanted[key], row)
                ]
                await self._ask_with_former_epoch(broker, wanted, rows)
            except NO_ANSWER:
                refused = list(views)
                for key in refused:
                    self._preferred.pop(key, None)
            if refused:
                until = asyncio.get_running_loop().time() + _AT_LEADER_S
                self._at_leader_until |= dict.fromkeys(refused, until)
                await asyncio.sleep(_PAUSE_S)
                await self._refresh()

    async def _ask_with_former_epoch(
        self, broker: int, wanted: dict[Read, FetchPartition], rows: dict[Read, FetchPartitionResponse]
    ) -> None:
        for key, row in rows.items():
            if not row.error_code and wanted[key].current_leader_epoch > 0:
                if self._context.rng.random() < _FORMER_EPOCH_PROBABILITY:
                    await self._fetcher.ask_with_former_epoch(broker, key, wanted[key])
                return

    def _take(
        self, key: Read, view: PartitionView, broker: int, wanted: FetchPartition, row: FetchPartitionResponse
    ) -> bool:
        """Take the records of a row; whether the broker has answered."""
        code = row.error_code
        if code:
            if not is_retriable(code) and not (code == ErrorCode.OFFSET_OUT_OF_RANGE and broker != view.leader):
                detail = f"{key} at {wanted.fetch_offset}, from {broker} of {view}: {ErrorCode(code).name}"
                raise InvariantBroken("a consumer's position stays valid", detail)
            self._preferred.pop(key, None)
            return False
        if row.preferred_read_replica >= 0:
            self._at_leader_until.pop(key, None)
            self._preferred[key] = row.preferred_read_replica, asyncio.get_running_loop().time() + _PREFERRED_S
            return True
        is_committed = self._fetcher.isolation_level == READ_COMMITTED
        aborted = AbortedTransactions(row.aborted_transactions or ())
        records = memoryview(bytes(row.records_in_memory()))
        for position, header in iter_headers(records, allow_partial_tail=True):
            batch = records[position : position + header.size_bytes]
            is_hidden = aborted.hide(batch, header) if is_committed else header.is_control
            at = self._positions[key]
            if header.last_offset < at:
                continue
            if header.base_offset > at:
                raise InvariantBroken("a consumer is shown every offset", f"{key}: {header.base_offset} after {at}")
            if not is_hidden:
                self._shown.setdefault(key, []).extend(one.offset for one in iter_records(batch) if one.offset >= at)
            self._positions[key] = header.next_offset
            self.from_followers += broker != view.leader
        return True

    # -- judgement

    def why_behind(self) -> str | None:
        """A partition of which it has not read everything that is committed; None if there is none."""
        for name in self._topics:
            for (topic_id, index), log in self._context.checker.committed.items():
                at = self._positions.get(Read(name, index), 0)
                if topic_id == self._ids.get(name) and at < log.promised_end_offset:
                    return f"in rack {self._rack}: {name}-{index} is read to {at} of {log.promised_end_offset}"
        return None if self._views else "no metadata is known"

    def check(self) -> None:
        """What was shown is what the committed log has, less what was aborted."""
        for key in self._views:
            log = self._context.checker.committed.get((self._ids[key.topic], key.partition))
            if log is None:
                continue
            replay = LogReplay()
            offsets: dict[int, BatchHeader] = {}
            for batch in log.batches.values():
                _, header = next(iter(iter_headers(batch)))
                replay.follow(header, batch)
                if not header.is_control:
                    offsets |= {one.offset: header for one in iter_records(batch)}
            hidden = [
                one for one in replay.ended if not one.is_commit and self._fetcher.isolation_level == READ_COMMITTED
            ]
            expected = [
                offset
                for offset, header in offsets.items()
                if not any(
                    one.producer_id == header.producer_id and one.first_offset <= offset < one.marker_offset
                    for one in hidden
                )
            ]
            shown = self._shown.get(key, [])
            if shown[: len(expected)] != expected:
                detail = f"{key} in rack {self._rack}: shown {shown}, expected {expected}"
                raise InvariantBroken("a near replica shows all that is committed, once and in order", detail)
