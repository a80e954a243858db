"""`raftwerk delete`: removes a local cluster with all its data."""

from __future__ import annotations

import sys

import click

from ...cluster.command_line.cluster_address import options_of
from ...runtime.os_errors import os_reason
from ..options import Command, counted, directory_option, size_text
from .nodes import find_plan


@click.command(cls=Command)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@directory_option
@click.pass_context
def delete(ctx: click.Context, yes: bool, directory: str) -> None:
    """Delete a local cluster with all its data, after a confirmation. Its nodes must not run.

    Only the cluster's own files are removed, and the directory too if nothing else is in it. Directories above it stay,
    since nobody knows whether `raftwerk up` made them for this cluster alone.

    \b
    Examples:
      raftwerk delete
      raftwerk down --name orders;  raftwerk delete --name orders --yes
    """
    from ...cluster.local.cluster_directory import delete_files, size_bytes
    from ...cluster.local.running_up import CONSOLE_PID, running_up
    from ...cluster.local.supervisor import node_pid

    plan = find_plan(directory)
    running = [str(node.node_id) for node in plan.nodes if node_pid(node) is not None]
    console_pid = running_up(plan.directory, CONSOLE_PID)
    if console_pid is not None and not running:
        told = f"its console runs (process {console_pid}); raftwerk down{options_of(plan.directory)} stops it"
        raise click.ClickException(f"nothing was deleted: {told}")
    if running:
        told = f"running nodes: {', '.join(running)}; raftwerk down{options_of(plan.directory)} stops them"
        raise click.ClickException(f"nothing was deleted: {told}")
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("standard input is not a terminal: --yes deletes the cluster without asking")
    count, size = len(plan.nodes), size_text(size_bytes(plan.directory))
    what = f"the cluster in {plan.directory} ({counted(count, 'node')}, {size})"
    if not yes and not click.confirm(f"Delete {what} with all its data?"):
        click.echo("Nothing was deleted.")
        ctx.exit(1)
    try:
        delete_files(plan.directory)
    except OSError as error:
        raise click.ClickException(f"{plan.directory} could not be removed whole: {os_reason(error)}") from None
    click.echo(f"Deleted {what}.")
