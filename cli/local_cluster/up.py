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
from types import FrameType
from typing import Any

import click

from ...cluster.command_line.cluster_address import default_directory, options_of
from ...cluster.command_line.cluster_options import use_own_login
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
)
from ...cluster.local.overrides import check_overrides, warnings_of
from ...cluster.local.progress import NO_PROGRESS_LIMIT_S, killed_sentence
from ...cluster.local.running_up import AnotherUpError, running_up, staying_with
from ...cluster.local.secured import is_secured
from ...cluster.local.supervisor import (
    Child,
    LocalNodeError,
    Stopped,
    Supervisor,
    ask_to_stop,
    last_line,
    node_pid,
    refuse_running_nodes,
    stop_nodes_in,
)
from ...cluster.local.voters_on_disk import has_dynamic_voters
from ...cluster.settings.node_config import ConfigError
from ...runtime.os_errors import os_reason
from ..options import Command, WrongConfiguration, counted, directory_option, log_options, parse_pairs
from .node_logs import LogStream
from .nodes import find_plan, no_progress_option, tell

_TICK_S = 0.2
_TABLE_EVERY_S = 1.0
_RESTART_PAUSE_S = 1.0
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
    metrics_port: int | None,
    **rest: Any,
) -> None:
    """Start a local cluster and stay with it until Ctrl-C.

    Node i listens on PORT + i - 1, and for other controllers on PORT + 1000 + i (see --controller-port). Its data is in
    DIR/node-i, its log in DIR/n<i>.log, its process id in DIR/n<i>.pid. With the same DIR or NAME the cluster starts
    again as it was, with all its data. With a larger -n it grows: new nodes join, and their controllers the quorum.

    With --secure it has a certificate authority, certificates for its nodes, and two users: admin, as whom the commands
    log in that find the cluster by its directory, and app, for programs. DIR/security has files for clients of both.

    \b
    Examples:
      raftwerk up -n 3
      raftwerk up -n 3 --ephemeral --port 19092
      raftwerk up -n 3 --secure --detach;  raftwerk users add alice
      raftwerk up -n 3 --metrics-port 9404;  curl localhost:9404/metrics
      raftwerk up -n 3 --port 19092 --controller-port 29092
      raftwerk up -n 3 --separate -o min.insync.replicas=2
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
        given = {"brokers": nodes, "port": port, "host": host, "metrics_port": metrics_port}
        given |= {"controller_port": controller_port, "separate": separate or None, "secure": secure or None}
        ctx.exit(_run(_plan(where, given, parse_pairs(overrides, "--override")), options))
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


def _plan(directory: str, given: dict[str, Any], overrides: dict[str, str]) -> ClusterPlan:
    """The cluster in `directory` as it was, but for what is `given` and not None; or a new one."""
    given = {name: value for name, value in given.items() if value is not None}
    try:
        former = load_plan(directory)
    except FileNotFoundError:
        check_not_foreign(directory)
        former = None
    is_dynamic = former is not None and lists_static_voters(former) and has_dynamic_voters(former)
    if former is not None and not given and not overrides and not is_dynamic:
        return former
    shape = ClusterShape(brokers=1) if former is None else shape_of(former)
    wanted = replace(shape, **given, overrides={**shape.overrides, **overrides})
    plan = plan_cluster(directory, wanted, is_dynamic=is_dynamic)
    if "secure" in given:
        check_settings(plan, wanted.overrides, secure=wanted.secure)  # those that it had are kept
    elif overrides:
        check_settings(plan, overrides, secure=wanted.secure)
    return plan


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

    A raftwerk up that stays with the cluster ends, too. Nodes with many partitions take their time: they are waited for
    as long as they make progress. Exit code 1 if one had to be killed.

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
    elif not stopped.pids:
        find_plan(directory)
    count = counted(len(stopped.pids), "node")
    told = f"Stopped {count}: {', '.join(map(str, stopped.pids))}." if stopped.pids else "No node was running."
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
        raise click.ClickException(str(error)) from None
    check_ports(plan, is_new=existing_cluster_id(node.data_dir for node in plan.nodes) is None)
    make_directory(plan.directory)
    try:
        with staying_with(plan.directory):
            return _stay(plan, options)
    except AnotherUpError as error:
        raise click.ClickException(f"{error}: raftwerk down{options_of(plan.directory)} ends it") from None


class _AskedToStop(Exception):
    """SIGTERM came before all nodes were ready."""


def _stay(plan: ClusterPlan, options: _UpOptions) -> int:
    stopping: list[int] = []
    is_ready = False

    def on_signal(number: int, _frame: FrameType | None) -> None:
        stopping.append(number)
        if not is_ready:
            raise _AskedToStop if number == signal.SIGTERM else KeyboardInterrupt

    stream = LogStream.of(plan) if options.logs else None
    supervisor = Supervisor(plan, detach=options.detach, log_level=options.log_level, log_format=options.log_format)
    previous = {each: signal.signal(each, on_signal) for each in (signal.SIGINT, signal.SIGTERM)}
    killed: list[int] = []
    try:
        took_s = supervisor.start(tell=tell)
        is_ready = True
        use_own_login(plan.directory)
        if options.detach:
            supervisor.leave_running()
        _announce(plan, took_s, options)
        if options.detach:
            return 0
        _watch(supervisor, options, stream, stopping)
    except LocalNodeError as error:
        click.echo(f"Error: {error}", err=True)
        return 1
    except _AskedToStop:
        click.echo("Error: SIGTERM came, as from raftwerk down, before all nodes were ready", err=True)
        return 1
    finally:
        is_ready = True  # another signal changes nothing any more
        killed = supervisor.stop(tell=tell)
        if not options.detach:
            killed += stop_nodes_in(plan.directory, tell=tell).killed  # of those that `raftwerk start` has started
        for each, handler in previous.items():
            signal.signal(each, handler)
    if killed:
        click.echo(f"Error: {killed_sentence(killed, NO_PROGRESS_LIMIT_S)}", err=True)
        return 1
    asked = ": SIGTERM came, as from raftwerk down" if signal.SIGTERM in stopping else ""
    click.echo(f"Stopped cleanly{asked}.")
    return 0


def _announce(plan: ClusterPlan, took_s: float, options: _UpOptions) -> None:
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
    click.echo(f"stop with: raftwerk down -d {plan.directory}" if options.detach else "Ctrl-C stops the cluster.")
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


def _watch(supervisor: Supervisor, options: _UpOptions, stream: LogStream | None, stopping: list[int]) -> None:
    """Until a signal comes: report nodes that died, restart them if asked, update the table."""
    table = None
    if sys.stdout.isatty() and not options.plain and stream is None:
        from .live_table import LiveTable

        table = LiveTable(supervisor)
    reported: dict[int, float] = {}
    next_table = 0.0
    try:
        while not stopping:
            now = time.monotonic()
            for node_id, child in list(supervisor.children.items()):
                if not os.path.exists(child.plan.properties_file):
                    supervisor.leave_out(node_id)  # raftwerk shrink has taken it out of the cluster
                elif not child.alive and child.pid not in reported:
                    reported[child.pid] = now
                    _report_death(child, options, options_of(supervisor.plan.directory), table is None)
                elif options.restart and _is_due(child, reported, now):
                    supervisor.start_node(node_id)
                    break
            if stream is not None:
                stream.show()
            if table is not None and (table.is_stale or now >= next_table):
                table.refresh()
                next_table = now + _TABLE_EVERY_S
            time.sleep(_TICK_S)
    finally:
        if table is not None:
            table.stop()


def _is_due(child: Child, reported: dict[int, float], now: float) -> bool:
    """Whether a node died long enough ago and is still down. `raftwerk start` may have started it again.

    A node that was stopped cleanly has not died.
    """
    is_dead = not child.alive and child.process.returncode != 0
    return is_dead and now - reported[child.pid] > _RESTART_PAUSE_S and node_pid(child.plan) is None


def _report_death(child: Child, options: _UpOptions, where: str, print_it: bool) -> None:
    code = child.process.returncode
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    how = how if code else "was stopped cleanly"
    why = f": {last_line(child.plan.log_file, child.log_start)}" if code > 0 else ""
    start = f"raftwerk start {child.plan.node_id}{where}"
    next_step = "starting it again" if options.restart and code else f"{start} starts it again"
    if print_it:
        click.echo(f"node {child.plan.node_id} {how}{why}; {next_step}")
        sys.stdout.flush()
    child.death = f"{how.removeprefix('was ')}; {next_step.removesuffix(' again')}"
