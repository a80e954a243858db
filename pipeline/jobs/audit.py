"""`audit`: judge histories of chaos runs, of any length, by joins.

The job reads the files that `raftwerk chaos run` wrote (docs/chaos-history.md). If a topic is named, the records that
it holds now count as one more final read, and so do the rows of a table of `lake`. Of what plain clients sent and read,
the job finds the anomalies of `raftwerk chaos check`, with the same counts, but for `realtime-order`. Transactions are
not judged. It uses all cores and machines of Spark, and its memory does not depend on the length of the history.

    raftwerk pipeline run audit run1 --report audit.html
    raftwerk pipeline run audit run1 -b 127.0.0.1:9092 -t chaos
    raftwerk pipeline run audit run1 --lake /data/lake
"""

from __future__ import annotations

from typing import Any

import click

from ...cluster.command_line.cluster_options import bootstrap_option, chosen_client_properties
from ...cluster.command_line.commands import Command
from ..errors import WrongOptionError
from ..lakehouse.table_format import TABLE_FORMATS, check_format, local_format
from ..login import login_in_file
from ..pages.report_file import check_report
from ..session import check_spark
from ..topics import FORMATS, Topics
from .job_command import format_option, place_of_login, prepare_job, report_errors, spark_options, take_run_settings

JOB = "audit"
EXIT = {"VALID": 0, "INVALID": 1, "UNKNOWN": 1}


@click.command(JOB, cls=Command)
@click.argument("paths", nargs=-1, required=True)
@bootstrap_option
@click.option("-t", "--topic", help="Read this topic too, as the final read.")
@click.option(
    "--source", type=click.Choice(FORMATS), default=FORMATS[0], show_default=True, help="How that topic is read."
)
@click.option("--lake", help="Read this table of `lake`, which keeps values whole, as the final read.")
@format_option(TABLE_FORMATS, "The format of that table.")
@click.option("--evidence", default=20, show_default=True, type=click.IntRange(min=0), help="Cases told of each kind.")
@click.option("--report", help="Write a page with plots here at the end.")
@spark_options
@report_errors
def command(
    paths: tuple[str, ...], topic: str | None, lake: str | None, evidence: int, report: str | None, **given: Any
) -> None:
    """Judge histories in PATHS: files, or directories of chaos runs.

    What plain clients sent and read is judged; transactions are not, nor is realtime-order: raftwerk chaos check judges
    both. What a history has of them is told with the verdict.

    Exit codes: 0, valid; 1, an anomaly was found, too little was seen for a verdict, or the audit failed; 2, an option
    is wrong.

    \b
    Examples:
      raftwerk pipeline run audit chaos-20260131-120000 --report audit.html
      raftwerk pipeline run audit chaos-20260131-120000 --lake lake
    """
    check_spark()
    from ..audit.anomalies import Audit  # they import packages of the extra
    from ..audit.audit_page import write_page
    from ..audit.history import History, history_files, lake_records

    login = login_in_file(chosen_client_properties())
    source = Topics(given.pop("bootstrap"), (topic,) if topic else (), given.pop("source"), {}, login, place_of_login())
    run_settings = take_run_settings(given)
    table_format = given.pop("table_format") if lake else None
    if topic and lake:
        raise WrongOptionError("a topic and a lake would be two final reads of the same records: name one of them.")
    history_files(paths)  # a wrong path is reported before Spark starts, which takes seconds
    if lake:
        on_this_machine = local_format(lake, run_settings.master)
        if on_this_machine is not None:
            check_format(lake, on_this_machine, str(table_format))
    source.check_names()
    log, _ = prepare_job(JOB, run_settings)
    if report is not None:
        check_report(report)
    if topic:
        source.check()
    final = f" and topic {topic}" if topic else f" and {lake}" if lake else ""
    topics = source if topic else None
    with run_settings.session(JOB, log, topics=topics, table_format=table_format) as (spark, stopping):
        stopping.raises = True
        log(f"audit: {', '.join(paths)}{final}")
        records = source.read(spark) if topic else lake_records(spark, lake) if lake else None
        with History.of_paths(spark, paths, records) as history:
            verdict = Audit(history, evidence, log).judge()
            if report is not None:
                write_page(report, history, verdict)
        click.echo(verdict.to_text() if not run_settings.as_json else verdict.to_json_text())
        raise SystemExit(EXIT[verdict.word])
