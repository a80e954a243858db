"""The replicas that this broker hosts, and the metadata image that it acts on."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from ..controller.metadata.metadata_image import MetadataImage, PartitionRegistration
from ..runtime.invariants import sometimes
from ..wire.errors import ErrorCode, ProtocolError
from ..wire.types import LeaderIdAndEpoch, TopicPartition
from .leader.refused_batches import RefusedBeforeLeadership
from .replica import Replica


class BrokersOfPartition:
    """One partition's view of brokers (`leader_state.BrokerView`)."""

    __slots__ = ("_directory", "_topic_partition")

    def __init__(self, directory: HostedPartitions, topic_partition: TopicPartition) -> None:
        self._directory = directory
        self._topic_partition = topic_partition

    def broker_epoch(self, broker_id: int) -> int | None:
        """See `BrokerView`. A fenced registration counts: all earlier incarnations of that broker have ended."""
        directory = self._directory
        if broker_id == directory.local_id:
            return directory.local_epoch()
        broker = directory.image.brokers.get(broker_id)
        return None if broker is None else broker.epoch

    def is_isr_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """See `BrokerView`."""
        image = self._directory.image
        broker = image.brokers.get(broker_id)
        if broker is None or not broker.active or broker_epoch not in (-1, broker.epoch):
            return False
        registration = self._directory.registration(self._topic_partition)
        return registration is None or image.is_replica_online(broker_id, registration)


class HostedPartitions:
    """Replicas by partition. `local_epoch` gives the epoch of this broker."""

    def __init__(self, local_id: int, local_epoch: Callable[[], int]) -> None:
        self.local_id = local_id
        self.local_epoch = local_epoch
        self.image = MetadataImage()
        self.replicas: dict[TopicPartition, Replica] = {}
        self.unusable: dict[TopicPartition, UUID] = {}
        """Partitions of this broker whose log could not be created or opened, and their topic ids."""
        self.without_space: dict[TopicPartition, UUID] = {}
        """Those whose log could not be created since the disk was full; it is tried again when there is space."""
        self.refused_before = RefusedBeforeLeadership()

    def find(self, topic_partition: TopicPartition) -> Replica:
        """The replica. Raises `ProtocolError` with the reason why there is none here.

        The replica of a deleted topic is there until its turn to be removed comes. It is not that of a topic that was
        created with the same name meanwhile.
        """
        replica = self.replicas.get(topic_partition)
        if replica is not None:
            if self._is_of_former_topic(replica):
                sometimes(
                    True, "a client asked for a topic that was created again, and its former replica was still there"
                )
                raise ProtocolError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the replica of {topic_partition} is a former one"
                )
            return replica
        if topic_partition in self.without_space:
            raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic_partition} waits for space")
        if topic_partition in self.unusable:
            raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic_partition} cannot be used")
        if self.registration(topic_partition) is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {topic_partition}")
        raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"no replica of {topic_partition} is here")

    def note_refused(self, topic_partition: TopicPartition, records: memoryview, now_ms: int) -> None:
        """A producer's batches are refused: remember them if this broker shall lead, and has no replica yet."""
        replica = self.replicas.get(topic_partition)
        if replica is None or self._is_of_former_topic(replica):
            registration = self.registration(topic_partition)
            if registration is not None and registration.leader == self.local_id:
                self.refused_before.note(topic_partition, records, now_ms)

    def _is_of_former_topic(self, replica: Replica) -> bool:
        topic = self.image.topics_by_name.get(replica.topic_partition.topic)
        return topic is not None and topic.topic_id != replica.topic_id

    def registration(self, topic_partition: TopicPartition) -> PartitionRegistration | None:
        """What the metadata says about the partition; None when it does not exist."""
        topic = self.image.topics_by_name.get(topic_partition.topic)
        return None if topic is None else topic.partitions.get(topic_partition.partition)

    def elr_of(self, topic_partition: TopicPartition) -> tuple[int, ...]:
        """The eligible leader replicas of the partition by the metadata (KIP-966)."""
        registration = self.registration(topic_partition)
        return () if registration is None else registration.elr

    def leader_hint(self, topic_partition: TopicPartition, error_code: int) -> LeaderIdAndEpoch | None:
        """The leader by the metadata, for the errors whose answer names it (KIP-951); None for other errors."""
        if error_code not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            return None
        registration = self.registration(topic_partition)
        if registration is None:
            return None
        return LeaderIdAndEpoch(registration.leader, registration.leader_epoch)
