"""`raftwerk shrink`: takes the last nodes out of a local cluster."""

from __future__ import annotations

import sys

import click

from ...cluster.command_line.cluster_address import options_of
from ...cluster.command_line.cluster_options import local_login_option, use_own_login
from ...cluster.command_line.plural import some_of
from ...cluster.command_line.text_table import folded
from ..options import Command, WrongConfiguration, counted, directory_option, run_client
from .nodes import find_plan, tell


@click.command("shrink", cls=Command)
@click.option("-n", "--nodes", type=click.IntRange(1), required=True, help="Number of brokers that stay.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@directory_option
@local_login_option
@click.pass_context
def shrink(ctx: click.Context, nodes: int, yes: bool, directory: str) -> None:
    """Take the last nodes out of a local cluster that is running, after a confirmation.

    Their replicas move to the nodes that stay, their controllers leave the quorum, and their files are deleted. The
    cluster serves clients meanwhile. It grows with raftwerk up -n.

    \b
    Examples:
      raftwerk shrink -n 3
      raftwerk shrink -n 1 --yes --name orders
      raftwerk shrink -n 3 --command-config admin.properties      where settings of one's own secure the cluster
    """
    from ...cluster.local.shrinking import NAMED, CannotShrinkError, changed_defaults, lost_tolerance, plan_shrink
    from ...cluster.local.shrinking import shrink as shrink_cluster
    from ...cluster.local.supervisor import LocalNodeError

    plan = find_plan(directory)
    is_named = any(ctx.params[name] is not None for name in ("directory", "cluster_name"))
    use_own_login(plan.directory, is_named=is_named)
    try:
        planned = run_client(plan_shrink(plan, nodes))
    except CannotShrinkError as error:
        raise click.ClickException(str(error)) from None
    except ValueError as error:
        raise WrongConfiguration(str(error)) from None
    if not planned.leaving and not planned.remains:
        click.echo(f"The cluster has {counted(nodes, 'broker')} already.")
        return
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("standard input is not a terminal: --yes takes nodes out without asking")
    leaving = [str(node.node_id) for node in (*planned.leaving, *planned.remains)]
    who = f"node{'s' * (len(leaving) > 1)} {', '.join(leaving)}"
    moves = counted(len(planned.moves), "partition")
    click.echo(folded(f"Out of the cluster in {plan.directory} go: {who}. {moves} will move."))
    if planned.fewer:
        click.echo(
            folded(f"Fewer replicas, since fewer brokers stay, will be left of {some_of(planned.fewer, NAMED)}.")
        )
    lost = lost_tolerance(planned.former, planned.smaller)
    if lost:
        click.echo(folded(lost))
    if not yes and not click.confirm("Go on?"):
        click.echo("Nothing was changed.")
        ctx.exit(1)
    goes_on = f"raftwerk shrink -n {nodes}{options_of(directory)} goes on"
    try:
        run_client(shrink_cluster(planned, tell), on_interrupt=lambda: tell(f"interrupted; {goes_on}"))
    except LocalNodeError as error:
        raise click.ClickException(f"{error}; {goes_on}") from None
    except CannotShrinkError as error:
        raise click.ClickException(str(error)) from None
    changed = changed_defaults(planned)
    if changed:
        told = ", ".join(f"{name}={value}" for name, value in changed.items())
        restart = "; ".join(f"raftwerk {verb} N{options_of(directory)}" for verb in ("stop", "start"))
        taken = f"The nodes that stay take {told} at their next start: {restart}, one by one."
        click.echo(folded(taken))
    count = counted(len(planned.smaller.nodes), "node")
    click.echo(folded(f"The cluster has {count} now: bootstrap.servers={planned.smaller.bootstrap}"))
