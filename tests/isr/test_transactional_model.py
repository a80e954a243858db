"""Seeded histories of transactions on a three-replica partition, and a check that the checks bite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.isr.transactional_model import run_transactional_seed

from raftwerk.isr.replica import Replica
from raftwerk.log.state.producer_state import ProducerStateManager
from raftwerk.log.state.transaction_verification import PendingVerifications


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("chunk", range(3))
def test_transactions_hold(chunk: int, version: int) -> None:
    outcomes = [0, 0]
    for seed in range(chunk * 8, chunk * 8 + 8):
        model = run_transactional_seed(seed, min_isr=1 + seed % 2, version=version, late_markers=version >= 2)
        for producer in model.producers.values():
            for is_commit in producer.outcomes.values():
                outcomes[is_commit] += 1
    assert min(outcomes) > 3, "the histories get something done"


@pytest.mark.parametrize("version", [0, 1])
def test_late_markers_end_later_transactions_before_version_2(version: int) -> None:
    """What Jepsen found in Kafka's protocol; KIP-890 and KIP-1228 mend it."""
    with pytest.raises(AssertionError, match="ended otherwise than was decided"):
        for seed in range(100):
            run_transactional_seed(seed, min_isr=1 + seed % 2, version=version)


def _skip_verification(patch: pytest.MonkeyPatch) -> None:
    """KAFKA-14402: a late batch opens a transaction that nobody ends."""
    patch.setattr(PendingVerifications, "check", lambda *_: None)


def _take_markers_of_the_same_epoch(patch: pytest.MonkeyPatch) -> None:
    """KIP-1228 left out: version 2 is treated as version 1."""
    check = ProducerStateManager.check_marker
    patch.setattr(
        ProducerStateManager, "check_marker", lambda self, header, marker, version: check(self, header, marker, 1)
    )


def _take_markers_of_older_epochs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerStateManager, "check_marker", lambda *_: None)


def _high_watermark_is_stable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replica, "last_stable_offset", property(lambda self: self.high_watermark))


def _markers_count_at_once(patch: pytest.MonkeyPatch) -> None:
    """The last stable offset passes a transaction whose marker is not committed."""
    patch.setattr(ProducerStateManager, "_add_completed", lambda *_: None)


def _forget_open_transactions_at_truncation(patch: pytest.MonkeyPatch) -> None:
    truncate = Replica.truncate_to

    def truncate_to(self: Replica, offset: int) -> None:
        truncate(self, offset)
        producers: Any = self.log.producers
        for entry in producers._entries.values():
            entry.transaction_first_offset = -1
        producers._open_transactions.clear()

    patch.setattr(Replica, "truncate_to", truncate_to)


def _refuse_markers_that_come_again(patch: pytest.MonkeyPatch) -> None:
    """KAFKA-19999."""
    check = ProducerStateManager.check_marker

    def check_marker(self: ProducerStateManager, header: Any, marker: Any, version: int) -> None:
        entry = self.get(header.producer_id)
        if entry is not None and version >= 2 and header.producer_epoch == entry.epoch:
            entry.epoch += 1
        try:
            check(self, header, marker, version)
        finally:
            if entry is not None and version >= 2 and header.producer_epoch == entry.epoch - 1:
                entry.epoch -= 1

    patch.setattr(ProducerStateManager, "check_marker", check_marker)


@pytest.mark.parametrize(
    "break_it",
    [
        _skip_verification,
        _take_markers_of_the_same_epoch,
        _take_markers_of_older_epochs,
        _high_watermark_is_stable,
        _markers_count_at_once,
        _forget_open_transactions_at_truncation,
        _refuse_markers_that_come_again,
    ],
)
def test_slips_are_caught(break_it: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        break_it(patch)
        with pytest.raises(AssertionError):
            for seed in (40, *range(150)):  # 40 finds the first of them
                run_transactional_seed(seed, min_isr=1 + seed % 2)
