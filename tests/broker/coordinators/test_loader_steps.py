"""How a partition of a coordinator's topic is loaded: in steps, past what cannot be read, and to its end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from support.broker.group_harness import FakeLog
from support.log.logs import make_runtime, open_log

from raftwerk.broker.coordinators import coordinator_loader
from raftwerk.broker.coordinators.coordinator_loader import CoordinatorLoader
from raftwerk.isr.leader.transaction_markers import TransactionMarker, encode_marker
from raftwerk.log.config import LogConfig
from raftwerk.log.segment.batch_scan import Damage
from raftwerk.wire.records import ControlRecordType, NewRecord, encode_batch, encode_control_record

Replayed = tuple[bytes | None, bytes | None, int]


class Shard:
    """Remembers what is replayed; it cannot apply a record whose value is `bad`."""

    partition, leader_epoch, is_loading, name = 0, 5, True, "shard 0"

    def __init__(self) -> None:
        self.replayed: list[Replayed] = []
        self.ended: list[tuple[int, bool]] = []

    def replay(self, key: bytes | None, value: bytes | None, *, transaction_of: int) -> None:
        if value == b"bad":
            raise ValueError("it is bad")
        self.replayed.append((key, value, transaction_of))

    def end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        if producer_id == 666:
            raise ValueError("no such producer")
        self.ended.append((producer_id, is_committed))


class Load:
    """A load of a log, which the test carries out step by step."""

    def __init__(self, log: Any, *, is_mending: bool = False) -> None:
        self.shard = Shard()
        self.next: list[Callable[[], None]] = []
        self.finished: list[bool] = []
        self.damages: list[Damage] = []
        self.is_mending = is_mending
        replica: Any = SimpleNamespace(log=log)
        self.loader = CoordinatorLoader(
            self.shard, replica, self.next.append, self._on_finished, self._mend, logging.getLogger("raftwerk.test")
        )

    def _on_finished(self, shard: Shard, is_complete: bool) -> None:
        assert shard is self.shard
        self.finished.append(is_complete)

    def _mend(self, damage: Damage) -> bool:
        self.damages.append(damage)
        return self.is_mending

    def step(self) -> None:
        (step,) = self.next or [self.loader.step]
        self.next.clear()
        step()

    def run(self) -> None:
        while not self.finished:
            self.step()
        assert self.next == [], "it is over"


def log_of(*batches: bytearray) -> FakeLog:
    log = FakeLog()
    for batch in batches:
        log.append(memoryview(batch))
    return log


def plain(*values: bytes | None, **options: Any) -> bytearray:
    return encode_batch([NewRecord(b"k%d" % number, value) for number, value in enumerate(values)], **options)


def marker(producer_id: int, *, is_commit: bool) -> bytearray:
    return encode_marker(TransactionMarker(producer_id, 0, 1, is_commit, 0), 1_000)


def test_records_are_replayed_in_their_order_with_their_transactions_and_these_ends() -> None:
    other = encode_batch(
        [encode_control_record(ControlRecordType.LEADER_CHANGE, b"", 0)],
        producer_id=9,
        producer_epoch=0,
        is_control=True,
    )
    load = Load(
        log_of(
            plain(b"a", None),
            plain(b"b", producer_id=7, producer_epoch=0, is_transactional=True),
            plain(b"c", producer_id=8, producer_epoch=0, base_sequence=0),
            marker(7, is_commit=True),
            marker(8, is_commit=False),
            other,
        )
    )
    load.run()
    assert load.finished == [True]
    assert load.shard.replayed == [(b"k0", b"a", -1), (b"k1", None, -1), (b"k0", b"b", 7), (b"k0", b"c", -1)]
    assert load.shard.ended == [(7, True), (8, False)]
    assert load.loader.passed_over == 0


def test_an_empty_partition_is_loaded_at_once() -> None:
    load = Load(FakeLog())
    load.step()
    assert load.finished == [True] and load.next == []


def test_a_batch_of_many_records_ends_a_step_after_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressed batch may hold any number of them, and the node serves other requests meanwhile."""
    monkeypatch.setattr(coordinator_loader, "RECORDS_PER_STEP", 5)
    load, after_each = Load(log_of(plain(*[b"v"] * 12), plain(*[b"v"] * 4))), []
    while not load.finished:
        load.step()
        after_each.append(len(load.shard.replayed))
    assert after_each == [5, 10, 16]


def test_what_cannot_be_applied_is_passed_over_counted_and_described_once(caplog: pytest.LogCaptureFixture) -> None:
    """One record of a client must not end the groups of a partition, nor fill the log with lines."""
    load = Load(log_of(plain(b"a", b"bad", b"c"), marker(666, is_commit=True), plain(b"bad"), plain(b"z")))
    with caplog.at_level(logging.WARNING):
        load.run()
    assert load.finished == [True]
    assert [value for _, value, _ in load.shard.replayed] == [b"a", b"c", b"z"]
    assert load.loader.passed_over == 3
    assert caplog.messages == ["shard 0: the record at offset 1 is passed over: ValueError: it is bad"]


def test_a_load_that_is_cancelled_goes_no_further() -> None:
    """Another broker leads the partition: what is read now may be its former leader's."""
    load = Load(log_of(plain(b"a")))
    load.loader.cancel()
    load.step()
    assert (load.shard.replayed, load.next, load.finished) == ([], [], [])


def test_a_load_that_the_disk_refuses_is_not_complete(caplog: pytest.LogCaptureFixture) -> None:
    log = log_of(plain(b"a"))
    log.refusal = OSError(5, "Input/output error")
    load = Load(log)
    load.run()
    assert load.finished == [False]
    assert not load.loader.is_being_mended
    assert "cannot load shard 0: [Errno 5] Input/output error" in caplog.text


def test_it_ends_where_the_log_ended_when_it_began() -> None:
    """What this broker appends meanwhile is in its memory already."""
    log = log_of(plain(b"a"), plain(b"b"))
    assert Load(log).loader.end_offset == 2


def damaged() -> Any:
    """A log of three batches of one record, of which the second one is damaged on the disk."""
    runtime, disk = make_runtime()
    log = open_log(runtime, LogConfig())
    for value in (b"a", b"b", b"c"):
        log.append_as_leader(memoryview(plain(value)), 0, 0, internal=True)
    segment = log.segments[0]
    disk.flip_bit(segment.file.path, segment.size_bytes // 3 + 65, 2)
    return log


def test_a_load_ends_before_damage_that_is_being_mended() -> None:
    load = Load(damaged(), is_mending=True)
    load.run()
    assert load.finished == [False] and load.loader.is_being_mended
    assert [value for _, value, _ in load.shard.replayed] == [b"a"]
    assert [damage.offset for damage in load.damages] == [1]
    assert load.loader.passed_over == 0


def test_damage_that_nobody_can_mend_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    load = Load(damaged())
    with caplog.at_level(logging.WARNING):
        load.run()
    assert load.finished == [True] and not load.loader.is_being_mended
    assert [value for _, value, _ in load.shard.replayed] == [b"a", b"c"]
    assert load.loader.passed_over == 1
    (line,) = caplog.messages
    assert "all from offset 1 to 1 is passed over" in line
