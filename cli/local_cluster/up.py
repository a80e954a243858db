"""`raftwerk up` and `raftwerk down`: start and stop a local cluster of child processes."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import click

from ...cluster.command_line.cluster_address import default_directory, options_of
from ...cluster.command_line.cluster_options import use_own_login
from ...cluster.command_line.extras import missing_packages, not_installed
from ...cluster.command_line.text_table import folded
from ...cluster.local.client_files import (
    ADMIN,
    ADMIN_PROPERTIES,
    APP,
    EXAMPLES,
    JAVA_FILE,
    LIBRDKAFKA_FILE,
    SECURITY_DIR,
)
from ...cluster.local.cluster_directory import check_not_foreign, make_directory
from ...cluster.local.free_ports import PortTakenError, check_ports
from ...cluster.local.layout import (
    ClusterPlan,
    ClusterShape,
    existing_cluster_id,
    lists_static_voters,
    load_plan,
    plan_cluster,
    quorum_weakness,
    shape_of,
    write_properties,
)
from ...cluster.local.local_console import CONSOLE_PORT, LocalConsole, stop_console
from ...cluster.local.overrides import check_overrides, warnings_of, without_overrides
from ...cluster.local.progress import NO_PROGRESS_LIMIT_S, killed_sentence, silent
from ...cluster.local.running_up import CONSOLE_PID, AnotherUpError, running_up, staying_with
from ...cluster.local.secured import check_libraries, is_secured
from ...cluster.local.supervisor import (
    LocalNodeError,
    RefusedSettingsError,
    Stopped,
    Supervisor,
    ask_to_stop,
    has_stopped,
    refuse_running_nodes,
    stop_nodes_in,
)
from ...cluster.local.voters_on_disk import has_dynamic_voters, lost_majority_told
from ...cluster.settings.node_config import ConfigError
from ...runtime.os_errors import os_reason
from ..options import Command, WrongConfiguration, counted, directory_option, log_options, parse_pairs
from .ending_signals import AskedToStop, EndingSignals
from .node_deaths import NodeDeaths
from .node_logs import LogStream
from .nodes import find_plan, no_progress_option, tell

_TICK_S = 0.2
_TABLE_EVERY_S = 1.0
_UP_ENDS_S = 10.0
"""How long `raftwerk up` may take to end when its nodes have."""


@dataclass
class _UpOptions:
    ephemeral: bool
    detach: bool
    restart: bool
    plain: bool
    logs: bool
    log_level: str
    log_format: str
    console: bool
    console_port: int | None

    def __post_init__(self) -> None:
        self.console = self.console or self.console_port is not None


@click.command(cls=Command)
@click.option("-n", "--nodes", type=click.IntRange(1, 100), help="Number of brokers; default: as before, or 1.")
@click.option(
    "--port", type=click.IntRange(0, 64000), help="Node 1's port; default: as before, or 9092; 0: free ports."
)
@click.option(
    "--controller-port",
    type=click.IntRange(1, 65535),
    help="Node 1's port for controllers, others have the next ports; default: as before, or PORT + 1001.",
)
@click.option("--host", help="Address to listen on and to advertise; default: as before, or 127.0.0.1.")
@directory_option
@click.option("--ephemeral", is_flag=True, help="Data in a temporary directory, removed at the end.")
@click.option("--separate", is_flag=True, help="Run controllers in separate processes (ids 101...).")
@click.option(
    "--secure", is_flag=True, help="Encrypt all links, let only users in who log in, and let ACLs say who may do what."
)
@click.option("-o", "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting for every node.")
@click.option(
    "--racks", metavar="A,B,...", help="Racks of the brokers, in turn (broker.rack); default: as before, or none."
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65000),
    help="Node 1's /metrics and /health; others have the next ports. 0: --port plus 500.",
)
@click.option("--restart", is_flag=True, help="Start a node again a second after it has died, not after raftwerk stop.")
@click.option(
    "--detach", is_flag=True, help="Return when the nodes are ready, and leave them running; raftwerk down stops them."
)
@click.option("--plain", is_flag=True, help="Plain lines instead of the live table.")
@click.option(
    "--logs", is_flag=True, help="Show the nodes' logs, each line with its node's number, instead of the table."
)
@click.option("--console", is_flag=True, help="Show the cluster in a browser, too, for as long as it runs.")
@click.option(
    "--console-port",
    type=click.IntRange(0, 65535),
    help=f"The console's port, which starts it, too; default: {CONSOLE_PORT}; 0: a free one.",
)
@log_options
@click.pass_context
def up(
    ctx: click.Context,
    /,
    nodes: int | None,
    port: int | None,
    controller_port: int | None,
    host: str | None,
    directory: str,
    ephemeral: bool,
    separate: bool,
    secure: bool,
    overrides: tuple[str, ...],
    racks: str | None,
    metrics_port: int | None,
    **rest: Any,
) -> None:
    """Start a local cluster and stay with it until Ctrl-C.

    Node i listens on PORT + i - 1, and for other controllers on PORT + 1000 + i (see --controller-port). Its data is in
    DIR/node-i, its log in DIR/n<i>.log, its process id in DIR/n<i>.pid. With the same DIR or NAME the cluster starts
    again as it was, with all its data. With a larger -n it grows: new nodes join, and their controllers the quorum.
    Settings that are given with -o are kept, unless the nodes refuse them (exit code 2).

    With --secure it has a certificate authority, certificates for its nodes, and two users: admin, as whom the commands
    log in that find the cluster by its directory, and app, for programs. DIR/security has files for clients of both.

    \b
    Examples:
      raftwerk up -n 3
      raftwerk up -n 3 --ephemeral --port 19092
      raftwerk up -n 3 --secure --detach;  raftwerk users add alice
      raftwerk up -n 3 --metrics-port 9404;  curl localhost:9404/metrics
      raftwerk up -n 3 --console                   http://127.0.0.1:8080
      raftwerk up -n 3 --port 19092 --controller-port 29092
      raftwerk up -n 3 --separate -o min.insync.replicas=2
      raftwerk up -n 3 --racks a,b,c               replicas are spread over racks
      raftwerk up -n 3 --detach -d /tmp/c1;  raftwerk down -d /tmp/c1
      raftwerk up -n 3 --name orders --detach;  raftwerk down --name orders;  raftwerk up --name orders
      raftwerk kill 2                              watch who takes over; raftwerk start 2 starts it again
    """
    if ephemeral and (directory != default_directory() or rest["detach"]):
        raise click.UsageError("--ephemeral removes its data: it cannot be combined with --dir, --name or --detach")
    if rest["restart"] and rest["detach"]:
        raise click.UsageError("with --detach nobody stays to start nodes again: leave out --restart or --detach")
    where = tempfile.mkdtemp(prefix="raftwerk-") if ephemeral else directory
    options = _UpOptions(ephemeral=ephemeral, **rest)
    try:
        given: dict[str, Any] = {"brokers": nodes, "port": port, "host": host, "metrics_port": metrics_port}
        given |= {"controller_port": controller_port, "separate": separate or None, "secure": secure or None}
        given["racks"] = None if racks is None else tuple(name.strip() for name in racks.split(","))
        wanted = _plan(where, given, parse_pairs(overrides, "--override"))
        try:
            ctx.exit(_run(wanted.plan, options))
        except RefusedSettingsError as error:
            raise WrongConfiguration(_forgotten(wanted, str(error)) if overrides else str(error)) from None
    except BrokenPipeError:
        raise  # see LazyGroup
    except PortTakenError as error:
        raise click.ClickException(str(error)) from None
    except (ConfigError, ValueError) as error:
        raise WrongConfiguration(str(error)) from None
    except OSError as error:
        raise click.ClickException(os_reason(error)) from None
    finally:
        if ephemeral:
            shutil.rmtree(where, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The cluster that is to be started, and those of its settings that it was given before."""

    plan: ClusterPlan
    kept: Mapping[str, str]


def _forgotten(wanted: _Wanted, why: str) -> str:
    """Take back the settings that nodes have refused, so that the next start is without them; `why`, and that."""
    write_properties(without_overrides(wanted.plan, wanted.kept))
    return f"{why}; nothing that was given with -o is kept"


def _plan(directory: str, given: dict[str, Any], overrides: dict[str, str]) -> _Wanted:
    """The cluster in `directory` as it was, but for what is `given` and not None; or a new one."""
    given = {name: value for name, value in given.items() if value is not None}
    try:
        former = load_plan(directory)
    except FileNotFoundError:
        check_not_foreign(directory)
        former = None
    is_dynamic = former is not None and lists_static_voters(former) and has_dynamic_voters(former)
    if former is not None and not given and not overrides and not is_dynamic:
        return _Wanted(former, shape_of(former).overrides)
    shape = ClusterShape(brokers=1) if former is None else shape_of(former)
    wanted = replace(shape, **given, overrides={**shape.overrides, **overrides})
    plan = plan_cluster(directory, wanted, is_dynamic=is_dynamic)
    if "secure" in given:
        check_settings(plan, wanted.overrides, secure=wanted.secure)  # those that it had are kept
    elif overrides:
        check_settings(plan, overrides, secure=wanted.secure)
    return _Wanted(plan, shape.overrides)


def check_settings(plan: ClusterPlan, overrides: Mapping[str, str], *, secure: bool) -> None:
    """Raise ConfigError when nodes cannot have the settings or do not know them, and print what they would warn of."""
    check_overrides(plan, overrides, secure=secure)
    for warning in warnings_of(plan):
        click.echo(f"Warning: {warning}", err=True)


@click.command(cls=Command)
@no_progress_option
@directory_option
def down(limit_s: float, directory: str) -> None:
    """Stop the nodes of a local cluster cleanly; raftwerk up starts them again.

    A raftwerk up that stays with the cluster ends, too, and so does its console. Nodes with many partitions take their
    time: they are waited for as long as they make progress. Exit code 1 if one had to be killed.

    \b
    Examples:
      raftwerk down
      raftwerk down --name orders
    """
    up_pid = running_up(directory)
    if up_pid is not None:
        ask_to_stop(up_pid)  # before its nodes, which it would start again
    stopped = stop_nodes_in(directory, limit_s, tell)
    if up_pid is not None:
        _wait_for_up(directory, up_pid)
        late = stop_nodes_in(directory, limit_s, tell)  # it may just have started one again
        stopped = Stopped({**stopped.pids, **late.pids}, stopped.killed + late.killed)
    console_pid = stop_console(directory)
    if up_pid is None and not stopped.pids and console_pid is None:
        find_plan(directory)
    count = counted(len(stopped.pids), "node")
    told = f"Stopped {count}: {', '.join(map(str, stopped.pids))}." if stopped.pids else "No node was running."
    told += "" if console_pid is None else f" The console (process {console_pid}) has ended."
    click.echo(told if up_pid is None else f"{told} raftwerk up (process {up_pid}) has ended.")
    if stopped.killed:
        raise click.ClickException(killed_sentence(stopped.killed, limit_s))


def _wait_for_up(directory: str, pid: int) -> None:
    deadline = time.monotonic() + _UP_ENDS_S
    while running_up(directory) == pid:
        if time.monotonic() > deadline:
            raise click.ClickException(f"raftwerk up (process {pid}) did not end: kill -9 {pid} ends it")
        time.sleep(0.02)


def _run(plan: ClusterPlan, options: _UpOptions) -> int:
    try:
        refuse_running_nodes(plan.directory)
    except LocalNodeError as error:
        raise click.ClickException(f"{error}; then it can be started again, also with more nodes") from None
    try:
        check_libraries(plan)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    console = _console_of(plan, options)
    is_new = existing_cluster_id(node.data_dir for node in plan.nodes) is None
    check_ports(plan, is_new=is_new, console=None if console is None else console.address)
    make_directory(plan.directory)
    try:
        with staying_with(plan.directory), EndingSignals() as signals:
            return _stay(signals, plan, options, console)
    except AnotherUpError as error:
        where = options_of(plan.directory)
        ways = f"raftwerk start{where} starts nodes that are down, raftwerk down{where} ends it"
        raise click.ClickException(f"{error}: {ways}") from None


def _console_of(plan: ClusterPlan, options: _UpOptions) -> LocalConsole | None:
    """The console that is to run beside the nodes; a sentence where it cannot."""
    if not options.console:
        return None
    missing = missing_packages("uvicorn")
    if missing:
        raise click.ClickException(not_installed(missing, "console"))
    pid = running_up(plan.directory, CONSOLE_PID)
    if pid is not None:
        where = options_of(plan.directory)
        raise click.ClickException(f"the cluster has a console (process {pid}): raftwerk down{where} ends it")
    port = CONSOLE_PORT if options.console_port is None else options.console_port
    return LocalConsole(plan.directory, port, detach=options.detach)


def _stay(signals: EndingSignals, plan: ClusterPlan, options: _UpOptions, console: LocalConsole | None) -> int:
    stream = LogStream.of(plan) if options.logs else None
    log_options = ["--log-level", options.log_level, "--log-format", options.log_format]
    supervisor = Supervisor(plan, detach=options.detach, log_options=log_options)
    killed: list[int] = []
    try:
        took_s = supervisor.start(tell=tell)
        signals.interrupts = False
        use_own_login(plan.directory)
        url = None if console is None else console.start()
        if options.detach:
            supervisor.leave_running()
        _announce(plan, took_s, options, url)
        if options.detach:
            return 0
        _watch(supervisor, options, stream, signals.came, console)
    except RefusedSettingsError:
        raise  # the caller may have given them
    except LocalNodeError as error:
        click.echo(folded(f"Error: {error}{lost_majority_told(plan)}", to=sys.stderr), err=True)
        return 1
    except AskedToStop as asked:
        click.echo(f"Error: {asked}, before all nodes were ready", err=True)
        return 1
    finally:
        signals.interrupts = False  # another one changes nothing any more
        killed = supervisor.stop(tell=tell)
        if not options.detach:
            killed += stop_nodes_in(plan.directory, tell=tell).killed  # of those that `raftwerk start` has started
            stop_console(plan.directory)
    died = {node_id: how for node_id, how in unclean_ends(supervisor).items() if node_id not in killed}
    if killed:
        click.echo(f"Error: {killed_sentence(killed, NO_PROGRESS_LIMIT_S)}", err=True)
    if died:
        click.echo(f"Error: {_died_sentence(died)}", err=True)
    if killed or died:
        return 1
    asked_by = f": {signals.reason}" if signals.reason else ""
    click.echo(f"Stopped cleanly{asked_by}.")
    return 0


def unclean_ends(supervisor: Supervisor) -> dict[int, str]:
    """How those nodes ended that did not end cleanly, by their ids, once all have ended."""
    found = {}
    for node_id, child in supervisor.children.items():
        was_early = child.process.poll() == -signal.SIGTERM  # SIGTERM came before the node had begun
        if child.is_newest and child.has_died and not was_early:
            found[node_id] = child.ending
        elif not child.is_newest and not has_stopped(child.plan):  # another command has started it
            found[node_id] = "down"
    return found


def _died_sentence(died: Mapping[int, str]) -> str:
    """What to say at the end of the nodes that did not end cleanly, each with how it ended."""
    told = ", ".join(f"node {node_id} ({how})" for node_id, how in died.items())
    logs = "its logs are" if len(died) == 1 else "their logs are"
    return f"stopped, but not all nodes ended cleanly: {told}; {logs} checked at the next start"


def _announce(plan: ClusterPlan, took_s: float, options: _UpOptions, console_url: str | None) -> None:
    count = len(plan.nodes)
    click.echo(f"{counted(count, 'node')} ready in {took_s:.2f} s; cluster id {plan.cluster_id}")
    click.echo(f"bootstrap.servers={plan.bootstrap}")
    kept = "removed at the end" if options.ephemeral else "kept"
    click.echo(f"data in {plan.directory} ({kept})")
    if is_secured(plan.nodes[0]):
        _announce_logins(plan)
    metrics = [f"http://{node.metrics_address}/metrics" for node in plan.nodes if node.metrics_address is not None]
    if metrics:
        click.echo(f"metrics: {' '.join(metrics)}")
    if console_url is not None:
        click.echo(f"console: {console_url}")
    stop = f"stop with: raftwerk down{options_of(plan.directory)}"
    click.echo(stop if options.detach else "Ctrl-C stops the cluster.")
    weakness = quorum_weakness(plan)
    if weakness:
        click.echo(f"Note: {weakness}.", err=True)
    sys.stdout.flush()


def _announce_logins(plan: ClusterPlan) -> None:
    """Name the files by which clients log in. They hold the passwords, which are not shown."""
    where = os.path.join(plan.directory, SECURITY_DIR)
    rows = {
        f"user {APP}, Java": os.path.join(where, JAVA_FILE),
        f"user {APP}, librdkafka": f"{os.path.join(where, LIBRDKAFKA_FILE)} (kcat -F; from librdkafka 2.6.1 on)",
        f"user {APP}, examples": f"{where}: {', '.join(EXAMPLES)}",
        f"user {ADMIN}": f"{os.path.join(plan.directory, ADMIN_PROPERTIES)}, which raftwerk's commands use",
    }
    click.echo("secured by SASL_SSL and ACLs; only you may read the files by which clients log in:")
    for what, file in rows.items():
        click.echo(f"  {what:22}  {file}")


def _watch(
    supervisor: Supervisor,
    options: _UpOptions,
    stream: LogStream | None,
    stopping: list[int],
    console: LocalConsole | None,
) -> None:
    """Until a signal comes: report nodes that died, restart them if asked, update the table."""
    table, is_console_told = None, False
    if sys.stdout.isatty() and not options.plain and stream is None:
        from .live_table import LiveTable

        table = LiveTable(supervisor, restarts=options.restart)
    deaths = NodeDeaths(supervisor, restarts=options.restart, tell=click.echo if table is None else silent)
    next_table = 0.0
    try:
        while not stopping:
            deaths.look()
            now = time.monotonic()
            if console is not None and console.exit_code is not None and not is_console_told and table is None:
                is_console_told = True
                click.echo(f"the console ended with exit code {console.exit_code}; see {console.log_file}")
            if stream is not None:
                stream.show()
            if table is not None and (table.is_stale or now >= next_table):
                table.refresh()
                next_table = now + _TABLE_EVERY_S
            time.sleep(_TICK_S)
    finally:
        if table is not None:
            table.stop()
