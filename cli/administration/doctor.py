"""`raftwerk doctor`: finds common mistakes, and says in a sentence what to do about each."""

from __future__ import annotations

import os

import click

from ...cluster.command_line.cluster_options import choose_address, chosen_client_properties, cluster_options
from ...cluster.command_line.text_table import folded
from ..options import Command, json_option, print_json, run_client

_MARKS = {"ok": ("ok  ", "green"), "warning": ("warn", "yellow"), "failure": ("FAIL", "red")}


@click.command(cls=Command)
@click.option(
    "-c",
    "--config",
    "files",
    multiple=True,
    type=click.Path(dir_okay=False),
    help="A server.properties to examine; repeatable.",
)
@cluster_options
@json_option
@click.pass_context
def doctor(
    ctx: click.Context,
    files: tuple[str, ...],
    bootstrap_server: str | None,
    cluster_name: str | None,
    cluster_dir: str | None,
    as_json: bool,
) -> None:
    """Look for common mistakes: in a cluster as seen from this machine, in a node's settings, on this machine.

    Exit code 1 if something fails, 0 if there are only warnings; 2 if a file cannot be read.

    \b
    Examples:
      raftwerk doctor                                  the cluster in ./raftwerk-data, or on localhost:9092
      raftwerk doctor -b broker:9092 --json
      raftwerk doctor -c server.properties             before a node's first start
    """
    from ...cluster.doctor.cluster_checks import examine_cluster
    from ...cluster.doctor.findings import FAILURE, Finding
    from ...cluster.doctor.node_checks import (
        examine_config,
        examine_local_logs,
        examine_local_voters,
        examine_machine,
        waiting_brokers,
    )
    from ...cluster.doctor.silent_nodes import NOBODY_WAITS

    found = examine_machine()
    for file in files:
        found += examine_config(file)
    names = (bootstrap_server, cluster_name, cluster_dir)
    if not files or any(name is not None for name in names):
        address = choose_address(*names)
        options = address.local_options
        if address.paused is None:
            waiting = NOBODY_WAITS if address.directory is None else waiting_brokers(address.directory)
            advice = (address.advice, address.controllers, options, address.silence_advice)
            found += run_client(examine_cluster(address.bootstrap, *advice, waiting))
        else:
            found.append(Finding(FAILURE, f"no broker answers: {address.paused}"))
        # Who logs in with another file needs none of `up`, which would change the passwords.
        lost = address.lost_login if chosen_client_properties() is None else address.lost_files
        if lost is not None:
            found.append(Finding(FAILURE, lost))
        if address.directory is not None:
            found += examine_local_voters(address.directory)
            found += examine_local_logs(address.directory, address.local_options or "")
    for one in found:
        if as_json:
            print_json({"level": one.level, "what": one.what, "way_out": one.way_out})
        else:
            mark, colour = _MARKS[one.level]
            click.echo(folded(f"{mark}  {one.what}", 6).replace(mark, click.style(mark, fg=colour), 1))
            if one.way_out:
                click.echo(folded(f"      -> {one.way_out}", 9))
    if not all(os.access(file, os.R_OK) for file in files):
        ctx.exit(2)
    ctx.exit(1 if any(one.level == FAILURE for one in found) else 0)
