"""A small consumer of assigned partitions, without a group and without commits."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from ...wire.api_keys import ApiKey
from ...wire.codec import Struct
from ...wire.errors import ErrorCode
from ...wire.records import AbortedTransactions, CorruptBatchError, Record, iter_headers, iter_records, verify_crc
from .client_errors import ClientError, DamagedBatchError, RefusedError, is_retriable, no_such_partition
from .cluster_client import NO_ANSWER, NOTICE_AFTER_S, ClusterClient, TopicView

EARLIEST, LATEST = -2, -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_LIST_OFFSETS_VERSION = 7
_FETCH_VERSION = 12
_RETRY_PAUSE_S = 0.1
_MAX_BYTES = 8 * 1024 * 1024
_logger = logging.getLogger("raftwerk.cluster.client")
_FURTHER_BACK = 4
"""By how much more of a partition is read when it has not as many records as are looked for."""


def partition_range(topic: str, partition: int, first: int, end: int) -> str:
    """Where a partition begins and ends: `orders-0 has the offsets 3 to 9`, `orders-1 is empty and ends at 0`."""
    what = f"has the offsets {first} to {end - 1}" if end > first else f"is empty and ends at {end}"
    return f"{topic}-{partition} {what}"


@dataclass(frozen=True, slots=True)
class Consumed:
    """A record and its partition."""

    partition: int
    record: Record


class Consumer:
    """Reads partitions of one topic, each in order.

    With an `isolation_level` of `READ_COMMITTED` it leaves out records of aborted transactions, and a partition ends
    for it at the first record of an open one (KIP-98).
    """

    def __init__(
        self, client: ClusterClient, topic: str, *, max_wait_ms: int = 500, isolation_level: int = READ_UNCOMMITTED
    ) -> None:
        self.client = client
        self.topic = topic
        self.max_wait_ms = max_wait_ms
        self.isolation_level = isolation_level
        self.positions: dict[int, int] = {}
        self._view: TopicView | None = None
        self._damage: ClientError | None = None
        """What is wrong with a batch that was met."""
        self._unanswered_since: float | None = None

    async def start(self, partitions: Iterable[int] = (), *, at: int = EARLIEST) -> None:
        """Assign partitions (default: all) and begin at `EARLIEST`, `LATEST` or an offset."""
        self._view = (await self.client.metadata([self.topic])).topic(self.topic)
        known = [one.partition for one in self._view.partitions]
        wanted = list(partitions) or known
        for partition in wanted:
            if partition not in known:
                raise no_such_partition(self.topic, partition, len(known))
        self.positions = dict.fromkeys(wanted, at) if at >= 0 else await self.offsets(at, wanted)

    async def start_at_offset(self, offset: int, partitions: Iterable[int] = ()) -> dict[int, tuple[int, int]]:
        """Assign partitions, and begin each at this offset.

        Partitions that do not reach to it are left out, and returned with the offsets at which they begin and end.
        Raises `ClientError` if none is left, or one that was named.
        """
        named = list(partitions)
        await self.start(named, at=offset)
        firsts = await self.offsets(EARLIEST, self.positions)
        ends = await self.offsets(LATEST, self.positions, READ_UNCOMMITTED)
        outside = {one: (firsts[one], ends[one]) for one in firsts if not firsts[one] <= offset <= ends[one]}
        if outside and (named or len(outside) == len(firsts)):
            where = "; ".join(partition_range(self.topic, one, *bounds) for one, bounds in outside.items())
            raise ClientError(f"there is no offset {offset}: {where}")
        for one in outside:
            del self.positions[one]
        return outside

    async def start_at_time(self, timestamp_ms: int, partitions: Iterable[int] = ()) -> None:
        """Assign partitions, and begin each at its first record of this time or later, else at its end."""
        await self.start(partitions, at=LATEST)
        found = await self.offsets(timestamp_ms, self.positions)
        self.positions.update({partition: offset for partition, offset in found.items() if offset >= 0})

    async def start_at_last(self, count: int, partitions: Iterable[int] = ()) -> None:
        """Assign partitions, and begin each at the last so many records that are read in it, or at its first.

        It reads from further and further back, since not every offset has such a record: markers of transactions take
        offsets, too, and compaction leaves gaps.
        """
        await self.start(partitions, at=LATEST)
        ends = dict(self.positions)
        firsts = await self.offsets(EARLIEST, ends)
        starts: dict[int, int] = {}
        back = count
        while left := [one for one in ends if one not in starts]:
            self.positions = {one: max(firsts[one], ends[one] - back) for one in left}
            begun = dict(self.positions)
            found = await self._last_offsets(count, {one: ends[one] for one in left})
            for one, offsets in found.items():
                if len(offsets) == count or begun[one] == firsts[one]:
                    starts[one] = offsets[0] if len(offsets) == count else firsts[one]
            back *= _FURTHER_BACK
        self.positions = {one: starts[one] for one in ends}

    async def _last_offsets(self, count: int, ends: dict[int, int]) -> dict[int, deque[int]]:
        """The offsets of the last records, at most `count`, between the positions and the ends."""
        found: dict[int, deque[int]] = {one: deque(maxlen=count) for one in ends}
        async for consumed in self.records(end_offsets=ends):
            if consumed.record.offset < ends[consumed.partition]:
                found[consumed.partition].append(consumed.record.offset)
        return found

    async def learn(self, partitions: Iterable[int]) -> None:
        """Ask for metadata until it has these partitions, which may be new."""
        highest = max(partitions)
        for attempt in range(100):
            if self._view is not None and highest < len(self._view.partitions):
                return
            await self._pause_and_refresh(attempt)
        raise ClientError(f"topic {self.topic} has no partition {highest}")

    async def is_past(self, ends: dict[int, int]) -> bool:
        """Whether every position has reached its end offset."""
        return all(self.positions[one] >= end for one, end in ends.items())

    def done(self, consumed: Consumed) -> None:
        """Nothing: a consumer without a group keeps no account of what was read. See `GroupMember.done`."""

    async def offsets(
        self, timestamp: int, partitions: Iterable[int], isolation_level: int | None = None
    ) -> dict[int, int]:
        """The offset of a timestamp in milliseconds, or of `EARLIEST` or `LATEST`, in each partition.

        The latest offset depends on the isolation level, which is the consumer's unless another is given.
        """
        found: dict[int, int] = {}
        missing = list(partitions)
        isolation = self.isolation_level if isolation_level is None else isolation_level
        for attempt in range(100):
            for leader, group in self._by_leader(missing).items():
                found.update(await self._list_offsets(leader, group, timestamp, isolation))
            missing = [one for one in missing if one not in found]
            if not missing:
                return {one: found[one] for one in sorted(found)}
            await self._pause_and_refresh(attempt)
        raise ClientError(f"topic {self.topic}: no leader reports the offsets of partitions {missing}")

    async def poll(self) -> list[Consumed]:
        """The records that are there, or that arrive within `max_wait_ms`; the list may be empty.

        Raises `ClientError` for a damaged batch, once all records that were got with it are returned.
        """
        if self._damage is not None:
            raise self._damage
        groups = self._by_leader(self.positions)
        answers = await asyncio.gather(*(self._fetch(leader, group) for leader, group in groups.items()))
        result = [consumed for answer in answers for consumed in answer]
        if not groups:
            await self._pause_and_refresh(0)
        if self._damage is not None and not result:
            raise self._damage
        return result

    async def records(self, *, end_offsets: dict[int, int] | None = None) -> AsyncIterator[Consumed]:
        """Yield records without end, or until every position has reached its end offset."""
        while end_offsets is None or not await self.is_past(end_offsets):
            for consumed in await self.poll():
                yield consumed

    def _by_leader(self, partitions: Iterable[int]) -> dict[int, list[int]]:
        groups: dict[int, list[int]] = {}
        if self._view is not None:
            for partition in partitions:
                leader = self._view.partitions[partition].leader
                if leader >= 0:
                    groups.setdefault(leader, []).append(partition)
        return groups

    async def _pause_and_refresh(self, attempt: int) -> None:
        await asyncio.sleep(_RETRY_PAUSE_S if attempt else 0)
        try:
            self._view = (await self.client.metadata([self.topic])).topic(self.topic)
        except RefusedError:
            raise
        except ClientError as error:
            self.on_no_answer(error)
            return
        self._unanswered_since = None

    def on_no_answer(self, error: ClientError) -> None:
        """Say that no broker answers, and why, once this has lasted for some seconds."""
        now = asyncio.get_running_loop().time()
        if self._unanswered_since is None:
            self._unanswered_since = now
        elif now - self._unanswered_since >= NOTICE_AFTER_S:
            self._unanswered_since = math.inf
            _logger.warning("%s; asking again until one does", error)

    async def _list_offsets(
        self, leader: int, partitions: list[int], timestamp: int, isolation_level: int
    ) -> dict[int, int]:
        rows = [{"partition_index": one, "current_leader_epoch": -1, "timestamp": timestamp} for one in partitions]
        fields = {
            "replica_id": -1,
            "isolation_level": isolation_level,
            "topics": [{"name": self.topic, "partitions": rows}],
        }
        try:
            answer = await self.client.request_node(leader, ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, fields)
        except NO_ANSWER:
            return {}
        found = {}
        for row in answer.topics[0].partitions:
            if row.error_code and not is_retriable(row.error_code):
                raise RefusedError(row.error_code, f"{self.topic}-{row.partition_index}")
            if not row.error_code:
                found[row.partition_index] = row.offset
        return found

    async def _fetch(self, leader: int, partitions: list[int]) -> list[Consumed]:
        rows = [
            {
                "partition": one,
                "current_leader_epoch": -1,
                "fetch_offset": self.positions[one],
                "last_fetched_epoch": -1,
                "log_start_offset": -1,
                "partition_max_bytes": _MAX_BYTES,
            }
            for one in partitions
        ]
        fields = {
            "replica_id": -1,
            "max_wait": self.max_wait_ms,
            "min_bytes": 1,
            "max_bytes": _MAX_BYTES,
            "isolation_level": self.isolation_level,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": self.topic, "partitions": rows}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        try:
            answer = await self.client.request_node(leader, ApiKey.FETCH, _FETCH_VERSION, fields)
        except NO_ANSWER:
            await self._pause_and_refresh(1)
            return []
        result: list[Consumed] = []
        stale = False
        for topic in answer.responses:
            for row in topic.partitions:
                stale |= self._take(row, result)
        if stale:
            await self._pause_and_refresh(1)
        return result

    def _take(self, row: Struct, result: list[Consumed]) -> bool:
        """Add the records of a partition. Returns whether the metadata may be out of date."""
        self._check(row)
        if row.records:
            self._add_records(row.partition_index, row, result)
        return bool(row.error_code)

    def _check(self, row: Struct) -> None:
        if row.error_code and not is_retriable(row.error_code):
            message = None
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                message = f"offset {self.positions[row.partition_index]} is not in the log"
            raise RefusedError(row.error_code, f"{self.topic}-{row.partition_index}", message)

    def _add_records(self, partition: int, row: Struct, result: list[Consumed]) -> None:
        wanted = self.positions[partition]
        aborted = AbortedTransactions((one.producer_id, one.first_offset) for one in row.aborted_transactions or ())
        view = memoryview(row.records)
        try:
            for position, header in iter_headers(view, allow_partial_tail=True):
                batch = view[position : position + header.size_bytes]
                if not verify_crc(view, position, header):
                    raise CorruptBatchError(ErrorCode.CORRUPT_MESSAGE, "its CRC does not match")
                if not aborted.hide(batch, header):
                    result += [Consumed(partition, record) for record in iter_records(batch) if record.offset >= wanted]
                self.positions[partition] = header.next_offset
            if self.positions[partition] == wanted:  # the first batch of an answer is a whole one
                raise CorruptBatchError(ErrorCode.CORRUPT_MESSAGE, "it is longer than what there is of it")
        except CorruptBatchError as error:
            self._damage = self._damaged(partition, error)

    def _damaged(self, partition: int, error: CorruptBatchError) -> ClientError:
        leader = -1 if self._view is None else self._view.partitions[partition].leader
        return DamagedBatchError(f"{self.topic}-{partition}", leader, self.positions[partition], str(error))
