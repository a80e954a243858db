"""`raftwerk groups`: lists and describes groups, shows their lag, sets their offsets, deletes them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ...cluster.command_line.text_table import visible
from ..options import (
    Group,
    Option,
    bootstrap_option,
    counted,
    end_incomplete,
    group_argument,
    json_option,
    milliseconds,
    print_json,
    run_client,
    tell_none,
    whole_number,
)

if TYPE_CHECKING:
    from ...cluster.client.group_client import GroupClient, LagView
    from ...wire.types import TopicPartition


_ENDS = ("earliest", "latest")


@click.group(cls=Group)
def groups() -> None:
    """List and describe consumer groups, show their lag, set their offsets, and delete them.

    \b
    Examples:
      raftwerk groups list
      raftwerk groups lag reports --watch
      raftwerk groups reset reports --topic flights --to earliest              shows what would be done
      raftwerk groups reset reports --topic flights --to earliest --execute
      raftwerk groups reset reports --topic flights --shift=-100 --execute
      raftwerk groups delete reports
    """


@groups.command("list")
@bootstrap_option
@json_option
def list_groups(bootstrap: str, as_json: bool) -> None:
    """List the groups with state, type and coordinator.

    \b
    Example:
      raftwerk groups list
    """

    async def run() -> tuple[list[dict[str, Any]], list[str]]:
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.group_client import GroupClient

        async with ClusterClient(bootstrap) as client:
            found = await GroupClient(client).list_groups()
        rows = [
            {"group": one.group_id, "state": one.state, "type": one.kind, "coordinator": one.coordinator}
            for one in found.rows
        ]
        return rows, found.missing

    rows, missing = run_client(run())
    if not rows and not missing:
        tell_none("There are no groups.")
    for row in rows:
        if as_json:
            print_json(row)
        else:
            click.echo(visible(f"{row['group']:<32}  {row['state']:<20}  {row['type']:<9}  node {row['coordinator']}"))
    end_incomplete(missing)


@groups.command()
@group_argument()
@bootstrap_option
@json_option
def describe(group: str, bootstrap: str, as_json: bool) -> None:
    """Show the state, the members with their partitions, and the lag of GROUP.

    \b
    Example:
      raftwerk groups describe reports
    """

    async def run() -> tuple[dict[str, Any], list[str]]:
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.group_client import GroupClient, all_assigned

        async with ClusterClient(bootstrap) as client:
            asked = GroupClient(client)
            state, members = await asked.members(group)
            lags = await asked.lags(group, all_assigned(members))
        found = {
            "group": group,
            "state": state,
            "members": [one.to_json() for one in members],
            "partitions": [_lag_row(one) for one in lags.rows],
        }
        return found, lags.missing

    found, missing = run_client(run())
    if as_json:
        print_json(found)
    else:
        click.echo(visible(f"{group}  {found['state']}  {counted(len(found['members']), 'member')}"))
        for member in found["members"]:
            instance = f"  instance {member['instance']}" if member["instance"] else ""
            has = ", ".join(member["partitions"]) or "no partition"
            click.echo(visible(f"  {member['member']}  {member['client']}  {member['host']}{instance}  {has}"))
        _print_lags(found["partitions"])
    end_incomplete(missing)


@groups.command()
@group_argument("names", nargs=-1, metavar="[GROUP]...")
@click.option("-w", "--watch", is_flag=True, help="Repeat every second until Ctrl-C.")
@bootstrap_option
@json_option
def lag(names: tuple[str, ...], watch: bool, bootstrap: str, as_json: bool) -> None:
    """Show how many records the groups (default: all) are behind in each partition.

    Partitions for which no leader answers have no end and no lag, and are named; exit code 1 then.

    \b
    Example:
      raftwerk groups lag reports --watch
    """

    async def run() -> list[str]:
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.group_client import GroupClient

        async with ClusterClient(bootstrap) as client:
            asked = GroupClient(client)
            while True:
                found, missing = await _lags_of(asked, names)
                if watch and not as_json:
                    click.clear()
                for group, rows in found.items():
                    if as_json:
                        print_json({"group": group, "lag": sum(row["lag"] or 0 for row in rows), "partitions": rows})
                    else:
                        click.echo(visible(f"{group}  {_total_lag(rows)}"))
                        _print_lags(rows)
                if not found and not missing:
                    tell_none("There are no groups.")
                if not watch:
                    return missing
                if missing:
                    click.echo(f"Incomplete: {'; '.join(missing)}", err=True)
                await asyncio.sleep(1)

    end_incomplete(run_client(run()))


async def _lags_of(asked: GroupClient, names: Sequence[str]) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """The rows of these groups, or of all consumer groups of both protocols, and what is missing.

    Raises `RefusedError` for a group that was named and is refused. Of those that were listed some may be deleted since
    then, and others read topics that one may not see.
    """
    from ...cluster.client.client_errors import RefusedError
    from ...cluster.client.group_client import all_assigned
    from ...wire.errors import ErrorCode

    missing: list[str] = []
    wanted = list(names)
    if not names:
        listed = await asked.list_groups()
        missing += listed.missing
        wanted = [one.group_id for one in listed.rows if one.kind in ("classic", "consumer")]
    found = {}
    for group in wanted:
        try:
            _, members = await asked.members(group)
            lags = await asked.lags(group, all_assigned(members))
        except RefusedError as error:
            is_gone = error.code == ErrorCode.GROUP_ID_NOT_FOUND
            if names or not (is_gone or error.is_of_rights):
                raise
            missing += [] if is_gone else [f"group {group}: {error}"]
        else:
            found[group] = [_lag_row(one) for one in lags.rows]
            missing += lags.missing
    return found, list(dict.fromkeys(missing))


_OTHER_TOOLS = {
    "--reset-offsets": "reset does that without it",
    "--to-earliest": "write --to earliest",
    "--to-latest": "write --to latest",
    "--to-current": "the group is there already",
    "--by-duration": "--time 2h goes back by two hours",
    "--all-topics": "name one --topic at a time, or all of them in a --file",
    "--dry-run": "nothing is changed without --execute",
}
"""Options of kafka-consumer-groups.sh, and what there is here instead."""


@groups.command(hints=_OTHER_TOOLS)
@group_argument()
@click.option(
    "-t",
    "--topic",
    metavar="TOPIC[:PARTITION,...]",
    help="The topic whose offsets are set, or some partitions of it.",
)
@click.option(
    "--to", cls=Option, aliases=["--to-offset"], metavar="WHERE", help="Go to earliest, latest, or an offset."
)
@click.option(
    "--shift",
    cls=Option,
    aliases=["--shift-by"],
    type=int,
    metavar="N",
    help="Move forward by N records, back if N is negative.",
)
@click.option(
    "--time",
    "at_time",
    cls=Option,
    aliases=["--to-datetime"],
    metavar="TIME",
    help="Go to the first record of a time: 10m (ago), 2026-01-31T12:00 (UTC), ms.",
)
@click.option(
    "--file",
    "file",
    cls=Option,
    aliases=["--from-file"],
    type=click.File("rb"),
    help='A file of JSON with the offsets: {"topic": {"0": 17, "1": 4}}.',
)
@click.option("--execute", is_flag=True, help="Do it; without this, only show what would be done.")
@bootstrap_option
@json_option
def reset(
    group: str,
    topic: str | None,
    to: str | None,
    shift: int | None,
    at_time: str | None,
    file: Any,
    execute: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Set the offsets of GROUP, which must have no members. Without --execute, only show the new offsets.

    \b
    Examples:
      raftwerk groups reset reports --topic flights --to earliest              shows what would be done
      raftwerk groups reset reports --topic flights --to earliest --execute
      raftwerk groups reset reports --topic flights --time 2h --execute        two hours ago
      raftwerk groups reset reports --topic flights:0,2 --to latest            partitions 0 and 2
    """
    if sum(choice is not None for choice in (to, shift, at_time, file)) != 1:
        raise click.UsageError("give one of --to, --shift, --time and --file")
    if file is None and topic is None:
        raise click.UsageError("give the --topic")
    if file is not None and topic is not None:
        raise click.UsageError("the --file names the topics: leave --topic out")
    if to is not None and to not in _ENDS and whole_number(to) is None:
        raise click.BadParameter(f"{to!r} is neither earliest nor latest nor an offset", param_hint="--to")
    wanted = _Wanted(
        topic or "", to, shift, None if at_time is None else milliseconds(at_time, "--time"), _read_file(file)
    )

    async def run() -> tuple[bool, list[tuple[dict[str, Any], int]]]:
        """Whether there is such a group; the rows, each with the offset that was asked for."""
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.group_client import GroupClient

        async with ClusterClient(bootstrap) as client:
            asked = GroupClient(client)
            is_there = await asked.check_empty(group)
            before = await asked.committed(group)
            goals = await wanted.offsets(asked, before)
            after = await asked.clamp(goals)
            if execute:
                await asked.commit(group, after)
        return is_there, [
            ({"topic": key.topic, "partition": key.partition, "from": before.get(key), "to": offset}, goals[key])
            for key, offset in sorted(after.items())
        ]

    is_there, rows = run_client(run())
    for row, goal in rows:
        if as_json:
            print_json(row)
        else:
            came = "none" if row["from"] is None else row["from"]
            side = "" if goal == row["to"] else "the end" if goal > row["to"] else "the first record"
            note = f"  ({goal} is {'beyond' if goal > row['to'] else 'before'} {side})" if side else ""
            click.echo(f"  {row['topic']}-{row['partition']:<4}  {came} -> {row['to']}{note}")
    if not as_json:
        new = (
            ""
            if is_there
            else f" There was no group {group} before."
            if execute
            else f" There is no group {group} yet."
        )
        click.echo(f"{f'Set the offsets of {group}.' if execute else 'Nothing was changed; add --execute.'}{new}")


@groups.command()
@group_argument("names", nargs=-1, required=True, metavar="GROUP...")
@bootstrap_option
def delete(names: tuple[str, ...], bootstrap: str) -> None:
    """Delete groups, which must have no members, with their offsets. The first that is refused ends the command.

    \b
    Example:
      raftwerk groups delete reports
    """

    async def run() -> None:
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.group_client import GroupClient

        async with ClusterClient(bootstrap) as client:
            for group in names:
                await GroupClient(client).delete(group)
                click.echo(f"Deleted group {group}.")

    run_client(run())


class _Wanted:
    """The new offsets, as the options give them."""

    def __init__(
        self,
        topic: str,
        to: str | None,
        shift: int | None,
        time_ms: int | None,
        listed: dict[TopicPartition, int] | None,
    ) -> None:
        self.topic, colon, partitions = topic.partition(":")
        chosen = [whole_number(one.strip()) for one in partitions.split(",")] if colon else []
        if None in chosen:
            raise click.BadParameter(f"{topic!r} is not TOPIC or TOPIC:PARTITION,PARTITION", param_hint="--topic")
        self.partitions = {one for one in chosen if one is not None} if colon else None
        self.to, self.shift, self.time_ms, self.listed = to, shift, time_ms, listed

    async def offsets(self, client: GroupClient, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The new offsets. They may be outside the log. Only partitions whose offsets are set need a leader."""
        from ...cluster.client.client_errors import ClientError

        if self.listed is not None:
            return self.listed
        there = await client.partitions(self.topic)
        missing = sorted((self.partitions or set()).difference(there))
        if missing:
            raise ClientError(f"{self.topic}-{missing[0]}: there is no such partition")
        return await self._of_topic(client, before, there if self.partitions is None else sorted(self.partitions))

    async def _of_topic(
        self, client: GroupClient, before: Mapping[TopicPartition, int], partitions: Sequence[int]
    ) -> dict[TopicPartition, int]:
        from ...wire.types import TopicPartition

        if self.time_ms is not None:
            return await client.targets(self.topic, self.time_ms, partitions)
        if self.to in _ENDS:
            return await client.targets(self.topic, self.to, partitions)
        keys = [TopicPartition(self.topic, one) for one in partitions]
        if self.shift is not None:
            return self._shifted(before, keys, self.shift)
        return dict.fromkeys(keys, int(self.to or 0))

    def _shifted(
        self, before: Mapping[TopicPartition, int], keys: Sequence[TopicPartition], shift: int
    ) -> dict[TopicPartition, int]:
        from ...cluster.client.client_errors import ClientError

        without = [key for key in keys if key not in before]
        if self.partitions is not None and without:
            raise ClientError(f"{without[0]}: the group has no offset there")
        if len(without) == len(keys):
            raise ClientError(f"the group has no offsets in {self.topic}")
        return {key: before[key] + shift for key in keys if key in before}


def _read_file(file: Any) -> dict[TopicPartition, int] | None:
    from ...wire.types import TopicPartition

    if file is None:
        return None
    try:
        given = json.load(file)
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, rows in given.items()
            for partition, offset in rows.items()
        }
    except (ValueError, AttributeError, TypeError, OverflowError, RecursionError):
        raise click.BadParameter('write {"topic": {"0": 17, "1": 4}}', param_hint="--file") from None


def _lag_row(one: LagView) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "committed": one.committed,
        "end": one.end,
        "lag": one.lag,
    }


def _total_lag(rows: list[dict[str, Any]]) -> str:
    """The sum, and how many partitions it leaves out: the group has committed no offset there, or no end is known."""
    without = {
        "committed offset": sum(row["committed"] is None for row in rows),
        "known end": sum(row["committed"] is not None and row["end"] is None for row in rows),
    }
    left_out = [
        f"{counted(count, 'partition')} that {'has' if count == 1 else 'have'} no {what}"
        for what, count in without.items()
        if count
    ]
    told = f" without {' and '.join(left_out)}" if left_out else ""
    return f"lag {sum(row['lag'] or 0 for row in rows)}{told}"


def _print_lags(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        committed, end, behind = ("-" if row[key] is None else row[key] for key in ("committed", "end", "lag"))
        click.echo(f"  {row['topic']}-{row['partition']:<4}  committed {committed:<10}  end {end:<10}  lag {behind}")
