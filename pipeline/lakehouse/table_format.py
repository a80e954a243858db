"""Which format a table has: what its directory holds tells it, by Hadoop or, before Spark starts, by this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from ...runtime.os_errors import os_words
from ..errors import PipelineError
from ..output_directory import check_local_table, local_path

TRANSACTIONAL_FORMATS = ("iceberg", "delta")
"""The formats with transactions, the default first."""
TABLE_FORMATS = (*TRANSACTIONAL_FORMATS, "parquet")

Names = Callable[[str], Sequence[str]]
"""The names in a directory of a table, none where there is no such directory."""


def is_iceberg(names: Names) -> bool:
    """Whether it is an Iceberg table."""
    return any(name.endswith(".metadata.json") for name in names("metadata"))


def is_delta(names: Names) -> bool:
    """Whether it is a Delta table."""
    return bool(names("_delta_log"))


def is_parquet(names: Names) -> bool:
    """Whether Spark's file sink has written there."""
    return bool(names("_spark_metadata"))


def format_by_names(root: str, names: Names) -> str:
    """The format of the table. `PipelineError` when there is none."""
    for is_there, table_format in zip((is_iceberg, is_delta, is_parquet), TABLE_FORMATS, strict=True):
        if is_there(names):
            return table_format
    raise PipelineError(f"{root} is no table of these jobs: it has no metadata of Iceberg, Delta or Spark's file sink.")


def check_format(root: str, there: str, wanted: str) -> None:
    """`PipelineError` for a table of another format than the wanted one."""
    if there != wanted:
        raise PipelineError(f"{root} is a table in the format {there}, not {wanted}: name it with --format {there}.")


def local_format(root: str, master: str) -> str | None:
    """The format of a table in a directory of this machine, None for one that only Spark reaches.

    `PipelineError` where there is no directory, or no table in it.
    """
    check_local_table(root, master)
    path = local_path(root, master)
    if path is None:
        return None

    def names(directory: str) -> list[str]:
        try:
            return os.listdir(os.path.join(path, directory))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise PipelineError(f"{root} cannot be read ({os_words(error)}): mend its rights.") from None

    return format_by_names(root, names)
