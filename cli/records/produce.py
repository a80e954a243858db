"""`raftwerk produce`: sends lines of standard input as records."""

from __future__ import annotations

import io
import select
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import click

from ...runtime.blocking.daemon_threads import in_daemon_thread
from ..options import (
    ACKS,
    Command,
    as_bytes,
    bootstrap_option,
    counted,
    json_option,
    milliseconds,
    parse_pairs,
    print_json,
    producer_options,
    run_client,
    topic_argument,
)
from .formats import FormatError, unescaped

if TYPE_CHECKING:
    from ...cluster.client.producer import Producer

_READ_BYTES = 256 * 1024
_LINE_BYTES_MAX = 100 * 1024 * 1024
_PROPERTIES = "-k TEXT is between key and value, -H NAME=VALUE a header, --null TEXT stands for null"
_OTHER_TOOLS = {
    "-P": "produce sends without it",
    "-K": "-k TEXT is between key and value",
    "-Z": "--null '' sends what is empty as null, --tombstone a record without a value",
    "-l": "lines are read from standard input: raftwerk produce TOPIC < FILE",
    "-f": "-k TEXT is between key and value",
    "-X": "settings of librdkafka do not exist here; --acks, -z and --timestamp do",
    "--property": _PROPERTIES,
    "--reader-property": _PROPERTIES,
    "--producer-property": "settings of Java's producer do not exist here; --acks, -z and --timestamp do",
    "--request-required-acks": "write --acks all or --acks 1",
    "--compression-codec": "write -z gzip, snappy, lz4 or zstd",
    "--sync": "produce waits for acks",
}
"""Options of kafka-console-producer.sh, kcat and rpk, and what there is here instead."""
_KeyAndValue: TypeAlias = tuple[bytes | None, bytes | None]


@dataclass(frozen=True)
class _Request:
    """The options."""

    topic: str
    key: str | None
    key_separator: str | None
    null: str | None
    tombstone: bool
    messages: tuple[str, ...]
    headers: tuple[str, ...]
    partition: int | None
    timestamp: str | None
    acks: str
    compression: str
    bootstrap: str
    as_json: bool

    def check(self) -> None:
        """Exit code 2 for options that contradict each other."""
        if self.key is not None and self.key_separator is not None:
            raise click.UsageError("--key is the key of all records, --key-separator finds one in each line: give one")
        if self.key_separator == "":
            raise click.UsageError("--key-separator must not be empty")
        if self.tombstone and (self.key is None or self.messages):
            raise click.UsageError("--tombstone sends a record without a value: give it a --key and no --message")


@click.command(cls=Command, hints=_OTHER_TOOLS)
@topic_argument()
@click.option("-k", "--key-separator", metavar="TEXT", help="The text between key and value in a line; \\t is a tab.")
@click.option("--key", metavar="TEXT", help="The key of all records.")
@click.option("-m", "--message", "messages", multiple=True, help="A record, instead of standard input; repeatable.")
@click.option(
    "--tombstone", is_flag=True, help="Send one record without a value, which deletes its --key in compaction."
)
@click.option("--null", metavar="TEXT", help="A key or value that is this text is sent as null.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header; repeatable.")
@click.option(
    "-p", "--partition", type=click.IntRange(0), help="The partition; default: by the key, or one after another."
)
@click.option(
    "--timestamp",
    metavar="TIME",
    help="The records' time: 10m (ago), 2026-01-31T12:00 (UTC), milliseconds; default: now.",
)
@producer_options
@bootstrap_option
@json_option
def produce(**options: Any) -> None:
    """Send lines of standard input to TOPIC with an idempotent producer, and wait for their acks.

    With --key-separator, a line without the separator ends the command with exit code 1. The lines before it are sent.

    \b
    Examples:
      echo hello | raftwerk produce greetings
      raftwerk produce flights -k : -m N14228:UA1545 -z zstd
      raftwerk produce flights --key N14228 -H source=radar --timestamp 2013-01-01T05:15 -m UA1545
      raftwerk produce flights --key N14228 --tombstone
      raftwerk produce flights -k : --null null < lines
      seq 1000000 | raftwerk produce numbers --json
    """
    request = _Request(**options)
    request.check()
    headers = [(name, as_bytes(value)) for name, value in _pairs(request.headers)]
    timestamp_ms = None if request.timestamp is None else milliseconds(request.timestamp, "--timestamp")
    try:
        parser = LineParser(request.key, request.key_separator, request.null)
    except FormatError as error:
        raise click.BadParameter(str(error), param_hint="--key-separator") from None

    producer: Producer | None = None

    async def run() -> None:
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.producer import Producer
        from ...wire.compression import Compression

        async with ClusterClient(request.bootstrap) as client:
            nonlocal producer
            compression = Compression[request.compression.upper()]
            producer = Producer(client, request.topic, acks=ACKS[request.acks], compression=compression)
            await producer.start()
            if request.partition is not None:
                producer.check_partition(request.partition)
            if not request.messages and not request.tombstone and sys.stdin.isatty():
                click.echo(_hint(parser.separator), err=True)
            async for records in _records(request, parser):
                await producer.send(records, partition=request.partition, headers=headers, timestamp_ms=timestamp_ms)

    def summarize(is_interrupted: bool = False) -> None:
        counts = {} if producer is None else producer.acked
        acked = sum(counts.values())
        unknown = producer.taken - acked if is_interrupted and producer is not None else 0
        if request.as_json:
            row = {"topic": request.topic, "acked": acked, "partitions": dict(sorted(counts.items()))}
            print_json(row | ({"unknown": unknown} if unknown else {}))
            return
        more = f"; {unknown:,} more may be written" if unknown else ""
        where = f", in {counted(len(counts), 'partition')}" if counts else ""
        click.echo(f"{counted(acked, 'record')} acked{where}{more}.", err=True)

    try:
        run_client(run(), on_interrupt=lambda: summarize(is_interrupted=True))
    except click.ClickException:
        if producer is not None and producer.acked:
            summarize()
        raise
    summarize()
    if parser.error:
        raise click.ClickException(parser.error)


def _hint(separator: bytes | None) -> str:
    """What a person at a terminal has to know, since nothing else is shown there."""
    what = (
        "Each line"
        if separator is None
        else f"Each line, a key and a value with {separator.decode(errors='replace')!r} between them,"
    )
    return f"{what} is sent as a record when you press Enter. Ctrl-D ends."


def _pairs(entries: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The headers. A name may be there more than once."""
    for entry in entries:
        yield from parse_pairs((entry,), "--header").items()


async def _records(request: _Request, parser: LineParser) -> AsyncIterator[list[_KeyAndValue]]:
    """The records in the chunks in which they arrive, up to the first line that has no key."""
    if request.tombstone:
        yield [(as_bytes(request.key or ""), None)]
        return
    async for lines in _chunks(request.messages):
        yield parser.parse(lines)
        if parser.error:
            return


async def _chunks(messages: tuple[str, ...]) -> AsyncIterator[list[bytes]]:
    if messages:
        yield [as_bytes(message) for message in messages]
        return
    # The lock of the buffered stream must not be held by a thread that waits for input while Python ends.
    reader = LineReader(cast(io.RawIOBase, getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)))
    try:
        while lines := await in_daemon_thread(reader.take):
            yield lines
    except LineTooLongError:
        what = f"a line is longer than {_LINE_BYTES_MAX >> 20} MiB, which no request may be; it was not sent"
        raise click.ClickException(f"{what}; are the lines separated by newlines?") from None


class LineTooLongError(ValueError):
    """A line is longer than a request may be."""


class LineReader:
    """Reads lines as they arrive, so that the lines of a slow writer are sent without waiting for more."""

    def __init__(self, stream: io.RawIOBase) -> None:
        self._stream = stream
        self._begun = bytearray()
        """The beginning of the next line."""

    def take(self) -> list[bytes]:
        """The lines that have arrived, at least one; none at the end. It blocks until there is one.

        Raises `LineTooLongError` for a line that no broker takes, before it fills the memory.
        """
        while data := self._read():
            first, *others = data.split(b"\n")
            self._begun += first
            if others:
                lines = [bytes(self._begun), *others[:-1]]
                self._begun = bytearray(others[-1])
                return [line.removesuffix(b"\r") for line in lines]
            if len(self._begun) > _LINE_BYTES_MAX:
                raise LineTooLongError
        last, self._begun = bytes(self._begun), bytearray()
        return [last] if last else []

    def _read(self) -> bytes:
        """The next bytes; none at the end. Another program may have made the stream non-blocking, for itself, too."""
        while (data := self._stream.read(_READ_BYTES)) is None:
            select.select([self._stream], [], [])
        return data


class LineParser:
    """Makes records of lines. `error` is about the first line that is none; it and what follows are left out.

    Raises `FormatError` for a separator with an unknown escape.
    """

    def __init__(self, key: str | None, separator: str | None, null: str | None) -> None:
        self.error = ""
        self._key = None if key is None else as_bytes(key)
        self.separator = None if separator is None else unescaped(separator)
        self._null = None if null is None else as_bytes(null)
        self._count = 0

    def parse(self, lines: list[bytes]) -> list[_KeyAndValue]:
        """The records of the next lines."""
        records = []
        for line in lines:
            key, value = self._key, line
            if self.separator is not None:
                key, found, value = line.partition(self.separator)
                if not found:
                    self.error = self._missing(line)
                    break
            self._count += 1
            records.append((self._or_null(key), self._or_null(value)))
        return records

    def _or_null(self, data: bytes | None) -> bytes | None:
        return None if data == self._null else data

    def _missing(self, line: bytes) -> str:
        shown = line[:60].decode(errors="replace") + ("..." if len(line) > 60 else "")
        separator = (self.separator or b"").decode(errors="replace")
        before = "it and the lines after it were not sent" if self._count else "nothing was sent"
        return f"line {self._count + 1} has no {separator!r} between key and value, {before}: {shown!r}"
