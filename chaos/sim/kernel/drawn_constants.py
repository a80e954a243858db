"""Constants of the nodes' code that a run draws: with small ones, work takes many steps that would need much data."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from ....controller.metadata import metadata_snapshot

_RECORDS_A_BATCH = (1, 1, metadata_snapshot.RECORDS_A_BATCH)


@contextmanager
def small_snapshot_batches(rng: random.Random) -> Iterator[None]:
    """Until it is left, batches of metadata snapshots have as many records as the generator draws."""
    usual = metadata_snapshot.RECORDS_A_BATCH
    metadata_snapshot.RECORDS_A_BATCH = rng.choice(_RECORDS_A_BATCH)
    try:
        yield
    finally:
        metadata_snapshot.RECORDS_A_BATCH = usual
