"""`raftwerk configs`: what topics and brokers are set to, and setting it while they run. `raftwerk brokers`."""

from __future__ import annotations

import click

from .common import bootstrap_option, json_option, parse_pairs, print_json, run_client

_SOURCES = {1: "topic", 2: "this broker", 3: "all brokers", 4: "server.properties", 5: "default"}


@click.group()
def configs() -> None:
    """Show and set the configuration of topics and brokers.

    \b
    Examples:
      raftwerk configs show --topic flights --all
      raftwerk configs set --topic flights retention.ms=3600000
      raftwerk configs unset --topic flights retention.ms
      raftwerk configs set --all-brokers log.retention.ms=86400000
      raftwerk configs show --broker 1
    """


def _resource(topic: str | None, broker: int | None, all_brokers: bool) -> tuple[int, str]:
    if (topic is not None) + (broker is not None) + all_brokers != 1:
        raise click.UsageError("give one of --topic NAME, --broker ID and --all-brokers")
    return (2, topic) if topic is not None else (4, "" if broker is None else str(broker))


def _resource_options(function: click.decorators.FC) -> click.decorators.FC:
    function = click.option("--all-brokers", is_flag=True, help="What holds for every broker.")(function)
    function = click.option("--broker", type=click.IntRange(0), metavar="ID", help="One broker.")(function)
    return click.option("--topic", metavar="NAME", help="One topic.")(function)


@configs.command()
@_resource_options
@click.option("--all", "everything", is_flag=True, help="Defaults too.")
@bootstrap_option
@json_option
def show(
    topic: str | None, broker: int | None, all_brokers: bool, everything: bool, bootstrap: str, as_json: bool
) -> None:
    """Show what was set at run time, or with --all every value and where it comes from."""
    resource = _resource(topic, broker, all_brokers)

    async def run() -> list[dict[str, object]]:
        from ..admin import ClusterClient
        from ..moving import describe_configs

        async with ClusterClient(bootstrap) as client:
            rows = await describe_configs(client, *resource, everything=everything)
        return [
            {"name": row.name, "value": row.value, "source": _SOURCES.get(row.source, "?"), "read_only": row.read_only}
            for row in rows
        ]

    for row in run_client(run()):
        if as_json:
            print_json(row)
        else:
            click.echo(f"{row['name']}={'' if row['value'] is None else row['value']}  ({row['source']})")


@configs.command("set")
@_resource_options
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE...")
@bootstrap_option
def set_values(
    topic: str | None, broker: int | None, all_brokers: bool, pairs: tuple[str, ...], bootstrap: str
) -> None:
    """Set values."""
    _alter(_resource(topic, broker, all_brokers), parse_pairs(pairs, "KEY=VALUE"), (), bootstrap)


@configs.command("unset")
@_resource_options
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@bootstrap_option
def unset_values(
    topic: str | None, broker: int | None, all_brokers: bool, keys: tuple[str, ...], bootstrap: str
) -> None:
    """Take values back to what holds without them."""
    _alter(_resource(topic, broker, all_brokers), {}, keys, bootstrap)


def _alter(resource: tuple[int, str], values: dict[str, str], deleted: tuple[str, ...], bootstrap: str) -> None:
    async def run() -> None:
        from ..admin import ClusterClient
        from ..moving import alter_configs

        async with ClusterClient(bootstrap) as client:
            await alter_configs(client, *resource, values, deleted)

    run_client(run())
    click.echo("Done.")


@click.group()
def brokers() -> None:
    """List brokers; forget one that will not come back.

    \b
    Examples:
      raftwerk brokers list
      raftwerk brokers unregister 4
    """


@brokers.command("list")
@bootstrap_option
@json_option
def list_brokers(bootstrap: str, as_json: bool) -> None:
    """List the live brokers, with how much each leads and holds."""

    async def run() -> list[dict[str, object]]:
        from ..admin import ClusterClient

        async with ClusterClient(bootstrap) as client:
            view = await client.metadata()
        held = [one for topic in view.topics for one in topic.partitions]
        return [
            {
                "broker": broker.node_id,
                "address": f"{broker.host}:{broker.port}",
                "rack": broker.rack,
                "leads": sum(one.leader == broker.node_id for one in held),
                "replicas": sum(broker.node_id in one.replicas for one in held),
            }
            for broker in view.brokers
        ]

    for row in run_client(run()):
        if as_json:
            print_json(row)
        else:
            click.echo(f"{row['broker']:>4}  {row['address']}  leads {row['leads']} of {row['replicas']} replicas")


@brokers.command()
@click.argument("broker", type=click.IntRange(0))
@bootstrap_option
def unregister(broker: int, bootstrap: str) -> None:
    """Forget BROKER, which is down for good; move its replicas away first."""

    async def run() -> None:
        from ..admin import ClusterClient
        from ..moving import unregister_broker

        async with ClusterClient(bootstrap) as client:
            await unregister_broker(client, broker)

    run_client(run())
    click.echo(f"Broker {broker} is forgotten.")
