"""`raftwerk run`: a cluster for as long as another command runs, such as the tests of a project in any language."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import click

from ...cluster.command_line.cluster_address import BOOTSTRAP_VARIABLE, DIR_VARIABLE
from ...cluster.local.layout import ClusterShape, has_cluster, plan_cluster, quorum_weakness
from ...cluster.local.supervisor import LocalNodeError, stop_nodes_in
from ...cluster.settings.node_config import ConfigError
from ...runtime.os_errors import os_reason
from ...testkit.process_cluster import TestCluster
from ..options import Command, Option, counted, parse_pairs
from .up import check_settings

KAFKA_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"
_NO_CLUSTER, _NOT_EXECUTABLE, _NOT_FOUND = 125, 126, 127
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@click.command(cls=Command, context_settings={"allow_interspersed_args": False})
@click.option("-n", "--nodes", type=click.IntRange(1, 100), default=1, show_default=True, help="Number of brokers.")
@click.option("-o", "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting for every node.")
@click.option("--separate", is_flag=True, help="Run controllers in separate processes (ids 101...).")
@click.option(
    "--secure", is_flag=True, help="Encrypt all links, let only users in who log in, and let ACLs say who may do what."
)
@click.option(
    "--output",
    "directory",
    cls=Option,
    aliases=["--keep"],
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Keep data and logs in this directory; default: a temporary one, removed at the end.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    nodes: int,
    overrides: tuple[str, ...],
    separate: bool,
    secure: bool,
    directory: str | None,
    command: tuple[str, ...],
) -> NoReturn:
    """Start a cluster on free ports, run COMMAND beside it, and stop the cluster when COMMAND ends.

    COMMAND finds the cluster in the environment: RAFTWERK_BOOTSTRAP and KAFKA_BOOTSTRAP_SERVERS list its brokers, and
    RAFTWERK_DIR is its directory, so raftwerk commands within COMMAND use this cluster. With --secure clients log in:
    the files in $RAFTWERK_DIR/security say how, as for a cluster of up --secure. Signals reach COMMAND.

    The exit code is that of COMMAND, 128 + N if signal N ended it; 125 if the cluster did not start, 126 or 127 if
    COMMAND could not be run.

    \b
    Examples:
      raftwerk run -n 3 -- npm test
      raftwerk run -- sh -c 'kcat -L -b "$KAFKA_BOOTSTRAP_SERVERS"'
      raftwerk run -n 3 -o min.insync.replicas=2 --output kafka-logs -- mvn verify
    """
    settings = parse_pairs(overrides, "--override")
    if shutil.which(command[0]) is None:
        raise click.exceptions.Exit(_cannot_run(command[0]))
    if settings:
        try:
            shape = ClusterShape(nodes, overrides=settings)
            check_settings(plan_cluster("raftwerk-run", shape), settings, secure=secure)
        except ConfigError as error:
            raise click.UsageError(str(error)) from None
    with _signals() as relay:
        try:
            is_used = directory is not None and has_cluster(directory)
            with TestCluster.start(
                nodes, settings=settings, directory=directory, separate=separate, secure=secure
            ) as cluster:
                click.echo(f"raftwerk run: {counted(nodes, 'node')} ready at {cluster.bootstrap_servers}", err=True)
                if is_used:
                    click.echo(f"raftwerk run: note: {directory} has the topics of an earlier run", err=True)
                weakness = quorum_weakness(cluster.plan)
                if weakness:
                    click.echo(f"raftwerk run: note: {weakness}", err=True)
                try:
                    code = relay.run(command, _environment(cluster))
                finally:
                    stop_nodes_in(cluster.plan.directory)  # also those that COMMAND has started
        except (LocalNodeError, OSError, ValueError) as error:
            click.echo(f"raftwerk run: {os_reason(error) if isinstance(error, OSError) else error}", err=True)
            code = _NO_CLUSTER
        except _Stopped as stopped:
            code = 128 + stopped.number
    raise click.exceptions.Exit(code)


def _cannot_run(command: str) -> int:
    """Say why a command cannot be run, before a cluster is started for it; returns the exit code, as a shell has it."""
    is_there = os.path.dirname(command) != "" and os.path.exists(command)
    reason = os.strerror(errno.EACCES if is_there else errno.ENOENT)
    click.echo(f"raftwerk run: {command}: {reason}", err=True)
    return _NOT_EXECUTABLE if is_there else _NOT_FOUND


def _environment(cluster: TestCluster) -> Mapping[str, str]:
    servers = cluster.bootstrap_servers
    directory = os.path.abspath(cluster.plan.directory)
    return {**os.environ, BOOTSTRAP_VARIABLE: servers, KAFKA_VARIABLE: servers, DIR_VARIABLE: directory}


class _Stopped(Exception):
    """A signal came while no command was running."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Relay:
    """Runs the command, and passes signals on to it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def run(self, command: tuple[str, ...], environment: Mapping[str, str]) -> int:
        """The exit code of the command, as a shell has it."""
        try:
            self._process = subprocess.Popen(command, env=environment)
        except OSError as error:
            click.echo(f"raftwerk run: {command[0]}: {error.strerror}", err=True)
            return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
        code = self._process.wait()
        self._is_over = True
        return code if code >= 0 else 128 - code

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Pass the signal on. From a terminal, Ctrl-C and Ctrl-\\ have reached the command already."""
        if self._is_over:
            return  # the cluster is being stopped
        if self._process is None:
            raise _Stopped(number)
        if number not in (signal.SIGINT, signal.SIGQUIT) or not _is_in_foreground():
            self._process.send_signal(number)


@contextmanager
def _signals() -> Iterator[_Relay]:
    relay = _Relay()
    previous = {number: signal.signal(number, relay.on_signal) for number in _FORWARDED}
    try:
        yield relay
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _is_in_foreground() -> bool:
    """Whether this process has a terminal, and gets what is typed there."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)
