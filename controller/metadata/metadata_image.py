"""The metadata image: the state of the cluster after all metadata records up to an offset.

Every node replays the committed records into an image (`metadata_loader.py`). The active controller has a second image,
into which it replays the records of its own decisions ahead of their commit (`quorum_controller.py`). `replay` is
deterministic: the state depends on records and their offsets, and on nothing else.

Registrations and partitions are immutable, the dicts that hold them are not. `copy` shares the partitions of a topic
until one of the two images changes that topic, so a copy costs one dict entry for each topic.

These invariants are checked wherever a record could break them, and a broken one stops the node: ISR and ELR are
disjoint subsets of the replicas; the leader is in the ISR; no fenced broker and no replica in a failed directory enters
an ISR; epochs only grow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from ...runtime.invariants import InvariantViolation, invariant
from ...security.authorizer.acl_binding import AclBinding
from ...security.delegation_token import DelegationToken
from ...security.sasl.scram_credential import ScramCredential
from .metadata_records import (
    LOST,
    MIGRATING,
    NO_LEADER,
    PLAIN_RECORDS,
    RECOVERED,
    UNASSIGNED,
    AccessControlEntryRecord,
    BrokerChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    Endpoint,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)

QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""(type, name) of `user`, `client-id` or `ip`, in the order of the types; a name of None is the default."""

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
BROKER_LOGGER_RESOURCE = 8
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32
ELR_FEATURE = "eligible.leader.replicas.version"
METADATA_VERSION_FEATURE = "metadata.version"
RECORD_VERSION_FEATURE = "raftwerk.record.version"
TRANSACTION_VERSION_FEATURE = "transaction.version"

T = TypeVar("T")


def required(value: T | None, what_must_hold: str) -> T:
    """`value`, which must not be None; a broken invariant if it is."""
    if value is None:
        raise InvariantViolation(what_must_hold)
    return value


class BrokerRegistration(NamedTuple):
    """One incarnation of a broker. `epoch` is the offset of its registration record."""

    broker_id: int
    incarnation_id: UUID
    epoch: int
    listeners: tuple[Endpoint, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[UUID, ...]
    features: tuple[tuple[str, int, int], ...] = ()

    @property
    def active(self) -> bool:
        """Whether the broker may lead partitions and be in ISRs."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """The address of the listener of that name, or None."""
        return next((endpoint for endpoint in self.listeners if endpoint.name == listener_name), None)


class ControllerRegistration(NamedTuple):
    """A controller's listeners and supported features."""

    controller_id: int
    incarnation_id: UUID
    listeners: tuple[Endpoint, ...]
    features: tuple[tuple[str, int, int], ...]


class PartitionRegistration(NamedTuple):
    """The state of a partition. `replicas` are in the order of preference for leadership.

    `directories` are the log directories of the replicas, in the same order; empty when none is known.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: int = RECOVERED
    directories: tuple[UUID, ...] = ()

    @property
    def preferred_leader(self) -> int:
        """The first replica, which leads when it can."""
        return self.replicas[0]

    def directory_of(self, broker_id: int) -> UUID:
        """The log directory of the broker's replica: an id, or one of the reserved ids (KIP-858)."""
        if not self.directories:
            return MIGRATING
        return self.directories[self.replicas.index(broker_id)] if broker_id in self.replicas else UNASSIGNED

    def merge(self, change: PartitionChangeRecord) -> PartitionRegistration:
        """The partition after `change`. Its partition epoch grows, and its leader epoch if the change has a leader."""
        return PartitionRegistration(
            replicas=self.replicas if change.replicas is None else change.replicas,
            isr=self.isr if change.isr is None else change.isr,
            elr=self.elr if change.elr is None else change.elr,
            last_known_elr=self.last_known_elr if change.last_known_elr is None else change.last_known_elr,
            adding_replicas=self.adding_replicas if change.adding_replicas is None else change.adding_replicas,
            removing_replicas=self.removing_replicas if change.removing_replicas is None else change.removing_replicas,
            leader=self.leader if change.leader is None else change.leader,
            leader_epoch=self.leader_epoch if change.leader is None else self.leader_epoch + 1,
            partition_epoch=self.partition_epoch + 1,
            leader_recovery_state=(
                self.leader_recovery_state if change.leader_recovery_state is None else change.leader_recovery_state
            ),
            directories=self._directories_after(change),
        )

    def _directories_after(self, change: PartitionChangeRecord) -> tuple[UUID, ...]:
        if change.directories is not None:
            return change.directories
        if change.replicas is None or not self.directories:
            return self.directories
        return tuple(self.directory_of(replica) for replica in change.replicas)


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic; `partitions` are by index, in ascending order."""

    name: str
    topic_id: UUID
    partitions: dict[int, PartitionRegistration]


@dataclass(slots=True)
class MetadataDelta:
    """What some records changed. The dicts are ordered sets of keys; the image has the new state."""

    changed_partitions: dict[tuple[UUID, int], None] = field(default_factory=dict)
    created_topics: dict[UUID, None] = field(default_factory=dict)
    deleted_topics: dict[UUID, TopicImage] = field(default_factory=dict)
    changed_brokers: dict[int, None] = field(default_factory=dict)
    changed_configs: dict[tuple[int, str], None] = field(default_factory=dict)
    changed_controllers: dict[int, None] = field(default_factory=dict)
    changed_features: dict[str, None] = field(default_factory=dict)
    changed_credentials: dict[tuple[int, str], None] = field(default_factory=dict)
    changed_acls: dict[UUID, None] = field(default_factory=dict)
    changed_quotas: dict[QuotaEntity, None] = field(default_factory=dict)
    changed_tokens: dict[str, None] = field(default_factory=dict)

    @property
    def moves_leadership(self) -> bool:
        """Whether a partition may now have no leader or not its preferred one: partitions or brokers changed."""
        return bool(self.changed_partitions or self.changed_brokers)


def metric_name(topic: str) -> str:
    """The topic's name as metrics have it."""
    return topic.replace(".", "_")


class MetadataImage:
    """The state after the record at `offset`."""

    def __init__(self, cluster_id: str = "") -> None:
        self.cluster_id = cluster_id
        self.offset = -1
        self.epoch = 0
        self.brokers: dict[int, BrokerRegistration] = {}
        self.controllers: dict[int, ControllerRegistration] = {}
        self.topics_by_id: dict[UUID, TopicImage] = {}
        self.topics_by_name: dict[str, TopicImage] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.scram_credentials: dict[tuple[int, str], ScramCredential] = {}
        """By the number of the mechanism and the name of the user."""
        self.acls: dict[UUID, AclBinding] = {}
        self._times_of_acls: Counter[AclBinding] = Counter()
        self.client_quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.delegation_tokens: dict[str, DelegationToken] = {}
        """By the id of the token."""
        self.next_producer_id = 0
        self._topics_by_metric_name: dict[str, str] = {}
        # Topics whose dict of partitions no copy shares. The dicts of other topics are copied before they change.
        self._owned: set[UUID] = set()

    def copy(self) -> MetadataImage:
        """An independent image in time proportional to the number of topics."""
        copy = MetadataImage(self.cluster_id)
        copy.offset, copy.epoch, copy.next_producer_id = self.offset, self.epoch, self.next_producer_id
        copy.brokers, copy.controllers = self.brokers.copy(), self.controllers.copy()
        copy.topics_by_id, copy.topics_by_name = self.topics_by_id.copy(), self.topics_by_name.copy()
        copy.configs, copy.features = self.configs.copy(), self.features.copy()
        copy.scram_credentials, copy.acls = self.scram_credentials.copy(), self.acls.copy()
        copy.client_quotas = self.client_quotas.copy()
        copy.delegation_tokens = self.delegation_tokens.copy()
        copy._times_of_acls = self._times_of_acls.copy()
        copy._topics_by_metric_name = self._topics_by_metric_name.copy()
        self._owned.clear()
        return copy

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MetadataImage):
            return NotImplemented
        return self._state() == other._state()

    __hash__ = None  # type: ignore[assignment]

    def _state(self) -> tuple[Any, ...]:
        return (
            (self.cluster_id, self.offset, self.epoch, self.next_producer_id),
            (self.brokers, self.controllers, self.topics_by_id, self.topics_by_name, self.configs, self.features),
            (self.scram_credentials, self.acls, self.client_quotas, self.delegation_tokens),
        )

    def partition(self, topic_id: UUID, partition: int) -> PartitionRegistration | None:
        """The partition, or None when there is no such topic or partition."""
        topic = self.topics_by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(partition)

    def has_acl(self, binding: AclBinding) -> bool:
        """Whether there is an access control entry that is equal to this one."""
        return binding in self._times_of_acls

    def topic_with_metric_name_of(self, name: str) -> str | None:
        """A topic whose name is the same as `name` in metrics, where '.' is written as '_'."""
        return self._topics_by_metric_name.get(metric_name(name))

    def all_partitions(self) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
        """Every partition with its topic and index, in the order in which the topics were created."""
        for topic in self.topics_by_id.values():
            for index, partition in topic.partitions.items():
                yield topic, index, partition

    def is_active(self, broker_id: int) -> bool:
        """Whether the broker is registered, unfenced and not in controlled shutdown."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown

    def is_replica_online(self, broker_id: int, partition: PartitionRegistration) -> bool:
        """Whether the log directory of the broker's replica is not known to have failed.

        An unknown directory counts as online, and so does every directory of a broker that registered none.
        """
        broker = self.brokers.get(broker_id)
        if broker is None:
            return False
        directory = partition.directory_of(broker_id)
        if directory in (MIGRATING, UNASSIGNED):
            return True
        return directory != LOST and (not broker.log_dirs or directory in broker.log_dirs)

    def may_lead(self, partition: PartitionRegistration, broker_id: int) -> bool:
        """Whether the broker may lead the partition and be in its ISR: it is active, and its replica is online."""
        return self.is_active(broker_id) and self.is_replica_online(broker_id, partition)

    @property
    def elr_enabled(self) -> bool:
        """Whether eligible leader replicas (KIP-966) are finalized."""
        return self.features.get(ELR_FEATURE, 0) >= 1

    @property
    def record_level(self) -> int:
        """The finalized level of `raftwerk.record.version` (see `metadata_records.py`)."""
        return self.features.get(RECORD_VERSION_FEATURE, PLAIN_RECORDS)

    def advance(self, offset: int, epoch: int) -> None:
        """Move to `offset`, written in `epoch`, also past batches without data records."""
        invariant(offset >= self.offset and epoch >= self.epoch, "the metadata image only moves forward")
        self.offset = offset
        self.epoch = epoch

    def replay(self, record: Record, offset: int, delta: MetadataDelta) -> None:
        """Apply the record at `offset`, and note in `delta` what it changed."""
        invariant(offset > self.offset, "metadata records are replayed once, in offset order")
        _REPLAY[record.TYPE](self, record, offset, delta)
        self.offset = offset

    def restore(self, record: Record) -> None:
        """Apply a record of a snapshot. It describes a state, so it is not checked against an earlier state."""
        if isinstance(record, PartitionRecord):
            self._check_partition(self._add_partition(record), record.isr)
        else:
            _REPLAY[record.TYPE](self, record, 0, MetadataDelta())

    def take_over(self, other: MetadataImage) -> None:
        """Take the whole state of `other`, which must not be used any more. References to this image stay valid."""
        for name, value in vars(other).items():
            setattr(self, name, value)

    # -- one method a record type -----------------------------------------------------------------------------------

    def _replay_register_broker(self, record: RegisterBrokerRecord, offset: int, delta: MetadataDelta) -> None:
        known = self.brokers.get(record.broker_id)
        invariant(known is None or known.epoch < offset, "broker epochs grow")
        self.brokers[record.broker_id] = BrokerRegistration(
            broker_id=record.broker_id,
            incarnation_id=record.incarnation_id,
            epoch=offset if record.epoch is None else record.epoch,
            listeners=record.listeners,
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=record.log_dirs,
            features=record.features,
        )
        delta.changed_brokers[record.broker_id] = None

    def _replay_unregister_broker(self, record: UnregisterBrokerRecord, offset: int, delta: MetadataDelta) -> None:
        gone = required(self.brokers.pop(record.broker_id, None), "only a known broker is unregistered")
        invariant(gone.epoch == record.broker_epoch, "the registration taken back is the live one")
        delta.changed_brokers[record.broker_id] = None

    def _replay_broker_change(self, record: BrokerChangeRecord, offset: int, delta: MetadataDelta) -> None:
        known = required(self.brokers.get(record.broker_id), "only a known broker changes")
        invariant(known.epoch == record.broker_epoch, "a broker change names the live epoch")
        shutting_down = record.in_controlled_shutdown
        self.brokers[record.broker_id] = known._replace(
            fenced=known.fenced if record.fenced is None else record.fenced,
            in_controlled_shutdown=known.in_controlled_shutdown if shutting_down is None else shutting_down,
            log_dirs=known.log_dirs if record.log_dirs is None else record.log_dirs,
        )
        delta.changed_brokers[record.broker_id] = None

    def _replay_register_controller(self, record: RegisterControllerRecord, offset: int, delta: MetadataDelta) -> None:
        self.controllers[record.controller_id] = ControllerRegistration(
            record.controller_id, record.incarnation_id, record.listeners, record.features
        )
        delta.changed_controllers[record.controller_id] = None

    def _replay_topic(self, record: TopicRecord, offset: int, delta: MetadataDelta) -> None:
        invariant(
            record.name not in self.topics_by_name and record.topic_id not in self.topics_by_id,
            "a topic's name and id are its own",
        )
        topic = TopicImage(record.name, record.topic_id, {})
        self.topics_by_id[record.topic_id] = self.topics_by_name[record.name] = topic
        self._owned.add(record.topic_id)
        if "." in record.name or "_" in record.name:
            self._topics_by_metric_name[metric_name(record.name)] = record.name
        delta.created_topics[record.topic_id] = None

    def _replay_partition(self, record: PartitionRecord, offset: int, delta: MetadataDelta) -> None:
        partition = self._add_partition(record)
        self._check_partition(partition, ())
        delta.changed_partitions[(record.topic_id, record.partition)] = None

    def _add_partition(self, record: PartitionRecord) -> PartitionRegistration:
        partitions = self._writable(record.topic_id).partitions
        invariant(record.partition == len(partitions), "partitions are numbered without gaps")
        partition = partitions[record.partition] = PartitionRegistration(
            replicas=record.replicas,
            isr=record.isr,
            elr=record.elr,
            last_known_elr=record.last_known_elr,
            adding_replicas=record.adding_replicas,
            removing_replicas=record.removing_replicas,
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            leader_recovery_state=record.leader_recovery_state,
            directories=record.directories,
        )
        return partition

    def _replay_partition_change(self, record: PartitionChangeRecord, offset: int, delta: MetadataDelta) -> None:
        partitions = self._writable(record.topic_id).partitions
        known = required(partitions.get(record.partition), "only a known partition changes")
        changed = known.merge(record)
        self._check_partition(changed, known.isr)
        partitions[record.partition] = changed
        delta.changed_partitions[(record.topic_id, record.partition)] = None

    def _replay_remove_topic(self, record: RemoveTopicRecord, offset: int, delta: MetadataDelta) -> None:
        topic = required(self.topics_by_id.pop(record.topic_id, None), "only a known topic is removed")
        del self.topics_by_name[topic.name]
        if self._topics_by_metric_name.get(metric_name(topic.name)) == topic.name:
            del self._topics_by_metric_name[metric_name(topic.name)]
        self._owned.discard(topic.topic_id)
        if self.configs.pop((TOPIC_RESOURCE, topic.name), None) is not None:
            delta.changed_configs[(TOPIC_RESOURCE, topic.name)] = None
        for partition in topic.partitions:
            delta.changed_partitions.pop((topic.topic_id, partition), None)
        # A topic that is created and deleted within one delta was never visible.
        if topic.topic_id in delta.created_topics:
            del delta.created_topics[topic.topic_id]
        else:
            delta.deleted_topics[topic.topic_id] = topic

    def _replay_config(self, record: ConfigRecord, offset: int, delta: MetadataDelta) -> None:
        key = (record.resource_type, record.resource_name)
        values = dict(self.configs.get(key, {}))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if values:
            self.configs[key] = values
        else:
            self.configs.pop(key, None)
        delta.changed_configs[key] = None

    def _replay_producer_ids(self, record: ProducerIdsRecord, offset: int, delta: MetadataDelta) -> None:
        invariant(record.next_producer_id > self.next_producer_id, "producer ids are handed out once")
        self.next_producer_id = record.next_producer_id

    def _replay_feature_level(self, record: FeatureLevelRecord, offset: int, delta: MetadataDelta) -> None:
        if record.level == 0:
            self.features.pop(record.name, None)
        else:
            self.features[record.name] = record.level
        delta.changed_features[record.name] = None

    def _replay_scram_credential(self, record: UserScramCredentialRecord, offset: int, delta: MetadataDelta) -> None:
        key = record.mechanism, record.name
        self.scram_credentials[key] = ScramCredential(
            record.salt, record.stored_key, record.server_key, record.iterations
        )
        delta.changed_credentials[key] = None

    def _replay_no_scram_credential(
        self, record: RemoveUserScramCredentialRecord, offset: int, delta: MetadataDelta
    ) -> None:
        key = record.mechanism, record.name
        required(self.scram_credentials.pop(key, None), "only a known credential is removed")
        delta.changed_credentials[key] = None

    def _replay_acl(self, record: AccessControlEntryRecord, offset: int, delta: MetadataDelta) -> None:
        invariant(record.acl_id not in self.acls, "an access control entry is added once")
        binding = self.acls[record.acl_id] = AclBinding(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )
        self._times_of_acls[binding] += 1
        delta.changed_acls[record.acl_id] = None

    def _replay_no_acl(self, record: RemoveAccessControlEntryRecord, offset: int, delta: MetadataDelta) -> None:
        binding = required(self.acls.pop(record.acl_id, None), "only a known access control entry is removed")
        self._times_of_acls[binding] -= 1
        if not self._times_of_acls[binding]:
            del self._times_of_acls[binding]
        delta.changed_acls[record.acl_id] = None

    def _replay_client_quota(self, record: ClientQuotaRecord, offset: int, delta: MetadataDelta) -> None:
        quotas = dict(self.client_quotas.get(record.entity, {}))
        if record.value is None:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        if quotas:
            self.client_quotas[record.entity] = quotas
        else:
            self.client_quotas.pop(record.entity, None)
        delta.changed_quotas[record.entity] = None

    def _replay_token(self, record: DelegationTokenRecord, offset: int, delta: MetadataDelta) -> None:
        self.delegation_tokens[record.token_id] = DelegationToken(
            record.owner,
            record.requester,
            record.renewers,
            record.issue_timestamp_ms,
            record.max_timestamp_ms,
            record.expiry_timestamp_ms,
        )
        delta.changed_tokens[record.token_id] = None

    def _replay_no_token(self, record: RemoveDelegationTokenRecord, offset: int, delta: MetadataDelta) -> None:
        required(self.delegation_tokens.pop(record.token_id, None), "only a known delegation token is removed")
        delta.changed_tokens[record.token_id] = None

    # -- helpers ----------------------------------------------------------------------------------------------------

    def _writable(self, topic_id: UUID) -> TopicImage:
        topic = required(self.topics_by_id.get(topic_id), "a partition's topic is known")
        if topic_id not in self._owned:
            topic = TopicImage(topic.name, topic_id, topic.partitions.copy())
            self.topics_by_id[topic_id] = self.topics_by_name[topic.name] = topic
            self._owned.add(topic_id)
        return topic

    def _check_partition(self, partition: PartitionRegistration, old_isr: tuple[int, ...]) -> None:
        replicas, isr = partition.replicas, partition.isr
        invariant(replicas and len(set(replicas)) == len(replicas), "replicas are distinct and not none")
        invariant(len(partition.directories) in (0, len(replicas)), "each replica has a directory, or none has")
        invariant(len(set(isr)) == len(isr) and set(isr) <= set(replicas), "the ISR is a subset of the replicas")
        if partition.elr:
            elr = set(partition.elr)
            invariant(
                elr <= set(replicas) and elr.isdisjoint(isr), "the ELR is a subset of the replicas beside the ISR"
            )
        invariant(partition.leader == NO_LEADER or partition.leader in isr, "the leader is in the ISR")
        for broker_id in isr:
            if broker_id not in old_isr:
                broker = self.brokers.get(broker_id)
                invariant(broker is not None and not broker.fenced, "nobody fenced enters an ISR")
                online = self.is_replica_online(broker_id, partition)
                invariant(online, "no replica in a failed directory enters an ISR")


_REPLAY: Mapping[int, Callable[[MetadataImage, Any, int, MetadataDelta], None]] = {
    RegisterBrokerRecord.TYPE: MetadataImage._replay_register_broker,
    UnregisterBrokerRecord.TYPE: MetadataImage._replay_unregister_broker,
    BrokerChangeRecord.TYPE: MetadataImage._replay_broker_change,
    TopicRecord.TYPE: MetadataImage._replay_topic,
    PartitionRecord.TYPE: MetadataImage._replay_partition,
    PartitionChangeRecord.TYPE: MetadataImage._replay_partition_change,
    RemoveTopicRecord.TYPE: MetadataImage._replay_remove_topic,
    ConfigRecord.TYPE: MetadataImage._replay_config,
    ProducerIdsRecord.TYPE: MetadataImage._replay_producer_ids,
    FeatureLevelRecord.TYPE: MetadataImage._replay_feature_level,
    RegisterControllerRecord.TYPE: MetadataImage._replay_register_controller,
    UserScramCredentialRecord.TYPE: MetadataImage._replay_scram_credential,
    RemoveUserScramCredentialRecord.TYPE: MetadataImage._replay_no_scram_credential,
    AccessControlEntryRecord.TYPE: MetadataImage._replay_acl,
    RemoveAccessControlEntryRecord.TYPE: MetadataImage._replay_no_acl,
    ClientQuotaRecord.TYPE: MetadataImage._replay_client_quota,
    DelegationTokenRecord.TYPE: MetadataImage._replay_token,
    RemoveDelegationTokenRecord.TYPE: MetadataImage._replay_no_token,
}
