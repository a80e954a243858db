"""`raftwerk chaos`: inject faults into a cluster of real processes, and judge what its clients saw."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from ...cluster.command_line.cluster_options import choose_address, chosen_client_properties, cluster_options
from ...cluster.command_line.extras import not_installed
from ...runtime.os_errors import os_reason
from ..interrupt import Interrupt
from ..options import Group, Option, WrongConfiguration, counted, is_reader_gone, json_option

if TYPE_CHECKING:
    from ...chaos.live.checker.findings import Verdict
    from ...chaos.live.run import RunResult

_REPORT, _VERDICT = "report.html", "verdict.json"
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_SHOWN = 5
"""Anomalies of each kind that are named on the terminal."""


@click.group(cls=Group)
def chaos() -> None:
    """Inject faults into a cluster of real processes, and get a verdict from what its clients saw.

    kill and pause work wherever nodes do. The faults of networks and disks need root, and tools such as iptables and
    strace: raftwerk chaos faults says what is missing here. A run needs the extra `chaos` (pip install
    'raftwerk[chaos]').

    \b
    Examples:
      raftwerk chaos faults                                    the faults that this machine can inject
      raftwerk chaos run --minutes 3 --nemesis kill,pause      start, load, inject, heal, judge, report
      raftwerk chaos run --name orders --nemesis kill          the same on a local cluster that is running
      raftwerk chaos check chaos-run/                          judge a history again
      raftwerk chaos check --to-edn h.edn chaos-run/           the same history for Jepsen's checkers
      raftwerk chaos clean                                     remove what runs that were killed have left
    """


@chaos.command()
@json_option
def faults(as_json: bool) -> None:
    """List the faults, and say why this machine cannot inject some of them.

    \b
    Example:
      raftwerk chaos faults
    """
    from ...chaos.live.nemesis.faults import FAULTS
    from ...chaos.live.nemesis.machine_capabilities import unmet_needs

    for fault in FAULTS.values():
        reasons = unmet_needs(fault.needs)
        if as_json:
            row = {
                "fault": fault.name,
                "what": fault.what,
                "left_out": reasons,
                "needs_own_cluster": bool(fault.setups),
            }
            click.echo(json.dumps(row))
        else:
            where = " (only in a cluster of the run's own)" if fault.setups else ""
            why_not = f"  [left out: {'; '.join(reasons)}]" if reasons else ""
            click.echo(f"{fault.name:16} {fault.what}{where}{why_not}")


def _fault_rows(*, needs_own_cluster: bool) -> list[tuple[str, str]]:
    from ...chaos.live.nemesis.faults import FAULTS
    from ...chaos.live.nemesis.machine_capabilities import missing_tools

    rows = []
    for fault in FAULTS.values():
        if bool(fault.setups) != needs_own_cluster:
            continue
        reasons = missing_tools(fault.needs)
        rows.append((fault.name, f"{fault.what}  [not here: {'; '.join(reasons)}]" if reasons else fault.what))
    return rows


@chaos.command(
    tables={
        "Faults": partial(_fault_rows, needs_own_cluster=False),
        "Faults only in clusters that the run starts itself": partial(_fault_rows, needs_own_cluster=True),
    }
)
@click.option(
    "--minutes", type=click.FloatRange(0.05, 10_000), default=3.0, show_default=True, help="How long to inject faults."
)
@click.option(
    "--nemesis",
    metavar="NAME,...",
    default="kill,pause",
    show_default=True,
    help="Faults from the lists below, `all`, or `none`.",
)
@click.option(
    "-n", "--nodes", type=click.IntRange(1, 9), default=3, show_default=True, help="Nodes of the cluster to start."
)
@click.option(
    "-p", "--partitions", type=click.IntRange(1, 1000), default=6, show_default=True, help="Partitions of the topic."
)
@click.option(
    "--producers", type=click.IntRange(0, 50), default=2, show_default=True, help="Producers that write to it."
)
@click.option("--consumers", type=click.IntRange(0, 50), default=2, show_default=True, help="Consumers that read it.")
@click.option(
    "--rate",
    cls=Option,
    aliases=["--throughput"],
    type=click.IntRange(1, 100_000),
    default=500,
    show_default=True,
    help="Records per second of each producer.",
)
@click.option(
    "--acks", type=click.Choice(["all", "1"]), default="all", show_default=True, help="With 1 the run finds losses."
)
@click.option("--java", is_flag=True, help="Add Java clients; they need Java and Kafka's jars.")
@click.option(
    "--transactions/--no-transactions",
    default=True,
    show_default=True,
    help="Transactional producers, processors and readers on topics of their own.",
)
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0.1),
    default=3.0,
    show_default=True,
    help="Mean seconds from the end of a fault to the next one, each from 0.3 to 1.7 times as long.",
)
@click.option(
    "--hold",
    "hold_s",
    type=click.FloatRange(0.1),
    default=4.0,
    show_default=True,
    help="Mean seconds that a fault lasts until it is healed, such as a node being down: each from 0.4 to 1.6 times as "
    "long. kill-all lasts at most 2 s, chase twice as long, and rolling as long as the restarts take.",
)
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Chooses the faults and their times; the outcome may differ."
)
@click.option("-o", "--output", type=click.Path(file_okay=False), help="A new directory; default: ./chaos-<time>.")
@click.option("--secure", is_flag=True, help="Start a secured cluster, as raftwerk up --secure; all clients log in.")
@click.option("--stop-at-eof", is_flag=True, hidden=True)
@click.option("--pid-files", metavar="PATTERN", help="With -b: pid files of its nodes, as /tmp/k/n%d.pid, for faults.")
@cluster_options
@json_option
@click.pass_context
def run(
    ctx: click.Context, /, nemesis: str, output: str | None, stop_at_eof: bool, as_json: bool, **options: Any
) -> None:
    """Start a cluster, load it with real clients, inject faults, heal them, and judge the history.

    Faults that this machine cannot inject are left out; raftwerk chaos faults says why. Those of the second list below
    work only in clusters that the run starts itself.

    Beside plain producers and consumers there are transactional ones (docs/transactions.md): writers of several
    partitions that abort, crash and come back as zombies, processors that read and write exactly once, and readers at
    both isolation levels.

    With --name, --dir or -b it uses a cluster that is already running, and leaves it running: a local one, or another,
    such as Apache Kafka; where that is secured, all clients log in as --command-config says. The environment and the
    profile in use are ignored. The topics and groups of the run are deleted at its end if nothing was
    wrong; its transactional ids expire.

    The output directory gets `history/` (every client's operations), `report.html`, `verdict.json` and the nodes' logs.
    Exit code 0 if nothing is wrong, 1 otherwise. It is wrong, too, when a node ended that no fault of the run ended
    (INVALID), and when faults were to be injected and none was, which says nothing about failures (UNKNOWN); with
    --nemesis none there are to be none.

    Ctrl-C ends the faults, and the cluster is healed and judged as usual; a second Ctrl-C ends the run, and `raftwerk
    chaos check` judges what was recorded.

    \b
    Examples:
      raftwerk chaos run --minutes 3 --nemesis kill,pause
      raftwerk chaos run --name orders --nemesis kill-leader
    """
    from ...chaos.live.nemesis.machine_capabilities import CommandFailed
    from ...chaos.live.run import ChaosRun, RunOptions
    from ...cluster.client.client_errors import ClientError
    from ...cluster.local.supervisor import LocalNodeError

    options |= _running_cluster([options.pop(key) for key in ("bootstrap_server", "cluster_name", "cluster_dir")])
    chosen = _chosen_faults(nemesis)
    _clean_up_on_signals(stop_at_eof=stop_at_eof)
    where = os.path.abspath(output or time.strftime("chaos-%Y%m%d-%H%M%S"))
    began_ns = time.monotonic_ns()

    def say(text: str) -> None:
        if not as_json:
            click.echo(f"{(time.monotonic_ns() - began_ns) / 1e9:7.1f} s  {text}")
            sys.stdout.flush()

    if os.path.exists(os.path.join(where, "history")):
        raise WrongConfiguration(f"{where} holds a run already: name another directory with --output")
    interrupt = Interrupt()
    try:
        outcome = ChaosRun(RunOptions(where, faults=chosen, **options), say, began_ns).execute()
    except KeyboardInterrupt:
        click.echo(f"Interrupted; {_what_is_recorded(where)}.", err=True)
        ctx.exit(130)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except (ClientError, LocalNodeError, CommandFailed, OSError) as error:
        if isinstance(error, BrokenPipeError) and is_reader_gone():
            raise  # see LazyGroup
        told = os_reason(error) if isinstance(error, OSError) else error
        kept = f" (everything is kept in {where})" if os.path.isdir(where) else ""
        raise click.ClickException(f"{told}{kept}") from None
    finally:
        interrupt.restore()
    ctx.exit(_conclude(where, outcome, as_json))


def _running_cluster(names: Sequence[str | None]) -> dict[str, Any]:
    """The options of the run for the cluster that `--bootstrap-server`, `--name` or `--dir` names; none without."""
    from ...cluster.local.layout import load_plan

    if all(name is None for name in names):
        return {}
    address = choose_address(*names)
    found: dict[str, Any] = {"bootstrap": address.bootstrap, "cluster_directory": address.directory}
    found["client_properties"] = chosen_client_properties()
    if address.directory is not None:
        found["nodes"] = len(load_plan(address.directory).brokers)
    return found


def _conclude(where: str, outcome: RunResult, as_json: bool) -> int:
    """Write the report and print the verdict; the exit code."""
    unwritten = _write_results(where, outcome)
    _print_verdict(outcome.result.verdict, as_json, outcome)
    if unwritten is not None:
        click.echo(f"Error: the report could not be written: {os_reason(unwritten)}", err=True)
    elif not as_json:
        click.echo(f"report: {os.path.join(where, _REPORT)}")
    return 0 if outcome.result.verdict.valid and not outcome.errors and unwritten is None else 1


def _chosen_faults(nemesis: str) -> tuple[str, ...]:
    """The faults that `--nemesis` names, each once."""
    from ...chaos.live.nemesis.faults import FAULTS

    names = tuple(dict.fromkeys(name for part in nemesis.split(",") if (name := part.strip())))
    if not names:
        raise click.UsageError("--nemesis names no fault: --nemesis none runs the load without faults")
    if len(names) > 1 and (alone := [name for name in ("all", "none") if name in names]):
        raise click.UsageError(f"--nemesis {alone[0]} stands alone, without other faults")
    return {"all": tuple(FAULTS), "none": ()}.get(names[0], names)


def _what_is_recorded(where: str) -> str:
    history = os.path.join(where, "history")
    is_recorded = os.path.isdir(history) and os.listdir(history)
    return f"raftwerk chaos check {where} judges what was recorded so far" if is_recorded else "nothing was recorded"


def _clean_up_on_signals(*, stop_at_eof: bool) -> None:
    """Let SIGTERM, and SIGHUP of a terminal that closes, end the run by an exception, which removes what it has made.

    nohup ignores SIGHUP, and so it stays then. With `stop_at_eof` the end of standard input is as good as SIGTERM.
    """

    def end(number: int, _frame: FrameType | None) -> None:
        for other in _ENDING:
            signal.signal(other, lambda *_: None)  # it may come twice, and must not interrupt the removal
        raise SystemExit(128 + number)

    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
    if stop_at_eof:
        threading.Thread(target=_end_at_eof, daemon=True).start()


def _end_at_eof() -> None:
    """End the run when standard input ends, since the process that started it is gone then."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


@chaos.command()
def clean() -> None:
    """Remove what runs that were killed (SIGKILL) have left: paused nodes, mounts, network namespaces.

    Each raftwerk chaos run does so when it begins, for the runs of the same user. Their histories stay.

    \b
    Example:
      raftwerk chaos clean
    """
    from ...chaos.live.nemesis.leftovers import remove_of_killed_runs

    sentences = remove_of_killed_runs()
    click.echo("\n".join(sentences) if sentences else "nothing is left of runs that were killed")


@chaos.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--to-edn", type=click.Path(dir_okay=False), help="Write the history as EDN for Jepsen's Kafka checker.")
@click.option(
    "--to-elle", type=click.Path(dir_okay=False), help="Write the transactions as EDN for Elle's list-append."
)
@json_option
@click.pass_context
def check(ctx: click.Context, paths: tuple[str, ...], to_edn: str | None, to_elle: str | None, as_json: bool) -> None:
    """Judge histories: files, directories of files, or the directory of a run.

    Exit code 0 if the history is valid, 1 if it is not, or if it says too little for a verdict.

    \b
    Example:
      raftwerk chaos check chaos-20260131-120000
    """
    from ...chaos.live.checker.checker import check_paths
    from ...chaos.live.checker.jepsen_edn import in_time_order, write_edn
    from ...chaos.live.checker.transactions.elle_edn import write_elle
    from ...chaos.live.history import HistoryError

    _check_ended(paths)
    try:
        _check_outputs([path for path in (to_edn, to_elle) if path is not None], paths)
        verdict = check_paths(paths).verdict  # it also names the line that is not in the format
        if to_edn is not None:
            click.echo(f"{counted(write_edn(paths, to_edn), 'operation')} in {to_edn}")
        if to_elle is not None:
            click.echo(f"{counted(write_elle(in_time_order(paths), to_elle), 'operation')} in {to_elle}")
        if to_edn is not None or to_elle is not None:
            return
    except HistoryError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(os_reason(error)) from None
    _print_verdict(verdict, as_json)
    ctx.exit(0 if verdict.valid else 1)


def _check_ended(paths: Sequence[str]) -> None:
    """A history to which lines are still to be added cannot be judged."""
    from ...chaos.live.nemesis.leftovers import process_of_run

    pid = process_of_run(paths)
    if pid is not None:
        raise click.ClickException(
            f"the run of process {pid} still goes on, so that its history is not whole: it judges itself at its end"
        )


def _check_outputs(outputs: Sequence[str], paths: Sequence[str]) -> None:
    """Let no file that is to be written replace another one, or a history."""
    from ...chaos.live.history import history_files

    places = [os.path.realpath(path) for path in outputs]
    if len({*places}) < len(places):
        raise click.UsageError(f"--to-edn and --to-elle name the same file, {outputs[0]}")
    histories = {os.path.realpath(path) for path in history_files(paths)} if outputs else set()
    for path, place in zip(outputs, places):
        if place in histories:
            raise click.UsageError(f"{path} is one of the histories to read: name another file to write")


@chaos.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Default: report.html in the directory.")
def report(directory: str, output: str | None) -> None:
    """Write the report of a run again from its history.

    \b
    Example:
      raftwerk chaos report chaos-20260131-120000 -o report.html
    """
    from ...chaos.live.checker.checker import check_paths
    from ...chaos.live.history import HistoryError

    try:
        from ...chaos.live.report.report_page import render_report
    except ImportError as error:
        raise click.ClickException(not_installed([str(error.name)], "chaos")) from None
    path = output or os.path.join(directory, _REPORT)
    _check_ended([directory])
    told = _told_by_the_run(directory)
    try:
        result = check_paths([directory])
        page = render_report(result, os.path.basename(os.path.abspath(directory)), told["left_out"], told["errors"])
        with open(path, "w", encoding="utf-8") as file:
            file.write(page)
    except HistoryError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(os_reason(error)) from None
    click.echo(path)


def _told_by_the_run(directory: str) -> dict[str, Any]:
    """The faults that were left out, and the errors, which are not in the history."""
    told: dict[str, Any] = {"left_out": {}, "errors": []}
    with contextlib.suppress(OSError, ValueError), open(os.path.join(directory, _VERDICT), encoding="utf-8") as file:
        written = json.load(file)
        told |= {name: written[name] for name in told if isinstance(written, dict) and name in written}
    return told


def _write_results(directory: str, outcome: RunResult) -> OSError | None:
    """Write the report and the verdict; the reason if that failed."""
    from ...chaos.live.report.report_page import render_report

    page = render_report(outcome.result, os.path.basename(directory), outcome.left_out, outcome.errors)
    try:
        with open(os.path.join(directory, _REPORT), "w", encoding="utf-8") as file:
            file.write(page)
        with open(os.path.join(directory, _VERDICT), "w", encoding="utf-8") as file:
            json.dump(_to_json(outcome.result.verdict, outcome), file, indent=2)
    except OSError as error:
        return error
    return None


def _to_json(verdict: Verdict, outcome: RunResult | None) -> dict[str, Any]:
    """The verdict, and what a run knows beside it."""
    if outcome is None:
        return verdict.to_json()
    facts = outcome.result.series.facts
    extra = {"run": facts, "inflicted": outcome.inflicted, "not_injected": outcome.not_injected}
    return {**verdict.to_json(), **extra, "left_out": outcome.left_out, "errors": outcome.errors}


def _print_verdict(verdict: Verdict, as_json: bool, outcome: RunResult | None = None) -> None:
    if as_json:
        click.echo(json.dumps(_to_json(verdict, outcome)))
        return
    if outcome is not None:
        inflicted = "  ".join(f"{name} {count:,}" for name, count in sorted(outcome.inflicted.items()))
        click.echo(f"faults: {inflicted or 'none'}")
        if outcome.not_injected:
            never = ", ".join(outcome.not_injected)
            click.echo(f"never injected: {never} (a longer run, or a shorter --interval, injects more)")
    click.echo("  ".join(f"{name} {count:,}" for name, count in verdict.totals.items()))
    if verdict.transactions:
        click.echo("in transactions: " + "  ".join(f"{name} {count:,}" for name, count in verdict.transactions.items()))
    for kind, count in verdict.findings.counts.items():
        if count:
            click.secho(f"{kind}: {count:,}", fg="red", bold=True)
            shown = verdict.findings.evidence[kind][:_SHOWN]
            for one in shown:
                click.echo(f"    {one.text}")
            if count > len(shown):
                click.echo(f"    and {count - len(shown):,} more")
    for note in verdict.notes:
        click.echo(f"note: {note}")
    for error in outcome.errors if outcome is not None and verdict.valid else ():
        click.secho(f"error: {error}", fg="red")
    click.secho(verdict.word, fg="green" if verdict.valid else "red", bold=True)
