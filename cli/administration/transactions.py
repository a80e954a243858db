"""`raftwerk transactions`: lists and describes transactions, finds those that hang, and aborts them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from ...cluster.command_line.commands import Argument
from ...cluster.command_line.text_table import visible
from ..options import (
    Group,
    Option,
    bootstrap_option,
    end_incomplete,
    json_option,
    milliseconds,
    print_json,
    run_client,
    tell_none,
    topic_argument,
)

if TYPE_CHECKING:
    from ...cluster.client.cluster_client import Gathered
    from ...cluster.client.transactions.transaction_client import OpenTransaction, TransactionView


STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


@click.group(cls=Group, aliases={"forceTerminateTransaction": "terminate", "force-terminate": "terminate"})
def transactions() -> None:
    """List and describe transactions, find those that hang, and abort them.

    An application that is stuck keeps its transaction open until the time-out: `terminate` ends it sooner. A
    transaction hangs when a partition has it open and its coordinator does not: nobody will end it, and consumers
    with read_committed wait at its first record: `abort` is for these.

    \b
    Examples:
      raftwerk transactions list
      raftwerk transactions describe transfers-1
      raftwerk transactions terminate transfers-1
      raftwerk transactions find-hanging
      raftwerk transactions abort flights --partition 0 --start-offset 17
    """


@transactions.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    metavar="STATE",
    help="Only this state, such as Ongoing; repeatable.",
)
@click.option(
    "--pattern",
    cls=Option,
    aliases=["--transactional-id-pattern"],
    metavar="REGEX",
    help="Only transactional ids that match whole.",
)
@click.option(
    "--before", metavar="TIME", help="Only transactions that began before: 10m (ago), 2026-01-31T12:00 (UTC), ms."
)
@bootstrap_option
@json_option
def list_transactions(
    states: tuple[str, ...], pattern: str | None, before: str | None, bootstrap: str, as_json: bool
) -> None:
    """List the transactional ids with state, producer id and coordinator.

    \b
    Examples:
      raftwerk transactions list
      raftwerk transactions list --state Ongoing --before 10m
    """
    older_than_ms = -1 if before is None else max(0, int(time.time() * 1000) - milliseconds(before, "--before"))

    async def run() -> tuple[list[dict[str, Any]], list[str]]:
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.transactions.transaction_client import TransactionClient

        async with ClusterClient(bootstrap) as client:
            found = await TransactionClient(client).list_transactions(
                states=states, older_than_ms=older_than_ms, pattern=pattern
            )
        return [one.as_row() for one in found.rows], found.missing

    rows, missing = run_client(run())
    if not rows and not missing:
        is_filtered = bool(states) or pattern is not None or before is not None
        tell_none("No transactional id matches." if is_filtered else "There are no transactional ids.")
    for row in rows:
        if as_json:
            print_json(row)
        else:
            told = f"{row['transactional_id']:<32}  {row['state']:<17}  producer {row['producer_id']}"
            click.echo(visible(f"{told}  node {row['coordinator']}"))
    end_incomplete(missing)


@transactions.command()
@click.argument("transactional_id", cls=Argument, names=("--transactional-id",))
@bootstrap_option
@json_option
def describe(transactional_id: str, bootstrap: str, as_json: bool) -> None:
    """Show the state of TRANSACTIONAL_ID and the partitions of its transaction.

    \b
    Example:
      raftwerk transactions describe transfers-1
    """

    async def run() -> dict[str, Any]:
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.transactions.transaction_client import TransactionClient

        async with ClusterClient(bootstrap) as client:
            return (await TransactionClient(client).describe(transactional_id)).as_row()

    row = run_client(run())
    if as_json:
        print_json(row)
        return
    click.echo(visible(f"{row['transactional_id']}  {row['state']}  node {row['coordinator']}"))
    click.echo(f"  producer {row['producer_id']}  epoch {row['producer_epoch']}  time-out {row['timeout_ms']} ms")
    if row["start_ms"] is not None:
        click.echo(f"  began {_since(row['start_ms'])}")
    for one in row["partitions"]:
        click.echo(f"  {one['topic']}-{one['partition']}")


@transactions.command()
@click.argument("transactional_id", cls=Argument, names=("--transactional-id", "--transactionalId"))
@bootstrap_option
def terminate(transactional_id: str, bootstrap: str) -> None:
    """Abort the open transaction of TRANSACTIONAL_ID, and fence its producer.

    It is for an application that is stuck: its next request is refused, and it has to start again. The coordinator ends
    a transaction by itself when its time-out has passed.

    \b
    Example:
      raftwerk transactions terminate transfers-1
    """

    async def run() -> TransactionView:
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.transactions.transaction_client import TransactionClient

        async with ClusterClient(bootstrap) as client:
            return await TransactionClient(client).terminate(transactional_id)

    before = run_client(run())
    click.echo(f"{_ended(before)} Producer {before.producer_id} is fenced: its next request is refused.")


def _ended(before: TransactionView) -> str:
    """What became of the transaction that a transactional id had before it was terminated."""
    name = before.transactional_id
    if before.state == "Ongoing":
        return f"Aborted the transaction of {name}, open for {_ago(before.start_ms)}."
    if before.state in ("PrepareCommit", "PrepareAbort"):
        how = "committed" if before.state == "PrepareCommit" else "aborted"
        return f"The transaction of {name} was ending, and is {how}."
    return f"{name} had no open transaction (its state was {before.state})."


@transactions.command("find-hanging")
@click.option("-t", "--topic", metavar="TOPIC", help="Only in this topic; default: in all.")
@click.option(
    "--before",
    metavar="TIME",
    default="15m",
    show_default=True,
    help="Only transactions whose last record is older: 15m (ago), 2026-01-31T12:00 (UTC), ms.",
)
@bootstrap_option
@json_option
def find_hanging(topic: str | None, before: str, bootstrap: str, as_json: bool) -> None:
    """Find transactions that a partition has open and that no coordinator knows.

    \b
    Examples:
      raftwerk transactions find-hanging
      raftwerk transactions find-hanging --topic flights --before 1h --json
    """
    before_ms = milliseconds(before, "--before")

    async def run() -> Gathered[OpenTransaction]:
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.transactions.transaction_client import TransactionClient

        async with ClusterClient(bootstrap) as client:
            return await TransactionClient(client).find_hanging(before_ms, topic)

    found = run_client(run())
    for one in found.rows:
        name, index = one.partition
        if as_json:
            print_json(one.as_row())
        else:
            click.echo(f"{one.partition}  offset {one.start_offset}  producer {one.producer_id}", nl=False)
            click.echo(f"  epoch {one.producer_epoch}  last record {_since(one.last_timestamp_ms)}")
            click.echo(f"  -> raftwerk transactions abort {name} --partition {index} --start-offset {one.start_offset}")
    if not found.rows and not found.missing:
        tell_none("No transaction hangs.")
    end_incomplete(found.missing)


@transactions.command()
@topic_argument()
@click.option("-p", "--partition", type=click.IntRange(0), required=True, help="The partition.")
@click.option(
    "--start-offset",
    type=click.IntRange(0),
    required=True,
    help="The offset of the transaction's first record, as find-hanging shows it.",
)
@click.option("--force", is_flag=True, help="Abort it even if its coordinator knows it, which tears the transaction.")
@bootstrap_option
def abort(topic: str, partition: int, start_offset: int, force: bool, bootstrap: str) -> None:
    """Abort a hanging transaction in one partition of TOPIC.

    \b
    Example:
      raftwerk transactions abort flights --partition 0 --start-offset 17
    """

    async def run() -> OpenTransaction:
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.transactions.transaction_client import TransactionClient
        from ...wire.types import TopicPartition

        async with ClusterClient(bootstrap) as client:
            return await TransactionClient(client).abort(TopicPartition(topic, partition), start_offset, force=force)

    found = run_client(run())
    click.echo(f"Aborted the transaction of producer {found.producer_id} in {found.partition}.")


def _ago(timestamp_ms: int) -> str:
    return f"{max(0.0, time.time() - timestamp_ms / 1000):.0f} s"


def _since(timestamp_ms: int) -> str:
    return f"{_ago(timestamp_ms)} ago"
