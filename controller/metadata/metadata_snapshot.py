"""Metadata snapshots (KIP-630): the image as records, and the difference between two images.

Restoring the records of `snapshot_records` gives an equal image that also iterates in the same order. A controller that
started from a snapshot therefore decides as one that replayed the whole log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from .metadata_image import MetadataDelta, MetadataImage, PartitionRegistration, TopicImage
from .metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    UserScramCredentialRecord,
    encode_record,
)

RECORDS_A_BATCH = 256


def snapshot_records(image: MetadataImage) -> Iterator[Record]:
    """The records that restore `image`, which must not change meanwhile."""
    for name, level in image.features.items():
        yield FeatureLevelRecord(name, level)
    for controller in image.controllers.values():
        yield RegisterControllerRecord(*controller)
    for broker in image.brokers.values():
        yield RegisterBrokerRecord(
            broker_id=broker.broker_id,
            incarnation_id=broker.incarnation_id,
            listeners=broker.listeners,
            rack=broker.rack,
            fenced=broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            log_dirs=broker.log_dirs,
            features=broker.features,
            epoch=broker.epoch,
        )
    for topic in image.topics_by_id.values():
        yield TopicRecord(topic.name, topic.topic_id)
        for index, partition in topic.partitions.items():
            yield _partition_record(topic, index, partition)
    for (resource_type, resource_name), values in image.configs.items():
        for name, value in values.items():
            yield ConfigRecord(resource_type, resource_name, name, value)
    for (mechanism, user), credential in image.scram_credentials.items():
        yield UserScramCredentialRecord(user, mechanism, *credential)
    for acl_id, binding in image.acls.items():
        yield AccessControlEntryRecord(acl_id, *binding)
    for entity, quotas in image.client_quotas.items():
        for quota, limit in quotas.items():
            yield ClientQuotaRecord(entity, quota, limit)
    for token_id, token in image.delegation_tokens.items():
        yield DelegationTokenRecord(token_id, *token)
    if image.next_producer_id:
        yield ProducerIdsRecord(-1, -1, image.next_producer_id)


def _partition_record(topic: TopicImage, index: int, partition: PartitionRegistration) -> PartitionRecord:
    return PartitionRecord(
        topic_id=topic.topic_id,
        partition=index,
        replicas=partition.replicas,
        isr=partition.isr,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        leader_recovery_state=partition.leader_recovery_state,
        elr=partition.elr,
        last_known_elr=partition.last_known_elr,
        adding_replicas=partition.adding_replicas,
        removing_replicas=partition.removing_replicas,
        directories=partition.directories,
    )


def snapshot_batches(image: MetadataImage) -> Iterator[list[bytes]]:
    """`snapshot_records` in batches, encoded at the finalized level of `raftwerk.record.version`."""
    batch: list[bytes] = []
    for record in snapshot_records(image):
        batch.append(encode_record(record, image.record_level))
        if len(batch) == RECORDS_A_BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def difference(old: MetadataImage, new: MetadataImage) -> MetadataDelta:
    """The delta that records leading from `old` to `new` would have."""
    delta = MetadataDelta()
    for topic_id, topic in old.topics_by_id.items():
        if topic_id not in new.topics_by_id:
            delta.deleted_topics[topic_id] = topic
    for topic_id, topic in new.topics_by_id.items():
        known = old.topics_by_id.get(topic_id)
        if known is None:
            delta.created_topics[topic_id] = None
        for index, partition in topic.partitions.items():
            if known is None or known.partitions.get(index) != partition:
                delta.changed_partitions[(topic_id, index)] = None
    delta.changed_brokers = _changed(old.brokers, new.brokers)
    delta.changed_controllers = _changed(old.controllers, new.controllers)
    delta.changed_configs = _changed(old.configs, new.configs)
    delta.changed_features = _changed(old.features, new.features)
    delta.changed_credentials = _changed(old.scram_credentials, new.scram_credentials)
    delta.changed_acls = _changed(old.acls, new.acls)
    delta.changed_quotas = _changed(old.client_quotas, new.client_quotas)
    delta.changed_tokens = _changed(old.delegation_tokens, new.delegation_tokens)
    return delta


K = TypeVar("K")
V = TypeVar("V")


def _changed(old: Mapping[K, V], new: Mapping[K, V]) -> dict[K, None]:
    keys = dict.fromkeys((*old, *new))
    return {key: None for key in keys if old.get(key) != new.get(key)}
