"""`raftwerk node`, `raftwerk format` and `raftwerk settings`: run one node, format its directories, list settings."""

from __future__ import annotations

import secrets
import sys

import click

from ..options import Command, log_options


@click.command(cls=Command)
@click.argument("file", required=False, type=click.Path(dir_okay=False), metavar="[SERVER.PROPERTIES]")
@click.option(
    "-o", "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Overrides the file; repeatable."
)
@click.option("--env", "use_env", is_flag=True, help="Read KAFKA_* variables too; implied without a file.")
@click.option("--format", "format_id", metavar="CLUSTER_ID", help="Format directories that are not formatted yet.")
@log_options
@click.option("--initial-controllers", "initial", hidden=True)
@click.option("--no-initial-controllers", "no_initial", is_flag=True, hidden=True)
@click.option("--ready-fd", type=int, hidden=True)
@click.option("--progress-file", hidden=True)
@click.option("--pid-file", hidden=True)
@click.option("--stop-at-eof", is_flag=True, hidden=True)
@click.pass_context
def node(
    ctx: click.Context,
    file: str | None,
    overrides: tuple[str, ...],
    use_env: bool,
    format_id: str | None,
    log_level: str,
    log_format: str,
    initial: str | None,
    no_initial: bool,
    ready_fd: int | None,
    progress_file: str | None,
    pid_file: str | None,
    stop_at_eof: bool,
) -> None:
    """Run one node until SIGTERM or Ctrl-C. Its settings have Kafka's names.

    \b
    Examples:
      raftwerk node server.properties
      raftwerk node server.properties -o log.dirs=/data/1 -o node.id=2
      KAFKA_NODE_ID=1 KAFKA_PROCESS_ROLES=broker,controller ... raftwerk node --format $CLUSTER_ID

    Exit codes: 0 stopped cleanly; 1 it could not start or had to stop (a port in use, a directory that is not
    formatted, locked, or another node's); 2 the configuration is wrong.
    """
    if sys.platform != "linux":
        raise click.ClickException(
            f"nodes need Linux's system calls, and this is {sys.platform}: run them in a container or a virtual machine"
        )
    from ...cluster.node.process import NodeOptions, run_node

    use_env = use_env or file is None
    options = NodeOptions(
        file,
        overrides,
        use_env,
        format_id,
        log_level,
        log_format,
        ready_fd,
        stop_at_eof,
        initial_controllers=initial,
        no_initial_controllers=no_initial,
        progress_file=progress_file,
        pid_file=pid_file,
    )
    ctx.exit(run_node(options))


def _print_id(ctx: click.Context, parameter: click.Parameter, asked: bool) -> None:
    from ...cluster.local.layout import new_cluster_id

    if asked:
        click.echo(new_cluster_id())
        ctx.exit(0)


@click.command("format", cls=Command)
@click.option(
    "-t",
    "--cluster-id",
    help="The cluster's id, 22 characters; default: a new one, for a first node, which is printed for the others.",
)
@click.option(
    "-c", "--config", "file", required=True, type=click.Path(dir_okay=False), help="The node's server.properties."
)
@click.option("-g", "--ignore-formatted", is_flag=True, help="Skip directories that are formatted already.")
@click.option("-s", "--standalone", is_flag=True, help="Dynamic voters: this controller is the only first voter.")
@click.option(
    "-I",
    "--initial-controllers",
    "initial",
    metavar="ID@HOST:PORT:DIRECTORY-ID,...",
    help="Dynamic voters: these controllers are the first voters; format each with the same list.",
)
@click.option(
    "-N",
    "--no-initial-controllers",
    "no_initial",
    is_flag=True,
    help="Dynamic voters: this controller joins an existing quorum.",
)
@click.option(
    "-r",
    "--release-version",
    "release",
    help="The release whose levels a new cluster begins with: 4.1.",
)
@click.option(
    "-f", "--feature", "features", multiple=True, metavar="NAME=LEVEL", help="The first level of one feature."
)
@click.option(
    "-S",
    "--add-scram",
    "scram",
    multiple=True,
    metavar="MECHANISM=[name=...,password=...]",
    help="A user who logs in by SCRAM from the first start on; repeatable.",
)
@click.option(
    "--new-id", is_flag=True, is_eager=True, expose_value=False, callback=_print_id, help="Print a new id and exit."
)
@click.option(
    "-o", "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Overrides the file; repeatable."
)
@click.pass_context
def format_dirs(
    ctx: click.Context,
    cluster_id: str | None,
    file: str,
    ignore_formatted: bool,
    standalone: bool,
    initial: str | None,
    no_initial: bool,
    overrides: tuple[str, ...],
    release: str | None,
    features: tuple[str, ...],
    scram: tuple[str, ...],
) -> None:
    """Write meta.properties into the log directories of a node. This is done once, before its first start.

    With controller.quorum.voters the voters are static. Without it, controllers are formatted with one of -s, -I, -N,
    and voters can be added and removed later (`raftwerk quorum add-controller`, `remove-controller`).

    \b
    Examples:
      raftwerk format -t MkU3OEVBNTcwNTJENDM2Qg -c server.properties
      raftwerk format -t MkU3OEVBNTcwNTJENDM2Qg -c server.properties --standalone
      raftwerk format -t MkU3OEVBNTcwNTJENDM2Qg -c server.properties -s --release-version 4.1
      raftwerk format -c server.properties -s --add-scram 'SCRAM-SHA-512=[name=admin,password=...]'
    """
    from ...cluster.node.bootstrap_features import choose_levels
    from ...cluster.node.bootstrap_users import choose_users
    from ...cluster.node.formatting import FirstVoters
    from ...cluster.node.process import run_format

    try:
        levels = choose_levels(release, features)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    try:
        users = choose_users(scram, secrets.token_bytes)
    except ValueError as error:
        raise click.UsageError(f"--add-scram: {error}") from None

    voters = FirstVoters(standalone, initial, no_initial)
    ctx.exit(
        run_format(file, cluster_id, voters, overrides, ignore_formatted=ignore_formatted, levels=levels, users=users)
    )


@click.command(cls=Command)
@click.argument("text", default="")
@click.option("--markdown", is_flag=True, help="Print the page docs/configuration.md, with the settings of topics.")
def settings(text: str, markdown: bool) -> None:
    """List the settings of a node, or those with TEXT in their name: name, type, default, meaning.

    Exit code 1 if no name has TEXT in it.

    \b
    Examples:
      raftwerk settings
      raftwerk settings log.retention
    """
    from ...cluster.settings.configuration_page import configuration_page, describe_broker_configs

    if markdown and text:
        raise click.UsageError("--markdown prints the whole page: leave out TEXT or --markdown")
    found = configuration_page() if markdown else describe_broker_configs(text)
    if not found:
        raise click.ClickException(f"no setting of a node has {text!r} in its name; raftwerk settings lists all")
    click.echo(found, nl=not markdown)
