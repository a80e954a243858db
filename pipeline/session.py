"""Starts the Spark session of jobs, tests and benchmarks, with the jars that it needs (`spark_jars`).

The data source of `pipeline.source` needs no jars; Spark's own Kafka connector and the table formats do. Settings of
Spark in spark-defaults.conf or in `config` may name other repositories for them.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from socketserver import BaseServer
from typing import TYPE_CHECKING, Any

from ..cluster.command_line.extras import how_to_install, not_installed
from .errors import PipelineError, WrongOptionError
from .jvm_messages import JvmMessages
from .spark_jars import JarPackage, kafka_connector, may_hold_python, settings_of, table_format_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[2]"
"""Spark's master where no option names one."""
JAVA_MIN = 17
"""Spark 4 runs on Java 17 and later."""

_MASTER = re.compile(r"yarn|local(\[([1-9]\d*|\*)(,\s*[1-9]\d*)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]")
_MEMORY_MIN = 450 << 20
"""Below this, Spark's memory manager refuses to start."""
_JAVA_ANSWER_TIMEOUT_S = 30.0
_JVM_ENDS_S = 0.5
"""How long a JVM that closes its connections may take to be gone."""


@dataclass(frozen=True, slots=True)
class JarSettings:
    """Which jars a session uses: Spark's Kafka connector, and those of table formats.

    `paths` are jar files to use instead of what Spark would fetch.
    """

    kafka_connector: bool = False
    table_formats: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def packages(self, spark_version: str) -> list[JarPackage]:
        """The packages for a version of Spark. `PipelineError` when one has no jars for it."""
        connector = [kafka_connector(spark_version)] if self.kafka_connector else []
        return [*connector, *(one for name in self.table_formats for one in table_format_jars(name, spark_version))]


def spark_session(
    app: str,
    *,
    master: str = DEFAULT_MASTER,
    jars: JarSettings | None = None,
    memory: str = "1g",
    config: Mapping[str, str] | None = None,
    log_level: str = "ERROR",
) -> SparkSession:
    """A new session named `app`, or the one that runs already. `memory` is that of the driver's JVM.

    Under `spark-submit` the JVM runs already, and its command line sets master, memory and jars. `config` holds further
    Spark settings. Raises `PipelineError` when PySpark or Java is missing or too old, when Spark does not start, and
    when jars are requested and not available.
    """
    version = check_spark()
    jars = jars if jars is not None else JarSettings()
    packages = jars.packages(version)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _quiet_start()
    settings = session_settings(
        app, master, memory, packages, paths=jars.paths, submitted="PYSPARK_GATEWAY_PORT" in os.environ
    )
    session = _start(settings | dict(config or {}))
    session.sparkContext.setLogLevel(log_level)
    _take_jars_off_python_path(session)
    for package in packages:
        if not has_class(session, package.class_name):
            raise PipelineError(_not_on_class_path(package, jars.paths))
    return session


def session_settings(
    app: str, master: str, memory: str, packages: Sequence[JarPackage], *, paths: Sequence[str] = (), submitted: bool
) -> dict[str, str]:
    """The settings of a new session. Under `spark-submit` (`submitted`) only those that a running JVM accepts.

    The time zone is always UTC, so that a date in a table does not depend on the machine.
    """
    settings = {"spark.app.name": app, "spark.sql.session.timeZone": "UTC", **settings_of(packages)}
    if submitted:
        return settings
    settings |= _launch_settings(master, memory)
    if paths:
        settings["spark.jars"] = ",".join(paths)
    elif packages:
        settings["spark.jars.packages"] = ",".join(package.coordinates for package in packages)
    return settings


def has_class(session: SparkSession, class_name: str) -> bool:
    """Whether a Java class is on the session's class path."""
    from py4j.protocol import Py4JJavaError

    jvm = session.sparkContext._jvm
    if jvm is None:
        return False
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        jvm.java.lang.Class.forName(class_name, False, loader)
    except Py4JJavaError:
        return False
    return True


@contextmanager
def temporary_settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of a session for as long as the context lasts."""
    before = {name: session.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, old)


def _not_on_class_path(package: JarPackage, paths: Sequence[str]) -> str:
    if paths:
        return f"{package.name} is not in the jars of --jars: it has the class {package.class_name}."
    return (
        f"{package.name} is not on the class path of the JVM that runs already: start it with "
        f"--packages {package.coordinates}, or in a process that has no session yet."
    )


def check_java() -> int:
    """The major version of the Java that Spark will start. `PipelineError` when it is missing or below 17."""
    home = os.environ.get("JAVA_HOME")
    command = os.path.join(home, "bin", "java") if home else shutil.which("java")
    where = f"JAVA_HOME={home}" if home else "the path"
    if command is None or not os.path.exists(command):
        raise PipelineError(f"Spark needs Java {JAVA_MIN} or later, and there is none in {where}: {_java_hint()}")
    try:
        answer = subprocess.run(
            [command, "-version"], check=False, capture_output=True, text=True, timeout=_JAVA_ANSWER_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PipelineError(f"Spark needs Java {JAVA_MIN} or later, and {command} does not run: {error}") from None
    major = java_major(answer.stderr + answer.stdout)
    if major is None:
        raise PipelineError(f"{command} -version does not tell a version: {_java_hint()}")
    if major < JAVA_MIN:
        raise PipelineError(f"Spark needs Java {JAVA_MIN} or later, and {command} is Java {major}: {_java_hint()}")
    return major


def java_major(text: str) -> int | None:
    """The major version in the output of `java -version`, such as 17, or 8 for 1.8; None when it has no version."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None


@cache
def _warehouse() -> str:
    """A directory for tables that are saved without a path, which no job does; it is removed when the process ends.

    Spark's own default is in the present directory. If the path of that has a blank, Delta makes it beside it.
    """
    directory = os.path.join(tempfile.gettempdir(), f"raftwerk-warehouse-{os.getpid()}")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def _quiet_start() -> None:
    """Suppress the warnings of Spark's start, unless logging is configured already."""
    options = os.environ.get("SPARK_SUBMIT_OPTS", "")
    configured = os.path.join(os.environ.get("SPARK_CONF_DIR") or "", "log4j2.properties")
    if "log4j" in options or ("SPARK_CONF_DIR" in os.environ and os.path.exists(configured)):
        return
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "log4j2.properties")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{options} -Dlog4j2.configurationFile=file:{path}".strip()


def _java_hint() -> str:
    return f"install a JRE of {JAVA_MIN} or later and set JAVA_HOME to its directory."


def check_spark() -> str:
    """The version of PySpark. `PipelineError` when PySpark or Java is missing or too old."""
    version = pyspark_version()
    check_java()
    return version


def check_launch(master: str, memory: str) -> None:
    """Raise `WrongOptionError` for a master or a driver's memory that Spark refuses as it starts."""
    if "://" not in master and _MASTER.fullmatch(master) is None:
        raise WrongOptionError(
            f"{master} is no master of Spark: write it like local[2], local[*] or spark://host:7077."
        )
    if master.startswith("spark://") and re.fullmatch(r"spark://([^\s:/,]+:\d+)(,[^\s:/,]+:\d+)*", master) is None:
        raise WrongOptionError(f"{master} is no master of Spark: write it like spark://host:7077.")
    found = re.fullmatch(r"(\d+)([kmgt]?)", memory.lower())
    if found is None:
        raise WrongOptionError(f"the memory is {memory}, and must be a whole number with its unit, such as 512m or 2g.")
    if int(found[1]) << 10 * " kmgt".index(found[2] or " ") < _MEMORY_MIN:
        raise WrongOptionError(f"the memory is {memory}, and Spark's driver needs 450m at least.")


def pyspark_version() -> str:
    """The version of PySpark. `PipelineError` when it is missing or too old."""
    try:
        import pyspark
    except ImportError:
        raise PipelineError(not_installed(["pyspark"], "spark")) from None
    version: str = pyspark.__version__
    if int(version.split(".")[0]) < 4:
        raise PipelineError(f"PySpark is {version}, and 4.0 or later is needed: {how_to_install('spark')}")
    return version


def _launch_settings(master: str, memory: str) -> dict[str, str]:
    settings = {
        "spark.master": master,
        "spark.sql.warehouse.dir": _warehouse(),
        "spark.driver.memory": memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", master)
    if local:
        # A single machine needs no resolvable host name, and a few cores need fewer shuffle partitions than 200.
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        cores = os.cpu_count() if local.group(1) == "*" else local.group(1)
        few = str(2 * int(cores or 1))
        settings["spark.sql.shuffle.partitions"] = few
        # Delta reads its log in 50 tasks, and lists files in up to 10,000, which is for a cluster.
        settings["spark.databricks.delta.snapshotPartitions"] = few
        settings["spark.sql.sources.parallelPartitionDiscovery.parallelism"] = few
    return settings


@contextmanager
def _jvm_in_a_session_of_its_own(messages: JvmMessages | None) -> Iterator[None]:
    """Start the JVM where no signal to the process group of the job reaches it, such as the SIGTERM of systemd.

    It would end before the job that is to stop it. It still ends with the job, by the end of its standard input. What
    it writes passes through the `messages`, if there are any.
    """
    gateway: Any = import_module("pyspark.java_gateway")
    popen = gateway.Popen

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        piped = {} if messages is None else {"stderr": subprocess.PIPE}
        process: subprocess.Popen[bytes] = popen(*arguments, start_new_session=True, **piped, **options)
        if messages is not None:
            messages.follow(process)
        return process

    gateway.Popen = start
    try:
        yield
    finally:
        gateway.Popen = popen


def _quiet_end() -> None:
    """Suppress the stacks that the server of accumulators and Py4J print when the JVM is gone. A job says it itself."""
    accumulators = import_module("pyspark.accumulators")
    for server in vars(accumulators).values():  # how it is named depends on the version of PySpark
        is_of_pyspark = getattr(server, "__module__", None) == accumulators.__name__
        if is_of_pyspark and isinstance(server, type) and issubclass(server, BaseServer):
            server.handle_error = lambda *_: None  # type: ignore[method-assign]
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return os.path.basename(os.path.dirname(record.pathname)) != "py4j"


def stop_session(session: SparkSession) -> None:
    """Stop the session, also if its JVM is gone."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError, EOFError):
        session.stop()


def jvm_has_ended(session: SparkSession) -> bool:
    """Whether the JVM that this process has started is gone, or ends within a moment."""
    gateway: Any = session.sparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is None:
        return False
    try:
        process.wait(_JVM_ENDS_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _take_jars_off_python_path(session: SparkSession) -> None:
    """Jars without Python code stay with the JVM.

    PySpark puts all that Maven coordinates have brought in front of the path of each Python process, where a process
    reads their directories before its first import: two seconds of processor time with Iceberg and the connector.
    """
    from pyspark import SparkFiles

    included: list[str] = getattr(session.sparkContext, "_python_includes", None) or []
    directory = SparkFiles.getRootDirectory()
    for name in [one for one in included if one.endswith(".jar")]:
        path = os.path.join(directory, name)
        if not may_hold_python(path):
            included.remove(name)
            sys.path[:] = [entry for entry in sys.path if entry != path]


def _start(settings: Mapping[str, str]) -> SparkSession:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    builder = SparkSession.Builder()
    for name, value in settings.items():
        builder = builder.config(name, value)
    _quiet_end()
    packages = settings.get("spark.jars.packages")
    notice = f"fetching {packages} and what they need; Ivy's cache keeps the jars"
    messages = None if packages is None else JvmMessages(notice)
    try:
        with _jvm_in_a_session_of_its_own(messages):
            session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        if messages is not None:
            messages.tell_problems()
            raise PipelineError(
                f"Spark's JVM ended as it started, most likely because {packages} could not be "
                "fetched (its lines above say why): let it reach Maven Central once, name a mirror in "
                "spark.jars.repositories, or give a job the jar files with --jars; the data source `raftwerk` and "
                "--format parquet need no jars."
            ) from None
        raise PipelineError("Spark's JVM ended as it started: its lines above say why.") from None
    if messages is not None:
        messages.started()
    return session
