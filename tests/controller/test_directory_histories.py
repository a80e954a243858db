"""Random histories of brokers with two disks each, which fail, come back, or are exchanged for empty ones.

All invariants of `BrokerHistories` hold. In addition, a replica that was lost with its disk is not elected
unless an operator asks for an unclean election, not even as the last known leader.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial
from uuid import UUID

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from support.controller.broker_histories import BROKERS, IDS, PARTITIONS, BrokerHistories
from support.controller.controller_harness import decided, decoded

from raftwerk.controller.brokers import broker_heartbeat
from raftwerk.controller.metadata.metadata_image import MetadataImage, PartitionRegistration
from raftwerk.controller.metadata.metadata_records import LOST, NO_LEADER, RECOVERING, PartitionChangeRecord
from raftwerk.controller.partitions import replica_directories
from raftwerk.controller.partitions.replica_directories import assign_replicas_to_dirs
from raftwerk.isr.directories.directory_assignments import Place, may_have_records, place_of
from raftwerk.runtime.invariants import InvariantViolation
from raftwerk.wire.api_keys import ApiKey

DISKS = st.integers(0, 1)


class DirectoryHistories(BrokerHistories):
    """Rules for directories, and the invariants of them."""

    def __init__(self) -> None:
        super().__init__()
        self.serial = 1000
        self.dirs = {broker_id: [self.new_id(), self.new_id()] for broker_id in IDS}
        self.failed: dict[UUID, None] = {}
        # Where logs are; and which replicas start empty, because their log was on a lost disk.
        self.place: dict[tuple[int, int], UUID] = {}
        self.lost: dict[tuple[int, int], None] = {}
        self.unclean_asked = False

    def new_id(self) -> UUID:
        self.serial += 1
        return UUID(int=self.serial)

    def online(self, broker_id: int) -> list[UUID]:
        return [directory for directory in self.dirs[broker_id] if directory not in self.failed]

    def registered_dirs(self, broker_id: int) -> list[UUID]:
        return self.online(broker_id)

    def on_change(self, before: PartitionRegistration, record: PartitionChangeRecord) -> None:
        super().on_change(before, record)
        after = self.image.partition(record.topic_id, record.partition)
        assert after is not None
        for broker_id in IDS:
            key = (record.partition, broker_id)
            if broker_id not in after.replicas:
                self.place.pop(key, None)
                self.lost.pop(key, None)
        takes_over = record.leader is not None and after.leader not in (NO_LEADER, before.leader)
        if takes_over and after.leader_recovery_state == RECOVERING and not self.unclean_asked:
            assert (record.partition, after.leader) not in self.lost, "what is lost does not lead"
        if takes_over:
            self.lost.pop((record.partition, after.leader), None)

    @precondition(lambda self: self.log)
    @rule(index=PARTITIONS, chosen=st.lists(BROKERS, max_size=3), stale=st.just(0))
    def leader_alters_isr(self, index: int, chosen: list[int], stale: int = 0) -> None:
        before = self.topic.partitions[index].isr
        super().leader_alters_isr(index, chosen, stale)
        for broker_id in self.topic.partitions[index].isr:
            if broker_id not in before:  # it has caught up
                self.lost.pop((index, broker_id), None)

    @precondition(lambda self: self.log)
    @rule(unclean=st.sampled_from([False, False, True]))
    def elections(self, unclean: bool) -> None:
        self.unclean_asked = unclean
        super().elections(unclean)
        self.unclean_asked = False

    # -- disks

    @precondition(lambda self: self.log)
    @rule(broker_id=BROKERS, disk=DISKS)
    def disk_fails(self, broker_id: int, disk: int) -> None:
        """A running broker reports it. Records that the disk had not synced are lost."""
        directory = self.dirs[broker_id][disk]
        if self.online(broker_id) == [directory] or directory in self.failed:
            return
        self.failed[directory] = None
        self.lose_tails(broker_id, directory)
        if self.up[broker_id]:
            self.tell_failures(broker_id)
        else:
            self.clean_epoch[broker_id] = -1  # its mark cannot be read any more

    def lose_tails(self, broker_id: int, directory: UUID) -> None:
        for (index, holder), place in self.place.items():
            if (holder, place) == (broker_id, directory) and self.elr:  # without it the last one in sync is believed
                self.log[index][broker_id] = 0

    def tell_failures(self, broker_id: int) -> None:
        request = decoded(
            ApiKey.BROKER_HEARTBEAT,
            broker_id=broker_id,
            broker_epoch=self.image.brokers[broker_id].epoch,
            current_metadata_offset=self.image.offset,
            want_fence=False,
            want_shut_down=False,
            offline_log_dirs=[each for each in self.dirs[broker_id] if each in self.failed],
        )
        decision = broker_heartbeat.broker_heartbeat(self.image, self.settings, self.sessions, request, 0)
        self.apply(decided(decision).records)
        for partition in self.topic.partitions.values():
            held = partition.directory_of(broker_id) if broker_id in partition.replicas else None
            if held in self.failed and (self.elr or len(partition.isr) > 1):
                assert broker_id not in (*partition.isr, *partition.elr)

    @precondition(lambda self: self.log)
    @rule(broker_id=BROKERS)
    def disks_are_repaired(self, broker_id: int) -> None:
        if not self.up[broker_id]:
            for directory in self.dirs[broker_id]:
                self.failed.pop(directory, None)

    @precondition(lambda self: self.log)
    @rule(broker_id=BROKERS, disk=DISKS)
    def disk_is_exchanged(self, broker_id: int, disk: int) -> None:
        """The new disk is empty and has another id. The mark of a clean stop may be on the other disk."""
        if self.up[broker_id]:
            return
        old, self.dirs[broker_id][disk] = self.dirs[broker_id][disk], self.new_id()
        self.failed.pop(old, None)
        for (index, holder), place in list(self.place.items()):
            if (holder, place) == (broker_id, old):
                del self.place[(index, holder)]
                self.lost[(index, holder)] = None
                self.log[index][holder] = 0

    @precondition(lambda self: self.log)
    @rule(broker_id=BROKERS, disk=DISKS, index=PARTITIONS)
    def replica_moves(self, broker_id: int, disk: int, index: int) -> None:
        """A broker moves a replica to its other disk (AlterReplicaLogDirs). That may fail before it is reported."""
        directory = self.dirs[broker_id][disk]
        held = self.place.get((index, broker_id))
        if self.up[broker_id] and held is not None and held not in self.failed and directory not in self.failed:
            self.place[(index, broker_id)] = directory

    @precondition(lambda self: self.log)
    @rule(broker_id=BROKERS)
    def report_directories(self, broker_id: int) -> None:
        """The broker reports its assignments once."""
        if not self.up[broker_id] or broker_id not in self.image.brokers:
            return
        online = self.online(broker_id)
        for index, partition in self.topic.partitions.items():
            if broker_id in partition.replicas:
                self.tell_place(broker_id, index, partition, online)

    def tell_place(self, broker_id: int, index: int, partition: PartitionRegistration, online: list[UUID]) -> None:
        registered = partition.directory_of(broker_id)
        held = self.place.get((index, broker_id))
        if held is None:
            some_failed = len(online) < len(self.dirs[broker_id])
            has_records = may_have_records(partition, broker_id)
            place = place_of(registered, online, some_failed=some_failed, has_records=has_records)
            if place is Place.OFFLINE:
                return
            held = {Place.THERE: registered, Place.ANYWHERE: online[0], Place.NOWHERE_YET: LOST}[place]
            if held != LOST:
                self.place[(index, broker_id)] = held
        row = {"topic_id": self.topic.topic_id, "partitions": [{"partition_index": index}]}
        epoch = self.image.brokers[broker_id].epoch
        request = decoded(
            ApiKey.ASSIGN_REPLICAS_TO_DIRS,
            broker_id=broker_id,
            broker_epoch=epoch,
            directories=[{"id": held, "topics": [row]}],
        )
        result = decided(assign_replicas_to_dirs(self.image, self.settings, request))
        assert result.response["directories"][0]["topics"][0]["partitions"][0]["error_code"] == 0
        self.apply(result.records)
        assert self.topic.partitions[index].directory_of(broker_id) == held

    @precondition(lambda self: self.log)
    @rule()
    def all_report_directories(self) -> None:
        for broker_id in IDS:
            self.report_directories(broker_id)

    @invariant()
    def no_leader_is_in_a_failed_directory(self) -> None:
        for partition in self.topic.partitions.values() if self.log else ():
            for broker_id in partition.isr:
                broker = self.image.brokers.get(broker_id)
                if broker is not None and not broker.fenced and partition.leader != NO_LEADER:
                    assert self.image.is_replica_online(broker_id, partition)


TestDirectoryHistories = DirectoryHistories.TestCase
TestDirectoryHistories.settings = hypothesis_settings(max_examples=40, stateful_step_count=40)


def walk(seed: int, *, elr: bool = True) -> None:
    """Prefers rare states: few brokers left, disks that fail and are exchanged."""
    rng = random.Random(seed)
    history = DirectoryHistories()
    history.start(elr=elr)
    for _ in range(150):
        broker_id, disk, index = rng.choice(IDS), rng.randrange(2), rng.randrange(2)
        actions: list[Callable[[], None]] = [
            partial(history.kill_and_notice, broker_id),
            partial(history.heartbeat, broker_id, want_shut_down=True),
            partial(history.restart_and_catch_up, broker_id),
            partial(history.restart_and_catch_up, broker_id),
            partial(history.disk_fails, broker_id, disk),
            partial(history.disk_is_exchanged, broker_id, disk),
            partial(history.disks_are_repaired, broker_id),
            partial(history.replica_moves, broker_id, disk, index),
            partial(history.report_directories, broker_id),
            history.all_report_directories,
            partial(history.produce, index),
            partial(history.produce, index),
            partial(history.leader_alters_isr, index, []),
            partial(history.leader_alters_isr, index, [broker_id]),
            partial(history.elections, rng.random() < 0.1),
            partial(history.reassign, index, rng.sample(IDS, rng.randrange(1, 4))),
        ]
        rng.choice(actions)()
        history.fenced_brokers_lead_nothing()
        history.no_leader_is_in_a_failed_directory()
        history.a_snapshot_restores_the_image()
        history.a_replica_that_can_lead_leads()


@pytest.mark.parametrize("seed", range(60))
def test_random_histories(seed: int) -> None:
    walk(seed, elr=seed % 5 > 0)


def ignore_offline_dirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_directories, "newly_failed_directories", lambda *_: [])


def lost_as_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty log replaces a lost one without a report."""
    monkeypatch.setattr(sys.modules[__name__], "place_of", lambda registered, online, **_: Place.ANYWHERE)


def lead_from_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MetadataImage, "is_replica_online", lambda *_: True)


@pytest.mark.parametrize("mutate", [ignore_offline_dirs, lost_as_found, lead_from_anywhere])
def test_a_bug_is_noticed(mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    with pytest.raises((AssertionError, InvariantViolation)):
        for seed in range(200):
            walk(seed)
