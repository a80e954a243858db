"""Errors of pipelines: each is one sentence for people, also when Spark wraps it."""

from __future__ import annotations

import re

from ..cluster.command_line.extras import missing_packages, not_installed


class PipelineError(Exception):
    """A cause and a way out, in one sentence that is shown to the user."""


class WrongOptionError(PipelineError):
    """The options of a job cannot be meant so; nothing was done."""


class UnreachableClusterError(PipelineError):
    """No broker answers at `bootstrap`; a command adds where that address came from.

    `is_explained`: whether the reason says what to do.
    """

    def __init__(self, bootstrap: str, reason: str, *, is_explained: bool = False) -> None:
        self.bootstrap = bootstrap
        self.is_explained = is_explained
        super().__init__(reason)


def check_packages(extra: str, *modules: str) -> None:
    """`PipelineError` when one of the modules, which the packages of the extra have, is not installed."""
    missing = missing_packages(*modules)
    if missing:
        raise PipelineError(not_installed(missing, extra))


def sentence_of(error: BaseException) -> str | None:
    """The sentence of the `PipelineError` that a Spark exception carries, or None.

    Spark passes on the failure of a Python worker as the text of its traceback, inside a report of its own.
    """
    if isinstance(error, PipelineError):
        return str(error)
    found = re.search(rf"^{re.escape(PipelineError.__module__)}\.\w+Error: (.+)$", str(error), re.MULTILINE)
    return found.group(1).strip() if found else None


_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\]\s*(.*?)\s*(?:SQLSTATE|\n|$)", re.DOTALL)


def explain(error: Exception) -> PipelineError:
    """The failure in one sentence, without Spark's report around it. Unknown failures keep Spark's own first line."""
    ours = sentence_of(error)
    if ours is not None:
        return PipelineError(ours)
    text = str(error)
    raised = _RAISED.search(text)
    if raised:
        return PipelineError(raised.group(1).strip())
    if "UNSUPPORTED_DATA_SOURCE_SAVE_MODE" in text:
        return PipelineError('a topic is appended to: say .mode("append") before save().')
    if re.search(r"OffsetOutOfRange|failOnDataLoss", text):
        return PipelineError(
            "records that this job has not read yet are gone from the topic (retention, or it was made anew): "
            "with -o failOnDataLoss=false it goes on with what is there."
        )
    if re.search(r"CONCURRENT_STREAM_LOG_UPDATE|Multiple streaming (?:jobs detected|queries are concurrently)", text):
        return PipelineError(
            "another job writes to the same output: end one of the two, the other goes on where it was; or name "
            "another output for this one."
        )
    if re.search(r"CorruptRecordException|is corrupt", text):
        return PipelineError(
            f"a record of the topic is damaged ({_innermost(text)}): look at the brokers' files with `raftwerk log "
            "verify`, or begin a new output after it with --starting-offsets."
        )
    if "Python worker failed to connect back" in text:
        return PipelineError(
            "Spark gives its Python processes ten seconds to start, which was too little on this busy machine: start "
            "the job once more, it goes on where it was."
        )
    if re.search(
        r"java\.lang\.(NoSuchMethod|NoSuchField|NoClassDefFound|AbstractMethod|IncompatibleClassChange)Error", text
    ):
        return PipelineError(
            "a jar is missing, or is for another version of Spark (the names of Iceberg's and Delta's jars tell it): "
            f"name the right ones with --jars, or none, and the job fetches them ({_innermost(text)})"
        )
    if "IterableOps.map(scala.Function1)" in text:
        return PipelineError(
            "Spark 4.1's own Kafka connector fails at a batch that was under way when the job ended before "
            "(SPARK-57438): go on with --source raftwerk, which takes the job up from the same checkpoint."
        )
    if re.search(r"UnknownTopicOrPartition", text):
        return PipelineError("a topic of this job is not there any more: create it again, or begin a new output.")
    if re.search(r"TimeoutException|DisconnectException|NoBrokersAvailable|_TRANSPORT", text):
        return PipelineError(f"the cluster did not answer in time: is it up? ({_innermost(text)})")
    return PipelineError(_innermost(text))


def _innermost(text: str) -> str:
    if of_worker := _of_python_worker(text):
        return of_worker
    causes = [line.partition("Caused by:")[2].strip() for line in text.splitlines() if "Caused by:" in line]
    lines = [line.strip(": ") for line in text.splitlines() if line.strip(": ")]
    if lines and lines[0].startswith("An error occurred while calling"):  # a line of Py4J; the next line has the cause
        lines = lines[1:] or lines
    return (causes or lines or ["Spark failed and said nothing"])[-1 if causes else 0]


def _of_python_worker(text: str) -> str:
    """The last line of the traceback of a Python worker; empty where there is none."""
    if "Traceback (most recent call last)" not in text:
        return ""
    lines = text.rpartition('\n  File "')[2].splitlines()[1:]
    return next((line.strip() for line in lines if line and not line[0].isspace()), "")
