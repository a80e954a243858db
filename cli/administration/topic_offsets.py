"""`raftwerk topics offsets` and `delete-records`: look up offsets, by time too, and delete the oldest records."""

from __future__ import annotations

from collections.abc import Mapping

import click

from ..options import Command, bootstrap_option, json_option, milliseconds, print_json, run_client, topic_argument

_NAMED = 5
_partition_option = click.option(
    "-p",
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(0),
    help="A partition, repeatable; default: all.",
)


@click.command(cls=Command)
@topic_argument()
@_partition_option
@click.option(
    "--time", "at_time", metavar="TIME", help="Look up a time: 10m (ago), 2026-01-31T12:00 (UTC), milliseconds."
)
@bootstrap_option
@json_option
def offsets(topic: str, partitions: tuple[int, ...], at_time: str | None, bootstrap: str, as_json: bool) -> None:
    """Show the first offset and the end offset of each partition of TOPIC.

    With --time, show the offset of the first record of that time or later.

    \b
    Examples:
      raftwerk topics offsets flights
      raftwerk topics offsets flights -p 0 --time 2026-01-31T12:00
    """
    time_ms = None if at_time is None else milliseconds(at_time, "--time")

    async def run() -> list[dict[str, int | str | None]]:
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.consumer import EARLIEST, LATEST, Consumer
        from ...wire.api_keys import ApiKey

        async with ClusterClient(bootstrap) as client:
            consumer = Consumer(client, topic, purpose=ApiKey.LIST_OFFSETS)
            await consumer.start(partitions, at=0)
            if time_ms is not None:
                found = await consumer.offsets(time_ms, consumer.positions)
                return [
                    {"topic": topic, "partition": one, "offset": offset if offset >= 0 else None}
                    for one, offset in found.items()
                ]
            firsts = await consumer.offsets(EARLIEST, consumer.positions)
            ends = await consumer.offsets(LATEST, consumer.positions)
        return [{"topic": topic, "partition": one, "first": firsts[one], "end": end} for one, end in ends.items()]

    for row in run_client(run()):
        if as_json:
            print_json(row)
        elif time_ms is None:
            click.echo(f"{row['partition']:>4}  first {row['first']:<12}  end {row['end']}")
        else:
            shown = "no record of that time or later" if row["offset"] is None else row["offset"]
            click.echo(f"{row['partition']:>4}  {shown}")


@click.command("delete-records", cls=Command)
@topic_argument()
@_partition_option
@click.option("--offset", type=click.IntRange(0), help="Delete the records below this offset.")
@click.option(
    "--before",
    metavar="TIME",
    help="Delete the records before a time: 10m (ago), 2026-01-31T12:00 (UTC), milliseconds.",
)
@click.option("--all", "everything", is_flag=True, help="Delete all records that are committed now.")
@bootstrap_option
@json_option
def delete_records(
    topic: str,
    partitions: tuple[int, ...],
    offset: int | None,
    before: str | None,
    everything: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Delete the oldest records of TOPIC: those below an offset, or before a time.

    They are gone for all consumers at once. The log then begins at the new offset; other records keep theirs.

    \b
    Examples:
      raftwerk topics delete-records flights --before 7d
      raftwerk topics delete-records flights -p 0 --offset 1200
      raftwerk topics delete-records flights --all
    """
    if sum((offset is not None, before is not None, everything)) != 1:
        raise click.UsageError("give one of --offset, --before and --all")
    time_ms = None if before is None else milliseconds(before, "--before")

    async def run() -> tuple[dict[int, int], dict[int, int]]:
        from ...cluster.client.admin_client import AdminClient
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.consumer import EARLIEST, LATEST, Consumer
        from ...wire.api_keys import ApiKey

        async with ClusterClient(bootstrap) as client:
            consumer = Consumer(client, topic, purpose=ApiKey.DELETE_RECORDS)
            await consumer.start(partitions, at=-1 if offset is None else offset)
            if time_ms is not None:
                await consumer.start_at_time(time_ms, partitions)
            if offset is not None:
                _check_ends(topic, offset, await consumer.offsets(LATEST, consumer.positions))
            former = await consumer.offsets(EARLIEST, consumer.positions)
            return former, await AdminClient(client).delete_records(topic, consumer.positions)

    former, begins = run_client(run())
    for partition, begin in begins.items():
        if as_json:
            print_json({"topic": topic, "partition": partition, "first": begin})
        else:
            is_same = former.get(partition) == begin
            told = f"{'still' if is_same else 'now'} begins at offset {begin}"
            told += ": nothing was deleted" if is_same else ""
            click.echo(f"{topic}-{partition} {told}.")


def _check_ends(topic: str, offset: int, ends: Mapping[int, int]) -> None:
    """Refuse an offset that some partitions do not have, before records of the others are deleted."""
    from ...cluster.client.client_errors import ClientError

    short = [f"{topic}-{partition} ends at {end}" for partition, end in ends.items() if end < offset]
    if short:
        more = f"; and {len(short) - _NAMED} more" if len(short) > _NAMED else ""
        raise ClientError(
            f"offset {offset} is beyond the end: {'; '.join(short[:_NAMED])}{more}. Nothing was deleted. -p names "
            f"partitions, --all deletes up to the end of each, raftwerk topics offsets {topic} shows the ends"
        )
