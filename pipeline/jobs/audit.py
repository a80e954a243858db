"""`audit`: judge the histories of chaos runs by joins, however long they are.

It reads what `raftwerk chaos run` wrote (docs/chaos-history.md), and where a topic is named, what the topic holds now,
as one more final read. It looks for the same anomalies as `raftwerk chaos check`, with the same counts, on as many
cores and machines as Spark has, in memory that does not depend on the length of the history.

    raftwerk pipeline run audit run1 --report audit.html
    raftwerk pipeline run audit run1 -b 127.0.0.1:9092 -t chaos
"""

from __future__ import annotations

from typing import Any

import click

from ..audit.anomalies import Audit
from ..audit.audit_page import write_page
from ..audit.history import History
from ..topics import FORMATS, Topics
from .job_command import prepare_job, report_errors, spark_options, take_run_settings

JOB = "audit"
EXIT = {"VALID": 0, "INVALID": 1, "UNKNOWN": 1}


@click.command(JOB)
@click.argument("paths", nargs=-1, required=True)
@click.option("-b", "--bootstrap-servers", default="127.0.0.1:9092", show_default=True, help="The cluster.")
@click.option("-t", "--topic", help="Read this topic too, as the final read.")
@click.option("--source", type=click.Choice(FORMATS), default=FORMATS[0], show_default=True)
@click.option("--evidence", default=20, show_default=True, type=click.IntRange(min=0), help="Cases told of each kind.")
@click.option("--report", help="Write a page with plots here at the end.")
@spark_options
@report_errors
def command(paths: tuple[str, ...], topic: str | None, evidence: int, report: str | None, **given: Any) -> None:
    """Judge histories in PATHS: files, or directories of chaos runs.

    Exit codes: 0 valid; 1 an anomaly was found, too little was seen to say, or the audit could not be done.
    """
    source = Topics(given.pop("bootstrap_servers"), (topic,) if topic else (), given.pop("source"))
    run_settings = take_run_settings(given)
    if topic:
        source.check()
    log, _ = prepare_job(JOB, run_settings)
    spark = run_settings.session(JOB, kafka_connector=source.format == "kafka" and topic is not None)
    try:
        log(f"audit: {', '.join(paths)}" + (f" and topic {topic}" if topic else ""))
        with History.of_paths(spark, paths, source if topic else None) as history:
            verdict = Audit(history, evidence, log).judge()
            if report is not None:
                write_page(report, history, verdict)
        click.echo(verdict.to_text() if not run_settings.as_json else verdict.to_json_text())
        raise SystemExit(EXIT[verdict.word])
    finally:
        spark.stop()
