"""`raftwerk consume`: the records of assigned partitions, on standard output."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from .common import bootstrap_option, json_option, print_json, run_client

if TYPE_CHECKING:
    from ..consuming import Consumed


@click.command()
@click.argument("topic")
@click.option(
    "-p", "--partition", "partitions", multiple=True, type=click.IntRange(0), help="Default: all; repeatable."
)
@click.option("-n", "--max-records", type=click.IntRange(1), help="Stop after so many records.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at what was the end when it began.")
@click.option("--latest", is_flag=True, help="Only what comes from now on; default: from the beginning.")
@click.option("--offset", type=click.IntRange(0), help="Begin at this offset of each partition.")
@click.option("-k", "--key-separator", metavar="TEXT", help="Print keys too, with this between key and value.")
@bootstrap_option
@json_option
def consume(
    topic: str,
    partitions: tuple[int, ...],
    max_records: int | None,
    exit_at_end: bool,
    latest: bool,
    offset: int | None,
    key_separator: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Print the records of TOPIC, from the beginning, until stopped with Ctrl-C.

    \b
    Examples:
      raftwerk consume greetings -n 10
      raftwerk consume flights -p 0 -p 3 -e -k :
      raftwerk consume flights -e --json | jq .value
    """

    async def run() -> int:
        from ..admin import ClusterClient
        from ..consuming import EARLIEST, LATEST, Consumer

        start = offset if offset is not None else LATEST if latest else EARLIEST
        count = 0
        async with ClusterClient(bootstrap) as client:
            consumer = Consumer(client, topic)
            await consumer.start(partitions, at=start)
            ends = await consumer.offsets(LATEST, consumer.positions) if exit_at_end else None
            async for consumed in consumer.records(end_offsets=ends):
                _print(consumed, topic, key_separator, as_json)
                count += 1
                if count == max_records:
                    break
        return count

    run_client(run())
    sys.stdout.flush()


def _print(consumed: Consumed, topic: str, key_separator: str | None, as_json: bool) -> None:
    record = consumed.record
    if as_json:
        print_json(
            {
                "topic": topic,
                "partition": consumed.partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": _text(record.key),
                "value": _text(record.value),
                "headers": [[name, _text(value)] for name, value in record.headers],
            }
        )
        return
    key = b"" if key_separator is None else (record.key or b"") + key_separator.encode()
    sys.stdout.buffer.write(key + (record.value or b"") + b"\n")
    if sys.stdout.isatty():
        sys.stdout.flush()


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")
