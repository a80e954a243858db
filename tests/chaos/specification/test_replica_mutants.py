"""Known ways to break the replicas of a partition: the specification alone tells of them, as it does of a quorum."""

from __future__ import annotations

import pytest
from support.chaos.mutants import Mutant
from support.chaos.replica_mutants import MUTANTS, what_is_broken

SEEDS = range(20)
SAID = {
    "truncates one batch too few": "not ReceiveFetchResponse: the leader's answer cuts it at",
    "truncates one batch too many": "not ReceiveFetchResponse: the leader's answer cuts it at",
    "appends in the epoch before": "not WriteRecordToLeader: the leader of epoch",
    "high watermark of all replicas but one": "not FencedLeaderIncHighWatermark: of the maximal ISR",
    "a follower takes all that it has for committed": "has committed up to",
    "joins the ISR before the start of the epoch (KIP-320)": "not SendAlterPartitionRequest:",
    "a log is durable before its fsync": "not UncleanShutdown: the log was durable up to",
}
"""What is said of those that a quick run shows; the page about the simulator tells how many runs the others took."""


@pytest.mark.parametrize("mutant", [one for one in MUTANTS if one.name in SAID], ids=lambda mutant: mutant.name)
def test_the_specification_alone_tells_of(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    found = what_is_broken(mutant, SEEDS, monkeypatch)
    assert found is not None
    assert SAID[mutant.name] in found[1]
