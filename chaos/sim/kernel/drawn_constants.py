"""Constants of the nodes' code, and times of its steps, that a run draws: so little data makes work of many steps."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import ModuleType
from typing import Any

from ....broker.coordinators import coordinator_loader
from ....broker.transactions import transaction_decisions, transaction_metadata, transaction_records
from ....controller.brokers import producer_ids
from ....controller.metadata import metadata_snapshot
from ....isr.leader import refused_batches
from ....raft.driver import log_end_checkpoint
from ...specification.transactions import state_steps

_RECORDS_A_BATCH = (1, 1, metadata_snapshot.RECORDS_A_BATCH)
_NOTES_EVERY_S = (0.0, 0.3, log_end_checkpoint.WRITE_EVERY_S)
_RECORDS_A_STEP = (1, 4)
_STEP_S = (0.002, 0.006, 0.02)
SMALL_STEPS: Mapping[str, tuple[int, ...]] = {
    "CHANGES_PER_BATCH": (1, 2),
    "ELRS_PER_BATCH": (1,),
    "EXPANSIONS_PER_SLICE": (1,),
    "IDS_PER_STEP": (1,),
    "IN_ONE_STEP_BYTES": (0, 64),
    "ITEMS_PER_STEP": (1, 3),
    "LOOKED_AT_ONCE": (1,),
    "NAMED_AT_ONCE": (1, 2),
    "PARTITIONS_PER_BATCH": (1, 2),
    "PARTITIONS_PER_SLICE": (1, 2),
    "PARTITIONS_PER_STEP": (1,),
    "ROWS_PER_STEP": (1,),
    "SHRINKS_PER_SLICE": (1,),
    "STEP_BATCHES": (1, 4),
    "TOPICS_AT_ONCE": (0,),
    "_BATCH_MAX": (1,),
    "_CHUNK_BYTES": (64,),
    "_ENTRIES_PER_STEP": (1,),
    "_ITEMS_MAX": (1,),
    "_LOGS_PER_FLUSH_SLICE": (1,),
    "_LOGS_PER_RETENTION_SLICE": (1,),
    "_LOGS_PER_SLICE": (1,),
    "_RECORDS_PER_STEP": (1, 8),
    "_REMOVALS_PER_SLICE": (1,),
}
"""Small values of constants that say how much is done in one step."""
_HIGHEST_EPOCHS = (2, 3, 6, 12)
_IDS_A_BLOCK = (1, 2, 3)
_CLIENTS_HEAR_WITHIN_MS = 4_000
"""Longer than the time-out of the requests of simulated clients."""


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
def many_steps(rng: random.Random) -> Iterator[None]:
    """Until it is left, much of the work that is cut into steps does little in each, as the generator draws.

    So requests and decisions about a few partitions take as many steps as those about thousands, and other events
    come between them.
    """
    drawn = {name: rng.choice((None, *values)) for name, values in SMALL_STEPS.items()}
    with steps_of({name: value for name, value in drawn.items() if value is not None}):
        yield


@contextmanager
def steps_of(sizes: Mapping[str, int]) -> Iterator[None]:
    """Until it is left, these constants have these values, wherever they are used."""
    with ExitStack() as replaced:
        for name, value in sizes.items():
            for module in modules_with(name):
                replaced.enter_context(_replaced(module, name, value))
        yield


def modules_with(name: str) -> list[ModuleType]:
    """The modules of the nodes' code that have, or have imported, the constant."""
    package = f"{__package__.partition('.')[0]}."
    loaded = [module for key, module in sys.modules.items() if key.startswith(package) and "chaos" not in key]
    return [module for module in loaded if isinstance(vars(module).get(name), int)]


@contextmanager
def few_producer_epochs(rng: random.Random) -> Iterator[None]:
    """Until it is left, the highest epoch of a producer is so low that each producer id is soon used up."""
    highest = rng.choice(_HIGHEST_EPOCHS)
    with ExitStack() as replaced:
        for module in (transaction_decisions, transaction_metadata, transaction_records, state_steps):
            replaced.enter_context(_replaced(module, "EPOCH_MAX", highest))
        yield


@contextmanager
def small_producer_id_blocks(rng: random.Random) -> Iterator[None]:
    """Until it is left, the controller gives brokers so few producer ids at a time that they soon need more."""
    with _replaced(producer_ids, "PRODUCER_ID_BLOCK_SIZE", rng.choice(_IDS_A_BLOCK)):
        yield


@contextmanager
def short_waits_for_former_leaders(rng: random.Random) -> Iterator[None]:
    """Until it is left, leaders wait for less long for batches that may be on their way to a former leader."""
    with _replaced(refused_batches, "_PREDECESSOR_MS", _CLIENTS_HEAR_WITHIN_MS):
        yield


DRAWN: Mapping[str, Callable[[random.Random], AbstractContextManager[None]]] = {
    "slow loads": slow_coordinator_loads,
    "small steps": many_steps,
    "few producer epochs": few_producer_epochs,
    "small producer id blocks": small_producer_id_blocks,
    "short waits for former leaders": short_waits_for_former_leaders,
}
"""What scenarios may name."""


@contextmanager
def _replaced(owner: object, name: str, value: object) -> Iterator[None]:
    """Until it is left, the module or class has this value under the name."""
    usual = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, usual)
