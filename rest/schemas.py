"""The schemas of bodies, as data: requests are checked against them, and the OpenAPI document shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
_DESCRIBED = "description"

TEXT: Schema = {"type": "string"}
NULLABLE_TEXT: Schema = {"type": "string", "nullable": True}
NAME: Schema = {"type": "string", "minLength": 1}
FLAG: Schema = {"type": "boolean"}
INT32: Schema = {"type": "integer", "format": "int32", "minimum": -(2**31), "maximum": INT32_MAX}
PARTITION: Schema = {"type": "integer", "format": "int32", "minimum": 0, "maximum": INT32_MAX}
NULLABLE_PARTITION: Schema = {**PARTITION, "nullable": True}
OFFSET: Schema = {"type": "integer", "format": "int64", "minimum": 0, "maximum": INT64_MAX}
NULLABLE_OFFSET: Schema = {**OFFSET, "nullable": True}
NULLABLE_ID: Schema = {"type": "integer", "format": "int32", "minimum": 1, "maximum": INT32_MAX, "nullable": True}
COUNT: Schema = {"type": "integer", "format": "int32", "minimum": 1, "maximum": INT32_MAX}
REPLICATION_FACTOR: Schema = {"type": "integer", "format": "int32", "minimum": 1, "maximum": 2**15 - 1}
ANYTHING: Schema = {}


def ref(name: str) -> Schema:
    """A reference to one of the schemas."""
    return {"$ref": f"#/components/schemas/{name}"}


def list_of(item: Schema, **limits: Any) -> Schema:
    """A list of items."""
    return {"type": "array", "items": item, **limits}


def closed(required: tuple[str, ...] = (), /, **fields: Schema) -> Schema:
    """An object of a request, with these fields and no others."""
    found: dict[str, Any] = {"type": "object", "properties": fields, "additionalProperties": False}
    return {**found, "required": list(required)} if required else found


def _resource(**fields: Schema) -> Schema:
    """A resource of version 3. Its fields are all there."""
    metadata = {
        "type": "object",
        "properties": {"self": TEXT, "resource_name": NULLABLE_TEXT},
        "required": ["self"],
    }
    properties = {"kind": TEXT, "metadata": metadata, **fields}
    return {"type": "object", "properties": properties, "required": [*properties]}


def _listed(name: str) -> Schema:
    metadata = {"type": "object", "properties": {"self": TEXT, "next": NULLABLE_TEXT}, "required": ["self"]}
    properties = {"kind": TEXT, "metadata": metadata, "data": list_of(ref(name))}
    return {"type": "object", "properties": properties, "required": [*properties]}


RELATED: Schema = {"type": "object", "properties": {"related": TEXT}, "required": ["related"]}
_CONFIG = {
    "cluster_id": TEXT,
    "name": TEXT,
    "value": NULLABLE_TEXT,
    "is_default": FLAG,
    "is_read_only": FLAG,
    "is_sensitive": FLAG,
    "source": TEXT,
    "synonyms": list_of(ref("ConfigSynonymData")),
}
_PARTITION_OF_TOPIC = {"cluster_id": TEXT, "topic_name": TEXT, "partition_id": PARTITION}
_RECORD = {
    "partition_id": NULLABLE_PARTITION,
    "headers": {**list_of(ref("ProduceRequestHeader")), "nullable": True},
    "key": {**ref("ProduceRequestData"), "nullable": True},
    "value": {**ref("ProduceRequestData"), "nullable": True},
    "timestamp": {"type": "string", "format": "date-time", "nullable": True},
}
_DATA = {
    "type": {
        **NULLABLE_TEXT,
        _DESCRIBED: "BINARY (base64), JSON or STRING; AVRO, JSONSCHEMA or PROTOBUF beside a schema; none for a schema "
        "that is named by its id or version, or that is the latest one of its subject",
    },
    "subject": NULLABLE_TEXT,
    "subject_name_strategy": {**NULLABLE_TEXT, "enum": ["TOPIC_NAME", "RECORD_NAME", "TOPIC_RECORD_NAME"]},
    "schema_id": NULLABLE_ID,
    "schema_version": NULLABLE_ID,
    "schema": NULLABLE_TEXT,
    "data": {**ANYTHING, _DESCRIBED: "Any value of JSON; null for no key, or a tombstone"},
}

ACL_CHOICES: Mapping[str, Schema] = {
    "resource_type": {
        "type": "string",
        "enum": ["ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"],
    },
    "pattern_type": {"type": "string", "enum": ["ANY", "MATCH", "LITERAL", "PREFIXED"]},
    "operation": {"type": "string", _DESCRIBED: "ANY, or the name of Kafka's AclOperation, such as READ"},
    "permission": {"type": "string", "enum": ["ANY", "DENY", "ALLOW"]},
}
"""What the fields of ACLs and of filters may be that are no free texts."""
_ACL_FIELDS = {
    "resource_type": TEXT,
    "resource_name": TEXT,
    "pattern_type": TEXT,
    "principal": TEXT,
    "host": TEXT,
    "operation": TEXT,
    "permission": TEXT,
}
_V3_REQUESTS: dict[str, Schema] = {
    "CreateAclRequestData": closed(tuple(_ACL_FIELDS), **_ACL_FIELDS),
    "CreateAclRequestDataList": closed(("data",), data=list_of(ref("CreateAclRequestData"), minItems=1, maxItems=1000)),
    "CreateTopicRequestData": closed(
        ("topic_name",),
        topic_name=NAME,
        partitions_count={**COUNT, "nullable": True},
        replication_factor={**REPLICATION_FACTOR, "nullable": True},
        replicas_assignments={
            "type": "object",
            "nullable": True,
            "additionalProperties": list_of({**PARTITION, _DESCRIBED: "The id of a broker"}),
        },
        configs={**list_of(closed(("name",), name=NAME, value=NULLABLE_TEXT)), "nullable": True},
        validate_only={**FLAG, "nullable": True},
    ),
    "UpdatePartitionCountRequestData": closed(("partitions_count",), partitions_count=COUNT),
    "UpdateConfigRequestData": closed(value=NULLABLE_TEXT),
    "AlterConfigBatchRequestData": closed(
        ("data",),
        data=list_of(
            closed(
                ("name",),
                name=NAME,
                value=NULLABLE_TEXT,
                operation={**NULLABLE_TEXT, "enum": ["SET", "DELETE"]},
            )
        ),
        validate_only={**FLAG, "nullable": True},
    ),
    "ProduceRequestHeader": closed(("name",), name=TEXT, value={**NULLABLE_TEXT, "format": "byte"}),
    "ProduceRequestData": {**closed((), **_DATA), "nullable": True},
    "ProduceRequest": closed((), **_RECORD),
    "ProduceBatchRequest": closed(
        ("entries",), entries=list_of(closed(("id",), id=NAME, **_RECORD), minItems=1, maxItems=1000)
    ),
}

_V3_ANSWERS: dict[str, Schema] = {
    "ClusterData": _resource(
        cluster_id=TEXT,
        controller=RELATED,
        acls=RELATED,
        brokers=RELATED,
        broker_configs=RELATED,
        consumer_groups=RELATED,
        topics=RELATED,
        partition_reassignments=RELATED,
    ),
    "BrokerData": _resource(
        cluster_id=TEXT,
        broker_id=INT32,
        host=NULLABLE_TEXT,
        port={**INT32, "nullable": True},
        rack=NULLABLE_TEXT,
        configs=RELATED,
        partition_replicas=RELATED,
    ),
    "ConfigSynonymData": {
        "type": "object",
        "properties": {"name": TEXT, "value": NULLABLE_TEXT, "source": TEXT},
        "required": ["name", "value", "source"],
    },
    "TopicConfigData": _resource(topic_name=TEXT, **_CONFIG),
    "BrokerConfigData": _resource(broker_id=INT32, **_CONFIG),
    "ClusterConfigData": _resource(config_type=TEXT, **_CONFIG),
    "TopicData": _resource(
        cluster_id=TEXT,
        topic_name=TEXT,
        is_internal=FLAG,
        replication_factor=INT32,
        partitions_count=INT32,
        partitions=RELATED,
        configs=RELATED,
        partition_reassignments=RELATED,
    ),
    "PartitionData": _resource(
        **_PARTITION_OF_TOPIC, leader={**RELATED, "nullable": True}, replicas=RELATED, reassignment=RELATED
    ),
    "ReplicaData": _resource(**_PARTITION_OF_TOPIC, broker_id=INT32, is_leader=FLAG, is_in_sync=FLAG, broker=RELATED),
    "AclData": _resource(cluster_id=TEXT, **_ACL_FIELDS),
    "AclsData": {"type": "object", "properties": {"data": list_of(ref("AclData"))}, "required": ["data"]},
    "ReassignmentData": _resource(
        **_PARTITION_OF_TOPIC, adding_replicas=list_of(INT32), removing_replicas=list_of(INT32), replicas=RELATED
    ),
    "ConsumerGroupData": _resource(
        cluster_id=TEXT,
        consumer_group_id=TEXT,
        is_simple=FLAG,
        partition_assignor=TEXT,
        state=TEXT,
        type=TEXT,
        is_mixed_consumer_group=FLAG,
        coordinator=RELATED,
        consumers=RELATED,
        lag_summary=RELATED,
    ),
    "ConsumerData": _resource(
        cluster_id=TEXT,
        consumer_group_id=TEXT,
        consumer_id=TEXT,
        instance_id=NULLABLE_TEXT,
        client_id=TEXT,
        assignments=RELATED,
    ),
    "ConsumerAssignmentData": _resource(
        **_PARTITION_OF_TOPIC, consumer_group_id=TEXT, consumer_id=TEXT, partition=RELATED, lag=RELATED
    ),
    "ConsumerLagData": _resource(
        **_PARTITION_OF_TOPIC,
        consumer_group_id=TEXT,
        consumer_id=TEXT,
        instance_id=NULLABLE_TEXT,
        client_id=TEXT,
        current_offset=NULLABLE_OFFSET,
        log_end_offset=NULLABLE_OFFSET,
        lag=NULLABLE_OFFSET,
    ),
    "ConsumerGroupLagSummaryData": _resource(
        cluster_id=TEXT,
        consumer_group_id=TEXT,
        max_lag_consumer_id=TEXT,
        max_lag_instance_id=NULLABLE_TEXT,
        max_lag_client_id=TEXT,
        max_lag_topic_name=TEXT,
        max_lag_partition_id=PARTITION,
        max_lag=NULLABLE_OFFSET,
        total_lag=OFFSET,
        partitions_without_commit=INT32,
        max_lag_consumer=RELATED,
        max_lag_partition=RELATED,
    ),
    "ProduceResponse": {
        "type": "object",
        "properties": {
            "error_code": INT32,
            "message": TEXT,
            "cluster_id": TEXT,
            "topic_name": TEXT,
            "partition_id": PARTITION,
            "offset": OFFSET,
            "timestamp": {"type": "string", "format": "date-time", "nullable": True},
            "key": ref("ProduceResponseData"),
            "value": ref("ProduceResponseData"),
        },
        "required": ["error_code"],
    },
    "ProduceResponseData": {
        "type": "object",
        "properties": {"type": TEXT, "subject": TEXT, "schema_id": INT32, "schema_version": INT32, "size": INT32},
    },
    "ProduceBatchResponse": {
        "type": "object",
        "properties": {
            "successes": list_of({"type": "object", "properties": {"id": TEXT}}),
            "failures": list_of({"type": "object", "properties": {"id": TEXT, "error_code": INT32, "message": TEXT}}),
        },
        "required": ["successes", "failures"],
    },
}

_LISTS = (
    "ClusterData",
    "BrokerData",
    "TopicConfigData",
    "BrokerConfigData",
    "ClusterConfigData",
    "TopicData",
    "PartitionData",
    "ReplicaData",
    "AclData",
    "ReassignmentData",
    "ConsumerGroupData",
    "ConsumerData",
    "ConsumerAssignmentData",
    "ConsumerLagData",
)

_TOPIC_PARTITION = {"topic": NAME, "partition": PARTITION}
_SCHEMAS_OF_VALUES = {
    "key_schema": NULLABLE_TEXT,
    "key_schema_id": NULLABLE_ID,
    "value_schema": NULLABLE_TEXT,
    "value_schema_id": NULLABLE_ID,
}

_V2_REQUESTS: dict[str, Schema] = {
    "TopicProduceRequest": closed(
        ("records",),
        records=list_of(closed(partition=NULLABLE_PARTITION, key=ANYTHING, value=ANYTHING), minItems=1),
        **_SCHEMAS_OF_VALUES,
    ),
    "PartitionProduceRequest": closed(
        ("records",), records=list_of(closed(key=ANYTHING, value=ANYTHING), minItems=1), **_SCHEMAS_OF_VALUES
    ),
    "CreateConsumerInstanceRequest": closed(
        (),
        **{
            "id": NULLABLE_TEXT,
            "name": NULLABLE_TEXT,
            "format": {**NULLABLE_TEXT, _DESCRIBED: "binary, json, avro, jsonschema or protobuf"},
            "auto.offset.reset": NULLABLE_TEXT,
            "auto.commit.enable": ANYTHING,
            "fetch.min.bytes": ANYTHING,
            "consumer.request.timeout.ms": ANYTHING,
        },
    ),
    "ConsumerSubscriptionRequest": closed(topics={**list_of(NAME), "nullable": True}, topic_pattern=NULLABLE_TEXT),
    "ConsumerPartitionsRequest": closed(
        ("partitions",), partitions=list_of(closed(("topic", "partition"), **_TOPIC_PARTITION))
    ),
    "ConsumerOffsetCommitRequest": closed(
        ("offsets",),
        offsets=list_of(
            closed(("topic", "partition", "offset"), **_TOPIC_PARTITION, offset=OFFSET, metadata=NULLABLE_TEXT)
        ),
    ),
    "ConsumerSeekRequest": closed(
        offsets={
            **list_of(
                closed(("topic", "partition", "offset"), **_TOPIC_PARTITION, offset=OFFSET, metadata=NULLABLE_TEXT)
            ),
            "nullable": True,
        },
        timestamps={
            **list_of(
                closed(("topic", "partition", "timestamp"), **_TOPIC_PARTITION, timestamp=TEXT, metadata=NULLABLE_TEXT)
            ),
            "nullable": True,
        },
    ),
}

_REPLICA_V2: Schema = {"type": "object", "properties": {"broker": INT32, "leader": FLAG, "in_sync": FLAG}}
_V2_ANSWERS: dict[str, Schema] = {
    "Nothing": {"type": "object", "maxProperties": 0},
    "Brokers": {"type": "object", "properties": {"brokers": list_of(INT32)}, "required": ["brokers"]},
    "TopicNames": list_of(TEXT),
    "Topic": {
        "type": "object",
        "properties": {
            "name": TEXT,
            "configs": {"type": "object", "additionalProperties": NULLABLE_TEXT},
            "partitions": list_of(ref("Partition")),
        },
        "required": ["name", "configs", "partitions"],
    },
    "Partition": {
        "type": "object",
        "properties": {"partition": PARTITION, "leader": INT32, "replicas": list_of(_REPLICA_V2)},
        "required": ["partition", "leader", "replicas"],
    },
    "Partitions": list_of(ref("Partition")),
    "PartitionOffsets": {
        "type": "object",
        "properties": {"beginning_offset": OFFSET, "end_offset": OFFSET},
        "required": ["beginning_offset", "end_offset"],
    },
    "ProducedRecords": {
        "type": "object",
        "properties": {
            "offsets": list_of(
                {
                    "type": "object",
                    "properties": {
                        "partition": NULLABLE_PARTITION,
                        "offset": {**OFFSET, "nullable": True},
                        "error_code": {**INT32, "nullable": True},
                        "error": NULLABLE_TEXT,
                    },
                    "required": ["partition", "offset", "error_code", "error"],
                }
            ),
            "key_schema_id": NULLABLE_ID,
            "value_schema_id": NULLABLE_ID,
        },
        "required": ["offsets", "key_schema_id", "value_schema_id"],
    },
    "ConsumerInstance": {
        "type": "object",
        "properties": {"instance_id": TEXT, "base_uri": TEXT},
        "required": ["instance_id", "base_uri"],
    },
    "ConsumerSubscription": {"type": "object", "properties": {"topics": list_of(TEXT)}, "required": ["topics"]},
    "ConsumerPartitions": {
        "type": "object",
        "properties": {"partitions": list_of({"type": "object", "properties": {"topic": TEXT, "partition": INT32}})},
        "required": ["partitions"],
    },
    "ConsumerOffsets": {
        "type": "object",
        "properties": {
            "offsets": list_of(
                {
                    "type": "object",
                    "properties": {"topic": TEXT, "partition": INT32, "offset": OFFSET, "metadata": TEXT},
                }
            )
        },
        "required": ["offsets"],
    },
    "CommittedOffsets": list_of({"type": "object"}),
    "ConsumerRecords": list_of(
        {
            "type": "object",
            "properties": {
                "topic": TEXT,
                "key": {**ANYTHING, _DESCRIBED: "As the format of the instance says"},
                "value": {**ANYTHING, _DESCRIBED: "As the format of the instance says"},
                "partition": PARTITION,
                "offset": OFFSET,
            },
            "required": ["topic", "key", "value", "partition", "offset"],
        }
    ),
}

SCHEMAS: dict[str, Schema] = {
    "Error": {
        "type": "object",
        "properties": {"error_code": INT32, "message": TEXT},
        "required": ["error_code", "message"],
    },
    "OpenApiDocument": {"type": "object"},
    **_V3_REQUESTS,
    **_V3_ANSWERS,
    **{f"{name}List": _listed(name) for name in _LISTS},
    **_V2_REQUESTS,
    **_V2_ANSWERS,
}
"""All schemas by name."""
