"""Writes a snapshot in the background, a batch in each turn of the loop, so that nothing else has to wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...wire.types import SnapshotId
from ..voters.voter_set import ControlRecord
from .snapshot_store import SnapshotStore, encode_snapshot


@dataclass(frozen=True, slots=True)
class SnapshotContents:
    """What a snapshot shall hold. `batches` is read bit by bit and must not change with the state it was made of."""

    id: SnapshotId
    timestamp_ms: int
    batches: Iterator[Sequence[bytes]]
    controls: tuple[ControlRecord, ...] = ()


async def write_snapshot(store: SnapshotStore, contents: SnapshotContents) -> None:
    """Write and sync the file; it has no name yet. On `OSError`, or cancelled, nothing is left of it."""
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
