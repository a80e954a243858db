"""What is done to a table while a job writes it: small files are merged, and old snapshots expire.

A job that merges rows into the table does it between two batches, in their thread: its own MERGE would fail if files
that it reads were replaced meanwhile. Beside a batch that only appends it may be done; of the files that such a batch
has written, and that are in no version yet, none is deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..errors import explain
from .table import MaintainedTable


@dataclass(frozen=True, slots=True)
class MaintenanceSettings:
    """Every so many batches (0 for never), files below `small_bytes` are merged, and snapshots expire.

    Those are the snapshots older than `retain`, and those beyond the newest `snapshots_max`: each commit of Iceberg
    writes the list of all.
    """

    batches: int = 20
    small_bytes: int = 32 << 20
    retain: timedelta = timedelta(days=5)
    snapshots_max: int = 1000


class TableMaintenance:
    """The maintenance of one table. It is called with the number of batches since the last call."""

    def __init__(self, table: MaintainedTable, settings: MaintenanceSettings, log: Callable[[str], None]) -> None:
        self._table = table
        self._settings = settings
        self._log = log
        self._batches = 0

    def __call__(self, batches: int, writing_since: datetime | None = None) -> None:
        """Carry out what is due. A failure is told and tried again later: the stream goes on without it.

        A batch that is being written has begun at `writing_since` or later; None stands for no batch.
        """
        self._batches += batches
        if not self._settings.batches or self._batches < self._settings.batches:
            return
        self._batches = 0
        try:
            merged = self._table.compact(self._settings.small_bytes)
            self._table.expire(self._settings.retain, at_most=self._settings.snapshots_max, writing_since=writing_since)
        except Exception as error:
            self._log(f"the table's files are merged later: {explain(error)}")
        else:
            if merged:
                self._log(f"{merged:,} small files merged")
