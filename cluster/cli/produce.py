"""`raftwerk produce`: lines of standard input become records."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

import click

from .common import bootstrap_option, json_option, print_json, run_client

_CHUNK_LINES = 5000
_ACKS = {"all": -1, "1": 1}


@click.command()
@click.argument("topic")
@click.option("-k", "--key-separator", metavar="TEXT", help="What stands between key and value in a line.")
@click.option("-m", "--message", "messages", multiple=True, help="A record instead of standard input; repeatable.")
@click.option("--acks", type=click.Choice(list(_ACKS)), default="all", show_default=True)
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
)
@bootstrap_option
@json_option
def produce(
    topic: str,
    key_separator: str | None,
    messages: tuple[str, ...],
    acks: str,
    compression: str,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Send lines of standard input to TOPIC, idempotently, and wait for their acks.

    \b
    Examples:
      echo hello | raftwerk produce greetings
      raftwerk produce flights -k : -m N14228:UA1545 -z zstd
      seq 1000000 | raftwerk produce numbers --json
    """

    async def run() -> dict[int, int]:
        from ...wire.compression import Compression
        from ..admin import ClusterClient
        from ..producing import Producer

        counts: dict[int, int] = {}
        async with ClusterClient(bootstrap) as client:
            producer = Producer(client, topic, acks=_ACKS[acks], compression=Compression[compression.upper()])
            await producer.start()
            lines = (message.encode() for message in messages) if messages else _stdin_lines()
            while chunk := await asyncio.to_thread(_take, lines):
                for acked in await producer.send(_split(line, key_separator) for line in chunk):
                    counts[acked.partition] = counts.get(acked.partition, 0) + acked.count
        return counts

    counts = run_client(run())
    if as_json:
        print_json({"topic": topic, "acked": sum(counts.values()), "partitions": dict(sorted(counts.items()))})
    else:
        click.echo(f"{sum(counts.values())} records acked, in {len(counts)} partitions.", err=True)


def _stdin_lines() -> Iterator[bytes]:
    for line in sys.stdin.buffer:
        yield line.rstrip(b"\r\n")


def _take(lines: Iterator[bytes]) -> list[bytes]:
    """The next lines; on a terminal one at a time, so that what is typed is sent."""
    most = 1 if sys.stdin.isatty() else _CHUNK_LINES
    return [line for line, _ in zip(lines, range(most), strict=False)]


def _split(line: bytes, separator: str | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator.encode())
    return (key, value) if found else (None, line)
