"""`raftwerk demo`: flights through three nodes, two of which are killed."""

from __future__ import annotations

import click

from ..options import Command, json_option


@click.command(cls=Command)
@click.option("--seconds", type=click.IntRange(5, 3600), default=24, show_default=True, help="How long to stream.")
@click.option("--keep", is_flag=True, help="Keep the cluster's directory.")
@json_option
@click.pass_context
def demo(ctx: click.Context, seconds: int, keep: bool, as_json: bool) -> None:
    """Stream a year of flights through three nodes, kill a leader and the controller, and count what was lost.

    Starts a new cluster on free ports, streams 336,776 flights of 2013 keyed by aircraft into a topic of six
    partitions with three replicas each, sends SIGKILL to the leader of a partition and later to the active
    controller, starts them again, reads everything back, and gives a verdict. Exit code 1 unless it is clean.

    \b
    Example:
      raftwerk demo --seconds 60
    """
    from ...cluster.local.demo import run_demo

    ctx.exit(run_demo(seconds=seconds, keep=keep, as_json=as_json))
