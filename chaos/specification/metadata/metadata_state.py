"""What the committed metadata records say, replayed by a second program.

All nodes replay records by the same code (`controller/metadata/metadata_image.py`). A mistake in it makes the same
image on each of them, so comparing the nodes with each other does not show it. Here the meaning of the records is
written down once more, in the plainest way: each part of the metadata is a dict, and a record changes one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeAlias
from uuid import UUID

from ....controller.metadata.metadata_image import (
    TOPIC_RESOURCE,
    BrokerRegistration,
    ControllerRegistration,
    PartitionRegistration,
)
from ....controller.metadata.metadata_records import (
    SECURITY_RECORDS,
    UNASSIGNED,
    AccessControlEntryRecord,
    BrokerChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
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
    decode_record,
)
from ....raft.types import CommittedBatch
from ....security.authorizer.acl_binding import AclBinding
from ....security.delegation_token import DelegationToken
from ....security.sasl.scram_credential import ScramCredential

Part: TypeAlias = tuple[tuple[Any, Any], ...]
Parts: TypeAlias = Mapping[str, Part]
"""The metadata, by what they are about, in the order in which they came."""


class MetadataState:
    """The metadata after the last batch that was replayed."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"epoch": 0, "next producer id": 0}
        self._brokers: dict[int, BrokerRegistration] = {}
        self._controllers: dict[int, ControllerRegistration] = {}
        self._names: dict[UUID, str] = {}
        self._partitions: dict[UUID, dict[int, PartitionRegistration]] = {}
        self._settings: dict[tuple[int, str], dict[str, str]] = {}
        self._features: dict[str, int] = {}
        self._credentials: dict[tuple[int, str], ScramCredential] = {}
        self._acls: dict[UUID, AclBinding] = {}
        self._quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {}
        self._tokens: dict[str, DelegationToken] = {}

    def replay(self, batch: CommittedBatch) -> None:
        """Take up the records of the next committed batch."""
        for index, payload in enumerate(batch.records):
            record = decode_record(payload, SECURITY_RECORDS)
            _REPLAY[type(record)](self, record, batch.base_offset + index)
        self._numbers["epoch"] = batch.epoch

    def parts(self) -> Parts:
        """A copy of all that there is."""
        return {
            "numbers": tuple(self._numbers.items()),
            "brokers": tuple(self._brokers.items()),
            "controllers": tuple(self._controllers.items()),
            "topics": tuple(
                ((name, topic_id), tuple(self._partitions[topic_id].items())) for topic_id, name in self._names.items()
            ),
            "settings": tuple((key, tuple(values.items())) for key, values in self._settings.items()),
            "features": tuple(self._features.items()),
            "credentials": tuple(self._credentials.items()),
            "access control lists": tuple(self._acls.items()),
            "quotas": tuple((key, tuple(values.items())) for key, values in self._quotas.items()),
            "tokens": tuple(self._tokens.items()),
        }

    # ---------------------------------------------------------------- nodes

    def _register_broker(self, record: RegisterBrokerRecord, offset: int) -> None:
        self._brokers[record.broker_id] = BrokerRegistration(**{**_fields_of(record), "epoch": offset})

    def _unregister_broker(self, record: UnregisterBrokerRecord, _offset: int) -> None:
        del self._brokers[record.broker_id]

    def _change_broker(self, record: BrokerChangeRecord, _offset: int) -> None:
        changed = {name: value for name, value in _fields_of(record).items() if value is not None}
        del changed["broker_id"], changed["broker_epoch"]
        self._brokers[record.broker_id] = self._brokers[record.broker_id]._replace(**changed)

    def _register_controller(self, record: RegisterControllerRecord, _offset: int) -> None:
        self._controllers[record.controller_id] = ControllerRegistration(**_fields_of(record))

    def _hand_out_producer_ids(self, record: ProducerIdsRecord, _offset: int) -> None:
        self._numbers["next producer id"] = record.next_producer_id

    def _finalize_feature(self, record: FeatureLevelRecord, _offset: int) -> None:
        _put(self._features, record.name, record.level or None)

    # ---------------------------------------------------------------- topics

    def _create_topic(self, record: TopicRecord, _offset: int) -> None:
        self._names[record.topic_id] = record.name
        self._partitions[record.topic_id] = {}

    def _remove_topic(self, record: RemoveTopicRecord, _offset: int) -> None:
        name = self._names.pop(record.topic_id)
        del self._partitions[record.topic_id]
        self._settings.pop((TOPIC_RESOURCE, name), None)

    def _create_partition(self, record: PartitionRecord, _offset: int) -> None:
        told = _fields_of(record)
        topic_id, index = told.pop("topic_id"), told.pop("partition")
        self._partitions[topic_id][index] = PartitionRegistration(**told)

    def _change_partition(self, record: PartitionChangeRecord, _offset: int) -> None:
        partitions = self._partitions[record.topic_id]
        known = partitions[record.partition]
        changed = {name: value for name, value in _fields_of(record).items() if value is not None}
        del changed["topic_id"], changed["partition"]
        changed["partition_epoch"] = known.partition_epoch + 1
        if record.leader is not None:
            changed["leader_epoch"] = known.leader_epoch + 1
        if record.replicas is not None and record.directories is None and known.directories:
            where = dict(zip(known.replicas, known.directories, strict=True))
            changed["directories"] = tuple(where.get(replica, UNASSIGNED) for replica in record.replicas)
        partitions[record.partition] = known._replace(**changed)

    def _change_setting(self, record: ConfigRecord, _offset: int) -> None:
        _put_in(self._settings, (record.resource_type, record.resource_name), record.name, record.value)

    # ---------------------------------------------------------------- security

    def _put_credential(self, record: UserScramCredentialRecord, _offset: int) -> None:
        credential = ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)
        self._credentials[record.mechanism, record.name] = credential

    def _remove_credential(self, record: RemoveUserScramCredentialRecord, _offset: int) -> None:
        del self._credentials[record.mechanism, record.name]

    def _add_acl(self, record: AccessControlEntryRecord, _offset: int) -> None:
        self._acls[record.acl_id] = AclBinding(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )

    def _remove_acl(self, record: RemoveAccessControlEntryRecord, _offset: int) -> None:
        del self._acls[record.acl_id]

    def _change_quota(self, record: ClientQuotaRecord, _offset: int) -> None:
        _put_in(self._quotas, record.entity, record.key, record.value)

    def _put_token(self, record: DelegationTokenRecord, _offset: int) -> None:
        self._tokens[record.token_id] = DelegationToken(
            record.owner,
            record.requester,
            record.renewers,
            record.issue_timestamp_ms,
            record.max_timestamp_ms,
            record.expiry_timestamp_ms,
        )

    def _remove_token(self, record: RemoveDelegationTokenRecord, _offset: int) -> None:
        del self._tokens[record.token_id]


def _fields_of(record: Record) -> dict[str, Any]:
    """The fields of a record by name."""
    return {one.name: getattr(record, one.name) for one in fields(record)}


def _put(values: dict[Any, Any], key: Any, value: Any) -> None:
    """Set a value; None removes it."""
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value


def _put_in(groups: dict[Any, dict[Any, Any]], group: Any, key: Any, value: Any) -> None:
    """Set a value of a group, which is there as long as it has values; None removes the value."""
    values = groups.get(group, {})
    _put(values, key, value)
    if not values:
        groups.pop(group, None)
    elif group not in groups:
        groups[group] = values


_REPLAY: Mapping[type, Callable[[MetadataState, Any, int], None]] = {
    RegisterBrokerRecord: MetadataState._register_broker,
    UnregisterBrokerRecord: MetadataState._unregister_broker,
    BrokerChangeRecord: MetadataState._change_broker,
    TopicRecord: MetadataState._create_topic,
    PartitionRecord: MetadataState._create_partition,
    PartitionChangeRecord: MetadataState._change_partition,
    RemoveTopicRecord: MetadataState._remove_topic,
    ConfigRecord: MetadataState._change_setting,
    ProducerIdsRecord: MetadataState._hand_out_producer_ids,
    FeatureLevelRecord: MetadataState._finalize_feature,
    RegisterControllerRecord: MetadataState._register_controller,
    UserScramCredentialRecord: MetadataState._put_credential,
    RemoveUserScramCredentialRecord: MetadataState._remove_credential,
    AccessControlEntryRecord: MetadataState._add_acl,
    RemoveAccessControlEntryRecord: MetadataState._remove_acl,
    ClientQuotaRecord: MetadataState._change_quota,
    DelegationTokenRecord: MetadataState._put_token,
    RemoveDelegationTokenRecord: MetadataState._remove_token,
}
