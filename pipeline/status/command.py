"""`raftwerk pipeline status`: what became of jobs and how far they are, by their outputs and by the brokers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import click

from ...cluster.client.client_errors import ClientError
from ...cluster.client.cluster_client import ClusterClient
from ...cluster.client.consumer import LATEST, topic_offsets
from ...cluster.command_line.cluster_options import choose_address, cluster_options
from ...cluster.command_line.commands import Command, json_option
from ...cluster.command_line.plural import counted, size_text
from ..errors import PipelineError, check_packages
from ..jobs.job_command import report_errors
from ..pages.report_file import check_report
from ..running_query import Place
from .job_report import JobReport, read_report

_TIMEOUT_S = 5.0


@click.command("status", cls=Command)
@click.argument("outputs", nargs=-1, required=True, metavar="OUTPUT...")
@click.option("--report", metavar="FILE", help="Write a page with plots of the last batches; for one output.")
@cluster_options
@json_option
@report_errors
def status(
    outputs: Sequence[str],
    report: str | None,
    as_json: bool,
    bootstrap_server: str | None,
    cluster_name: str | None,
    cluster_dir: str | None,
) -> None:
    """Tell whether jobs run, how far they are, and how much is unread, by what Spark said and by the brokers.

    OUTPUT is the --output of lake, changes or windows, or the --state of mirror, on this machine. The brokers are those
    of the job, unless an option names others. Exit code 1 if a job failed or was killed.

    \b
    Examples:
      raftwerk pipeline status lake
      raftwerk pipeline status lake windows --json
      raftwerk pipeline status lake --report lake.html
    """
    if report is not None:
        if len(outputs) > 1:
            raise click.UsageError("--report writes the page of one output: name one")
        check_report(report)
        check_packages("spark", "jinja2")
    is_named = any(one is not None for one in (bootstrap_server, cluster_name, cluster_dir))
    address = choose_address(bootstrap_server, cluster_name, cluster_dir)
    is_well, unknown = True, []
    for output in outputs:
        try:
            one = read_report(output)
        except PipelineError as error:
            unknown.append(str(error))
            continue
        is_well = is_well and one.is_well
        of_job = None if one.status is None else one.status.bootstrap_servers
        bootstrap = address.bootstrap if is_named or of_job is None else of_job
        lag, why = _lag_of_brokers(one, bootstrap)
        if report is not None:
            from .status_page import write_status_page  # jinja2 comes with an extra

            write_status_page(report, one, lag)
        if as_json:
            click.echo(json.dumps(_as_json(one, bootstrap, lag, why)))
        else:
            click.echo("\n".join(_lines(one, bootstrap, lag, why)))
    if unknown:
        raise PipelineError(" ".join(unknown))
    if not is_well:
        raise SystemExit(1)


def _lag_of_brokers(report: JobReport, bootstrap: str) -> tuple[int | None, str]:
    """The offsets between the checkpoint and the ends of the logs; None and the reason where no broker tells."""
    try:
        return report.unread(asyncio.run(_ends(bootstrap, report.topics))), ""
    except (ClientError, OSError) as error:
        return None, str(error)


async def _ends(bootstrap: str, topics: Iterable[str]) -> dict[Place, int]:
    ends: dict[Place, int] = {}
    async with ClusterClient(bootstrap, timeout_s=_TIMEOUT_S) as client:
        for topic in topics:
            for partition, end in (await topic_offsets(client, topic, LATEST)).items():
                ends[topic, str(partition)] = end
    return ends


def _as_json(report: JobReport, bootstrap: str, lag: int | None, why: str) -> dict[str, Any]:
    """What is told of a job, for scripts. Times are in seconds since 1970."""
    status = report.status
    last = status.batches[-1] if status is not None and status.batches else None
    return {
        "output": report.output,
        "job": report.job,
        "topics": list(report.topics),
        "bootstrap_servers": bootstrap,
        "running": report.is_running,
        "state": report.state,
        "started_s": None if status is None else status.started_s,
        "ended_s": None if status is None else status.ended_s,
        "spark_page": None if status is None else status.spark_page,
        "rows_of_this_run": None if status is None else status.rows,
        "committed_batch": report.last_batch,
        "last_batch": None if last is None else {**asdict(last), "rows_per_second": last.rows_per_second},
        "lag_of_brokers": lag,
        **({"lag_unknown_because": why} if why else {}),
    }


def _lines(report: JobReport, bootstrap: str, lag: int | None, why: str) -> list[str]:
    status = report.status
    lines = [f"{report.job}  {report.output}", f"  {report.state}"]
    facts = {"topics": f"{', '.join(report.topics)} of {bootstrap}"}
    if status is not None:
        facts["started"] = f"{_ago(status.started_s)}; {counted(status.rows, 'row')} since then"
        if status.ended_s is not None and not report.is_running:
            facts["ended"] = _ago(status.ended_s)
    if status is not None and status.batches:
        last = status.batches[-1]
        facts["batch"] = (
            f"{last.number:,}, {_ago(last.ended_s)}: {counted(last.rows, 'row')} in {last.seconds:.2f} s, "
            f"{last.rows_per_second:,.0f} rows/s"
        )
        facts["unread then"] = "unknown" if last.lag is None else counted(last.lag, "record")
        if last.state_rows:
            facts["state"] = f"{counted(last.state_rows, 'row')}, {size_text(last.state_bytes)}"
    facts["unread now"] = f"unknown: {why}" if lag is None else f"{counted(lag, 'record')}, by the brokers"
    if status is not None and status.spark_page is not None and report.is_running:
        facts["Spark"] = status.spark_page
    width = max(map(len, facts))
    return [*lines, *(f"  {name:<{width}}  {text}" for name, text in facts.items())]


def _ago(at_s: float) -> str:
    seconds = max(0, round(time.time() - at_s))
    if seconds < 120:
        return f"{seconds} s ago"
    if seconds < 7200:
        return f"{seconds // 60} min ago"
    return f"{seconds // 3600} h ago"
