"""Compaction of logs with transactions: what read_committed reads, and the producers' state made again from the rest.

A log is written and compacted at random, by the clock as well. After each pass its copies, made by replay of what is
left or by replication, must know the same producers, the same epochs and the same open transactions.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.isr.transaction_model import ModelBatch, committed_offsets, delivered
from support.log.compacted_logs import COMPACT, MEMORY, RETENTION_MS, drive
from support.log.logs import DIRECTORY, NOW_MS, headers_of, make_runtime, open_log, read_all

from raftwerk.isr.leader.transaction_markers import TransactionMarker, encode_marker
from raftwerk.log.cleaner.compaction import CleanPlan, clean
from raftwerk.log.cleaner.log_cleaner import measure
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.state.transaction_verification import VERIFICATION_OFF
from raftwerk.wire.fetch import AbortedTransaction
from raftwerk.wire.records import encode_batch, iter_headers, iter_records, read_header

PRODUCERS = (7, 8, 9)


class CompactedHistory:
    """A log, all batches that were ever written to it, and a clock that compaction looks at."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.runtime, self.disk = make_runtime(seed)
        self.log = open_log(self.runtime, COMPACT)
        self.written: list[ModelBatch] = []
        self.keys: dict[int, bytes] = {}
        self.now_ms = NOW_MS
        self.clean_offset = 0
        self.version = self.rng.choice([0, 2])

    def write(self) -> None:
        rng = self.rng
        producer_id = rng.choice([-1, *PRODUCERS])
        options: dict[str, Any] = {}
        entry = self.log.producers.get(producer_id)
        if producer_id >= 0:
            is_open = entry is not None and entry.transaction_first_offset >= 0
            options = {
                "producer_id": producer_id,
                "producer_epoch": 0 if entry is None else entry.epoch,
                "base_sequence": 0 if entry is None else entry.last_sequence + 1,
                "is_transactional": is_open or rng.random() < 0.8,
            }
        keys = [b"key%d" % rng.randint(0, 9) for _ in range(rng.randint(1, 3))]
        records = [(key, b"x" * rng.randint(0, 60) if rng.random() < 0.9 else None, (), NOW_MS) for key in keys]
        data = memoryview(encode_batch(records, **options))
        base = self.log.append_as_leader(data, 0, NOW_MS, guard=VERIFICATION_OFF).first_offset
        self.keys.update((base + number, key) for number, key in enumerate(keys))
        self.note(bytes(data), None)

    def end(self) -> None:
        producer_id = self.rng.choice(PRODUCERS)
        entry = self.log.producers.get(producer_id)
        is_commit = self.rng.random() < 0.5
        if entry is None:
            return
        marker = TransactionMarker(producer_id, entry.epoch + (self.version == 2), 5, is_commit, self.version)
        data = memoryview(encode_marker(marker, NOW_MS))
        self.log.append_as_leader(data, 0, NOW_MS, internal=True, transaction_version=self.version)
        self.note(bytes(data), is_commit)

    def note(self, data: bytes, is_commit: bool | None) -> None:
        header = read_header(data)
        fields = (header.base_offset, header.last_offset, header.producer_id, header.producer_epoch)
        self.written.append(ModelBatch(*fields, header.is_transactional, is_commit, data))

    def compact(self) -> None:
        log = self.log
        self.now_ms += self.rng.choice([0, RETENTION_MS + 1])
        log.roll()
        log.flush()
        end = log.log_end_offset
        clean_offset = self.clean_offset if self.rng.random() < 0.5 else 0
        found = measure(log, clean_offset, end, end, self.now_ms)
        if found is None:
            return
        plan = CleanPlan(found.first_dirty_offset, found.end_offset, self.now_ms, MEMORY)
        result = drive(clean(log, self.disk, plan))
        assert result is not None
        self.clean_offset = result.clean_offset
        self.check()

    # -- what must hold

    def check(self) -> None:
        log = self.log
        self.check_reads(log)
        live = known(log)
        replayed = self.replayed()
        assert known(replayed) == live
        self.check_reads(replayed)
        copy = self.replicated()
        assert known(copy) == live
        self.check_reads(copy)

    def check_reads(self, log: PartitionLog) -> None:
        unstable = log.producers.first_open_offset()
        end = log.log_end_offset if unstable is None else unstable
        found = []
        offset = log.log_start_offset
        while offset < end and (data := log.read(offset, 1 << 20, end_offset=end)):
            stop = headers_of(data)[-1].next_offset
            aborted = log.aborted_transactions(offset, stop)
            found += delivered(data, offset, [AbortedTransaction(*one[:2]) for one in aborted])
            offset = stop
        committed = [one for one in committed_offsets(self.written) if one < end]
        assert set(found) <= set(committed)
        newest = {self.keys[offset]: offset for offset in committed if offset < self.clean_offset}
        values = {one: value for one, value in self.values().items() if one in committed}
        for offset in committed:
            if offset >= self.clean_offset or (newest[self.keys[offset]] == offset and values[offset] is not None):
                assert offset in found

    def values(self) -> dict[int, bytes | None]:
        return {
            record.offset: record.value
            for one in self.written
            if not one.is_marker
            for record in iter_records(one.data)
        }

    def replayed(self) -> PartitionLog:
        """Another log with the same batches, whose state is made from them alone."""
        runtime, disk = make_runtime(3)
        self.log.flush()
        disk.makedirs(DIRECTORY)
        for name in self.disk.listdir(DIRECTORY):
            if name.endswith(".log"):
                file = disk.open(f"{DIRECTORY}/{name}", create=True)
                file.append((self.disk.read_bytes(f"{DIRECTORY}/{name}"),))
                file.close()
        return PartitionLog.open(runtime, DIRECTORY, COMPACT, log_start_offset=self.log.log_start_offset)

    def replicated(self) -> PartitionLog:
        """A follower's log that was empty."""
        copy = open_log(make_runtime(4)[0], COMPACT)
        content = read_all(self.log)
        for position, header in iter_headers(content):
            part = bytearray(content[position : position + header.size_bytes])
            copy.append_as_follower(memoryview(part), may_skip=True)
        assert copy.log_end_offset == self.log.log_end_offset
        return copy


def known(log: PartitionLog) -> dict[int, tuple[int, int, int]]:
    """Epoch, last sequence and first offset of the open transaction, by producer."""
    return {
        producer_id: (entry.epoch, entry.last_sequence, entry.transaction_first_offset)
        for producer_id, entry in sorted(log.producers.items())
    }


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=25)
def test_compaction_keeps_what_transactions_need(seed: int) -> None:
    history = CompactedHistory(seed)
    for _ in range(6):
        for _ in range(25):
            if history.rng.random() < 0.7:
                history.write()
            else:
                history.end()
        for _ in range(history.rng.randint(1, 3)):
            history.compact()
