"""The simulation's checks are checked: known ways to break a quorum are each caught within some seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import raft_sim
from raft_sim import live_through

from raftwerk.raft import quorum as quorum_module
from raftwerk.raft.quorum import Quorum
from raftwerk.raft.roles import Candidate, Unattached, ballot
from raftwerk.raft.types import EpochEndOffset

Mutate = Callable[[pytest.MonkeyPatch], None]


def vote_for_everybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Unattached, "can_grant", lambda self, vote, log_is_up_to_date, now_ms: log_is_up_to_date)
    patch.setattr(Candidate, "can_grant", lambda self, vote, log_is_up_to_date, now_ms: log_is_up_to_date)


def forget_votes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Quorum, "_persist", lambda self: None)


def vote_for_short_logs(patch: pytest.MonkeyPatch) -> None:
    original = Unattached.can_grant
    patch.setattr(Unattached, "can_grant", lambda self, vote, up_to_date, now_ms: original(self, vote, True, now_ms))


def commit_older_epochs_by_count(patch: pytest.MonkeyPatch) -> None:
    original = quorum_module.next_high_watermark
    patch.setattr(quorum_module, "next_high_watermark", lambda current, ends, start: original(current, ends, -1))


def count_what_is_not_flushed(patch: pytest.MonkeyPatch) -> None:
    class Optimist:
        """Takes what is written for what is durable."""

        def __init__(self, log: Any) -> None:
            self._log = log

        def __getattr__(self, name: str) -> Any:
            return getattr(self._log, "end_offset" if name == "durable_offset" else name)

    patch.setattr(raft_sim, "Quorum", lambda config, log, state, rng: Quorum(config, Optimist(log), state, rng))


def count_diverging_fetches(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(quorum_module, "divergence", lambda log, fetch: None)


def never_truncate_by_epoch(patch: pytest.MonkeyPatch) -> None:
    def by_offset_only(log: Any, fetch: Any) -> EpochEndOffset | None:
        return EpochEndOffset(log.last_epoch, log.end_offset) if fetch.fetch_offset > log.end_offset else None

    patch.setattr(quorum_module, "divergence", by_offset_only)


def minority_elects(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ballot, "majority_size", lambda voters: max(1, voters // 2))


MUTANTS: list[Mutate] = [
    vote_for_everybody,
    forget_votes,
    vote_for_short_logs,
    commit_older_epochs_by_count,
    count_what_is_not_flushed,
    count_diverging_fetches,
    never_truncate_by_epoch,
    minority_elects,
]


@pytest.fixture(params=MUTANTS, ids=lambda mutate: mutate.__name__)
def mutant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    request.param(monkeypatch)
    yield


@pytest.mark.usefixtures("mutant")
def test_mutant_is_caught() -> None:
    for seed in range(600):
        try:
            live_through(seed, voters=5 if seed % 2 else 3, observers=0)
        except Exception:
            return
    raise AssertionError("not caught in 600 seeds")
