"""Random histories of brokers and partitions; `BrokerHistories` says what must hold."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import settings as hypothesis_settings
from support.controller.broker_histories import IDS, BrokerHistories


@pytest.mark.parametrize("seed", range(60))
def test_random_histories(seed: int) -> None:
    """The same by a random walk that prefers rare states: few brokers left, and restarts that lose all records."""
    rng = random.Random(seed)
    history = BrokerHistories()
    history.start(elr=True)
    actions: list[Callable[[], object]] = [
        lambda: history.kill_and_notice(rng.choice(IDS)),
        lambda: history.kill(rng.choice(IDS)),
        lambda: history.session_ends(rng.choice(IDS)),
        lambda: history.restart_and_catch_up(rng.choice(IDS)),
        lambda: history.restart(rng.choice(IDS)),
        lambda: history.heartbeat(rng.choice(IDS), rng.random() < 0.1),
        lambda: history.produce(rng.randrange(2)),
        lambda: history.produce(rng.randrange(2)),
        lambda: history.leader_alters_isr(rng.randrange(2), []),
        lambda: history.leader_alters_isr(rng.randrange(2), [rng.choice(IDS)]),
        lambda: history.elections(rng.random() < 0.1),
        lambda: history.reassign(rng.randrange(2), rng.sample(IDS, rng.choice([1, 2, 2, 3, 3]))),
        lambda: history.cancel(rng.randrange(2)) if rng.random() < 0.3 else None,
    ]
    for _ in range(150):
        rng.choice(actions)()
        history.fenced_brokers_lead_nothing()
        history.a_replica_that_can_lead_leads()
        history.reassignments_end_when_they_can()


BrokerHistories.TestCase.settings = hypothesis_settings(max_examples=60, stateful_step_count=50)
TestBrokerHistories = BrokerHistories.TestCase
