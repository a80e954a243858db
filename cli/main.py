"""The subcommands. A subcommand's module is imported when the subcommand runs, so that a node starts quickly.

Exit codes of every subcommand: 0, it did what was asked; 1, it could not (a port in use, a refused request, lost
records); 2, the command line or the configuration is wrong.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from raftwerk import __version__

from ..cluster.command_line.commands import Group
from ..runtime.os_errors import os_reason
from .options import is_reader_gone

_COMMANDS = {
    "up": ("local_cluster.up:up", "Start a local cluster of N nodes."),
    "down": ("local_cluster.up:down", "Stop a cluster that was started with up --detach."),
    "run": ("local_cluster.run:run", "Run a command, such as npm test, with a cluster that is started for it."),
    "status": ("local_cluster.status:status", "Show the nodes of a cluster."),
    "kill": ("local_cluster.nodes:kill", "Send a signal to nodes of a local cluster."),
    "stop": ("local_cluster.nodes:stop", "Stop nodes of a local cluster cleanly."),
    "start": ("local_cluster.nodes:start", "Start nodes of a local cluster that are down."),
    "logs": ("local_cluster.node_logs:logs", "Show the logs of the nodes of a local cluster."),
    "delete": ("local_cluster.delete:delete", "Delete a local cluster with all its data."),
    "shrink": ("local_cluster.shrink:shrink", "Take the last nodes out of a local cluster that is running."),
    "clusters": ("local_cluster.nodes:clusters", "List the named local clusters."),
    "profile": ("local_cluster.profiles:profile", "Name remote clusters, and choose the one to use."),
    "env": ("local_cluster.profiles:env", "Print shell exports that select a cluster."),
    "node": ("one_node.node:node", "Run one node from server.properties."),
    "format": ("one_node.node:format_dirs", "Prepare the log directories of a node."),
    "certificates": ("one_node.certificates:certificates", "Make certificates for nodes."),
    "settings": ("one_node.node:settings", "List the settings of server.properties."),
    "topics": (
        "administration.topics:topics",
        "Create, list, describe, alter and delete topics; look up offsets, delete records.",
    ),
    "partitions": ("administration.partitions:partitions", "Move partitions between brokers, and elect leaders."),
    "features": ("administration.features:features", "Show and change the levels of the cluster's features."),
    "configs": ("administration.configs:configs", "Show and set the configuration of topics and brokers."),
    "brokers": ("administration.configs:brokers", "List brokers, and unregister one that will not come back."),
    "quorum": ("administration.quorum:quorum", "Show the metadata quorum, and add or remove controllers."),
    "groups": (
        "administration.groups:groups",
        "Show consumer groups and their lag, set their offsets, and delete them.",
    ),
    "users": ("administration.users:users", "Add, list and remove users, and change their passwords."),
    "tokens": ("administration.tokens:tokens", "Make, renew and end delegation tokens, by which programs log in."),
    "acls": ("administration.acls:acls", "List access control lists, and say who may do what."),
    "quotas": ("administration.quotas:quotas", "Limit what clients may use: bytes, time, changes, connections."),
    "transactions": (
        "administration.transactions:transactions",
        "Show transactions, find those that hang, and abort them.",
    ),
    "produce": ("records.produce:produce", "Send lines to a topic."),
    "consume": ("records.consume:consume", "Print the records of a topic."),
    "doctor": ("administration.doctor:doctor", "Find problems of a cluster, a configuration, or this machine."),
    "perf": ("records.perf:perf", "Measure throughput and latency."),
    "log": ("one_node.log_files:log", "Show, check and repair the files of a node."),
    "demo": (
        "local_cluster.demo:demo",
        "Stream flights through three nodes, kill two of them, and count what was lost.",
    ),
    "chaos": ("fault_tests.chaos:chaos", "Inject faults into a cluster of real processes, and get a verdict."),
    "pipeline": ("pipeline:pipeline", "Jobs on Spark: a lake, changes of a database, windows, an audit, a mirror."),
    "console": ("console:console", "Show the cluster in a browser, live."),
    "registry": ("registry:registry", "Serve a schema registry over HTTP."),
    "rest": ("rest:rest", "Serve the cluster over HTTP, as Confluent's REST proxy does."),
    "completion": ("completion:completion", "Print the completion script for a shell."),
    "sim": ("fault_tests.sim:sim", "Run a cluster in the deterministic simulator."),
}


_ALIASES = {
    "topic": "topics",
    "partition": "partitions",
    "feature": "features",
    "config": "configs",
    "broker": "brokers",
    "group": "groups",
    "user": "users",
    "token": "tokens",
    "acl": "acls",
    "quota": "quotas",
    "transaction": "transactions",
    "cluster": "clusters",
    "setting": "settings",
    "profiles": "profile",
}
"""The names of other tools, which say topic where we say topics."""


class LazyGroup(Group):
    """A group that imports the module of a subcommand when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the help page."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand; None for an unknown name."""
        entry = _COMMANDS.get(self.aliases.get(cmd_name, cmd_name))
        if entry is None:
            return None
        module, _, attribute = entry[0].partition(":")
        command = getattr(importlib.import_module(f"{__package__}.{module}"), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{entry[0]} is not a command")
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand. A reader that closes the pipe of our output early (`| head`) is not a failure."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            if not is_reader_gone():
                raise
            _discard_stdout()
            ctx.exit(0)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.command(
    cls=LazyGroup, aliases=_ALIASES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="raftwerk")
def cli() -> None:
    """A Kafka-compatible cluster in Python: real clients, several nodes, no JVM.

    \b
    Examples:
      raftwerk up -n 3                                   three nodes on ports 9092 to 9094
      raftwerk topics create flights -p 6 --replicas 3
      echo hello | raftwerk produce flights
      raftwerk consume flights -n 1

    Names of Kafka's own tools are understood: topic for topics, --topic NAME for the argument, --replication-factor.

    Exit codes: 0 done; 1 it failed; 2 the command line or the configuration is wrong. An empty list gives 0, and says
    so on standard error; what is to be removed and is not there gives 1.
    """


def _show(error: click.ClickException) -> None:
    if isinstance(error, click.UsageError):
        error.show()
        return
    from ..cluster.command_line.text_table import folded

    click.echo(folded(f"Error: {error.format_message()}", to=sys.stderr), err=True)


def _discard_stdout() -> None:
    """Write nowhere what is still buffered, and what follows."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_stdout_writable() -> bool:
    """Whether standard output takes an empty line, as that on a full disk does not."""
    try:
        os.write(sys.stdout.fileno(), b"\n")
    except OSError:
        _discard_stdout()
        return False
    return True


def main() -> None:
    """Run the command. An error that the user can repair is printed as one sentence, without a traceback."""
    try:
        code = cli.main(prog_name="raftwerk", standalone_mode=False)
    except click.exceptions.Exit as exit_asked:
        code = exit_asked.exit_code
    except click.ClickException as error:
        _show(error)
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("Aborted.", err=True)
        code = 130
    except PermissionError as error:
        click.echo(f"Error: {os_reason(error)}", err=True)
        code = 2
    except OSError as error:
        if _is_stdout_writable():
            raise
        click.echo(f"Error: the standard output takes nothing: {os_reason(error)}", err=True)
        code = 1
    sys.exit(code if isinstance(code, int) else 0)
