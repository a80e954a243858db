"""`raftwerk consume`: prints the records of a topic."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..options import (
    Command,
    Option,
    as_bytes,
    bootstrap_option,
    is_reader_gone,
    json_option,
    milliseconds,
    run_client,
    topic_argument,
)
from .decoding import DECODERS, INTERNAL, RAW, as_json, base64, is_text, json_of, line_of, readable
from .formats import FormatError, Formatter, key_and_value, parse

if TYPE_CHECKING:
    from ...cluster.client.cluster_client import ClusterClient
    from ...cluster.client.consumer import Consumed, Consumer
    from ...cluster.client.group_member import GroupMember


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
    line_format: str | None
    null: str
    decode: str
    group: str | None
    isolation: str
    bootstrap: str
    as_json: bool

    def check(self) -> None:
        """Exit code 2 for options that contradict each other."""
        starts = (self.offset is not None, self.last is not None, self.since is not None)
        if sum((self.latest, *starts)) > 1:
            raise click.UsageError("give one of --latest, --offset, --last and --since")
        if self.group is not None and (self.partitions or any(starts)):
            raise click.UsageError(
                "a --group begins where it has committed, in the partitions that it is assigned: it cannot be combined "
                "with --partition, --offset, --last and --since; raftwerk groups reset sets its offsets"
            )
        if self.decode == INTERNAL and self.topic not in ("__consumer_offsets", "__transaction_state"):
            raise click.UsageError(
                f"--decode internal is for __consumer_offsets and __transaction_state, not {self.topic}"
            )
        if sum((self.as_json, self.line_format is not None, self.key_separator is not None)) > 1:
            raise click.UsageError("give one of --json, --format and --key-separator")


_SILENT_S = 2.0
"""So long a terminal shows nothing before it is told that the command waits."""
_PLACES = "--offset N, --latest, --last N or --since TIME say where to begin; the default is the beginning"
_PROPERTIES = "-k TEXT prints keys with TEXT behind them; -f prints %h headers, %T timestamp, %p partition, %o offset"
_OTHER_TOOLS = {
    "-o": _PLACES,
    "-C": "consume reads without it",
    "-c": "-n N stops after N records",
    "--num": "-n N stops after N records",
    "-q": "consume prints nothing but records",
    "-u": "each record is printed as it comes",
    "-J": "--json prints JSON",
    "-K": "-k TEXT prints keys with TEXT behind them",
    "-Z": "--null TEXT is what is printed for null",
    "-G": "-g ID reads as a member of a group",
    "-X": "of librdkafka's settings there is isolation.level, as --isolation",
    "--property": _PROPERTIES,
    "--formatter-property": _PROPERTIES,
    "--formatter": "-f and -s choose the format",
    "--key-deserializer": "-s chooses how keys and values are decoded",
    "--value-deserializer": "-s chooses how keys and values are decoded",
    "--timeout-ms": "-e stops at the end that the topic had at the start",
    "--whitelist": "consume reads one topic",
    "--include": "consume reads one topic",
    "--read-committed": "write --isolation read_committed",
    "--follow": "consume waits for records unless -e is given",
}
"""Options of kafka-console-consumer.sh, kcat and rpk, and what there is here instead."""


@click.command(cls=Command, hints=_OTHER_TOOLS)
@topic_argument()
@click.option(
    "-p",
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(0),
    help="A partition, repeatable; default: all.",
)
@click.option(
    "-n",
    "--max-records",
    cls=Option,
    aliases=["--max-messages", "--records"],
    type=click.IntRange(1),
    help="Stop after this many records.",
)
@click.option(
    "--from-beginning", is_flag=True, hidden=True, expose_value=False, help="The default, as in Kafka's tools."
)
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at the end that the topic had at the start.")
@click.option("--latest", is_flag=True, help="Only records that arrive from now on; default: from the beginning.")
@click.option("--offset", type=click.IntRange(0), help="Begin at this offset of each partition.")
@click.option("--last", type=click.IntRange(1), metavar="N", help="Begin at the last N records of each partition.")
@click.option("--since", metavar="TIME", help="Begin at a time: 10m (ago), 2026-01-31T12:00 (UTC), milliseconds.")
@click.option("--until", metavar="TIME", help="Leave out records with later timestamps, and stop at the present end.")
@click.option("--key", metavar="TEXT", help="Only records with this key.")
@click.option("--grep", metavar="REGEX", help="Only records whose key or value, decoded, matches.")
@click.option(
    "-g", "--group", metavar="ID", help="Read as a member of this consumer group, and commit what is printed."
)
@click.option(
    "--isolation",
    cls=Option,
    aliases=["--isolation-level"],
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="With read_committed, only records of committed transactions, and those without one.",
)
@click.option(
    "-k", "--key-separator", metavar="TEXT", help="Print keys too, with this between key and value; \\t is a tab."
)
@click.option(
    "-f", "--format", "line_format", metavar="TEXT", help="Print records in this form, as kcat does; see above."
)
@click.option(
    "--null", metavar="TEXT", default="null", show_default=True, help="What is printed for null; not in JSON."
)
@click.option(
    "-s",
    "--decode",
    type=click.Choice([*DECODERS, INTERNAL, RAW]),
    default=RAW,
    show_default=True,
    help="How to decode keys and values; what cannot be decoded is shown as text. internal is for __consumer_offsets "
    "and __transaction_state.",
)
@bootstrap_option
@json_option
def consume(**options: Any) -> None:
    """Print the records of TOPIC, from the beginning, until stopped with Ctrl-C.

    With --group, the members of the group share the partitions. A partition is read from where the group has committed;
    if it has not, from the beginning, or with --latest from the end. What is printed is committed every five seconds,
    when partitions move to another member, and at the end. What a pipe has taken counts as printed: `| head` may
    commit records that it has not shown; -n N commits exactly what it shows.

    With --isolation read_committed, records of aborted transactions are left out, and a partition ends at the first
    record of a transaction that is open: --exit-at-end stops there, and without it the command waits there.

    With --json, keys, values and headers that are not UTF-8 are there once more in key_base64, value_base64 and
    headers_base64.

    \b
    Fields of --format: %t topic, %p partition, %o offset, %k key, %s value, %h headers, %T timestamp (ms),
    %K and %S length of key and value (-1 for null), %R length of the value as 32 bits, %% percent;
    \\n, \\t, \\r and \\x00 to \\xff stand for characters.

    \b
    Examples:
      raftwerk consume greetings -n 10
      raftwerk consume flights -p 0 -p 3 -e -k :
      raftwerk consume flights --latest --json          watch new records
      raftwerk consume flights --since 10m --key N14228
      raftwerk consume events --last 5 -e -s msgpack
      raftwerk consume flights -e -f '%t-%p@%o %k: %s\\n'
      raftwerk consume flights --group reports -e       what the group has not read yet
      raftwerk consume transfers --isolation read_committed
      raftwerk consume __consumer_offsets -s internal --json -e
    """
    request = _Request(**options)
    request.check()
    run_client(_run(request))
    sys.stdout.flush()


async def _run(request: _Request) -> None:
    from ...cluster.client.cluster_client import ClusterClient
    from ...cluster.client.consumer import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, Consumer
    from ...cluster.client.group_member import GroupMember

    until_ms = None if request.until is None else milliseconds(request.until, "--until")
    printer = _Printer(request, until_ms)
    isolation_level = READ_COMMITTED if request.isolation == "read_committed" else READ_UNCOMMITTED
    async with ClusterClient(request.bootstrap) as client:
        consumer = Consumer(client, request.topic, isolation_level=isolation_level)
        await _start(consumer, request)
        ends = None
        if request.exit_at_end or until_ms is not None:
            ends = await consumer.offsets(LATEST, consumer.positions)
        if request.group is None:
            await _print_until(ends, consumer, printer)
            return
        start_at = LATEST if request.latest else EARLIEST
        if request.latest:
            await _note_committed(client, request.group, request.topic)
        member_id = str(uuid.uuid4())
        with _signals_cancel():
            async with GroupMember(
                client,
                request.group,
                request.topic,
                member_id=member_id,
                start_at=start_at,
                isolation_level=isolation_level,
            ) as member:
                member.ends = ends
                await _print_until(ends, member, printer)


async def _note_committed(client: ClusterClient, group: str, topic: str) -> None:
    """Say where `--latest` has no effect: a group goes on where it has committed."""
    from ...cluster.client.group_client import GroupClient

    if any(where.topic == topic for where in await GroupClient(client).committed(group)):
        click.echo(
            f"Note: {group} has committed offsets of {topic} and goes on there, in spite of --latest; "
            f"raftwerk groups reset {group} -t {topic} --to latest moves them.",
            err=True,
        )


async def _print_until(ends: dict[int, int] | None, source: Consumer | GroupMember, printer: _Printer) -> None:
    """Print records up to these offsets, or without end; at most as many as were asked for."""
    waiting_since = time.monotonic() if ends is None and sys.stderr.isatty() else None
    while ends is None or not await source.is_past(ends):
        found = await source.poll()
        if waiting_since is not None and (found or time.monotonic() - waiting_since > _SILENT_S):
            if not found:
                click.echo("Waiting for records: Ctrl-C ends it; --exit-at-end stops at the end.", err=True)
            waiting_since = None
        for consumed in found:
            if ends is None or consumed.record.offset < ends[consumed.partition]:
                printer.show(consumed)
            source.done(consumed)
            if printer.is_full:
                break
        sys.stdout.flush()
        if printer.is_full:
            return
        if is_reader_gone():
            raise BrokenPipeError  # see LazyGroup


@contextmanager
def _signals_cancel() -> Iterator[None]:
    """SIGTERM, and SIGHUP of a closing terminal, end the command as Ctrl-C does, so that the member leaves its group.

    The exit code is that of a shell: 143 and 129. nohup ignores SIGHUP, and so it stays then.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    came: list[int] = []

    def on_signal(number: int) -> None:
        came.append(number)
        if task is not None:
            task.cancel()

    ending = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    for number in ending:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    except asyncio.CancelledError:
        if not came:
            raise
        raise click.exceptions.Exit(128 + came[0]) from None
    finally:
        for number in ending:
            loop.remove_signal_handler(number)


async def _start(consumer: Consumer, request: _Request) -> None:
    from ...cluster.client.consumer import EARLIEST, LATEST, partition_range

    if request.since is not None:
        await consumer.start_at_time(milliseconds(request.since, "--since"), request.partitions)
    elif request.last is not None:
        await consumer.start_at_last(request.last, request.partitions)
    elif request.offset is not None:
        outside = await consumer.start_at_offset(request.offset, request.partitions)
        for partition, bounds in outside.items():
            told = partition_range(request.topic, partition, *bounds)
            click.echo(f"Not read, since there is no offset {request.offset}: {told}", err=True)
    else:
        await consumer.start(request.partitions, at=LATEST if request.latest else EARLIEST)


class _Printer:
    """Prints the records that the options ask for, and counts them."""

    def __init__(self, request: _Request, until_ms: int | None) -> None:
        self._request = request
        self._key = None if request.key is None else as_bytes(request.key)
        self._how = {RAW: "string", INTERNAL: "json"}.get(request.decode, request.decode)
        self._until_ms = until_ms
        self._left = request.max_records
        try:
            parts = key_and_value(request.key_separator) if request.line_format is None else parse(request.line_format)
        except FormatError as error:
            option = "--key-separator" if request.line_format is None else "--format"
            raise click.BadParameter(str(error), param_hint=option) from None
        self._formatter = Formatter(request.topic, parts, RAW if request.decode == RAW else self._how, request.null)
        self._pattern = None
        if request.grep is not None:
            try:
                self._pattern = re.compile(as_bytes(request.grep))
            except re.error as error:
                raise click.BadParameter(f"{request.grep!r}: {error}", param_hint="--grep") from None

    @property
    def is_full(self) -> bool:
        """Whether as many records were printed as were asked for."""
        return self._left == 0

    def show(self, consumed: Consumed) -> None:
        """Print the record if it is one that was asked for."""
        if self._request.decode == INTERNAL:
            consumed = readable(self._request.topic, consumed)
        if not self._wants(consumed):
            return
        line = self._json(consumed) if self._request.as_json else self._formatter.line(consumed)
        sys.stdout.buffer.write(line)
        if self._left is not None:
            self._left -= 1

    def _wants(self, consumed: Consumed) -> bool:
        record = consumed.record
        if self._key is not None and record.key != self._key:
            return False
        if self._until_ms is not None and record.timestamp > self._until_ms:
            return False
        if self._pattern is None:
            return True
        return any(self._pattern.search(line_of(data, self._how)) for data in (record.key, record.value))

    def _json(self, consumed: Consumed) -> bytes:
        record = consumed.record
        headers = (f"[{as_json(name)},{json_of(value, 'string')}]" for name, value in record.headers)
        row = {
            "topic": as_json(self._request.topic),
            "partition": as_json(consumed.partition),
            "offset": as_json(record.offset),
            "timestamp": as_json(record.timestamp),
            "key": json_of(record.key, self._how),
            "value": json_of(record.value, self._how),
            "headers": f"[{','.join(headers)}]",
        }
        for name, data in (("key", record.key), ("value", record.value)):
            if self._how == "string" and not is_text(data):
                row[f"{name}_base64"] = as_json(base64(data))
        if not all(is_text(value) for _, value in record.headers):
            row["headers_base64"] = as_json([[name, base64(value)] for name, value in record.headers])
        members = ",".join(f'"{name}":{text}' for name, text in row.items())
        return f"{{{members}}}\n".encode()
