"""Files on any file system that Hadoop reaches, through `org.apache.hadoop.fs.FileSystem` in the driver's JVM.

So the output of a job may be on a local disk, HDFS, or an object store for which Spark has a connector. Paths are
relative to the root, with `/` between their parts.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class HadoopFiles:
    """The files under one root."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.root = root.rstrip("/") or "/"
        context: Any = spark.sparkContext
        self._jvm = context._jvm
        base = self._jvm.org.apache.hadoop.fs.Path(self.root)
        try:
            self._fs = base.getFileSystem(context._jsc.hadoopConfiguration())
        except Exception as error:
            raise PipelineError(f"no file system for {root}: {_first_line(error)}") from None

    @property
    def location(self) -> str:
        """The root as a table notes it: absolute; on a local disk without a scheme, unless one was given."""
        if ":" in self.root.partition("/")[0]:
            return self.root
        qualified = self._fs.makeQualified(self._path(""))
        is_local = self._fs.getUri().getScheme() == "file"
        return str(qualified.toUri().getPath() if is_local else qualified.toString())

    def parent_and_name(self) -> tuple[str, str]:
        """The directory above the root, and the root's own name there. `PipelineError` for the root of a disk."""
        parent, _, name = self.location.rpartition("/")
        if not name or not parent.removesuffix(":/"):
            raise PipelineError(f"{self.root} is the root of a file system: name a directory below it.")
        return parent, name

    def full(self, path: str) -> str:
        """The path with the root."""
        return posixpath.join(self.root, path)

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory."""
        return bool(self._fs.exists(self._path(path)))

    def names(self, path: str) -> list[str]:
        """The sorted names in a directory, none when it does not exist."""
        if not self.exists(path):
            return []
        return sorted(status.getPath().getName() for status in self._fs.listStatus(self._path(path)))

    def read_json(self, path: str) -> dict[str, Any]:
        """The JSON object in a file. `PipelineError` when it holds none."""
        try:
            value = json.loads(self.read_text(path))
        except ValueError as error:
            raise PipelineError(f"{self.full(path)} is damaged ({error}): restore it, or begin a new output.") from None
        if not isinstance(value, dict):
            raise PipelineError(f"{self.full(path)} holds no object: restore it, or begin a new output.")
        return value

    def read_text(self, path: str) -> str:
        """A file's text."""
        stream = self._fs.open(self._path(path))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write_json(self, path: str, value: Mapping[str, Any]) -> None:
        """Write the file as a whole: it is written and synced under another name, then renamed."""
        draft = posixpath.join(posixpath.dirname(path), "." + posixpath.basename(path) + ".tmp")
        try:
            stream = self._fs.create(self._path(draft), True)
        except Exception as error:
            raise PipelineError(
                f"cannot write in {self.root} ({_cause(error)}): name another directory, or mend its rights."
            ) from None
        try:
            stream.write(bytearray(json.dumps(value, sort_keys=True).encode()))
            stream.hsync()
        finally:
            stream.close()
        if self.exists(path):
            self.delete(path)
        if not self._fs.rename(self._path(draft), self._path(path)):
            raise PipelineError(f"cannot rename {self.full(draft)} to {self.full(path)}.")

    def delete(self, path: str) -> None:
        """Delete a file, or a directory with its contents, if it exists."""
        self._fs.delete(self._path(path), True)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.full(path) if path else self.root)


def _cause(error: Exception) -> str:
    """The message of the Java exception that Py4J carries, without its stack trace."""
    cause = getattr(error, "java_exception", None)
    return str(cause.getMessage() or cause.getClass().getSimpleName()) if cause is not None else _first_line(error)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
