"""`raftwerk partitions`: moves partitions between brokers, elects leaders."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import IO, TYPE_CHECKING, Any

import click

from ...cluster.client.reassignment import Move
from ...cluster.command_line.cluster_options import chosen_address
from ...cluster.command_line.text_table import folded
from ..options import (
    Group,
    Option,
    bootstrap_option,
    counted,
    end_incomplete,
    json_option,
    print_json,
    run_client,
    size_text,
    tell_none,
    whole_number,
)

if TYPE_CHECKING:
    from ...cluster.client.cluster_client import ClusterClient, Gathered
    from ...cluster.client.reassignment import DirectoryMove, OngoingMove, ProgressMeter, Unthrottled


@click.group(cls=Group)
def partitions() -> None:
    """Move partitions between brokers, and elect leaders.

    \b
    Examples:
      raftwerk partitions reassign flights-0=2,3 flights-1=3,1 --wait
      raftwerk partitions reassign --file plan.json --throttle 20000000 --wait
      raftwerk partitions reassignments
      raftwerk partitions cancel flights-0
      raftwerk partitions unthrottle
      raftwerk partitions elect flights-0
      raftwerk partitions elect --all
    """


@partitions.command()
@click.argument("moves", nargs=-1, metavar="[TOPIC-PARTITION=BROKER,BROKER,...]...")
@click.option(
    "--file",
    cls=Option,
    aliases=["--reassignment-json-file"],
    type=click.File("rb"),
    help="A plan in the form of kafka-reassign-partitions.",
)
@click.option("--wait", is_flag=True, help="Show the progress; return when all partitions have moved.")
@click.option(
    "--throttle",
    type=click.IntRange(min=1),
    help="Bytes per second that each broker may send or receive for the moves.",
)
@click.option("--timeout", "timeout_s", default=300.0, show_default=True, help="Seconds to wait.")
@bootstrap_option
def reassign(
    moves: tuple[str, ...],
    file: IO[bytes] | None,
    wait: bool,
    throttle: int | None,
    timeout_s: float,
    bootstrap: str,
) -> None:
    """Assign partitions to other brokers; the first replica is the preferred leader.

    A plan in a --file may name a directory for each replica as log_dirs, or "any". With --wait, a --throttle is removed
    when the moves have ended; otherwise `partitions unthrottle` removes it. Replicas in sync are not throttled.

    \b
    Examples:
      raftwerk partitions reassign flights-0=2,3 flights-1=3,1 --wait
      raftwerk partitions reassign --file plan.json --throttle 20000000 --wait
    """
    wanted = [_parse_move(text) for text in moves]
    if file is not None:
        wanted += _parse_plan(file.read())
    if not wanted:
        raise click.UsageError("name a move, for example flights-0=2,3, or a --file")
    name, count = Counter(f"{move.topic}-{move.partition}" for move in wanted).most_common(1)[0]
    if count > 1:
        raise click.UsageError(f"{name} is named twice: give one move for each partition")

    is_moving = is_throttled = False

    async def run() -> None:
        from ...cluster.client.client_errors import RefusedError
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.reassignment import ProgressMeter, alter_replica_log_dirs, reassign
        from ...cluster.client.reassignment import throttle as set_throttle

        nonlocal is_moving, is_throttled
        meter = ProgressMeter(wanted)
        async with ClusterClient(bootstrap) as client:
            if wait:
                await meter.look_ahead(client)
            if throttle is not None:
                throttled = await set_throttle(client, wanted, throttle)
                is_throttled = True
            is_moving = True
            try:
                await alter_replica_log_dirs(client, wanted)
                await reassign(client, wanted)
            except RefusedError:
                is_throttled = is_throttled and not await throttled.remove_unless_moving(client, wanted)
                raise
            if wait:
                await _follow(client, wanted, meter, timeout_s)
                is_throttled = is_throttled and not await _unthrottle(client)

    def tell_interrupted() -> None:
        going_on = ["the moves go on, see: raftwerk partitions reassignments" + _where()] * is_moving
        click.echo(
            f"Interrupted; {'; '.join(going_on + [_throttle_stays()] * is_throttled) or 'nothing moves'}.", err=True
        )

    try:
        run_client(run(), on_interrupt=tell_interrupted)
    except click.ClickException as error:
        if is_throttled:
            raise type(error)(f"{error.message}; {_throttle_stays()}") from None
        raise
    click.echo(f"{'Moved' if wait else 'Moving'} {counted(len(wanted), 'partition')}.")
    if is_throttled:
        others = "Other partitions are still moving; t" if wait else "T"
        click.echo(f"{others}{_throttle_stays()[1:]}.")


def _where() -> str:
    """The options that name the local cluster to the next command; empty where they are not needed."""
    address = chosen_address()
    return "" if address is None else address.local_options or ""


def _throttle_stays() -> str:
    return f"the throttle stays in place: raftwerk partitions unthrottle{_where()} removes it"


async def _unthrottle(client: ClusterClient) -> bool:
    """Remove the throttles unless other partitions still move; whether they were removed."""
    from ...cluster.client.reassignment import reassignments, unthrottle

    if await reassignments(client):
        return False
    await unthrottle(client)
    return True


async def _follow(client: ClusterClient, moves: list[Move], meter: ProgressMeter, timeout_s: float) -> None:
    """Wait for the moves and show their progress."""
    from ...cluster.client.reassignment import held_up, wait_for_moves

    last = told = ""
    on_terminal = sys.stderr.isatty()

    async def show_progress() -> None:
        nonlocal last, told
        line = str(await meter.measure(client))
        if line != last:
            last = line
            click.echo(f"\r{line}\033[K" if on_terminal else line, err=True, nl=not on_terminal)
            return
        awaited = "; ".join(await held_up(client, moves))
        if awaited not in ("", told):
            told = awaited
            click.echo(f"\r{awaited}\033[K" if on_terminal else awaited, err=True)
            last = "" if on_terminal else last

    try:
        await wait_for_moves(client, moves, timeout_s, show_progress)
        await show_progress()
    finally:
        if last and on_terminal:
            click.echo("", err=True)


@partitions.command()
@bootstrap_option
def unthrottle(bootstrap: str) -> None:
    """Remove all replication throttles of topics and brokers, of brokers that are down, too.

    \b
    Example:
      raftwerk partitions unthrottle
    """

    async def run() -> Unthrottled:
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.reassignment import unthrottle

        async with ClusterClient(bootstrap) as client:
            return await unthrottle(client)

    found = run_client(run())
    if found.names or not found.unasked:
        click.echo(f"Removed the throttles of: {', '.join(found.names)}." if found.names else "Nothing was throttled.")
    if found.unasked:
        silent = ", ".join(found.unasked)
        click.echo(folded(f"Removed what throttles there were of {silent}, which cannot be asked now."))


@partitions.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC-PARTITION...")
@bootstrap_option
def cancel(names: tuple[str, ...], bootstrap: str) -> None:
    """Cancel moves: the partitions lose the replicas that are being added, and keep the others.

    Those are the replicas that they had before, perhaps in another order, which makes another one the preferred leader.
    After a move that took the place of another one under way, they are those of both moves that are not being added, as
    in Apache Kafka.

    \b
    Example:
      raftwerk partitions cancel flights-0 flights-1
    """
    wanted = [Move(*_parse_partition(name), None) for name in names]

    async def run() -> None:
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.reassignment import reassign

        async with ClusterClient(bootstrap) as client:
            await reassign(client, wanted)

    run_client(run())
    click.echo(f"Cancelled {counted(len(wanted), 'move')}.")


@partitions.command()
@bootstrap_option
@json_option
def reassignments(bootstrap: str, as_json: bool) -> None:
    """List the moves in progress: to other brokers, and between the log directories of a broker.

    Exit code 1 if a broker cannot be asked for the moves between its directories.

    \b
    Example:
      raftwerk partitions reassignments
    """

    async def run() -> tuple[list[OngoingMove], Gathered[DirectoryMove]]:
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.reassignment import moves_between_directories, reassignments

        async with ClusterClient(bootstrap) as client:
            return await reassignments(client), await moves_between_directories(client)

    between_brokers, between_dirs = run_client(run())
    for move in between_brokers:
        if as_json:
            print_json(_broker_move_row(move))
        else:
            adding, removing = list(move.adding), list(move.removing)
            click.echo(f"{move.topic}-{move.partition}  adding {adding}  removing {removing}")
    for copy in between_dirs.rows:
        if as_json:
            print_json(_directory_move_row(copy))
        else:
            where = f"{copy.topic}-{copy.partition}  broker {copy.broker}  from {copy.source}  to {copy.target}"
            click.echo(folded(f"{where}  {size_text(copy.left_bytes)} left", 6))
    end_incomplete(between_dirs.missing)
    if not between_brokers and not between_dirs.rows:
        tell_none("Nothing is moving.")


def _broker_move_row(move: OngoingMove) -> dict[str, object]:
    return {
        "topic": move.topic,
        "partition": move.partition,
        "replicas": list(move.replicas),
        "adding": list(move.adding),
        "removing": list(move.removing),
    }


def _directory_move_row(move: DirectoryMove) -> dict[str, object]:
    return {
        "topic": move.topic,
        "partition": move.partition,
        "broker": move.broker,
        "from": move.source,
        "to": move.target,
        "copied_bytes": move.copied_bytes,
        "left_bytes": move.left_bytes,
    }


@partitions.command()
@click.argument("names", nargs=-1, metavar="[TOPIC-PARTITION]...")
@click.option("--all", "everything", is_flag=True, help="All partitions.")
@click.option("--unclean", is_flag=True, help="If there is no leader, let any live replica lead. Loses records.")
@bootstrap_option
def elect(names: tuple[str, ...], everything: bool, unclean: bool, bootstrap: str) -> None:
    """Elect the preferred leaders (the first replicas) of partitions.

    Exit code 1 if a partition has no such leader after that.

    \b
    Examples:
      raftwerk partitions elect flights-0
      raftwerk partitions elect --all
    """
    if names and everything:
        raise click.UsageError(f"--all means all partitions: leave it out, or {' '.join(names)}")
    if not names and not everything:
        raise click.UsageError("name partitions, for example flights-0, or give --all")
    wanted = None if everything else [_parse_partition(name) for name in names]

    async def run() -> int:
        from ...cluster.client.admin_client import AdminClient
        from ...cluster.client.cluster_client import ClusterClient

        async with ClusterClient(bootstrap) as client:
            found = await AdminClient(client).elect_leaders(wanted, unclean=unclean)
        for line in found.done:
            click.echo(line)
        if len(found.failed) == 1:
            raise found.failed[0]
        for error in found.failed:
            click.echo(str(error), err=True)
        if not found.done and not found.failed:
            click.echo("Every partition has a leader." if unclean else "Every leader is the preferred one.")
        return len(found.failed)

    failed = run_client(run())
    if failed:
        raise click.ClickException(f"{counted(failed, 'election')} failed")


def _parse_partition(text: str) -> tuple[str, int]:
    topic, _, digits = text.rpartition("-")
    index = whole_number(digits)
    if not topic or index is None:
        raise click.BadParameter(f"{text!r} is not TOPIC-PARTITION, for example flights-0")
    return topic, index


def _parse_move(text: str) -> Move:
    name, _, brokers = text.partition("=")
    ids = [whole_number(one.strip()) for one in brokers.split(",")]
    if None in ids:
        raise click.BadParameter(f"{text!r} is not TOPIC-PARTITION=BROKER,BROKER, for example flights-0=2,3")
    return Move(*_parse_partition(name), tuple(one for one in ids if one is not None))


def _parse_plan(text: bytes) -> list[Move]:
    try:
        found = [_planned(row) for row in json.loads(text)["partitions"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        form = '{"version": 1, "partitions": [{"topic": "flights", "partition": 0, "replicas": [2, 3]}]}'
        raise click.BadParameter(f"the file is not a reassignment plan like {form}", param_hint="--file") from None
    for move in found:
        paths, replicas = len(move.log_dirs), len(move.replicas or ())
        if paths not in (0, replicas):
            counts = f"{counted(paths, 'path')} for {counted(replicas, 'replica')}"
            told = f'log_dirs of {move.topic}-{move.partition} has {counts}: give one for each, or "any"'
            raise click.BadParameter(told, param_hint="--file")
    return found


def _planned(row: dict[str, Any]) -> Move:
    """The move of a row. Raises TypeError for a row that is none: 1.5 is no partition, and "23" no list of brokers."""
    replicas, log_dirs = row["replicas"], row.get("log_dirs", [])
    if not isinstance(replicas, list) or not isinstance(log_dirs, list):
        raise TypeError
    if any(type(one) is not int for one in (row["partition"], *replicas)):
        raise TypeError
    return Move(str(row["topic"]), row["partition"], tuple(replicas), tuple(map(str, log_dirs)))
