"""The rights that APIs check: an operation on resources of a type, as access control lists give them (KIP-11)."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ...security.authorizer.acl_binding import AclOperation, ResourceType


class Right(NamedTuple):
    """An operation on resources of a type."""

    operation: AclOperation
    resource_type: ResourceType


Rights: TypeAlias = tuple[Right, ...]

ALTER_CLUSTER = Right(AclOperation.ALTER, ResourceType.CLUSTER)
ALTER_CLUSTER_CONFIGS = Right(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER)
ALTER_GROUP_CONFIGS = Right(AclOperation.ALTER_CONFIGS, ResourceType.GROUP)
ALTER_TOPIC = Right(AclOperation.ALTER, ResourceType.TOPIC)
ALTER_TOPIC_CONFIGS = Right(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC)
CLUSTER_ACTION = Right(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
CREATE_CLUSTER = Right(AclOperation.CREATE, ResourceType.CLUSTER)
CREATE_TOKENS = Right(AclOperation.CREATE_TOKENS, ResourceType.USER)
CREATE_TOPIC = Right(AclOperation.CREATE, ResourceType.TOPIC)
DELETE_GROUP = Right(AclOperation.DELETE, ResourceType.GROUP)
DELETE_TOPIC = Right(AclOperation.DELETE, ResourceType.TOPIC)
DESCRIBE_CLUSTER = Right(AclOperation.DESCRIBE, ResourceType.CLUSTER)
DESCRIBE_CLUSTER_CONFIGS = Right(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
DESCRIBE_GROUP = Right(AclOperation.DESCRIBE, ResourceType.GROUP)
DESCRIBE_GROUP_CONFIGS = Right(AclOperation.DESCRIBE_CONFIGS, ResourceType.GROUP)
DESCRIBE_TOKEN = Right(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN)
DESCRIBE_TOKENS = Right(AclOperation.DESCRIBE_TOKENS, ResourceType.USER)
DESCRIBE_TOPIC = Right(AclOperation.DESCRIBE, ResourceType.TOPIC)
DESCRIBE_TOPIC_CONFIGS = Right(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
DESCRIBE_TRANSACTIONAL_ID = Right(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
IDEMPOTENT_WRITE = Right(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
READ_GROUP = Right(AclOperation.READ, ResourceType.GROUP)
READ_TOPIC = Right(AclOperation.READ, ResourceType.TOPIC)
TWO_PHASE_COMMIT = Right(AclOperation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID)
WRITE_TOPIC = Right(AclOperation.WRITE, ResourceType.TOPIC)
WRITE_TRANSACTIONAL_ID = Right(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)
