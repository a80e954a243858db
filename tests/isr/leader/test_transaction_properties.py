"""Transactions in a leader's and a follower's log against the model, by random histories.

After every step: the last stable offset, what read_committed reads from anywhere, and the state of the producers, live
as well as made again from the batches, from snapshots, after truncations and crashes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.isr.replicas import TOPIC_ID, TP, WALL_MS, FakeBrokers, FixedClock, Reg
from support.isr.transaction_model import (
    ModelBatch,
    aborted,
    committed_offsets,
    delivered,
    last_stable_offset,
)

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.isr.leader.leader_state import LeaderConfig
from raftwerk.isr.leader.transaction_markers import TransactionMarker, encode_marker
from raftwerk.isr.partition import Partition
from raftwerk.isr.replica import Replica
from raftwerk.isr.results import FetchParams
from raftwerk.log.config import LogConfig
from raftwerk.log.hooks import LogHooks
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.state.producer_state import ProducerStateManager, read_marker
from raftwerk.runtime.files.file_slice import FileSlice
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.fetch import FetchPartition
from raftwerk.wire.records import encode_batch, read_header

PRODUCERS = (7, 8, 9)
CONFIG = LogConfig(segment_bytes=1200, index_interval_bytes=150)


def state_of(producers: ProducerStateManager) -> dict[str, Any]:
    """All that must be the same however the state was made."""
    return {
        "producers": {
            producer_id: (
                entry.epoch,
                entry.coordinator_epoch,
                entry.transaction_first_offset,
                entry.last_timestamp,
                [one[:4] for one in entry.batches],
            )
            for producer_id, entry in producers.items()
        },
        "open": list(producers.open_transactions.items()),
    }


def replayed(batches: Sequence[ModelBatch]) -> ProducerStateManager:
    """The state of the producers, made from the batches alone."""
    producers = ProducerStateManager()
    for one in batches:
        header = read_header(one.data)
        if header.is_control:
            marker = read_marker(one.data)
            assert marker is not None
            producers.end_transaction(header, marker)
        elif header.producer_id >= 0:
            producers.update(header)
    return producers


class Node:
    """A replica on a disk of its own, as leader or follower."""

    def __init__(self, node_id: int, seed: int, *, is_leader: bool) -> None:
        self.disk = SimDisk(random.Random(seed))
        self.disk.makedirs("/data")
        self.disk.fsync_dir("/")
        self.runtime = Runtime(self.disk, FixedClock(), random.Random(seed))
        self.node_id = node_id
        self.is_leader = is_leader
        self.checkpointed = 0
        self.epoch = 1
        self.settled = 0
        """Markers below this offset may count as committed: a restart forgets that they were not."""
        self.open(0, 0, clean=False)

    def open(self, start: int, high_watermark: int, *, clean: bool) -> None:
        log = PartitionLog.open(
            self.runtime,
            "/data/t-0",
            CONFIG,
            recovery_point=self.checkpointed,
            log_start_offset=start,
            clean_shutdown=clean,
            hooks=LogHooks(on_recovery_point_lowered=self._lowered),
        )
        brokers = FakeBrokers({1: 101, 2: 102})
        partition = Partition(TP, LeaderConfig(self.node_id), brokers, min(high_watermark, log.log_end_offset))
        self.replica = Replica(TOPIC_ID, partition, log, lambda replica: None)
        if self.is_leader:
            self.epoch += 1
            self.replica.make_leader(Reg((1, 2), (1, 2), 1, self.epoch, self.epoch), 0)
        else:
            self.follow(self.epoch + 1)
        self.settled = log.log_end_offset

    def follow(self, epoch: int) -> None:
        self.epoch = epoch
        self.replica.make_follower(Reg((1, 2), (1, 2), 1, epoch, epoch))

    def _lowered(self, offset: int) -> None:
        self.checkpointed = min(self.checkpointed, offset)

    @property
    def log(self) -> PartitionLog:
        return self.replica.log

    @property
    def high_watermark(self) -> int:
        return self.replica.high_watermark


class History:
    """One random history of a leader, and a follower that copies it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.leader = Node(1, seed, is_leader=True)
        self.follower = Node(2, seed + 1, is_leader=False)
        self.batches: list[ModelBatch] = []
        self.start = 0
        self.version = self.rng.choice([0, 1, 2])
        self.coordinator_epoch = 0
        self.deletes = self.rng.random() < 0.5

    # -- what producers and coordinators do

    def producer(self, producer_id: int) -> tuple[int, int, bool]:
        """Epoch, next sequence and whether a transaction is open, by the batches."""
        epoch, sequence, is_open = 0, 0, False
        for one in self.batches:
            if one.producer_id != producer_id:
                continue
            if one.producer_epoch != epoch:
                epoch, sequence = one.producer_epoch, 0
            if one.is_marker:
                is_open = False
            else:
                sequence = read_header(one.data).base_sequence + one.last - one.base + 1
                is_open = is_open or one.is_transactional
        return epoch, sequence, is_open

    def write(self) -> None:
        rng = self.rng
        options: dict[str, Any] = {}
        producer_id = rng.choice([-1, *PRODUCERS])
        guard = None
        if producer_id >= 0:
            epoch, sequence, is_open = self.producer(producer_id)
            is_transactional = is_open or rng.random() < 0.7
            options = {
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "base_sequence": sequence,
                "is_transactional": is_transactional,
            }
            if is_transactional:
                bumps = self.version == 2
                guard = self.leader.replica.begin_verification(producer_id, epoch, sequence, supports_epoch_bump=bumps)
                assert (guard is None) == is_open
        count = rng.randint(1, 3)
        records = [(b"k", b"x" * rng.choice([0, 40, 200]), (), WALL_MS + len(self.batches)) for _ in range(count)]
        data = memoryview(encode_batch(records, **options))
        info = self.leader.replica.append_as_leader(data, 1, (0, WALL_MS), None, None, guard)
        assert not info.duplicate
        self.note(bytes(data), None)

    def end(self) -> None:
        rng = self.rng
        producer_id = rng.choice(PRODUCERS)
        epoch, _, is_open = self.producer(producer_id)
        is_fence = rng.random() < 0.2
        self.coordinator_epoch += rng.random() < 0.1
        is_commit = rng.random() < 0.5 and not is_fence
        epoch += self.version == 2 or is_fence
        if not is_open and rng.random() < 0.7:
            return  # a marker without a transaction now and then
        marker = TransactionMarker(producer_id, epoch, self.coordinator_epoch, is_commit, self.version)
        data = memoryview(encode_marker(marker, WALL_MS + len(self.batches)))
        self.leader.replica.append_as_leader(data, -1, (0, WALL_MS), None, None, None, True, self.version)
        self.note(bytes(data), is_commit)

    def note(self, data: bytes, is_commit: bool | None) -> None:
        header = read_header(data)
        self.batches.append(
            ModelBatch(
                header.base_offset,
                header.last_offset,
                header.producer_id,
                header.producer_epoch,
                header.is_transactional,
                is_commit,
                data,
            )
        )

    # -- what replication and disks do

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last + 1 if self.batches else 0

    def replicate(self) -> None:
        leader, follower = self.leader.log, self.follower
        if follower.epoch < self.leader.epoch:
            follower.follow(self.leader.epoch)
        data = leader.read(follower.log.log_end_offset, self.rng.randint(1, 900), end_offset=leader.log_end_offset)
        follower.replica.append_as_follower(memoryview(bytearray(data)), self.leader.high_watermark)

    def advance(self) -> None:
        """The high watermark is what the follower has, at most."""
        node = self.leader
        end = min(self.follower.log.log_end_offset, node.log.log_end_offset)
        if end > node.high_watermark:
            choices = [one.last + 1 for one in self.batches if node.high_watermark <= one.last < end]
            node.replica.partition.watermark.advance(self.rng.choice(choices))

    def truncate(self) -> None:
        """A new leader lacks what was not committed."""
        offset = self.rng.randint(self.leader.high_watermark, self.end_offset)
        for node in (self.leader, self.follower):
            node.replica.truncate_to(offset)
        self.batches = [one for one in self.batches if one.last < offset]
        for node in (self.leader, self.follower):
            node.settled = min(node.settled, self.end_offset)

    def roll(self) -> None:
        self.rng.choice([self.leader, self.follower]).log.roll()

    def delete(self) -> None:
        if not self.deletes or self.end_offset == self.start:
            return
        self.start = self.rng.randint(self.start, self.leader.high_watermark)
        for node in (self.leader, self.follower):
            if self.start <= node.high_watermark:
                node.log.raise_start(self.start)
                node.log.flush()
                node.checkpointed = node.log.recovery_point
                node.log.advance_start(self.start)

    def restart(self) -> None:
        node = self.rng.choice([self.leader, self.follower])
        start, high_watermark = node.log.log_start_offset, node.high_watermark
        node.log.close()
        node.checkpointed = node.log.recovery_point
        node.open(start, high_watermark, clean=True)

    def kill(self) -> None:
        if self.deletes:
            return  # what was known of producers from deleted batches may be lost with them
        node = self.rng.choice([self.leader, self.follower])
        start, high_watermark = node.log.log_start_offset, node.high_watermark
        if self.rng.random() < 0.5:
            node.log.flush()
            node.checkpointed = node.log.recovery_point
        node.disk.crash(power_loss=self.rng.random() < 0.5)
        node.disk.makedirs("/data")
        node.open(start, high_watermark, clean=False)
        end = node.log.log_end_offset
        if node is self.leader:
            self.batches = [one for one in self.batches if one.last < end]
            self.follower.replica.truncate_to(end)
            self.follower.settled = min(self.follower.settled, end)

    # -- what must hold

    def check(self) -> None:
        for node in (self.leader, self.follower):
            self.check_node(node)

    def check_node(self, node: Node) -> None:
        log, replica = node.log, node.replica
        mine = [one for one in self.batches if one.last < log.log_end_offset]
        start, high_watermark = log.log_start_offset, replica.high_watermark
        assert state_of(log.producers) == state_of(replayed(mine))
        stable = replica.last_stable_offset
        strict = last_stable_offset(mine, start, high_watermark)
        lenient = last_stable_offset(mine, start, high_watermark, node.settled)
        assert strict <= stable <= lenient
        if start < stable:
            self.read(node, mine, self.rng.randint(start, stable - 1), self.rng.choice([1, 300, 2000]))
        if log.log_end_offset > start:
            offset = self.rng.randint(start, log.log_end_offset)
            end = self.rng.randint(offset, log.log_end_offset)
            found = sorted(
                ((one.producer_id, one.first_offset) for one in log.aborted_transactions(offset, end)),
                key=lambda one: one[1],
            )
            known = [one for one in aborted(mine, offset, end) if offset < end]
            assert [one for one in found if offset < end] == known

    def read(self, node: Node, mine: list[ModelBatch], offset: int, max_bytes: int) -> None:
        slices = self.rng.random() < 0.5
        params = FetchParams(isolation_level=1, from_follower_allowed=True, slice_bytes_min=64 if slices else None)
        request = FetchPartition(0, fetch_offset=offset, max_bytes=max_bytes)
        row = node.replica.read(params, request, max_bytes, min_one_batch=True)
        records = row.records
        assert records
        data = b"".join(records.pieces()) if isinstance(records, FileSlice) else bytes(records)
        end = [one for one in mine if data.endswith(one.data)][-1].last + 1
        assert end <= row.last_stable_offset
        assert [tuple(one) for one in row.aborted_transactions or []] == aborted(mine, offset, end)
        committed = committed_offsets(mine)
        found = delivered(data, offset, row.aborted_transactions or [])
        assert found == [one for one in range(offset, end) if one in committed]


def step(history: History) -> None:
    operations: list[tuple[float, Callable[[], None]]] = [
        (0.40, history.write),
        (0.20, history.end),
        (0.16, history.replicate),
        (0.10, history.advance),
        (0.04, history.truncate),
        (0.03, history.roll),
        (0.02, history.delete),
        (0.03, history.restart),
        (0.02, history.kill),
    ]
    weights = [weight for weight, _ in operations]
    history.rng.choices([one for _, one in operations], weights)[0]()
    history.check()


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=40)
def test_transactions_follow_the_model(seed: int) -> None:
    history = History(seed)
    for _ in range(120):
        step(history)
    while history.follower.log.log_end_offset < history.leader.log.log_end_offset:
        history.replicate()
    whole = b"".join(one.data for one in history.batches if one.last >= history.start)
    assert whole


@pytest.mark.parametrize("seed", range(3))
def test_histories_have_transactions(seed: int) -> None:
    """The histories above are worth something: there are commits, aborts and open transactions."""
    history = History(seed)
    for _ in range(200):
        step(history)
    assert sum(one.is_marker for one in history.batches) > 5
