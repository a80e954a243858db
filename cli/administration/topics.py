"""`raftwerk topics`: creates, lists, describes, alters and deletes topics."""

from __future__ import annotations

import asyncio

import click

from ..options import (
    Group,
    Option,
    bootstrap_option,
    counted,
    json_option,
    parse_pairs,
    print_json,
    run_client,
    setting_names_told,
    tell_none,
    topic_argument,
)
from .topic_offsets import delete_records, offsets

_QUORUM_S = 2.0
"""How long brokers have to say whether there is an active controller."""

_exclude_internal = click.option("--exclude-internal", is_flag=True, help="Leave out internal topics.")


@click.group(
    cls=Group,
    hints={"add-partitions": "To add partitions: raftwerk topics alter TOPIC -p N, with the new number of all."},
)
def topics() -> None:
    """Create, list, describe, alter and delete topics; look up offsets and delete records.

    \b
    Examples:
      raftwerk topics create flights -p 6 --replicas 3 -c min.insync.replicas=2
      raftwerk topics list
      raftwerk topics describe flights --json
      raftwerk topics alter flights -p 12 -c retention.ms=3600000
      raftwerk topics offsets flights --time 10m
      raftwerk topics delete-records flights --before 7d
      raftwerk topics delete flights
    """


topics.add_command(offsets)
topics.add_command(delete_records)


@topics.command()
@topic_argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option("-p", "--partitions", type=click.IntRange(1), help="Number of partitions; default: the cluster's.")
@click.option(
    "-r",
    "--replicas",
    cls=Option,
    aliases=["--replication-factor"],
    type=click.IntRange(1, 32767),
    help="Replication factor; default: the cluster's.",
)
@click.option("-c", "--config", "configs", multiple=True, metavar="KEY=VALUE", help="A topic setting; repeatable.")
@click.option("--if-not-exists", is_flag=True, help="Succeed if the topic exists already.")
@bootstrap_option
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replicas: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str,
) -> None:
    """Create topics, and wait until every partition has a leader. The first that is refused ends the command.

    \b
    Examples:
      raftwerk topics create flights -p 6 -r 3 -c min.insync.replicas=2
      raftwerk topics create --topic flights --partitions 6 --replication-factor 3
    """
    pairs = parse_pairs(configs, "--config")

    async def run() -> None:
        from ...cluster.client.admin_client import TOPIC, AdminClient, NewTopic
        from ...cluster.client.client_errors import RefusedError
        from ...cluster.client.cluster_client import ClusterClient
        from ...wire.errors import ErrorCode

        async with ClusterClient(bootstrap) as client:
            for name in names:
                try:
                    with setting_names_told(TOPIC, pairs):
                        await AdminClient(client).create_topic(NewTopic(name, partitions or -1, replicas or -1, pairs))
                except RefusedError as error:
                    if not (if_not_exists and error.code == ErrorCode.TOPIC_ALREADY_EXISTS):
                        raise
                    click.echo(f"Topic {name} exists already; it stays as it is.")
                else:
                    click.echo(f"Created topic {name}.")

    run_client(run())


@topics.command("list")
@_exclude_internal
@bootstrap_option
@json_option
def list_topics(exclude_internal: bool, bootstrap: str, as_json: bool) -> None:
    """List the names of all topics, internal ones such as __consumer_offsets included.

    \b
    Examples:
      raftwerk topics list
      raftwerk topics list --exclude-internal
    """

    async def run() -> list[tuple[str, int]]:
        from ...cluster.client.cluster_client import ClusterClient

        async with ClusterClient(bootstrap) as client:
            view = await client.metadata()
        return [(one.name, len(one.partitions)) for one in view.topics if not (exclude_internal and one.internal)]

    found = run_client(run())
    if not found:
        tell_none("There are no topics, or none that you may see.")
    for name, partitions in found:
        if as_json:
            print_json({"topic": name, "partitions": partitions})
        else:
            click.echo(name)


@topics.command()
@topic_argument("names", nargs=-1, metavar="[TOPIC]...")
@_exclude_internal
@bootstrap_option
@json_option
def describe(names: tuple[str, ...], exclude_internal: bool, bootstrap: str, as_json: bool) -> None:
    """Show leaders, replicas and in-sync replicas of the topics (default: all, internal ones included).

    \b
    Examples:
      raftwerk topics describe flights
      raftwerk topics describe --exclude-internal
    """

    async def run() -> tuple[list[dict[str, object]], bool]:
        from ...cluster.client.cluster_client import ClusterClient
        from ...cluster.client.quorum_client import QuorumClient
        from ...cluster.client.reassignment import with_reassignments

        async with ClusterClient(bootstrap) as client, ClusterClient(bootstrap, timeout_s=_QUORUM_S) as other:
            quorum = QuorumClient(other)
            view, is_led = await asyncio.gather(client.metadata(names or None), quorum.is_led())
            if is_led:
                view = await with_reassignments(other, view)
        chosen = [view.topic(name) for name in names] if names else list(view.topics)
        chosen = [topic for topic in chosen if not (exclude_internal and topic.internal)]
        rows: list[dict[str, object]] = [
            {
                "topic": topic.name,
                "topic_id": None if topic.topic_id is None else str(topic.topic_id),
                "partitions": [
                    {
                        "partition": one.partition,
                        "leader": one.leader,
                        "leader_epoch": one.leader_epoch,
                        "replicas": list(one.replicas),
                        "isr": list(one.isr),
                        "adding": list(one.adding),
                        "under_replicated": one.is_under_replicated,
                    }
                    for one in topic.partitions
                ],
            }
            for topic in chosen
        ]
        return rows, is_led

    rows, is_led = run_client(run())
    for topic in rows:
        if as_json:
            print_json(topic)
        else:
            _print_topic(topic)
    if not is_led:
        told = "No controller is active that the brokers reach: this is what was known last, and may have changed"
        click.echo(f"{told}; raftwerk doctor shows what to do.", err=True)


def _print_topic(topic: dict[str, object]) -> None:
    rows = topic["partitions"]
    if not isinstance(rows, list):
        return
    click.echo(f"{topic['topic']}  id {topic['topic_id']}  {counted(len(rows), 'partition')}")
    for row in rows:
        replicas, isr = (",".join(map(str, row[column])) for column in ("replicas", "isr"))
        leader = row["leader"] if row["leader"] >= 0 else "none"
        behind = "  under-replicated" if row["under_replicated"] else ""
        behind += f"  adding {','.join(map(str, row['adding']))}" if row["adding"] else ""
        click.echo(
            f"  {row['partition']:>4}  leader {leader:<4}  replicas {replicas:<12}  isr {isr:<12}{behind}".rstrip()
        )


@topics.command()
@topic_argument("name", metavar="TOPIC")
@click.option("-p", "--partitions", type=click.IntRange(1), help="Add partitions until there are this many.")
@click.option("-c", "--config", "configs", multiple=True, metavar="KEY=VALUE", help="A topic setting; repeatable.")
@click.option("--unset", multiple=True, metavar="KEY", help="A setting that gets its default again; repeatable.")
@bootstrap_option
def alter(name: str, partitions: int | None, configs: tuple[str, ...], unset: tuple[str, ...], bootstrap: str) -> None:
    """Add partitions to TOPIC, and set or unset its settings.

    The number of partitions cannot be reduced. When partitions are added, existing records stay where they are, but
    producers may send a key to another partition than before.

    \b
    Examples:
      raftwerk topics alter flights -p 12
      raftwerk topics alter flights -c retention.ms=3600000 -c cleanup.policy=compact
      raftwerk topics alter flights --unset retention.ms
    """
    pairs = parse_pairs(configs, "--config")
    if partitions is None and not pairs and not unset:
        raise click.UsageError("say what to alter: --partitions, --config or --unset")
    both = sorted(set(pairs) & set(unset))
    if both:
        raise click.UsageError(f"--config sets {', '.join(both)} and --unset removes it: give one of them")

    are_settings_altered = False

    async def run() -> None:
        from ...cluster.client.admin_client import TOPIC, AdminClient
        from ...cluster.client.cluster_client import ClusterClient

        nonlocal are_settings_altered
        async with ClusterClient(bootstrap) as client:
            admin = AdminClient(client)
            if pairs or unset:
                with setting_names_told(TOPIC, (*pairs, *unset)):
                    await admin.alter_configs(TOPIC, name, pairs, unset)
                are_settings_altered = True
            if partitions is not None:
                await admin.create_partitions(name, partitions)

    altered = f"{', '.join((*pairs, *unset))} of {name} {'is' if len(pairs) + len(unset) == 1 else 'are'} altered"
    try:
        run_client(run(), on_interrupt=lambda: click.echo(f"Interrupted; {altered}.") if are_settings_altered else None)
    except click.ClickException as error:
        if are_settings_altered:
            raise type(error)(f"{error.message}; {altered}") from None
        raise
    click.echo(f"Altered topic {name}.")


@topics.command()
@topic_argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--if-exists", is_flag=True, help="Succeed if there is no such topic.")
@bootstrap_option
def delete(names: tuple[str, ...], if_exists: bool, bootstrap: str) -> None:
    """Delete topics with all their records. The first that is refused ends the command.

    \b
    Examples:
      raftwerk topics delete flights
      raftwerk topics delete flights planes --if-exists
    """

    async def run() -> None:
        from ...cluster.client.admin_client import AdminClient
        from ...cluster.client.client_errors import RefusedError
        from ...cluster.client.cluster_client import ClusterClient
        from ...wire.errors import ErrorCode

        async with ClusterClient(bootstrap) as client:
            for name in names:
                try:
                    await AdminClient(client).delete_topic(name)
                except RefusedError as error:
                    if not (if_exists and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                        raise
                    click.echo(f"There is no topic {name}.")
                else:
                    click.echo(f"Deleted topic {name}.")

    run_client(run())
