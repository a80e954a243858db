"""Makes Spark's Python workers fast for short tasks.

Spark puts its own zip files and the jars on a worker's `sys.path`; `spark_session` leaves only those with
Python code. Each task begins with `importlib.invalidate_caches()`, after which Python reads the directory of each
archive again, and ends with `gc.collect()`. Together they take nearly all the CPU time of a short task. These archives
do not change while a worker runs, so their importers keep the directory that they have read. Archives of Python code
that a user adds are not touched. Modules that a worker has imported by its first task are excluded from garbage
collection (`gc.freeze`).

The process that plans a streaming query ends when Spark closes its socket, after which PySpark tries to write to it.
That is no error, so its pages are not printed.
"""

from __future__ import annotations

import gc
import os
import sys
import zipimport
from types import TracebackType

_PLANNER = "pyspark.sql.streaming.python_streaming_source_runner"
_COMMITTER = "pyspark.sql.worker.python_streaming_sink_runner"
_prepared = False


class _CachedArchive(zipimport.zipimporter):
    """An importer that keeps the archive's directory."""

    def invalidate_caches(self) -> None:
        """Keep the directory: the archive does not change."""


def prepare_worker() -> None:
    """Prepare this process, which is a worker of Spark, for many tasks. Later calls do nothing."""
    import pyspark

    global _prepared
    if not _prepared:
        _prepared = True
        cache_archives(os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__))
        gc.freeze()


def end_quietly_with_query() -> None:
    """Print no traceback when this process, which plans a streaming query, ends because Spark has closed its socket."""
    print_others = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, BrokenPipeError | ConnectionResetError):
            print_others(kind, error, trace)

    sys.excepthook = hook


def plans_query() -> bool:
    """Whether this process is the one in which Spark plans the batches of a streaming query."""
    return _is_main(_PLANNER)


def ends_batches() -> bool:
    """Whether this process is the one in which Spark commits and aborts the batches of a streaming query."""
    return _COMMITTER in sys.modules or _is_main(_COMMITTER)


def cache_archives(directory: str) -> None:
    """Keep the directories of all jars, and of the archives below `directory`, in this process."""
    inside = os.path.join(os.path.realpath(directory), "")
    for entry, finder in list(sys.path_importer_cache.items()):
        if type(finder) is not zipimport.zipimporter:
            continue
        if finder.archive.endswith(".jar") or os.path.realpath(finder.archive).startswith(inside):
            sys.path_importer_cache[entry] = _CachedArchive(entry)


def _is_main(module: str) -> bool:
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return main is not None and main.name == module
