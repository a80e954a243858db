"""`raftwerk configs` shows and sets configurations at run time. `raftwerk brokers` lists brokers and their disks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...cluster.command_line.text_table import folded
from ..options import (
    Group,
    bootstrap_option,
    counted,
    each_once,
    end_incomplete,
    json_option,
    parse_pairs,
    print_json,
    run_client,
    setting_names_told,
    size_text,
    tell_none,
)

if TYPE_CHECKING:
    from ...cluster.client.admin_client import AdminClient

_SOURCES = {
    1: "topic",
    2: "this broker",
    3: "all brokers",
    4: "server.properties",
    5: "default",
    6: "logger",
    7: "subscription",
    8: "group",
}


@click.group(cls=Group)
def configs() -> None:
    """Show and set the configuration of topics, brokers, groups and loggers.

    \b
    Examples:
      raftwerk configs show --topic flights --all
      raftwerk configs set --topic flights retention.ms=3600000
      raftwerk configs unset --topic flights retention.ms
      raftwerk configs set --all-brokers log.retention.ms=86400000
      raftwerk configs show --broker 1
      raftwerk configs set --group billing consumer.session.timeout.ms=50000
      raftwerk configs set --loggers 1 raftwerk.groups=DEBUG
    """


_KINDS = {"topic": 2, "broker": 4, "all_brokers": 4, "logger": 8, "client_metrics": 16, "group": 32}


def _resource(given: dict[str, Any]) -> tuple[int, str]:
    """The type and name of the one resource that the options name. Those options are removed from `given`."""
    values = {kind: given.pop(kind) for kind in _KINDS}
    chosen = [(kind, value) for kind, value in values.items() if value is not None and value is not False]
    if len(chosen) != 1:
        raise click.UsageError(
            "give one of --topic NAME, --broker ID, --all-brokers, --group ID, --loggers ID and --client-metrics NAME"
        )
    kind, value = chosen[0]
    return _KINDS[kind], "" if value is True else str(value)


def _resource_options(function: click.decorators.FC) -> click.decorators.FC:
    for option in (
        click.option("--client-metrics", metavar="NAME", help="A subscription to metrics of clients."),
        click.option("--loggers", "logger", type=click.IntRange(0), metavar="ID", help="The log levels of a broker."),
        click.option("-g", "--group", metavar="ID", help="A consumer group."),
        click.option("--all-brokers", is_flag=True, help="The defaults of all brokers."),
        click.option("--broker", type=click.IntRange(0), metavar="ID", help="A broker."),
        click.option("-t", "--topic", metavar="NAME", help="A topic."),
    ):
        function = option(function)
    return function


@configs.command()
@_resource_options
@click.option("--all", "everything", is_flag=True, help="Include defaults.")
@bootstrap_option
@json_option
def show(everything: bool, bootstrap: str, as_json: bool, **given: Any) -> None:
    """Show the values that were set at run time; with --all every value and its source.

    \b
    Example:
      raftwerk configs show --topic flights --all
    """
    resource = _resource(given)

    async def run() -> list[dict[str, object]]:
        from ...cluster.client.admin_client import AdminClient
        from ...cluster.client.cluster_client import ClusterClient

        async with ClusterClient(bootstrap) as client:
            rows = await AdminClient(client).describe_configs(*resource, everything=everything)
        return [
            {"name": row.name, "value": row.value, "source": _SOURCES.get(row.source, "?"), "read_only": row.read_only}
            for row in rows
        ]

    rows = run_client(run())
    for row in rows:
        if as_json:
            print_json(row)
        else:
            click.echo(f"{row['name']}={'' if row['value'] is None else row['value']}  ({row['source']})")
    if not rows:
        is_of_one_broker = resource[0] == _KINDS["broker"] and resource[1]
        tell_none(
            "No value was set for this broker alone; --all-brokers shows those of all brokers, and --all shows the "
            "defaults too."
            if is_of_one_broker
            else "No value was set at run time; --all shows the defaults too."
        )


_UNSET = "raftwerk configs unset removes values, for example --topic flights retention.ms"
_SET = "values stand without an option: raftwerk configs set --topic flights retention.ms=3600000"


@configs.command("set", hints={"--unset": _UNSET, "--delete": _UNSET, "--delete-config": _UNSET, "--add-config": _SET})
@_resource_options
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE...")
@bootstrap_option
def set_values(pairs: tuple[str, ...], bootstrap: str, **given: Any) -> None:
    """Set values of one resource.

    \b
    Examples:
      raftwerk configs set --topic flights retention.ms=3600000
      raftwerk configs set --all-brokers log.retention.ms=86400000
    """
    _alter(_resource(given), parse_pairs(pairs, "KEY=VALUE"), (), bootstrap)


@configs.command("unset")
@_resource_options
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@bootstrap_option
def unset_values(keys: tuple[str, ...], bootstrap: str, **given: Any) -> None:
    """Remove values, so that the defaults apply again.

    \b
    Example:
      raftwerk configs unset --topic flights retention.ms
    """
    _alter(_resource(given), {}, keys, bootstrap)


def _alter(resource: tuple[int, str], values: dict[str, str], deleted: tuple[str, ...], bootstrap: str) -> None:
    async def run() -> str:
        from ...cluster.client.admin_client import AdminClient, resource_name
        from ...cluster.client.cluster_client import ClusterClient

        async with ClusterClient(bootstrap) as client:
            with setting_names_told(resource[0], (*values, *deleted)):
                await AdminClient(client).alter_configs(*resource, values, deleted)
        return resource_name(*resource)

    changed = run_client(run())
    click.echo(f"{'Set' if values else 'Unset'} {', '.join((*values, *deleted))} of {changed}.")  # some are secret


@click.group(cls=Group)
def brokers() -> None:
    """List brokers and their log directories; unregister a broker that will not come back.

    \b
    Examples:
      raftwerk brokers list
      raftwerk brokers log-dirs 1
      raftwerk brokers unregister 4
    """


@brokers.command("list")
@bootstrap_option
@json_option
def list_brokers(bootstrap: str, as_json: bool) -> None:
    """List the brokers, with the number of replicas that each leads and has, and those that do not answer.

    Each broker is asked, since the cluster notices only after some seconds that one is gone.

    \b
    Example:
      raftwerk brokers list
    """

    async def run() -> list[dict[str, Any]]:
        from ...cluster.client.admin_client import AdminClient
        from ...cluster.client.cluster_client import ClusterClient

        async with ClusterClient(bootstrap) as client:
            view, states = await client.metadata(), await AdminClient(client).broker_states()
        partitions = [one for topic in view.topics for one in topic.partitions]
        return [
            {
                "broker": broker.node_id,
                "address": f"{broker.host}:{broker.port}",
                "rack": broker.rack,
                "state": broker.state,
                "why_down": broker.why_down,
                "leads": sum(one.leader == broker.node_id for one in partitions),
                "replicas": sum(broker.node_id in one.replicas for one in partitions),
            }
            for broker in states
        ]

    for row in run_client(run()):
        if as_json:
            print_json(row)
        else:
            replicas = counted(row["replicas"], "replica")
            down = "" if row["why_down"] is None else click.style(f"  {row['why_down']}", fg="red")
            click.echo(f"{row['broker']:>4}  {row['address']}  leads {row['leads']} of {replicas}{down}")


@brokers.command("log-dirs")
@click.argument("wanted", nargs=-1, type=click.IntRange(0), metavar="[BROKER]...", callback=each_once)
@bootstrap_option
@json_option
def log_dirs(wanted: tuple[int, ...], bootstrap: str, as_json: bool) -> None:
    """Show the log directories of brokers (default: all): their space and replicas, and which have failed or are full.

    \b
    Example:
      raftwerk brokers log-dirs 1
    """

    async def run() -> tuple[list[dict[str, object]], list[str]]:
        from dataclasses import asdict

        from ...cluster.client.admin_client import AdminClient
        from ...cluster.client.cluster_client import ClusterClient

        async with ClusterClient(bootstrap) as client:
            admin = AdminClient(client)
            found = await admin.describe_log_dirs(wanted)
            reserved = {one: await reserve_of(admin, one) for one in {row.broker for row in found.rows}}
        rows = [asdict(one) | {"full": 0 <= one.usable_bytes < max(1, reserved[one.broker])} for one in found.rows]
        return rows, found.missing

    async def reserve_of(admin: AdminClient, broker: int) -> int:
        """The space that the broker keeps free; 0 where that cannot be known, as of Apache Kafka."""
        from ...cluster.client.admin_client import BROKER
        from ...cluster.client.client_errors import ClientError
        from ...cluster.doctor.disk_checks import RESERVE

        try:
            settings = await admin.describe_configs(BROKER, str(broker), everything=True)
        except ClientError:
            return 0
        return next((int(one.value or 0) for one in settings if one.name == RESERVE), 0)

    rows, missing = run_client(run())
    for row in rows:
        if as_json:
            print_json(row)
        else:
            _print_log_dir(row)
    end_incomplete(missing)


def _print_log_dir(row: dict[str, Any]) -> None:
    where = f"{row['broker']:>4}  {row['path']}"
    if row["error_code"]:
        told = "FAILED: its replicas are offline; repair or replace the disk, and start the broker again"
        click.echo(folded(f"{where}  {told}", 6))
        return
    replicas = row["replicas"]
    held_bytes = sum(one["size_bytes"] for one in replicas)
    moving = sum(one["moving_here"] for one in replicas)
    note = f", {moving} being moved here" if moving else ""
    full = "; FULL: it takes no records, see raftwerk doctor" if row["full"] else ""
    free, total = (size_text(row[key]) for key in ("usable_bytes", "total_bytes"))
    told = f"{where}  {counted(len(replicas) - moving, 'replica')}, {size_text(held_bytes)}{note}; "
    click.echo(folded(f"{told}{free} of {total} free{full}", 6))


@brokers.command()
@click.argument("broker", type=click.IntRange(0))
@bootstrap_option
def unregister(broker: int, bootstrap: str) -> None:
    """Unregister BROKER, which will not come back. Move its replicas to other brokers first.

    \b
    Example:
      raftwerk brokers unregister 4
    """

    async def run() -> None:
        from ...cluster.client.admin_client import AdminClient
        from ...cluster.client.cluster_client import ClusterClient

        async with ClusterClient(bootstrap) as client:
            await AdminClient(client).unregister_broker(broker)

    run_client(run())
    click.echo(f"Broker {broker} unregistered.")
