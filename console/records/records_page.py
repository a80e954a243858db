"""Records of a topic for the browser: from an offset, a time, the beginning or the end, with a filter.

What a browser asks for is bounded: in records that are shown, in records that are looked through, and in time.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from ...cluster.client.cluster_client import ClusterClient
from ...cluster.client.consumer import EARLIEST, LATEST, READ_UNCOMMITTED, Consumed, Consumer
from ..errors import RequestRefusedError
from .record_decoding import RecordDecoder

SHOWN_MAX = 500
LOOKED_THROUGH_MAX = 200_000
LOOK_FOR_S = 5.0


@dataclass(frozen=True, slots=True)
class RecordsWanted:
    """Which records to show. `start` is `earliest`, `latest`, `offset:N` or `time:MS`."""

    topic: str
    partition: int | None
    start: str
    limit: int
    text: str = ""
    """Keys, values or names and values of headers must contain it; case counts not."""

    @property
    def is_of_the_end(self) -> bool:
        """Whether the last records are wanted, not the next ones from somewhere."""
        return self.start == "latest"

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= SHOWN_MAX:
            raise RequestRefusedError(400, f"limit is 1 to {SHOWN_MAX}, not {self.limit}")


async def read_records(client: ClusterClient, wanted: RecordsWanted, decoder: RecordDecoder) -> dict[str, Any]:
    """The records, in the order of their times, and whether the search ended before the ends of the partitions."""
    consumer = Consumer(client, wanted.topic, max_wait_ms=100)
    await _start(consumer, wanted)
    ends = await consumer.offsets(LATEST, consumer.positions, READ_UNCOMMITTED)
    needle = wanted.text.lower().encode()
    found: list[Consumed] = []
    looked_through = 0
    is_cut = False
    try:
        async with asyncio.timeout(LOOK_FOR_S):
            async for consumed in consumer.records(end_offsets=ends):
                if consumed.record.offset >= ends[consumed.partition]:
                    continue
                looked_through += 1
                if not needle or _contains(consumed, needle):
                    found.append(consumed)
                is_enough = len(found) >= wanted.limit and not wanted.is_of_the_end
                if is_enough or looked_through >= LOOKED_THROUGH_MAX:
                    is_cut = True
                    break
    except TimeoutError:
        is_cut = True
    found.sort(key=lambda one: (one.record.timestamp, one.partition, one.record.offset))
    if wanted.is_of_the_end:
        found = found[-wanted.limit :]
    rows = await decoder.rows(wanted.topic, found)
    return {"records": rows, "looked_through": looked_through, "is_cut": is_cut}


async def _start(consumer: Consumer, wanted: RecordsWanted) -> None:
    partitions = [] if wanted.partition is None else [wanted.partition]
    kind, _, number = wanted.start.partition(":")
    if kind == "earliest":
        await consumer.start(partitions, at=EARLIEST)
    elif wanted.is_of_the_end and wanted.text:
        await _start_before_the_end(consumer, partitions)
    elif wanted.is_of_the_end:
        await consumer.start_at_last(wanted.limit, partitions)
    elif kind in ("offset", "time") and number.isdecimal() and len(number) < 19:
        if kind == "time":
            await consumer.start_at_time(int(number), partitions)
        else:
            await consumer.start_at_offset(int(number), partitions)
    else:
        raise RequestRefusedError(400, "from is earliest, latest, offset:N or time:MILLISECONDS")


async def _start_before_the_end(consumer: Consumer, partitions: list[int]) -> None:
    """Begin so far before the ends that all of it may be looked through."""
    await consumer.start(partitions, at=LATEST)
    firsts = await consumer.offsets(EARLIEST, consumer.positions)
    share = LOOKED_THROUGH_MAX // len(consumer.positions)
    consumer.positions = {one: max(firsts[one], end - share) for one, end in consumer.positions.items()}


def _contains(consumed: Consumed, needle: bytes) -> bool:
    record = consumed.record
    parts = [record.key, record.value, *(part for name, value in record.headers for part in (name.encode(), value))]
    return any(part is not None and needle in bytes(part).lower() for part in parts)
