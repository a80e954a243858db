"""`raftwerk produce`: sends lines of standard input as records."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import AsyncIterator
from typing import cast

import click

from ..options import bootstrap_option, json_option, print_json, run_client

_READ_BYTES = 256 * 1024
_ACKS = {"all": -1, "1": 1}


@click.command()
@click.argument("topic")
@click.option("-k", "--key-separator", metavar="TEXT", help="The text between key and value in a line.")
@click.option("-m", "--message", "messages", multiple=True, help="A record, instead of standard input; repeatable.")
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
    """Send lines of standard input to TOPIC with an idempotent producer, and wait for their acks.

    \b
    Examples:
      echo hello | raftwerk produce greetings
      raftwerk produce flights -k : -m N14228:UA1545 -z zstd
      seq 1000000 | raftwerk produce numbers --json
    """

    async def run() -> dict[int, int]:
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.producer import Producer
        from ...wire.compression import Compression

        counts: dict[int, int] = {}
        async with ClusterClient(bootstrap) as client:
            producer = Producer(client, topic, acks=_ACKS[acks], compression=Compression[compression.upper()])
            await producer.start()
            async for chunk in _chunks(messages):
                for acked in await producer.send(_split(line, key_separator) for line in chunk):
                    counts[acked.partition] = counts.get(acked.partition, 0) + acked.count
        return counts

    counts = run_client(run())
    if as_json:
        print_json({"topic": topic, "acked": sum(counts.values()), "partitions": dict(sorted(counts.items()))})
    else:
        click.echo(f"{sum(counts.values())} records acked, in {len(counts)} partitions.", err=True)


async def _chunks(messages: tuple[str, ...]) -> AsyncIterator[list[bytes]]:
    if messages:
        yield [message.encode() for message in messages]
        return
    reader = LineReader(cast(io.BufferedReader, sys.stdin.buffer))
    while lines := await asyncio.to_thread(reader.take):
        yield lines


class LineReader:
    """Reads lines as they arrive, so that the lines of a slow writer are sent without waiting for more."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream = stream
        self._rest = b""

    def take(self) -> list[bytes]:
        """The lines that have arrived, at least one; none at the end. It blocks until there is one."""
        while data := self._stream.read1(_READ_BYTES):
            *lines, self._rest = (self._rest + data).split(b"\n")
            if lines:
                return [line.removesuffix(b"\r") for line in lines]
        last, self._rest = self._rest, b""
        return [last] if last else []


def _split(line: bytes, separator: str | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator.encode())
    return (key, value) if found else (None, line)
