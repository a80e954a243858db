"""Makes the replicas of this broker, with their logs and settings, and removes them."""

from __future__ import annotations

import logging
from uuid import UUID

from ...controller.configs.effective_configs import dynamic_overrides, resolve
from ...controller.metadata.metadata_records import LOST
from ...log.config import LogConfig
from ...log.errors import NoSpaceError, StorageError
from ...log.manager.log_manager import LogManager
from ...log.partition_log import PartitionLog
from ...log.topic_configs import MIN_ISR_KEY
from ...runtime.invariants import sometimes
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.types import TopicPartition
from ..directories.directory_assignments import DirectoryAssignments, Place, may_have_records, place_of
from ..follower.fetcher_manager import FetcherManager
from ..hosted_partitions import BrokersOfPartition, HostedPartitions
from ..leader.leader_state import LeaderConfig
from ..partition import Partition
from ..ports import ReplicaManagerConfig
from ..purgatory.delayed_operations import DelayedOperations
from ..replica import Replica
from ..storage_errors import StorageErrors

_logger = logging.getLogger(__name__)


class LocalReplicas:
    """Fills `hosted.replicas`. Where a replica is in another directory than the metadata says, `assignments` tell."""

    def __init__(
        self,
        config: ReplicaManagerConfig,
        hosted: HostedPartitions,
        logs: LogManager,
        fetchers: FetcherManager,
        assignments: DirectoryAssignments,
        operations: DelayedOperations,
        errors: StorageErrors,
    ) -> None:
        self._config = config
        self._hosted = hosted
        self._logs = logs
        self._fetchers = fetchers
        self._assignments = assignments
        self._operations = operations
        self._errors = errors
        self._suspended: dict[Replica, UUID] = {}
        """Replicas that shall be in no ISR, and the id that stands for a directory that does not work."""

    # ---------------------------------------------------------------- replicas

    def get_or_create(self, topic_partition: TopicPartition, topic_id: UUID, registered: UUID) -> Replica | None:
        """The replica with this topic id; None when its log cannot be used, or not yet.

        `registered` is the id of its directory by the metadata; where that is wrong, the controller is told.
        """
        replica = self._hosted.replicas.get(topic_partition)
        if replica is not None and replica.topic_id != topic_id:
            sometimes(True, "a broker heard at once that a topic was deleted and created again")
            self.remove(topic_partition, replica.topic_id)
            replica = None
        if replica is None:
            replica = self._create(topic_partition, topic_id, registered)
        if replica is not None:
            self._tell_directory(replica, registered)
        return replica

    def set_suspended(self, replica: Replica, stand_in: UUID | None) -> None:
        """Keep the replica out of the ISR: `stand_in` is told as its directory. None: tell where it really is."""
        if stand_in is None:
            self._suspended.pop(replica, None)
        else:
            self._suspended[replica] = stand_in
        registration = self._hosted.registration(replica.topic_partition)
        if registration is not None and self._hosted.replicas.get(replica.topic_partition) is replica:
            self._tell_directory(replica, registration.directory_of(self._hosted.local_id))

    def _tell_directory(self, replica: Replica, registered: UUID) -> None:
        topic_partition = replica.topic_partition
        actual = self._suspended.get(replica) or self._logs.directories.id_of(topic_partition)
        if actual is not None:
            self._assignments.note((replica.topic_id, topic_partition.partition), registered, actual)

    def remove(self, topic_partition: TopicPartition, topic_id: UUID) -> None:
        """Delete the replica and its log: the topic is deleted, or the replica has moved to another broker.

        The log is there without a replica while a starting broker has not taken up that role yet.
        """
        for waiting in (self._hosted.unusable, self._hosted.without_space):
            if waiting.get(topic_partition) == topic_id:  # else it is of a later topic of that name
                del waiting[topic_partition]
        self._assignments.forget((topic_id, topic_partition.partition))
        replica, log = self._hosted.replicas.get(topic_partition), self._logs.get(topic_partition)
        if replica is not None and replica.topic_id == topic_id:
            self._end_role(replica)
        elif replica is not None or log is None or log.topic_id not in (None, topic_id):
            return
        sometimes(replica is None, "a log was deleted before its replica had taken up its role")
        try:
            self._logs.delete(topic_partition)
        except (ProtocolError, OSError) as error:
            _logger.error("%s cannot be removed: %s", topic_partition, error)

    def _end_role(self, replica: Replica) -> None:
        topic_partition = replica.topic_partition
        self._fetchers.remove(replica)
        del self._hosted.replicas[topic_partition]
        is_deleted = self._hosted.registration(topic_partition) is None
        self._operations.on_role_lost(
            replica, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_deleted else ErrorCode.NOT_LEADER_OR_FOLLOWER
        )
        replica.partition.watermark.forget_listener()

    def take_offline(self, replica: Replica, error: StorageError) -> None:
        """The replica's log failed while it took up its role."""
        self._errors.take_offline(replica, error)

    def on_moved(self, replica: Replica, actual: UUID) -> None:
        """The replica's log is now in the directory `actual`: tell the controller."""
        registration = self._hosted.registration(replica.topic_partition)
        if registration is not None:
            registered = registration.directory_of(self._hosted.local_id)
            self._assignments.note((replica.topic_id, replica.topic_partition.partition), registered, actual)

    def _create(self, topic_partition: TopicPartition, topic_id: UUID, registered: UUID) -> Replica | None:
        hosted = self._hosted
        try:
            log = self._log_for(topic_partition, topic_id, registered)
            if log is None:
                hosted.unusable[topic_partition] = topic_id
                return None
        except NoSpaceError as error:
            sometimes(True, "a new replica waited for space on the disk")
            if topic_partition not in hosted.without_space:
                _logger.error("%s waits for space on the disk: %s", topic_partition, error)
            hosted.without_space[topic_partition] = topic_id
            self._errors.on_no_space(topic_partition, error)
            return None
        except (ProtocolError, OSError) as error:
            _logger.error("%s cannot be used: %s", topic_partition, error)
            hosted.unusable[topic_partition] = topic_id
            self._errors.report(topic_partition, error)
            return None
        hosted.unusable.pop(topic_partition, None)
        hosted.without_space.pop(topic_partition, None)
        checkpoint = self._logs.directories.high_watermarks.get(topic_partition, 0)
        high_watermark = max(min(checkpoint, log.log_end_offset), log.log_start_offset)
        partition = Partition(
            topic_partition,
            self.leader_config(topic_partition.topic),
            BrokersOfPartition(hosted, topic_partition),
            high_watermark,
        )
        refused = hosted.refused_before.take(topic_partition)
        replica = Replica(topic_id, partition, log, self._operations.on_high_watermark, refused)
        hosted.replicas[topic_partition] = replica
        return replica

    def _log_for(self, topic_partition: TopicPartition, topic_id: UUID, registered: UUID) -> PartitionLog | None:
        """The log, opened or created; None when it is lost and the controller has to know first. `ProtocolError`."""
        log = self._logs.get(topic_partition)
        if log is not None and log.topic_id is not None and log.topic_id != topic_id:
            sometimes(True, "a log of a former topic of the same name was set aside")
            self._logs.set_aside(topic_partition, f"has topic id {log.topic_id}, not {topic_id}")
            log = None
        config = self.log_config(topic_partition.topic)
        if log is None:
            is_displaced = self._logs.is_displaced(topic_partition, topic_id)
            online = () if is_displaced else self._logs.directories.online_ids
            some_failed = self._logs.directories.has_failed and not is_displaced
            registration = self._hosted.registration(topic_partition)
            has_records = registration is not None and may_have_records(registration, self._hosted.local_id)
            place = place_of(registered, online, some_failed=some_failed, has_records=has_records)
            if place is Place.OFFLINE:
                raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, "its log directory has failed")
            if place is Place.NOWHERE_YET:
                sometimes(True, "a log was missing, and was created only when the controller knew")
                reason = (
                    "is gone, or of another topic" if is_displaced else "was in a log directory that does not exist now"
                )
                _logger.warning("the log of %s %s; it is created when the controller knows", topic_partition, reason)
                self._assignments.note((topic_id, topic_partition.partition), registered, LOST)
                return None
            return self._logs.create(topic_partition, topic_id, config, registered)
        log.config = config
        if log.topic_id is None:
            log.set_topic_id(topic_id, durably=False)
        return log

    # ---------------------------------------------------------------- settings

    def leader_config(self, topic: str) -> LeaderConfig:
        """The settings for leaders of the topic's partitions, by the present metadata."""
        static, local_id = {MIN_ISR_KEY: str(self._config.default_min_isr)}, self._hosted.local_id
        value, _ = resolve(self._hosted.image, topic, MIN_ISR_KEY, static, broker_id=local_id)
        return LeaderConfig(
            local_id=local_id,
            min_isr=int(value),
            lag_time_max_ms=self._config.replica_lag_time_max_ms,
        )

    def log_config(self, topic: str) -> LogConfig:
        """The settings for the logs of the topic's partitions, by the present metadata."""
        overrides = dynamic_overrides(self._hosted.image, topic, self._hosted.local_id)
        default = self._config.default_log_config
        return default.with_overrides(overrides) if overrides else default
