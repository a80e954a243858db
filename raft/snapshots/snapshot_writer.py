"""Writes a snapshot in the background, one batch in each loop iteration, so that it delays nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...wire.types import SnapshotId
from ..voters.voter_set import ControlRecord
from .snapshot_store import SnapshotStore, encode_snapshot


@dataclass(frozen=True, slots=True)
class SnapshotContents:
    """The contents of a new snapshot. `batches` is read step by step and must not change while the state changes."""

    id: SnapshotId
    timestamp_ms: int
    batches: Iterator[Sequence[bytes]]
    controls: tuple[ControlRecord, ...] = ()


async def write_snapshot(store: SnapshotStore, contents: SnapshotContents) -> None:
    """Write and sync the file, without its final name. After an `OSError` or a cancellation nothing is left of it."""
    file = store.begin(contents.id)
    is_written = False
    try:
        for batch in encode_snapshot(contents.id, contents.timestamp_ms, contents.batches, contents.controls):
            file.append([batch])
            await asyncio.sleep(0)
        await store.disk.fsync_soon(file)
        is_written = True
    finally:
        file.close()
        if not is_written:
            store.discard(contents.id)
