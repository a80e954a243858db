"""Ids, epochs and sequences of producers at the ends of their ranges: a log takes or refuses them, and opens again."""

from __future__ import annotations

from itertools import product

import pytest
from support.log.logs import NOW_MS, append, batch, make_runtime, open_log

from raftwerk.log.partition_log import PartitionLog
from raftwerk.wire.errors import ProtocolError

IDS = (-(2**63), -7, 0, 7, 2**63 - 1)
EPOCHS = (-(2**15), -1, 0, 2**15 - 1)
SEQUENCES = (-(2**31), -1, 0, 2**31 - 2, 2**31 - 1)


def attack(log: PartitionLog) -> int:
    """Append every combination, twice, one record and three; returns how many were taken."""
    taken = 0
    for producer_id, epoch, sequence, count in product(IDS, EPOCHS, SEQUENCES, (1, 3)):
        for _ in range(2):
            data = batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
            try:
                log.append_as_leader(data, 0, NOW_MS)
            except ProtocolError:
                continue
            taken += 1
    return taken


@pytest.mark.parametrize("is_clean", [True, False])
def test_no_producer_state_keeps_a_log_from_opening(is_clean: bool) -> None:
    runtime, _ = make_runtime()
    log = open_log(runtime)
    assert attack(log) > 0
    end_offset = log.log_end_offset
    if is_clean:
        log.close()
    log = open_log(runtime)
    assert log.log_end_offset == end_offset
    assert append(log, producer_id=8, producer_epoch=0, base_sequence=0) == end_offset
    attack(log)
    assert append(log) == log.log_end_offset - 1
