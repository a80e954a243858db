"""A partition's log against a list of batches, through rolls, truncations, crashes and power cuts."""

from __future__ import annotations

import errno
import random
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.log.logs import DIRECTORY, NOW_MS, SMALL, batch, headers_of, make_runtime, read_all

from raftwerk.log.hooks import LogHooks
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.state.leader_epoch_cache import EpochEntry
from raftwerk.runtime.files.file_slice import FileSlice
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.records import set_base_offset, set_partition_leader_epoch

PRODUCERS = st.sampled_from([-1, -1, 7, 8])


class Stored(NamedTuple):
    base: int
    last: int
    data: bytes
    epoch: int
    producer_id: int
    producer_epoch: int
    first_sequence: int


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model: list[Stored] = []
        self.start = 0
        self.end = 0
        self.epoch = 0
        self.flushed = 0
        self.checkpointed = 0
        self.sequences: dict[int, tuple[int, int]] = {}
        self.written = 0
        self.slices: list[tuple[FileSlice, bytes]] = []

    @initialize(seed=st.integers(0, 1 << 32))
    def begin(self, seed: int) -> None:
        self.runtime, self.disk = make_runtime(seed)
        self.open(clean=False)

    def open(self, *, clean: bool) -> None:
        self.slices.clear()
        self.log = PartitionLog.open(
            self.runtime,
            DIRECTORY,
            SMALL,
            recovery_point=self.checkpointed,
            log_start_offset=self.start,
            clean_shutdown=clean,
            hooks=LogHooks(on_recovery_point_lowered=self.lowered),
        )

    def lowered(self, offset: int) -> None:
        self.checkpointed = min(self.checkpointed, offset)

    def next_sequence(self, producer_id: int, bump: bool) -> tuple[int, int]:
        """The producer epoch and first sequence of the next batch, by the model."""
        state = self.producer(producer_id)
        if producer_id < 0:
            return -1, -1
        if not state:
            return 0, 0
        last = state[-1]
        if bump:
            return last.producer_epoch + 1, 0
        return last.producer_epoch, last.first_sequence + last.last - last.base + 1

    def producer(self, producer_id: int) -> list[Stored]:
        """The last five batches of the producer's present epoch, by the model."""
        mine = [stored for stored in self.model if stored.producer_id == producer_id]
        return [stored for stored in mine if stored.producer_epoch == mine[-1].producer_epoch][-5:]

    @rule(
        count=st.integers(1, 4),
        producer_id=PRODUCERS,
        bump=st.booleans(),
        new_epoch=st.integers(0, 9),
        size=st.integers(0, 300),
        as_follower=st.booleans(),
    )
    def append(self, count: int, producer_id: int, bump: bool, new_epoch: int, size: int, as_follower: bool) -> None:
        self.epoch += new_epoch == 0
        self.written += 1
        producer_epoch, sequence = self.next_sequence(producer_id, bump)
        value = b"%d " % self.written + b"x" * size
        data = batch(count, value=value, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=sequence)
        if as_follower:
            set_base_offset(data, 0, self.end)
            set_partition_leader_epoch(data, 0, self.epoch)
            info = self.log.append_as_follower(data)
        else:
            info = self.log.append_as_leader(data, self.epoch, NOW_MS)
        assert (info.first_offset, info.last_offset, info.duplicate) == (self.end, self.end + count - 1, False)
        self.model.append(
            Stored(self.end, info.last_offset, bytes(data), self.epoch, producer_id, producer_epoch, sequence)
        )
        self.end += count

    @rule(producer_id=st.sampled_from([7, 8]), back=st.integers(0, 4))
    def repeat(self, producer_id: int, back: int) -> None:
        known = self.producer(producer_id)
        if back >= len(known):
            return
        stored = known[-1 - back]
        data = memoryview(bytearray(stored.data))
        set_base_offset(data, 0, 0)  # as clients send it
        info = self.log.append_as_leader(data, self.epoch, NOW_MS)
        assert (info.first_offset, info.last_offset, info.duplicate) == (stored.base, stored.last, True)

    @rule(producer_id=st.sampled_from([7, 8]), gap=st.integers(1, 5))
    def skip(self, producer_id: int, gap: int) -> None:
        if self.producer(producer_id):
            producer_epoch, sequence = self.next_sequence(producer_id, False)
            data = batch(1, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=sequence + gap)
            with pytest.raises(ProtocolError) as refused:
                self.log.append_as_leader(data, self.epoch, NOW_MS)
            assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == self.end
        self.flushed = self.end

    @rule()
    def checkpoint(self) -> None:
        self.checkpointed = self.log.recovery_point

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        self.truncate_to(data.draw(st.integers(self.start, self.end + 1)))

    def truncate_to(self, offset: int) -> None:
        self.log.truncate_to(offset)
        self.model = [stored for stored in self.model if stored.last < offset]
        if offset < self.end:
            before = self.model[-1].last + 1 if self.model else self.start
            assert before == self.log.log_end_offset
            self.end = before
        self.flushed = min(self.flushed, self.end)

    @rule(offset=st.integers(0, 50))
    def truncate_fully(self, offset: int) -> None:
        self.log.truncate_fully_and_start_at(offset)
        self.model = []
        self.start = self.end = self.flushed = offset

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.checkpointed = self.log.recovery_point
        self.open(clean=True)
        self.flushed = self.end

    @rule()
    def kill(self) -> None:
        self.disk.crash(power_loss=False)
        self.open(clean=False)

    @rule()
    def cut_power(self) -> None:
        self.disk.crash(power_loss=True)
        self.disk.makedirs("/data")
        self.open(clean=False)
        end = self.log.log_end_offset
        assert self.flushed <= end <= self.end
        assert end == self.start or end in [stored.last + 1 for stored in self.model]
        self.model = [stored for stored in self.model if stored.last < end]
        self.end = end

    @invariant()
    def same_batches(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert read_all(log) == b"".join(stored.data for stored in self.model)
        assert log.size_bytes == sum(len(stored.data) for stored in self.model)
        assert log.recovery_point <= self.end

    @invariant()
    def same_epochs(self) -> None:
        if hasattr(self, "log"):
            expected: list[EpochEntry] = []
            for stored in self.model:
                if not expected or expected[-1].epoch != stored.epoch:
                    expected.append(EpochEntry(stored.epoch, stored.base))
            assert self.log.epoch_cache.entries == expected

    @invariant()
    def same_producers(self) -> None:
        if hasattr(self, "log"):
            for producer_id in (7, 8):
                entry = self.log.producers.get(producer_id)
                found = [(b.first_sequence, b.first_offset, b.last_offset) for b in entry.batches] if entry else []
                expected = [(s.first_sequence, s.base, s.last) for s in self.producer(producer_id)]
                assert found == expected

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def read_somewhere(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end - 1))
        end = data.draw(st.integers(offset, self.end))
        self.read(offset, end, data.draw(st.integers(0, 2500)))

    def read(self, offset: int, end: int, max_bytes: int) -> None:
        data = self.log.read(offset, max_bytes, end_offset=end)
        found = headers_of(data)
        self.slice(data, offset, end, max_bytes)
        expected = [stored for stored in self.model if stored.last >= offset and stored.last < end]
        assert [header.base_offset for header in found] == [stored.base for stored in expected[: len(found)]]
        if expected:
            assert found
            assert len(found) == 1 or sum(header.size_bytes for header in found) <= max_bytes
            rest = expected[len(found) :]
            if rest and sum(len(stored.data) for stored in expected[: len(found) + 1]) <= max_bytes:
                assert rest[0].base in [segment.base_offset for segment in self.log.segments]

    def slice(self, data: bytes, offset: int, end: int, max_bytes: int) -> None:
        """The same range as a slice, which may be sent any time later."""
        limits: Any = {"end_offset": end, "min_one_batch": True, "allow_blocking_io": False}
        found = self.log.read_or_slice(offset, max_bytes, slice_bytes_min=50, **limits)
        if isinstance(found, FileSlice):
            self.slices.append((found, data))
            assert len(found) == len(data)
        else:
            assert found == data

    @invariant()
    def same_slices(self) -> None:
        """A slice gives the bytes that it was made of, or an error."""
        for one, data in list(self.slices):
            try:
                assert one.read(0, len(one)) == data
            except OSError as error:
                assert error.errno == errno.ESTALE
                self.slices.remove((one, data))

    def check(self) -> None:
        self.same_slices()
        self.same_batches()
        self.same_epochs()
        self.same_producers()


def step(machine: LogMachine, rng: random.Random) -> None:
    """One random operation; more crashes soon after truncations than hypothesis would try."""
    choice = rng.random()
    if choice < 0.55:
        machine.append(
            rng.randint(1, 4),
            rng.choice([-1, 7, 8]),
            rng.random() < 0.2,
            rng.randint(0, 5),
            rng.choice([0, 50, 300]),
            rng.random() < 0.5,
        )
    elif choice < 0.65:
        machine.truncate_to(rng.randint(max(machine.start, machine.end - rng.choice([3, 10, 40])), machine.end))
    elif choice < 0.72:
        machine.flush()
        if rng.random() < 0.7:
            machine.checkpoint()
    elif choice < 0.85:
        machine.cut_power()
    elif choice < 0.88:
        machine.kill()
    elif choice < 0.91:
        machine.restart()
    elif choice < 0.94:
        machine.roll()
    elif choice < 0.95:
        machine.truncate_fully(rng.randint(0, 50))
    elif machine.end > machine.start:
        offset = rng.randint(machine.start, machine.end - 1)
        machine.read(offset, rng.randint(offset, machine.end), rng.randint(0, 2500))


@pytest.mark.parametrize("seed", range(16))
def test_power_cuts_leave_a_prefix_that_holds_all_that_was_flushed(seed: int) -> None:
    machine = LogMachine()
    machine.begin(seed)
    rng = random.Random(seed)
    for _ in range(500):
        step(machine, rng)
        machine.check()


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=60, stateful_step_count=40)
