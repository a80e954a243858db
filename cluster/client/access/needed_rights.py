"""Which right the brokers want for a request (KIP-11), and how an administrator gives it.

A refusal names only the kind of the resource. Which operation on it was wanted follows from the API that was called.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....security.authorizer.acl_words import RESOURCE_NOUNS, operation_name
from ....wire.api_keys import ApiKey
from ....wire.errors import ErrorCode
from .current_login import own_scram_user

_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID

_RESOURCE_TYPES: Mapping[int, ResourceType] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _TOPIC,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _GROUP,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _CLUSTER,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _TRANSACTIONAL_ID,
}
_ALTER_CLUSTER = {_CLUSTER: AclOperation.ALTER}
_DESCRIBE_CLUSTER = {_CLUSTER: AclOperation.DESCRIBE}

NEEDED_OPERATIONS: Mapping[ApiKey, Mapping[ResourceType, AclOperation]] = MappingProxyType(
    {
        ApiKey.PRODUCE: {_TOPIC: AclOperation.WRITE, _TRANSACTIONAL_ID: AclOperation.WRITE},
        ApiKey.FETCH: {_TOPIC: AclOperation.READ},
        ApiKey.LIST_OFFSETS: {_TOPIC: AclOperation.DESCRIBE},
        ApiKey.DELETE_RECORDS: {_TOPIC: AclOperation.DELETE},
        ApiKey.DESCRIBE_PRODUCERS: {_TOPIC: AclOperation.READ},
        ApiKey.METADATA: {_TOPIC: AclOperation.DESCRIBE},
        ApiKey.DESCRIBE_CLUSTER: _DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _DESCRIBE_CLUSTER,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _ALTER_CLUSTER,
        ApiKey.DESCRIBE_ACLS: _DESCRIBE_CLUSTER,
        ApiKey.CREATE_ACLS: _ALTER_CLUSTER,
        ApiKey.DELETE_ACLS: _ALTER_CLUSTER,
        ApiKey.FIND_COORDINATOR: {_GROUP: AclOperation.DESCRIBE, _TRANSACTIONAL_ID: AclOperation.DESCRIBE},
        ApiKey.CONSUMER_GROUP_HEARTBEAT: {_GROUP: AclOperation.READ, _TOPIC: AclOperation.DESCRIBE},
        ApiKey.OFFSET_COMMIT: {_GROUP: AclOperation.READ, _TOPIC: AclOperation.READ},
        ApiKey.OFFSET_FETCH: {_GROUP: AclOperation.DESCRIBE, _TOPIC: AclOperation.DESCRIBE},
        ApiKey.LIST_GROUPS: _DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_GROUPS: {_GROUP: AclOperation.DESCRIBE},
        ApiKey.CONSUMER_GROUP_DESCRIBE: {_GROUP: AclOperation.DESCRIBE, _TOPIC: AclOperation.DESCRIBE},
        ApiKey.DELETE_GROUPS: {_GROUP: AclOperation.DELETE},
        ApiKey.INIT_PRODUCER_ID: {
            _TRANSACTIONAL_ID: AclOperation.WRITE,
            _CLUSTER: AclOperation.IDEMPOTENT_WRITE,
        },
        ApiKey.ADD_OFFSETS_TO_TXN: {_TRANSACTIONAL_ID: AclOperation.WRITE, _GROUP: AclOperation.READ},
        ApiKey.END_TXN: {_TRANSACTIONAL_ID: AclOperation.WRITE},
        ApiKey.TXN_OFFSET_COMMIT: {
            _TRANSACTIONAL_ID: AclOperation.WRITE,
            _GROUP: AclOperation.READ,
            _TOPIC: AclOperation.READ,
        },
        ApiKey.DESCRIBE_TRANSACTIONS: {_TRANSACTIONAL_ID: AclOperation.DESCRIBE, _TOPIC: AclOperation.DESCRIBE},
        ApiKey.WRITE_TXN_MARKERS: _ALTER_CLUSTER,
        ApiKey.DESCRIBE_CONFIGS: dict.fromkeys((_TOPIC, _GROUP, _CLUSTER), AclOperation.DESCRIBE_CONFIGS),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: dict.fromkeys((_TOPIC, _GROUP, _CLUSTER), AclOperation.ALTER_CONFIGS),
        ApiKey.DESCRIBE_LOG_DIRS: _DESCRIBE_CLUSTER,
        ApiKey.ALTER_REPLICA_LOG_DIRS: _ALTER_CLUSTER,
        ApiKey.DESCRIBE_CLIENT_QUOTAS: {_CLUSTER: AclOperation.DESCRIBE_CONFIGS},
        ApiKey.ALTER_CLIENT_QUOTAS: {_CLUSTER: AclOperation.ALTER_CONFIGS},
        ApiKey.CREATE_TOPICS: {_TOPIC: AclOperation.CREATE, _CLUSTER: AclOperation.CREATE},
        ApiKey.DELETE_TOPICS: {_TOPIC: AclOperation.DELETE},
        ApiKey.CREATE_PARTITIONS: {_TOPIC: AclOperation.ALTER},
        ApiKey.ELECT_LEADERS: _ALTER_CLUSTER,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: _ALTER_CLUSTER,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: _DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_QUORUM: _DESCRIBE_CLUSTER,
        ApiKey.ADD_RAFT_VOTER: _ALTER_CLUSTER,
        ApiKey.REMOVE_RAFT_VOTER: _ALTER_CLUSTER,
        ApiKey.UPDATE_FEATURES: _ALTER_CLUSTER,
        ApiKey.UNREGISTER_BROKER: _ALTER_CLUSTER,
    }
)
"""The operation that brokers want for each API of our clients, by the type of the resource that they refuse."""


class Asked(NamedTuple):
    """What a client has asked for: the API, and the names of what the request is about."""

    api: ApiKey
    topic: str = ""
    group: str = ""
    transactional_id: str = ""


class NeededRight(NamedTuple):
    """An operation on one resource; `str` has it in words, such as "Read on topic orders"."""

    operation: AclOperation
    resource_type: ResourceType
    name: str = ""

    def __str__(self) -> str:
        operation = self.operation.name.title().replace("_", "")
        if self.resource_type is ResourceType.CLUSTER:
            return f"{operation} on the cluster"
        return f"{operation} on {RESOURCE_NOUNS[self.resource_type]} {self.name}"

    @property
    def way_out(self) -> str:
        """What an administrator does to give it to the user of the running command."""
        scram = own_scram_user()
        who = "PRINCIPAL" if scram is None else shlex.quote(scram[1])
        option = f"--{RESOURCE_NOUNS[self.resource_type].replace(' ', '-')}"
        resource = option if self.resource_type is ResourceType.CLUSTER else f"{option} {shlex.quote(self.name)}"
        command = f"raftwerk acls allow {who} {operation_name(self.operation)} {resource}"
        return f"the right {self} is missing, which an administrator gives by {command}, where no ACL denies it"


def missing_right(code: int, asked: Asked | None) -> NeededRight | None:
    """The right that a user lacks who gets this error code; None where it is no matter of rights, or not known."""
    kind = _RESOURCE_TYPES.get(code)
    if asked is None or kind is None:
        return None
    operation = NEEDED_OPERATIONS.get(asked.api, {}).get(kind)
    names = {_TOPIC: asked.topic, _GROUP: asked.group, _TRANSACTIONAL_ID: asked.transactional_id, _CLUSTER: ""}
    name = names[kind]
    return NeededRight(operation, kind, name) if operation and (name or kind is _CLUSTER) else None
