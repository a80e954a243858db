"""Spark's Python workers, made quick for short tasks.

Spark puts its own zips, and every jar that a session asked for, on a worker's `sys.path`, and has every task begin with
`importlib.invalidate_caches()`, at which Python reads the directory of each archive anew, and end with `gc.collect()`:
together nearly all the CPU time of a short task. These archives do not change while a worker lives, so their importers
may keep what they have; archives of Python code that a user adds are left alone. What a worker has imported by its
first task it keeps, so the collector need not look at it again.
"""

from __future__ import annotations

import gc
import os
import sys
import zipimport

_prepared = False


class _CachedArchive(zipimport.zipimporter):
    """An importer whose directory stays as it was read."""

    def invalidate_caches(self) -> None:
        """Nothing to do."""


def prepare_worker() -> None:
    """Tell this process, once, that it is a worker of Spark's and will stay one."""
    import pyspark

    global _prepared
    if not _prepared:
        _prepared = True
        cache_archives(os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__))
        gc.freeze()


def cache_archives(directory: str) -> None:
    """From now on this process does not read jars, nor archives under the directory, again."""
    inside = os.path.join(os.path.realpath(directory), "")
    for entry, finder in list(sys.path_importer_cache.items()):
        if type(finder) is not zipimport.zipimporter:
            continue
        if finder.archive.endswith(".jar") or os.path.realpath(finder.archive).startswith(inside):
            sys.path_importer_cache[entry] = _CachedArchive(entry)
