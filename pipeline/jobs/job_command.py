"""The common part of the jobs' commands: options of the source and of Spark, metrics, and errors as one sentence."""

from __future__ import annotations

import functools
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...cluster.command_line.cluster_options import (
    COMMAND_CONFIG_VARIABLE,
    bootstrap_option,
    chosen_address,
    chosen_client_properties,
    login_is_of_environment,
)
from ...cluster.command_line.commands import Option, WrongConfiguration, json_option
from ...cluster.command_line.registry_url import check_registry
from ..errors import PipelineError, UnreachableClusterError, WrongOptionError, explain
from ..lakehouse.table_maintenance import MaintenanceSettings
from ..login import is_of_security, login_in_file
from ..running_query import Metrics, ProgressLog, RunningQuery, StopRequest, stop_on_signal
from ..session import (
    DEFAULT_MASTER,
    JarSettings,
    check_launch,
    check_spark,
    jvm_has_ended,
    pyspark_version,
    spark_session,
    stop_session,
)
from ..topics import FORMATS, Topics, parse_options
from ..typed_values import REGISTRY
from .intervals import parse_retention

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_EXECUTOR_TIMEOUT_S = 60.0
_EXECUTOR_POLL_S = 0.2

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How a streaming query reads: its start, the records in a batch, and whether it ends at the present end (`once`).

    `interval_s` is the time between the starts of two batches, 0 for no pause.
    """

    starting_offsets: str = "earliest"
    max_offsets: int | None = None
    once: bool = False
    interval_s: float = 0.0

    def trigger(self, topics: Topics) -> dict[str, Any]:
        """The arguments for `DataStreamWriter.trigger`."""
        if self.once and not topics.ends_unknown_to_spark():
            return {"availableNow": True}
        return {"processingTime": f"{0 if self.once else int(self.interval_s * 1000)} milliseconds"}

    def follow(
        self,
        job: str,
        query: StreamingQuery,
        topics: Topics,
        log: ProgressLog,
        metrics: Metrics,
        maintenance: Callable[[int, datetime], None] | None = None,
    ) -> RunningQuery:
        """The running query of a Spark query that was started with this trigger."""
        if not topics.ends_unknown_to_spark():
            return RunningQuery(job, query, log, metrics, maintenance=maintenance)
        # We end the query: availableNow would end after one batch, such as one that an earlier run had planned.
        until = topics.ends() if self.once else None
        return RunningQuery(job, query, log, metrics, topics.ends_for_lag, until, maintenance)


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How a job runs: Spark's master, the driver's memory, the port for metrics, and whether it prints JSON.

    `jars` are files to use instead of what Spark would fetch. Spark's own pages are served where `ui_port` is given.
    """

    master: str
    memory: str
    metrics_port: int | None
    as_json: bool
    jars: tuple[str, ...] = ()
    ui_port: int | None = None

    @contextmanager
    def session(
        self, job: str, log: ProgressLog, *, topics: Topics | None = None, table_format: str | None = None
    ) -> Iterator[tuple[SparkSession, StopRequest]]:
        """The Spark session of a job that reads these topics and a table of this format, and its request to stop.

        The log says that Spark starts. Raises `PipelineError` before that where there are no jars for its version.

        A signal that comes while Spark starts ends the job when it has started: its JVM would stay behind otherwise.
        """
        reads_by_connector = topics is not None and topics.format == "kafka"
        jars = JarSettings(reads_by_connector, () if table_format is None else (table_format,), self.jars)
        starting = starting_spark(self.master, jars)
        with stop_on_signal() as stopping:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Spark's context takes the signal for itself
            try:
                log(starting)
                session = spark_session(
                    f"raftwerk-{job}",
                    master=self.master,
                    memory=self.memory,
                    jars=jars,
                    log_level="OFF",  # A job reports a failure in one sentence, which Spark's log would hide.
                    config=self._ui_config(),
                )
            finally:
                stopping.install()
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            try:
                _wait_for_executor(session, log, stopping)
                if stopping():
                    stopping.end()
                yield session, stopping
            except Exception:
                if jvm_has_ended(session):
                    raise PipelineError(
                        "Spark's JVM has ended, or was killed: started again, the job goes on where it was."
                    ) from None
                raise
            finally:
                stop_session(session)

    def _ui_config(self) -> dict[str, str]:
        return {} if self.ui_port is None else {"spark.ui.enabled": "true", "spark.ui.port": str(self.ui_port)}


def spark_page(session: SparkSession) -> str | None:
    """The address of Spark's page on its streaming queries, None where it serves none."""
    url: str | None = session.sparkContext.uiWebUrl
    return None if url is None else f"{url}/StreamingQuery/"


def starting_spark(master: str, jars: JarSettings) -> str:
    """What a job waits for in the seconds before its Spark session is there.

    Raises `PipelineError` when there is no Spark, or no jars for its version.
    """
    wanted = [package.name for package in jars.packages(pyspark_version())]
    is_fetched = bool(wanted) and not jars.paths
    fetching = f", and it fetches the jars for {', '.join(wanted)} if they are not here yet" * is_fetched
    return f"starting Spark ({master}) ... its JVM takes some seconds{fetching}"


def _wait_for_executor(session: SparkSession, log: ProgressLog, stopping: StopRequest) -> None:
    """`PipelineError` when the cluster starts no executor: the job would wait forever without a message."""
    context: Any = session.sparkContext
    if context.master.startswith("local"):
        return
    log(f"waiting for an executor of {context.master}")
    deadline = time.monotonic() + _EXECUTOR_TIMEOUT_S
    while context._jsc.sc().getExecutorMemoryStatus().size() < 2 and not stopping():
        if time.monotonic() > deadline:
            memory = context.getConf().get("spark.executor.memory", "1g")
            session.stop()
            raise PipelineError(
                f"{context.master} started no executor in {_EXECUTOR_TIMEOUT_S:.0f} s: are its workers up, with a core "
                f"and {memory} of memory free (spark.executor.memory)?"
            )
        time.sleep(_EXECUTOR_POLL_S)


def source_options(command: F) -> F:
    """Add the options of a job that reads topics as a stream."""
    for option in reversed(
        (
            bootstrap_option,
            click.option("-t", "--topic", "topics", multiple=True, required=True, help="A topic; may be repeated."),
            click.option(
                "--source",
                type=click.Choice(FORMATS),
                default=FORMATS[0],
                show_default=True,
                help="Our data source, which needs no jars, or Spark's Kafka connector.",
            ),
            click.option("-o", "--option", "pairs", multiple=True, help="An option of the source, as name=value."),
            click.option(
                "--starting-offsets",
                default="earliest",
                show_default=True,
                help="Where a new output begins: earliest, latest, or JSON as Spark's connector takes it.",
            ),
            click.option("--max-offsets", type=click.IntRange(min=1), help="Records in a batch at most."),
            click.option(
                "-e",
                "--exit-at-end",
                "once",
                cls=Option,
                aliases=["--once"],
                is_flag=True,
                help="Stop at the end that the topics had at the start.",
            ),
            click.option(
                "--interval", default=1.0, show_default=True, type=click.FloatRange(min=0), help="Seconds a batch."
            ),
        )
    ):
        command = option(command)
    return command


def spark_options(command: F) -> F:
    """Add the options of all jobs."""
    for option in reversed(
        (
            click.option(
                "--master", default=DEFAULT_MASTER, show_default=True, help="Spark's master, such as spark://host:7077."
            ),
            click.option("--memory", default="1g", show_default=True, help="The driver's memory."),
            click.option(
                "--jars",
                help="Jar files, with commas between them, of the table's format and of Spark's connector; without it "
                "Spark fetches them from Maven Central.",
            ),
            click.option("--metrics-port", type=click.IntRange(0, 65535), help="Serve metrics for Prometheus here."),
            click.option(
                "--ui-port",
                type=click.IntRange(1, 65535),
                help="Serve Spark's own pages here, or at the next free port; pipeline status names it.",
            ),
            json_option,
        )
    ):
        command = option(command)
    return command


def format_option(formats: Sequence[str], help_text: str = "The table's format.") -> Callable[[F], F]:
    """The option of a table's format, one of these; the first is the default."""
    return click.option(
        "--format",
        "table_format",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help=help_text,
    )


retain_option = click.option(
    "--retain", default="5 days", show_default=True, help="How long a snapshot can be read, such as '12 hours'."
)


def maintenance_options(command: F) -> F:
    """Add the options of what is done to a table while a job writes it."""
    for option in reversed(
        (
            click.option(
                "--compact-every",
                default=20,
                show_default=True,
                type=click.IntRange(min=0),
                help="Merge small files, and let snapshots expire, after so many batches; 0 for never.",
            ),
            click.option(
                "--small-mb",
                default=32,
                show_default=True,
                type=click.IntRange(min=0),
                help="A file below this is small.",
            ),
            retain_option,
        )
    ):
        command = option(command)
    return command


def take_maintenance(given: dict[str, Any]) -> MaintenanceSettings:
    """Remove the options of `maintenance_options` from a command's parameters, and return them.

    Raises `WrongOptionError` for a time that is none.
    """
    small_bytes = given.pop("small_mb") << 20
    return MaintenanceSettings(given.pop("compact_every"), small_bytes, parse_retention(given.pop("retain")))


registry_option = click.option(
    "--registry",
    "registry_url",
    metavar="URL",
    help="The schema registry of values in Avro, Protobuf or JSON Schema, with --value-format registry.",
)


def take_registry(given: dict[str, Any], value_format: str) -> str | None:
    """Remove the URL of the registry from a command's parameters, and return it; None where values need none.

    Raises `WrongOptionError` where only one of `--registry` and `--value-format registry` is given.
    """
    url: str | None = given.pop("registry_url")
    if (value_format == REGISTRY) != (url is not None):
        raise WrongOptionError(f"--registry and --value-format {REGISTRY} belong together: name both.")
    check_registry(url)
    return url


def take_source_options(given: dict[str, Any]) -> tuple[Topics, ReadSettings]:
    """Remove the options of `source_options` from a command's parameters, and return them.

    Raises `WrongOptionError` for those that cannot be meant so, before Spark starts, and `PipelineError` when there is
    no Spark.
    """
    options = parse_options(given.pop("pairs"))
    in_options = {name.removeprefix("kafka."): value for name, value in options.items() if name.startswith("kafka.")}
    login = {name: value for name, value in in_options.items() if is_of_security(name)}
    topics = Topics(
        given.pop("bootstrap"),
        tuple(sorted(given.pop("topics"))),
        given.pop("source"),
        options,
        login or login_in_file(chosen_client_properties()),
        "in the options -o kafka.*" if login else place_of_login(),
    )
    read_settings = ReadSettings(
        given.pop("starting_offsets"), given.pop("max_offsets"), given.pop("once"), given.pop("interval")
    )
    check_spark()
    topics.check_options(read_settings.starting_offsets, read_settings.max_offsets)
    return topics, read_settings


def place_of_login() -> str:
    """Where the login of the command that is running is corrected, for people."""
    file = chosen_client_properties()
    if file is None:
        return "in a file of client properties, and name it with --command-config"
    return f"in {file}, which {COMMAND_CONFIG_VARIABLE} names" if login_is_of_environment() else f"in {file}"


def take_run_settings(given: dict[str, Any]) -> RunSettings:
    """Remove the options of `spark_options` from a command's parameters, and return them.

    Raises `WrongOptionError` for those that Spark would refuse.
    """
    check_launch(given["master"], given["memory"])
    jars = tuple(path.strip() for path in (given.pop("jars") or "").split(",") if path.strip())
    for path in jars:
        if "://" not in path and not os.path.isfile(path):
            raise PipelineError(f"there is no jar file {path}: --jars names files.")
    return RunSettings(
        given.pop("master"),
        given.pop("memory"),
        given.pop("metrics_port"),
        given.pop("as_json"),
        jars,
        given.pop("ui_port"),
    )


def report_errors(command: F) -> F:
    """Decorate a command: an error ends it with one sentence, and exit code 1, or 2 if an option is wrong."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except UnreachableClusterError as error:
            address = chosen_address()
            is_ours = address is not None and address.bootstrap == error.bootstrap
            advice = ""
            if address is not None and is_ours:
                advice = f"; the address is from {address.origin}" if error.is_explained else f"; {address.advice}"
            raise click.ClickException(f"{error}{advice}") from None
        except WrongOptionError as error:
            raise WrongConfiguration(str(error)) from None
        except PipelineError as error:
            raise click.ClickException(str(error)) from None
        except Exception as error:
            if _is_spark_error(error):
                raise click.ClickException(str(explain(error))) from None
            raise

    return wrapped  # type: ignore[return-value]


def shorten_errors(on_batch: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
    """Decorate a function for `foreachBatch`: a Spark error in the batch becomes a `PipelineError` of one sentence.

    Spark searches the text of a batch's error with a regular expression that recurses at every character. A Java stack
    trace in that text overflows its stack, which prints a thousand lines, even at an ordinary stop.
    """

    @functools.wraps(on_batch)
    def wrapped(rows: DataFrame, batch: int) -> None:
        try:
            on_batch(rows, batch)
        except Exception as error:
            if _is_spark_error(error):
                raise explain(error) from None
            raise

    return wrapped


def _is_spark_error(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] in ("py4j", "pyspark")


def print_result(result: dict[str, Any], *, as_json: bool, sentence: str) -> None:
    """Print the result of a job, as JSON or as a sentence."""
    click.echo(json.dumps(result) if as_json else sentence)


def prepare_job(job: str, run_settings: RunSettings) -> tuple[ProgressLog, Metrics]:
    """The progress log and the metrics of a job, before Spark starts."""
    # PySpark logs each failed query as a page of JSON; the job reports it in one sentence.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return ProgressLog(quiet=run_settings.as_json), Metrics(job, run_settings.metrics_port)
