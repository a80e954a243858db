"""What a streaming job says of itself: a file beside its checkpoint, which is replaced after each batch.

`raftwerk pipeline status` reads it, while the job runs and afterwards, without Spark. It has the job's topics and its
last batches, but no login.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..errors import explain
from ..output_directory import STATUS, local_path
from ..running_query import Metrics, Progress, StopRequest
from ..topics import Topics

BATCHES_MAX = 500
"""Of these the file tells; older ones are forgotten."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that is done. The time of its end is in seconds since 1970; `lag` is in records, None if unknown."""

    number: int
    ended_s: float
    rows: int
    seconds: float
    lag: int | None
    state_rows: int
    state_bytes: int

    @property
    def rows_per_second(self) -> float:
        """The speed of the batch, 0 when its duration is not known."""
        return self.rows / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A run of a job. Times are in seconds since 1970. `ending` says how it ended, None if it has not said so."""

    job: str
    topics: tuple[str, ...]
    bootstrap_servers: str
    process_id: int
    host: str
    started_s: float
    spark_page: str | None = None
    rows: int = 0
    batches: tuple[Batch, ...] = ()
    ended_s: float | None = None
    ending: str | None = None
    failed: bool = False

    @staticmethod
    def parse(text: str) -> JobStatus:
        """From the text of a file. Raises `ValueError` where it is none."""
        try:
            fields: dict[str, Any] = json.loads(text)
            batches = tuple(Batch(**one) for one in fields.pop("batches"))
            return JobStatus(**{**fields, "topics": tuple(fields["topics"]), "batches": batches})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"it is no status of a job: {error}") from None


class StatusFile:
    """The file of a job that runs, None for no file. A disk that takes no files does not stop the job."""

    def __init__(self, path: str | None, status: JobStatus) -> None:
        self._path = path
        self.status = status
        self._is_stopped: StopRequest | None = None
        self._write()

    def on_spark(self, spark_page: str | None, is_stopped: StopRequest) -> None:
        """Spark runs, with this page, and the job can be asked to stop."""
        self.status = replace(self.status, spark_page=spark_page)
        self._is_stopped = is_stopped
        self._write()

    def on_batch(self, progress: Progress) -> None:
        """A batch is done."""
        status = self.status
        batch = Batch(
            progress.batch,
            time.time(),
            progress.rows,
            progress.seconds,
            progress.lag,
            progress.state_rows,
            progress.state_bytes,
        )
        batches = (*status.batches, batch)[-BATCHES_MAX:]
        self.status = replace(status, rows=status.rows + progress.rows, batches=batches)
        self._write()

    def end(self, ending: str, *, failed: bool = False) -> None:
        """The job ends, in these words."""
        self.status = replace(self.status, ended_s=time.time(), ending=ending, failed=failed)
        self._write()

    def end_well(self) -> None:
        """The job ends as it was to."""
        is_stopped = self._is_stopped is not None and self._is_stopped()
        self.end("stopped by a signal" if is_stopped else "it has read to the end of its topics")

    def _write(self) -> None:
        if self._path is None:
            return
        draft = f"{self._path}.tmp"
        with suppress(OSError):
            with open(draft, "w", encoding="utf-8") as file:
                json.dump(asdict(self.status), file)
            os.replace(draft, self._path)


@contextmanager
def reported(root: str, master: str, topics: Topics, metrics: Metrics) -> Iterator[StatusFile]:
    """Keep the status file of a job in its output, which it has locked; only on this machine's disks."""
    path = local_path(root, master)
    status = JobStatus(
        metrics.job, topics.names, topics.bootstrap_servers, os.getpid(), socket.gethostname(), time.time()
    )
    file = StatusFile(None if path is None else os.path.join(path, STATUS), status)
    metrics.on_batch.append(file.on_batch)
    try:
        yield file
    except BaseException as error:
        if isinstance(error, Exception):
            file.end(f"failed: {explain(error)}", failed=True)
        else:
            file.end("interrupted")
        raise
    file.end_well()
