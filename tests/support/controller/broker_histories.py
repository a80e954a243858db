"""Random histories of brokers and partitions, checked against the invariants and the promise of KIP-966.

The model keeps the records that each broker's log may have, for each partition. A leader commits while its ISR is large
enough. All members of the ISR, and below the minimum all eligible replicas, have the committed records. An unclean
restart loses the records of its broker. No clean election may choose a leader that lacks a committed record.
"""

from __future__ import annotations

import random
from itertools import chain
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.controller.controller_harness import CLUSTER_ID, decided, decoded, restore_image

from raftwerk.controller.brokers import broker_fencing, broker_heartbeat, broker_registration
from raftwerk.controller.brokers.broker_sessions import BrokerSessions
from raftwerk.controller.metadata.metadata_image import MetadataDelta, MetadataImage, PartitionRegistration
from raftwerk.controller.metadata.metadata_records import (
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    FeatureLevelRecord,
    PartitionChangeRecord,
    Record,
    decode_record,
    encode_record,
)
from raftwerk.controller.metadata.metadata_snapshot import snapshot_batches
from raftwerk.controller.partitions.alter_partition import alter_partition
from raftwerk.controller.partitions.leader_election import elect_leaders, preferred_leaders
from raftwerk.controller.partitions.reassignment import alter_partition_reassignments
from raftwerk.controller.result import ControllerResult
from raftwerk.controller.settings import ControllerSettings
from raftwerk.controller.topics.create_topics import create_topics
from raftwerk.controller.topics.new_partitions import TopicContext
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ProtocolError

IDS = (1, 2, 3)
BROKERS = st.sampled_from(IDS)
PARTITIONS = st.integers(0, 1)


class BrokerHistories(RuleBasedStateMachine):
    """Rules for a history, and the invariants that hold after each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = ControllerSettings(1, topic_defaults={"min.insync.replicas": "2"})
        self.sessions = BrokerSessions(9_000)
        self.image = MetadataImage(CLUSTER_ID)
        self.mirror = MetadataImage(CLUSTER_ID)
        self.incarnations = dict.fromkeys(IDS, 0)
        self.up = dict.fromkeys(IDS, False)
        self.clean_epoch = dict.fromkeys(IDS, -1)
        # log[partition][broker]: number of records; committed[partition]: number of acknowledged records.
        self.log: dict[int, dict[int, int]] = {}
        self.committed: dict[int, int] = {}

    def registered_dirs(self, broker_id: int) -> list[UUID]:
        return []

    def apply(self, records: list[Record]) -> None:
        base = self.image.offset + 1
        for offset, record in enumerate(records, start=base):
            before = self.partition_of(record)
            self.image.replay(record, offset, MetadataDelta())
            self.mirror.replay(decode_record(encode_record(record, 1)), offset, MetadataDelta())
            if isinstance(record, PartitionChangeRecord) and before is not None:
                self.on_change(before, record)
        assert self.image == self.mirror

    def partition_of(self, record: Record) -> PartitionRegistration | None:
        if not isinstance(record, PartitionChangeRecord):
            return None
        return self.image.partition(record.topic_id, record.partition)

    def on_change(self, before: PartitionRegistration, record: PartitionChangeRecord) -> None:
        after = self.image.partition(record.topic_id, record.partition)
        assert after is not None
        index = record.partition
        for broker_id in IDS:
            if broker_id not in after.replicas:
                self.log[index][broker_id] = 0  # what it held is deleted
        if record.leader is None or after.leader == NO_LEADER:
            return
        # The change that takes the last added replica into the ISR may complete a reassignment and move the leader.
        ends = record.replicas is not None and after.leader_recovery_state != RECOVERING
        if after.leader not in (*before.isr, *before.elr) and not ends:
            # The last known leader or an unclean one: the records that it lacks are lost.
            assert after.isr == (after.leader,) and after.leader_recovery_state == RECOVERING
            self.committed[index] = min(self.committed[index], self.log[index][after.leader])
        assert self.log[index][after.leader] >= self.committed[index], "a clean leader holds all that is committed"

    @property
    def topic(self) -> Any:
        return self.image.topics_by_name["t"]

    @initialize(elr=st.booleans())
    def start(self, elr: bool) -> None:
        self.elr = elr
        self.apply([FeatureLevelRecord("metadata.version", 29)])
        if elr:
            self.apply([FeatureLevelRecord("eligible.leader.replicas.version", 1)])
        for broker_id in IDS:
            self.restart(broker_id)
            self.heartbeat(broker_id, False)
        context = TopicContext(self.image, self.settings, random.Random(1))
        row = {"name": "t", "num_partitions": 2, "replication_factor": 3, "assignments": [], "configs": []}
        self.apply(decided(create_topics(context, decoded(ApiKey.CREATE_TOPICS, topics=[row]))).records)
        for index, partition in self.topic.partitions.items():
            self.log[index] = dict.fromkeys(partition.replicas, 0)
            self.committed[index] = 0

    @rule(broker_id=BROKERS)
    def restart(self, broker_id: int) -> None:
        """A new process registers. Unless the last one stopped cleanly, it may have lost all of its records."""
        if self.up[broker_id]:
            return
        clean = self.clean_epoch[broker_id] != -1
        self.incarnations[broker_id] += 1
        listener = {"name": "PLAINTEXT", "host": f"b{broker_id}", "port": 1, "security_protocol": 0}
        request = decoded(
            ApiKey.BROKER_REGISTRATION,
            broker_id=broker_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=UUID(int=broker_id * 1000 + self.incarnations[broker_id]),
            listeners=[listener],
            features=[],
            rack=None,
            log_dirs=self.registered_dirs(broker_id),
            previous_broker_epoch=self.clean_epoch[broker_id],
        )
        self.sessions.end(broker_id)
        decision = broker_registration.register_broker(self.image, self.settings, self.sessions, request, 0)
        self.apply(decided(decision).records)
        self.up[broker_id] = True
        self.clean_epoch[broker_id] = -1
        if not clean and self.elr:
            for held in self.log.values():
                if broker_id in held:
                    held[broker_id] = 0

    @rule(broker_id=BROKERS, want_shut_down=st.booleans())
    def heartbeat(self, broker_id: int, want_shut_down: bool) -> None:
        if not self.up[broker_id]:
            return
        request = decoded(
            ApiKey.BROKER_HEARTBEAT,
            broker_id=broker_id,
            broker_epoch=self.image.brokers[broker_id].epoch,
            current_metadata_offset=self.image.offset,
            want_fence=False,
            want_shut_down=want_shut_down,
        )
        result = decided(broker_heartbeat.broker_heartbeat(self.image, self.settings, self.sessions, request, 0))
        self.apply(result.records)
        if result.response["should_shut_down"]:
            self.up[broker_id] = False
            self.clean_epoch[broker_id] = self.image.brokers[broker_id].epoch

    @rule(broker_id=BROKERS)
    def kill(self, broker_id: int) -> None:
        self.up[broker_id] = False

    @rule(broker_id=BROKERS)
    def kill_and_notice(self, broker_id: int) -> None:
        self.kill(broker_id)
        self.session_ends(broker_id)

    @rule(broker_id=BROKERS)
    def restart_and_catch_up(self, broker_id: int) -> None:
        self.restart(broker_id)
        self.heartbeat(broker_id, False)

    @rule(broker_id=BROKERS)
    def session_ends(self, broker_id: int) -> None:
        broker = self.image.brokers.get(broker_id)
        if broker is not None:
            decision = broker_fencing.fence_broker(self.image, self.settings, broker, self.sessions.departures)
            self.apply(decided(decision).records)
        assert not any(
            broker_id == partition.leader or (self.elr and broker_id in partition.isr)
            for partition in self.topic.partitions.values()
        )

    @precondition(lambda self: self.log)
    @rule(index=PARTITIONS)
    def produce(self, index: int) -> None:
        """The leader appends a record, and the rest of the ISR fetches it. A large enough ISR commits it."""
        partition = self.topic.partitions[index]
        if partition.leader == NO_LEADER or not self.up[partition.leader]:
            return
        held = self.log[index]
        top = held[partition.leader] + 1
        if all(self.up[broker_id] for broker_id in partition.isr):
            for broker_id in partition.isr:
                held[broker_id] = top
            if len(partition.isr) >= min(2, len(partition.replicas)):
                self.committed[index] = top
        else:
            held[partition.leader] = top

    @precondition(lambda self: self.log)
    @rule(index=PARTITIONS, chosen=st.lists(BROKERS, max_size=3), stale=st.sampled_from([0, 0, 0, -1, 1]))
    def leader_alters_isr(self, index: int, chosen: list[int], stale: int = 0) -> None:
        """The leader proposes an ISR of replicas that have all of its records. Stale epochs change nothing."""
        partition = self.topic.partitions[index]
        if partition.leader == NO_LEADER or not self.up[partition.leader]:
            return
        others = [r for r in partition.replicas if r != partition.leader and self.up[r] and r not in chosen]
        members = [partition.leader, *others]
        result = self.alter(index, partition, members, stale)
        row = result.response["topics"][0]["partitions"][0]
        if stale:
            assert row["error_code"] != 0 and not result.records
            return
        if row["error_code"] == 0 or result.records:
            for broker_id in members:
                self.log[index][broker_id] = self.log[index][partition.leader]
        self.apply(result.records)

    def alter(self, index: int, partition: PartitionRegistration, members: list[int], stale: int) -> ControllerResult:
        row = {
            "partition_index": index,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch + stale,
            "new_isr_with_epochs": [{"broker_id": b, "broker_epoch": self.image.brokers[b].epoch} for b in members],
            "leader_recovery_state": RECOVERED,
        }
        epoch = self.image.brokers[partition.leader].epoch
        topic = {"topic_id": self.topic.topic_id, "partitions": [row]}
        request = decoded(ApiKey.ALTER_PARTITION, broker_id=partition.leader, broker_epoch=epoch, topics=[topic])
        return decided(alter_partition(self.image, self.settings, request))

    @precondition(lambda self: self.log)
    @rule(index=PARTITIONS, replicas=st.lists(BROKERS, min_size=1, max_size=3, unique=True))
    def reassign(self, index: int, replicas: list[int] | None) -> None:
        """Reassign the partition; None cancels a reassignment."""
        partition = {"partition_index": index, "replicas": replicas}
        request = decoded(ApiKey.ALTER_PARTITION_REASSIGNMENTS, topics=[{"name": "t", "partitions": [partition]}])
        self.apply(decided(alter_partition_reassignments(self.image, self.settings, request)).records)

    @precondition(lambda self: self.log)
    @rule(index=PARTITIONS)
    def cancel(self, index: int) -> None:
        self.reassign(index, None)

    @precondition(lambda self: self.log)
    @rule(unclean=st.sampled_from([False, False, True]))
    def elections(self, unclean: bool) -> None:
        self.apply(decided(preferred_leaders(self.image, self.settings)).records)
        if unclean:
            request = decoded(ApiKey.ELECT_LEADERS, election_type=1, topic_partitions=None)
            self.apply(decided(elect_leaders(self.image, self.settings, request)).records)

    @precondition(lambda self: self.log)
    @rule(broker_id=BROKERS)
    def forget(self, broker_id: int) -> None:
        if not self.up[broker_id] and broker_id in self.image.brokers and self.clean_epoch[broker_id] == -1:
            decision = broker_registration.unregister_broker(self.image, self.settings, broker_id)
            self.apply(decided(decision).records)

    @rule(broker_id=BROKERS)
    def stale_heartbeat(self, broker_id: int) -> None:
        request = decoded(ApiKey.BROKER_HEARTBEAT, broker_id=broker_id, broker_epoch=-7, current_metadata_offset=0)
        try:
            decided(broker_heartbeat.broker_heartbeat(self.image, self.settings, self.sessions, request, 0))
        except ProtocolError:
            return
        raise AssertionError("a stale epoch is refused")

    @invariant()
    def fenced_brokers_lead_nothing(self) -> None:
        for topic in self.image.topics_by_id.values():
            for partition in topic.partitions.values():
                if partition.leader != NO_LEADER:
                    assert self.image.is_active(partition.leader)
                if self.elr:
                    assert all(self.image.is_active(broker_id) for broker_id in partition.isr)

    @invariant()
    def reassignments_end_when_they_can(self) -> None:
        for topic in self.image.topics_by_id.values():
            for partition in topic.partitions.values():
                adding, removing = partition.adding_replicas, partition.removing_replicas
                assert not set(adding) & set(removing) and {*adding, *removing} <= set(partition.replicas)
                staying = [replica for replica in partition.isr if replica not in removing]
                if (adding or removing) and set(adding) <= set(staying):
                    left = len(partition.replicas) - len(removing)
                    assert len(staying) < min(2, left) or not staying

    @invariant()
    def a_snapshot_restores_the_image(self) -> None:
        image = self.image
        assert (
            restore_image(
                image.cluster_id,
                map(decode_record, chain.from_iterable(snapshot_batches(image))),
                image.offset,
                image.epoch,
            )
            == image
        )

    @invariant()
    def a_replica_that_can_lead_leads(self) -> None:
        for topic in self.image.topics_by_id.values():
            for partition in topic.partitions.values():
                if partition.leader == NO_LEADER:
                    assert not any(self.image.may_lead(partition, b) for b in (*partition.isr, *partition.elr))
