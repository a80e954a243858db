"""`raftwerk pipeline`: the jobs on Spark, and a stream of flights as data to try them on.

`submit.py` imports this module under `spark-submit`, so it imports nothing of the package `cli`.
"""

from __future__ import annotations

import importlib

import click

from ..cluster.command_line.cluster_options import bootstrap_option, chosen_client_properties
from ..cluster.command_line.commands import Group, Option, json_option
from ..cluster.command_line.plural import counted
from .errors import check_packages
from .flights import check_feed, flights, with_progress
from .flights import feed as feed_flights
from .jobs.job_command import place_of_login, report_errors
from .login import login_in_file, producer_login
from .running_query import ProgressLog, stop_on_signal
from .status.command import status
from .topics import Topics

JOBS = {
    "lake": "Topics to a table in Iceberg, Delta or Parquet, exactly once.",
    "changes": "Debezium's changes of a database to a table in Iceberg or Delta, exactly once.",
    "maintain": "Merge a table's small files, and let its old snapshots expire.",
    "windows": "Delays of flights by carrier and airport in windows of event time.",
    "audit": "Judge the histories of chaos runs, however long, by joins.",
    "mirror": "Copy topics to another cluster, with the groups' offsets translated.",
}


class _JobGroup(Group):
    """Imports a job when it is run, so that the list of jobs needs no Spark."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in JOBS:
            return None
        command = importlib.import_module(f".jobs.{cmd_name}", __package__).command
        if not isinstance(command, click.Command):
            raise TypeError(f"{cmd_name} is no command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(JOBS.items()))


@click.group(cls=Group, hints={job: f"It is a job: raftwerk pipeline run {job} --help" for job in JOBS})
def pipeline() -> None:
    """Jobs on Spark around a cluster. They need PySpark (the extra `spark`) and Java 17 or later.

    \b
    Examples:
      raftwerk pipeline feed --rate 1000
      raftwerk pipeline run lake -t flights --output lake -e
    """


@pipeline.group(cls=_JobGroup)
def run() -> None:
    """Run a job. `raftwerk pipeline run JOB --help` tells more; each also runs under spark-submit.

    \b
    Examples:
      raftwerk pipeline run lake --help
      raftwerk pipeline run lake -t flights --output lake -e
    """


pipeline.add_command(status)


@pipeline.command()
@bootstrap_option
@click.option(
    "-t", "--topic", default="flights", show_default=True, help="The topic, which is created if it does not exist."
)
@click.option(
    "-p", "--partitions", default=6, show_default=True, type=click.IntRange(min=1), help="If the topic is created."
)
@click.option(
    "--rate",
    cls=Option,
    aliases=["--throughput"],
    type=click.FloatRange(min=0, min_open=True),
    help="Records/s; without it, as fast as possible.",
)
@click.option(
    "-n",
    "--max-records",
    "limit",
    cls=Option,
    aliases=["--limit", "--records"],
    type=click.IntRange(min=1),
    help="Stop after this many records; default: all 336,776.",
)
@report_errors
def feed(bootstrap: str, topic: str, partitions: int, rate: float | None, limit: int | None) -> None:
    """Send a year of flights to a topic, as JSON keyed by aircraft.

    \b
    Example:
      raftwerk pipeline feed -t flights --rate 1000
    """
    log = ProgressLog()
    check_feed()
    login = login_in_file(chosen_client_properties())
    flights_topic = Topics(bootstrap, (topic,), login=login, login_place=place_of_login())
    flights_topic.check_names(writes=True)
    flights_topic.create(partitions, {})
    with stop_on_signal() as stopping:
        records = with_progress(flights(limit), lambda number: log(f"{counted(number, 'flight')} so far"))
        acked = feed_flights(bootstrap, topic, records, rate=rate, stopping=stopping, login=producer_login(login))
        cut = ", stopped before the end" if stopping() else ""
    log(f"{counted(acked, 'flight')} sent to {topic}{cut}")


@pipeline.command("demo")
@click.option("--seconds", default=40, show_default=True, type=click.IntRange(min=5), help="How long to stream.")
@click.option("--report", default="windows.html", show_default=True, help="Where the page of `windows` goes.")
@json_option
@report_errors
def demo(seconds: int, report: str, as_json: bool) -> None:
    """Stream the flights, run `windows` and `lake`, kill a leader, and compare the results with the CSV.

    DuckDB asks the lake for what the page shows of it.

    \b
    Example:
      raftwerk pipeline demo --seconds 60
    """
    check_packages("spark", "pyspark", "jinja2", "confluent_kafka")
    from .demo import run_demo

    raise SystemExit(run_demo(seconds=seconds, report=report, as_json=as_json))
