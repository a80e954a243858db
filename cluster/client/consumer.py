"""A small consumer of assigned partitions, without a group and without commits."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ...wire.api_keys import ApiKey
from ...wire.codec import Struct
from ...wire.errors import ErrorCode
from ...wire.records import (
    AbortedTransactions,
    BatchHeader,
    CorruptBatchError,
    Record,
    iter_headers,
    iter_records,
    verify_crc,
)
from .access.needed_rights import Asked
from .client_errors import (
    NO_LEADER,
    ClientError,
    DamagedBatchError,
    NoLeaderAnswersError,
    OffsetOutOfRangeError,
    RefusedError,
    is_retriable,
    no_such_partition,
    partitions_text,
)
from .cluster_client import NO_ANSWER, NOTICE_AFTER_S, ClusterClient, TopicView
from .error_sentences import meaning_of
from .peer_protocol import no_answer_reason

EARLIEST, LATEST = -2, -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_LIST_OFFSETS_VERSION = 7
_FETCH_VERSION = 12
_RETRY_PAUSE_S = 0.1
_LOOK_FOR_LEADER_S = 1.0
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


async def topic_offsets(
    client: ClusterClient, topic: str, timestamp: int, partitions: Iterable[int] = ()
) -> dict[int, int]:
    """The offset in partitions of a topic (default: all) at this time in ms, or at `EARLIEST` or `LATEST`."""
    consumer = Consumer(client, topic, purpose=ApiKey.LIST_OFFSETS)
    await consumer.start(partitions, at=0)
    return await consumer.offsets(timestamp, consumer.positions)


class Consumer:
    """Reads partitions of one topic, each in order.

    With an `isolation_level` of `READ_COMMITTED` it leaves out records of aborted transactions, and a partition ends
    for it at the first record of an open one (KIP-98). A refusal names the right that the `purpose` needs: to read, or
    with `LIST_OFFSETS` only to ask for offsets.
    """

    def __init__(
        self,
        client: ClusterClient,
        topic: str,
        *,
        max_wait_ms: int = 500,
        isolation_level: int = READ_UNCOMMITTED,
        purpose: ApiKey = ApiKey.FETCH,
    ) -> None:
        self.client = client
        self.topic = topic
        self.max_wait_ms = max_wait_ms
        self.isolation_level = isolation_level
        self._asked = Asked(purpose, topic=topic)
        self.positions: dict[int, int] = {}
        self._view: TopicView | None = None
        self._error: ClientError | None = None
        """Why a partition cannot be read on, until that is raised."""
        self._unanswered_since: float | None = None
        self._silent_since: dict[int, float] = {}
        """Since when nobody answers for a partition; infinite once that was said."""
        self._refreshed_at = -math.inf

    async def start(self, partitions: Iterable[int] = (), *, at: int = EARLIEST) -> None:
        """Assign partitions (default: all) and begin at `EARLIEST`, `LATEST` or an offset."""
        self._view = (await self.client.metadata([self.topic], purpose=self._asked.api)).topic(self.topic)
        known = [one.partition for one in self._view.partitions]
        wanted = list(partitions) or known
        for partition in wanted:
            if partition not in known:
                raise no_such_partition(self.topic, partition, len(known))
        self.positions = dict.fromkeys(wanted, at) if at >= 0 else await self.offsets(at, wanted)

    async def start_at_offset(
        self, offset: int, partitions: Iterable[int] = (), *, is_any_enough: bool = False
    ) -> dict[int, tuple[int, int]]:
        """Assign partitions, and begin each at this offset.

        Partitions that do not reach to it are left out, and returned with the offsets at which they begin and end.
        Raises `ClientError` if none is left, or one that was named, unless `is_any_enough` of these.
        """
        named = list(partitions)
        await self.start(named, at=offset)
        firsts = await self.offsets(EARLIEST, self.positions)
        ends = await self.offsets(LATEST, self.positions, READ_UNCOMMITTED)
        outside = {one: (firsts[one], ends[one]) for one in firsts if not firsts[one] <= offset <= ends[one]}
        if outside and ((named and not is_any_enough) or len(outside) == len(firsts)):
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
            found[consumed.partition].append(consumed.record.offset)
        return found

    async def learn(self, partitions: Iterable[int]) -> None:
        """Ask for metadata until it has these partitions, which may be new."""
        highest = max(partitions)
        now = self.client.throttling.unthrottled_time
        deadline = now() + self.client.timeout_s
        for attempt in itertools.count():
            if self._view is not None and highest < len(self._view.partitions):
                return
            if now() > deadline:
                break
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

        The latest offset depends on the isolation level, which is the consumer's unless another is given. Raises
        `NoLeaderAnswersError` for partitions without an answer within the client's `leader_wait_s`; after it a broker
        is still asked for those that it began to lead meanwhile.
        """
        found: dict[int, int] = {}
        missing = list(partitions)
        isolation = self.isolation_level if isolation_level is None else isolation_level
        now = self.client.throttling.unthrottled_time
        began, limit_s = now(), self.client.leader_wait_s
        deadline = began + limit_s
        told_at = began + NOTICE_AFTER_S if limit_s >= 2 * NOTICE_AFTER_S else math.inf
        asked: dict[int, set[int]] = {}
        for attempt in itertools.count():
            groups = self._by_leader(missing)
            for leader, group in groups.items():
                asked.setdefault(leader, set()).update(group)
            why = dict.fromkeys(missing, NO_LEADER)
            answers = [self._list_offsets(leader, group, timestamp, isolation) for leader, group in groups.items()]
            for offsets, reasons in await asyncio.gather(*answers):
                found.update(offsets)
                why.update(reasons)
            missing = [one for one in missing if one not in found]
            if not missing:
                break
            if now() >= told_at:
                told_at = math.inf
                late = {one: why[one] for one in missing}
                _logger.warning("%s; asking again for up to %g s", partitions_text(self.topic, late), limit_s)
            await self._pause_and_refresh(attempt)
            now_led = self._by_leader(missing).items()
            if now() > deadline and all(asked.get(one, set()).issuperset(group) for one, group in now_led):
                raise NoLeaderAnswersError(self.topic, {one: why[one] for one in missing}, found)
        return {one: found[one] for one in sorted(found)}

    async def known_offsets(self, timestamp: int, partitions: Collection[int]) -> tuple[dict[int, int], dict[int, str]]:
        """What `offsets` finds in the partitions for which a leader answers, and why none answers for the others.

        Those that have no leader are not waited for.
        """
        led = list(itertools.chain(*self._by_leader(partitions).values()))
        why = {one: NO_LEADER for one in partitions if one not in led}
        try:
            return await self.offsets(timestamp, led), why
        except NoLeaderAnswersError as error:
            return dict(error.found), why | dict(error.why)

    async def poll(self) -> list[Consumed]:
        """The records that are there, or that arrive within `max_wait_ms`; the list may be empty.

        Raises `ClientError` for a partition that is refused and for a damaged batch, once all records that were got
        with it are returned.
        """
        return [consumed for batch in await self.poll_batches() for consumed in batch]

    async def poll_batches(self, end_offsets: Mapping[int, int] | None = None) -> Iterator[list[Consumed]]:
        """What `poll` returns, in a list for each batch, up to the end offsets. Errors as of `poll`.

        A batch is decompressed when it is asked for, and the position of its partition moves then: a few of the bytes
        that a leader sends may hold more records than the memory.
        """
        self._raise_error()
        began = asyncio.get_running_loop().time()
        ends = end_offsets or {}
        wanted = [one for one, at in self.positions.items() if at < ends.get(one, math.inf)]
        groups = self._by_leader(wanted)
        why = dict.fromkeys(wanted, NO_LEADER)
        for partition in itertools.chain(*groups.values()):
            del why[partition]
        leaderless = len(why)
        answers = await asyncio.gather(*(self._fetch(leader, group, why) for leader, group in groups.items()))
        if not groups or len(why) > leaderless:
            await self._pause_and_refresh(1)
        elif leaderless and began - self._refreshed_at >= _LOOK_FOR_LEADER_S:
            await self._pause_and_refresh(0)
        self._tell_what_is_waited_for(why, began)
        return self._decoded(itertools.chain(*answers), ends)

    def _raise_error(self) -> None:
        """Raise what was met, once: who goes on after it, from another offset, is not told of it again."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    async def records(self, *, end_offsets: dict[int, int] | None = None) -> AsyncIterator[Consumed]:
        """Yield records without end, or those below the end offsets."""
        while end_offsets is None or not await self.is_past(end_offsets):
            for batch in await self.poll_batches(end_offsets):
                for consumed in batch:
                    yield consumed

    def _tell_what_is_waited_for(self, why: Mapping[int, str], began: float) -> None:
        """Say which partitions nobody answers for while others answer, once this has lasted for some seconds."""
        if self._unanswered_since is not None:
            return  # see `on_no_answer`
        now = asyncio.get_running_loop().time()
        self._silent_since = {one: self._silent_since.get(one, began) for one in why}
        late = {one: why[one] for one, since in self._silent_since.items() if now - since >= NOTICE_AFTER_S}
        if late:
            self._silent_since.update(dict.fromkeys(late, math.inf))
            _logger.warning("%s; asking again until a leader answers", partitions_text(self.topic, late))

    def _by_leader(self, partitions: Iterable[int]) -> dict[int, list[int]]:
        groups: dict[int, list[int]] = {}
        if self._view is not None:
            for partition in partitions:
                leader = self._view.partition(partition).leader
                if leader >= 0:
                    groups.setdefault(leader, []).append(partition)
        return groups

    async def _pause_and_refresh(self, attempt: int) -> None:
        await asyncio.sleep(_RETRY_PAUSE_S if attempt else 0)
        self._refreshed_at = asyncio.get_running_loop().time()
        try:
            self._view = await self.client.topic_again(self.topic, self._view)
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
    ) -> tuple[dict[int, int], dict[int, str]]:
        """The offsets by partition, and for those without an answer the reason."""
        rows = [{"partition_index": one, "current_leader_epoch": -1, "timestamp": timestamp} for one in partitions]
        fields = {
            "replica_id": -1,
            "isolation_level": isolation_level,
            "topics": [{"name": self.topic, "partitions": rows}],
        }
        try:
            answer = await self.client.request_node(leader, ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, fields)
        except NO_ANSWER as error:
            return {}, dict.fromkeys(partitions, f"{self.client.broker_text(leader)} {no_answer_reason(error)}")
        found, why = {}, {}
        for row in answer.topics[0].partitions:
            if row.error_code and not is_retriable(row.error_code):
                raise RefusedError(row.error_code, f"{self.topic}-{row.partition_index}", asked=self._asked)
            if row.error_code:
                why[row.partition_index] = f"{self.client.broker_text(leader)} says: {meaning_of(row.error_code)}"
            else:
                found[row.partition_index] = row.offset
        return found, why

    async def _fetch(self, leader: int, partitions: list[int], why: dict[int, str]) -> list[Struct]:
        """What a leader answers for each partition; `why` gets the reason for those that are to be asked for again."""
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
        except NO_ANSWER as error:
            why.update(dict.fromkeys(partitions, f"{self.client.broker_text(leader)} {no_answer_reason(error)}"))
            return []
        found = [row for topic in answer.responses for row in topic.partitions]
        for row in found:
            if row.error_code and is_retriable(row.error_code):
                why[row.partition_index] = f"{self.client.broker_text(leader)} says: {meaning_of(row.error_code)}"
        return found

    def _decoded(self, rows: Iterable[Struct], end_offsets: Mapping[int, int]) -> Iterator[list[Consumed]]:
        """Nothing is awaited here: a position moves only if the records before it are returned."""
        is_empty = True
        for row in rows:
            try:
                for batch in self._batches_of(row, end_offsets.get(row.partition_index)):
                    is_empty = is_empty and not batch
                    yield batch
            except ClientError as error:
                self._error = self._error or error
        if is_empty:
            self._raise_error()

    def _batches_of(self, row: Struct, end_offset: int | None) -> Iterator[list[Consumed]]:
        """The records of each batch of a partition, below its end offset; moves its position.

        Raises `ClientError` if the partition is refused, or has a damaged batch.
        """
        partition: int = row.partition_index
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise OffsetOutOfRangeError(self.topic, partition, self.positions[partition])
        if row.error_code == ErrorCode.CORRUPT_MESSAGE:
            raise self._damaged(partition, "the node cannot read it")
        if row.error_code and not is_retriable(row.error_code):
            raise RefusedError(row.error_code, f"{self.topic}-{partition}", asked=self._asked)
        if not row.records:
            return
        wanted = self.positions[partition]
        end = math.inf if end_offset is None else end_offset
        aborted = AbortedTransactions((one.producer_id, one.first_offset) for one in row.aborted_transactions or ())
        view = memoryview(row.records)
        try:
            for position, header in iter_headers(view, allow_partial_tail=True):
                self._check_place(partition, header, row.high_watermark)
                if header.base_offset >= end:
                    self.positions[partition] = max(self.positions[partition], header.base_offset)
                    return
                batch = view[position : position + header.size_bytes]
                found = self._records_of(partition, batch, header, aborted, end)
                self.positions[partition] = header.next_offset
                yield found
            if self.positions[partition] == wanted:  # the first batch of an answer is a whole one
                raise CorruptBatchError(ErrorCode.CORRUPT_MESSAGE, "it is longer than what there is of it")
        except CorruptBatchError as error:
            raise self._damaged(partition, str(error)) from error

    def _check_place(self, partition: int, header: BatchHeader, high_watermark: int) -> None:
        """The CRC of a batch does not cover its base offset: a wrong one would hide its records, or those behind it.

        Raises `CorruptBatchError` for a batch that no broker can mean to send.
        """
        if header.next_offset <= self.positions[partition] or header.base_offset >= high_watermark >= 0:
            told = f"by its header its offsets are {header.base_offset} to {header.last_offset}"
            raise CorruptBatchError(ErrorCode.CORRUPT_MESSAGE, told)

    def _records_of(
        self, partition: int, batch: memoryview, header: BatchHeader, aborted: AbortedTransactions, end: float
    ) -> list[Consumed]:
        """The records of a batch from the partition's position on, below `end`. Raises `CorruptBatchError`."""
        if not verify_crc(batch, 0, header):
            raise CorruptBatchError(ErrorCode.CORRUPT_MESSAGE, "its CRC does not match")
        if aborted.hide(batch, header):
            return []
        wanted = self.positions[partition]
        return [Consumed(partition, one) for one in iter_records(batch) if wanted <= one.offset < end]

    def _damaged(self, partition: int, reason: str) -> ClientError:
        leader = -1 if self._view is None else self._view.partition(partition).leader
        return DamagedBatchError(f"{self.topic}-{partition}", leader, self.positions[partition], reason)
