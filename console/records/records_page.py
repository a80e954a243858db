"""Records of a topic for the browser: from an offset, a time, the beginning or the end, with a filter.

What a browser asks for is bounded: in records that are shown, in records that are looked through, in time, and in
memory. The last records are looked for from the end back, further and further, since not every offset has a record, and
so that a search whose time is over has found the last ones.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...cluster.client.client_errors import partitions_text
from ...cluster.client.cluster_client import ClusterClient
from ...cluster.client.consumer import EARLIEST, LATEST, READ_UNCOMMITTED, Consumed, Consumer
from ..errors import RequestRefusedError
from .record_decoding import RecordDecoder

SHOWN_MAX = 500
LOOKED_THROUGH_MAX = 200_000
LOOK_FOR_S = 5.0
_FOUND_BYTES_MAX = 32 << 20
"""Of the records that a search has found; one of them may have more."""
_PAUSE_EVERY = 64
"""Records after which others have their turn, and the time is looked at."""
_FURTHER_BACK = 4


@dataclass(frozen=True, slots=True)
class RecordsWanted:
    """Which records to show. `start` is `earliest`, `latest`, `offset:N` or `time:MS`."""

    topic: str
    partition: int | None
    start: str
    limit: int
    text: str = ""
    """Keys, values or names and values of headers must contain it, in whatever case."""

    @property
    def is_of_the_end(self) -> bool:
        """Whether the last records are wanted, not the next ones from somewhere."""
        return self.start == "latest"

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= SHOWN_MAX:
            raise RequestRefusedError(400, f"limit is 1 to {SHOWN_MAX}, not {self.limit}")


async def read_records(client: ClusterClient, wanted: RecordsWanted, decoder: RecordDecoder) -> dict[str, Any]:
    """The records, in the order of their times, and whether the search ended before it had seen all.

    Partitions for which no leader answers are left out, and `missing` says which; one that is named has to answer.
    """
    consumer = Consumer(client, wanted.topic, max_wait_ms=100)
    why = await _start(consumer, wanted)
    missing = [f"{partitions_text(wanted.topic, why)}, and their records are missing"] if why else []
    if not consumer.positions:
        return {"records": [], "looked_through": 0, "is_cut": False, "missing": missing}
    search = _Search(consumer, wanted)
    if wanted.is_of_the_end:
        firsts = await consumer.offsets(EARLIEST, consumer.positions)
        searching = search.back_to(firsts)
    else:
        ends = await consumer.offsets(LATEST, consumer.positions, READ_UNCOMMITTED)
        searching = search.on_to(ends)
    try:
        async with asyncio.timeout(LOOK_FOR_S):
            is_cut = await searching
    except TimeoutError:
        is_cut = True
    rows = await decoder.rows(wanted.topic, search.found())
    return {"records": rows, "looked_through": search.looked_through, "is_cut": is_cut, "missing": missing}


async def _start(consumer: Consumer, wanted: RecordsWanted) -> dict[int, str]:
    """Begin where it is wanted; returns the partitions that are left out, and why."""
    kind, _, number = wanted.start.partition(":")
    is_numbered = kind in ("offset", "time") and number.isdecimal() and len(number) < 19
    if not is_numbered and wanted.start not in ("earliest", "latest"):
        raise RequestRefusedError(400, "from is earliest, latest, offset:N or time:MILLISECONDS")
    await consumer.start([] if wanted.partition is None else [wanted.partition], at=0)
    why: dict[int, str] = {}
    if wanted.partition is None:
        consumer.positions, why = await consumer.known_offsets(LATEST, consumer.positions)
    partitions = list(consumer.positions)
    if not partitions:
        return why
    if kind == "time":
        await consumer.start_at_time(int(number), partitions)
    elif kind == "offset":
        await consumer.start_at_offset(int(number), partitions, is_any_enough=wanted.partition is None)
    elif kind == "earliest" or wanted.partition is not None:  # else all are at their ends already
        await consumer.start(partitions, at=LATEST if wanted.is_of_the_end else EARLIEST)
    return why


class _Search:
    """Looks through records, and keeps those that are wanted."""

    def __init__(self, consumer: Consumer, wanted: RecordsWanted) -> None:
        self._consumer = consumer
        self._wanted = wanted
        self._needle = wanted.text.casefold()
        self._found: list[tuple[int, int, int, Consumed]] = []
        """A heap of records behind what they are sorted by."""
        self._found_bytes = 0
        self.looked_through = 0

    def found(self) -> list[Consumed]:
        """The records, in the order of their times."""
        return [one[-1] for one in sorted(self._found)]

    async def on_to(self, ends: dict[int, int]) -> bool:
        """Look through what lies before the ends until there is enough. Returns whether there may be more."""
        async for consumed in self._consumer.records(end_offsets=ends):
            await self._look_at(consumed)
            is_enough = len(self._found) >= self._wanted.limit or self._found_bytes >= _FOUND_BYTES_MAX
            if is_enough or self.looked_through >= LOOKED_THROUGH_MAX:
                return True
        return False

    async def back_to(self, firsts: Mapping[int, int]) -> bool:
        """Look from the positions back until each partition has enough. Returns whether there may be more."""
        limit = self._wanted.limit
        starts = dict(self._consumer.positions)
        share = LOOKED_THROUGH_MAX // len(starts)
        lowest = {one: max(firsts[one], end - share) if self._needle else firsts[one] for one, end in starts.items()}
        counts = dict.fromkeys(starts, 0)
        back, has_dropped = limit, False
        while left := [one for one in starts if counts[one] < limit and starts[one] > lowest[one]]:
            ends = {one: starts[one] for one in left}
            self._consumer.positions = {one: max(lowest[one], ends[one] - back) for one in left}
            starts.update(self._consumer.positions)
            async for consumed in self._consumer.records(end_offsets=ends):
                counts[consumed.partition] += await self._look_at(consumed)
                has_dropped = self._drop_first() or has_dropped
            back *= _FURTHER_BACK
        return has_dropped or any(starts[one] > firsts[one] for one in starts)

    async def _look_at(self, consumed: Consumed) -> bool:
        """Keep the record if it is wanted. Returns whether it is."""
        self.looked_through += 1
        if not self.looked_through % _PAUSE_EVERY:
            await asyncio.sleep(0)
        if self._needle and not _contains(consumed, self._needle):
            return False
        heapq.heappush(self._found, (consumed.record.timestamp, consumed.partition, consumed.record.offset, consumed))
        self._found_bytes += _size_of(consumed)
        return True

    def _drop_first(self) -> bool:
        """Let the last records stay of too many, by their times. Returns whether there were too many."""
        count = len(self._found)
        while len(self._found) > self._wanted.limit or (self._found_bytes > _FOUND_BYTES_MAX and len(self._found) > 1):
            self._found_bytes -= _size_of(heapq.heappop(self._found)[-1])
        return len(self._found) < count


def _parts_of(consumed: Consumed) -> list[bytes | None]:
    """Key, value, and the names and values of the headers."""
    record = consumed.record
    return [record.key, record.value, *(part for name, value in record.headers for part in (name.encode(), value))]


def _size_of(consumed: Consumed) -> int:
    return sum(len(part) for part in _parts_of(consumed) if part is not None)


def _contains(consumed: Consumed, needle: str) -> bool:
    """Whether a part has this text, in whatever case: `needle` is casefolded. Bytes that are no text match nothing."""
    parts = (part.decode(errors="surrogateescape") for part in _parts_of(consumed) if part is not None)
    return any(needle in part.casefold() for part in parts)
