"""`raftwerk consume`: prints the records of a topic."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..options import Command, bootstrap_option, json_option, milliseconds, run_client
from .decoding import DECODERS, RAW, as_json, decode, line_of

if TYPE_CHECKING:
    from ...cluster.client.consumer import Consumed, Consumer


@dataclass(frozen=True)
class _Request:
    """The options."""

    topic: str
    partitions: tuple[int, ...]
    max_records: int | None
    exit_at_end: bool
    latest: bool
    offset: int | None
    last: int | None
    since: str | None
    until: str | None
    key: str | None
    grep: str | None
    key_separator: str | None
    decode: str
    bootstrap: str
    as_json: bool

    def check(self) -> None:
        """Exit code 2 when there is more than one option that says where to begin."""
        starts = (self.latest, self.offset is not None, self.last is not None, self.since is not None)
        if sum(starts) > 1:
            raise click.UsageError("give one of --latest, --offset, --last and --since")


@click.command(cls=Command)
@click.argument("topic")
@click.option(
    "-p",
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(0),
    help="A partition, repeatable; default: all.",
)
@click.option("-n", "--max-records", type=click.IntRange(1), help="Stop after this many records.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at the end that the topic had at the start.")
@click.option("--latest", is_flag=True, help="Only records that arrive from now on; default: from the beginning.")
@click.option("--offset", type=click.IntRange(0), help="Begin at this offset of each partition.")
@click.option("--last", type=click.IntRange(1), metavar="N", help="Begin N records before the end of each partition.")
@click.option("--since", metavar="TIME", help="Begin at a time: 10m (ago), 2026-01-31T12:00 (UTC), milliseconds.")
@click.option("--until", metavar="TIME", help="Leave out records with later timestamps, and stop at the present end.")
@click.option("--key", metavar="TEXT", help="Only records with this key.")
@click.option("--grep", metavar="REGEX", help="Only records whose key or value, decoded, matches.")
@click.option("-k", "--key-separator", metavar="TEXT", help="Print keys too, with this between key and value.")
@click.option(
    "-s",
    "--decode",
    type=click.Choice([*DECODERS, RAW]),
    default=RAW,
    show_default=True,
    help="How to decode keys and values; what cannot be decoded is shown as text.",
)
@bootstrap_option
@json_option
def consume(**options: Any) -> None:
    """Print the records of TOPIC, from the beginning, until stopped with Ctrl-C.

    \b
    Examples:
      raftwerk consume greetings -n 10
      raftwerk consume flights -p 0 -p 3 -e -k :
      raftwerk consume flights --latest --json          watch what comes
      raftwerk consume flights --since 10m --key N14228
      raftwerk consume events --last 5 -e -s msgpack
    """
    request = _Request(**options)
    request.check()
    run_client(_run(request))
    sys.stdout.flush()


async def _run(request: _Request) -> None:
    from ...cluster.client.cluster_client import ClusterClient
    from ...cluster.client.consumer import LATEST, Consumer

    until_ms = None if request.until is None else milliseconds(request.until, "--until")
    show = _Filter(request, until_ms)
    async with ClusterClient(request.bootstrap) as client:
        consumer = Consumer(client, request.topic)
        await _start(consumer, request)
        ends = None
        if request.exit_at_end or until_ms is not None:
            ends = await consumer.offsets(LATEST, consumer.positions)
        count = 0
        while ends is None or consumer.is_before(ends):
            for consumed in await consumer.poll():
                if (ends is None or consumed.record.offset < ends[consumed.partition]) and show.wants(consumed):
                    _print(consumed, request)
                    count += 1
                    if count == request.max_records:
                        return
            sys.stdout.flush()


async def _start(consumer: Consumer, request: _Request) -> None:
    from ...cluster.client.consumer import EARLIEST, LATEST

    if request.since is not None:
        await consumer.start_at_time(milliseconds(request.since, "--since"), request.partitions)
    elif request.last is not None:
        await consumer.start(request.partitions, at=LATEST)
        firsts = await consumer.offsets(EARLIEST, consumer.positions)
        for partition, end in consumer.positions.items():
            consumer.positions[partition] = max(firsts[partition], end - request.last)
    else:
        at = request.offset if request.offset is not None else LATEST if request.latest else EARLIEST
        await consumer.start(request.partitions, at=at)


class _Filter:
    def __init__(self, request: _Request, until_ms: int | None) -> None:
        self._key = None if request.key is None else request.key.encode()
        self._how = "string" if request.decode == RAW else request.decode
        self._until_ms = until_ms
        self._pattern = None
        if request.grep is not None:
            try:
                self._pattern = re.compile(request.grep.encode())
            except re.error as error:
                raise click.BadParameter(f"{request.grep!r}: {error}", param_hint="--grep") from None

    def wants(self, consumed: Consumed) -> bool:
        record = consumed.record
        if self._key is not None and record.key != self._key:
            return False
        if self._until_ms is not None and record.timestamp > self._until_ms:
            return False
        if self._pattern is None:
            return True
        return any(self._pattern.search(line_of(data, self._how)) for data in (record.key, record.value))


def _print(consumed: Consumed, request: _Request) -> None:
    record = consumed.record
    if request.as_json:
        how = "string" if request.decode == RAW else request.decode
        row = {
            "topic": request.topic,
            "partition": consumed.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": decode(record.key, how),
            "value": decode(record.value, how),
            "headers": [[name, decode(value, "string")] for name, value in record.headers],
        }
        sys.stdout.buffer.write(as_json(row).encode() + b"\n")
        return
    separator = request.key_separator
    key = b"" if separator is None else line_of(record.key, request.decode) + separator.encode()
    sys.stdout.buffer.write(key + line_of(record.value, request.decode) + b"\n")
