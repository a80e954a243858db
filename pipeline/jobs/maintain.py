"""`maintain`: merge the small files of a table, and let its old snapshots expire, by the procedures of its format.

`lake`, `changes` and `windows` do both while they run. This job is for a table that nobody writes at the moment, for
other limits, and for the files of writes that were never committed, which nobody deletes otherwise.

    raftwerk pipeline run maintain /data/lake --retain '2 days' --orphans
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from ...cluster.command_line.commands import Command
from ...cluster.command_line.plural import counted
from ..errors import PipelineError
from ..lakehouse.open_table import format_of, open_maintained
from ..lakehouse.table import MaintainedTable
from ..lakehouse.table_format import TRANSACTIONAL_FORMATS, check_format, local_format
from ..output_directory import locked
from ..session import check_spark
from .intervals import parse_retention
from .job_command import (
    format_option,
    prepare_job,
    print_result,
    report_errors,
    retain_option,
    spark_options,
    take_run_settings,
)

JOB = "maintain"
_ORPHANS_OLDER_THAN = timedelta(days=3)
"""A file without a commit that is younger may belong to a write that is under way."""


@click.command(JOB, cls=Command)
@click.argument("table")
@format_option(TRANSACTIONAL_FORMATS)
@click.option(
    "--small-mb",
    default=32,
    show_default=True,
    type=click.IntRange(min=0),
    help="A file below this is small; 0 merges nothing.",
)
@retain_option
@click.option("--orphans", is_flag=True, help="Delete files, older than three days, that no commit ever named.")
@click.option("--snapshots", is_flag=True, help="List the snapshots that can be read.")
@spark_options
@report_errors
def command(table: str, table_format: str, **given: Any) -> None:
    """Merge small files of TABLE, the output of lake, changes or windows, and let old snapshots expire.

    \b
    Examples:
      raftwerk pipeline run maintain lake
      raftwerk pipeline run maintain lake --retain '12 hours' --orphans --snapshots
    """
    run_settings = take_run_settings(given)
    retain = parse_retention(given["retain"])
    check_spark()
    on_this_machine = local_format(table, run_settings.master)
    if on_this_machine is not None:
        _check(table, on_this_machine, table_format)
    log, _ = prepare_job(JOB, run_settings)
    with run_settings.session(JOB, log, table_format=table_format) as (spark, _):
        _check(table, format_of(spark, table), table_format)
        log(f"maintain: {table}")
        opened = open_maintained(spark, table, table_format)
        with locked(table, run_settings.master):
            result = maintain(opened, given["small_mb"] << 20, retain, orphans=given["orphans"])
        sentence = (
            f"{counted(result['merged'], 'small file')} merged, {counted(result['expired'], 'file')} of old snapshots "
            f"and {counted(result['orphans'], 'orphan')} deleted"
        )
        if given["snapshots"]:
            snapshots = opened.snapshots()
            result["snapshots"] = [
                {"version": one.version, "at": one.at.isoformat(), "operation": one.operation} for one in snapshots
            ]
            lines = [f"{one.version:>20}  {one.at:%Y-%m-%d %H:%M:%S}  {one.operation}" for one in snapshots]
            sentence = "\n".join([*lines, sentence])
        print_result(result, as_json=run_settings.as_json, sentence=sentence)


def _check(table: str, there: str, wanted: str) -> None:
    """`PipelineError` for a table of another format, and for one without maintenance."""
    if there not in TRANSACTIONAL_FORMATS:
        raise PipelineError(
            f"{table} holds plain Parquet files, for which there is no maintenance: nothing merges them, and they have "
            "no snapshots."
        )
    check_format(table, there, wanted)


def maintain(table: MaintainedTable, small_bytes: int, retain: timedelta, *, orphans: bool) -> dict[str, Any]:
    """Merge small files, expire snapshots and delete orphans. Returns how many files each step removed."""
    return {
        "merged": table.compact(small_bytes),
        "expired": table.expire(retain),
        "orphans": table.remove_orphans(_ORPHANS_OLDER_THAN) if orphans else 0,
    }
