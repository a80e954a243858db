"""Constants of the nodes' code, and times of its steps, that a run draws: so little data makes work of many steps."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ....broker.coordinators import coordinator_loader
from ....controller.metadata import metadata_snapshot
from ....raft.driver import log_end_checkpoint

_RECORDS_A_BATCH = (1, 1, metadata_snapshot.RECORDS_A_BATCH)
_NOTES_EVERY_S = (0.0, 0.3, log_end_checkpoint.WRITE_EVERY_S)
_RECORDS_A_STEP = (1, 4)
_STEP_S = (0.002, 0.006, 0.02)


@contextmanager
def small_snapshot_batches(rng: random.Random) -> Iterator[None]:
    """Until it is left, batches of metadata snapshots have as many records as the generator draws."""
    with _replaced(metadata_snapshot, "RECORDS_A_BATCH", rng.choice(_RECORDS_A_BATCH)):
        yield


@contextmanager
def frequent_log_end_notes(rng: random.Random) -> Iterator[None]:
    """Until it is left, voters note how far their logs reach as often as the generator draws."""
    with _replaced(log_end_checkpoint, "WRITE_EVERY_S", rng.choice(_NOTES_EVERY_S)):
        yield


@contextmanager
def slow_coordinator_loads(rng: random.Random) -> Iterator[None]:
    """Until it is left, coordinators load few records in a step, and a step takes as long as the generator draws.

    So a load of a run's few records takes as long as one of many records, and requests arrive meanwhile.
    """
    usual_step, step_s = coordinator_loader.CoordinatorLoader.step, rng.choice(_STEP_S)

    def step(loader: coordinator_loader.CoordinatorLoader[Any]) -> None:
        asyncio.get_running_loop().call_later(step_s, usual_step, loader)

    with (
        _replaced(coordinator_loader, "RECORDS_PER_STEP", rng.choice(_RECORDS_A_STEP)),
        _replaced(coordinator_loader.CoordinatorLoader, "step", step),
    ):
        yield


@contextmanager
def _replaced(owner: object, name: str, value: object) -> Iterator[None]:
    """Until it is left, the module or class has this value under the name."""
    usual = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, usual)
