"""The response of each API when a whole request is refused (Kafka: `AbstractRequest.getErrorResponse`).

Some APIs have one error code at the top, others one for each thing that was asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..wire.codec import Rows
from ..wire.errors import ErrorCode
from .result import Response, error_response

if TYPE_CHECKING:
    from ..wire.message_types.acls import CreateAclsRequest, DeleteAclsRequest
    from ..wire.message_types.configs import (
        AlterClientQuotasRequest,
        AlterConfigsRequest,
        IncrementalAlterConfigsRequest,
    )
    from ..wire.message_types.security import AlterUserScramCredentialsRequest, CreateDelegationTokenRequest
    from ..wire.message_types.topics import (
        AlterPartitionReassignmentsRequest,
        CreatePartitionsRequest,
        CreateTopicsRequest,
        DeleteTopicsRequest,
        ElectLeadersRequest,
    )


def top_level(request: object, code: ErrorCode, message: str | None) -> Response:
    """APIs whose response has one error code and one message."""
    return error_response(code, message)


def alter_partition(request: object, code: ErrorCode, message: str | None) -> Response:
    """AlterPartition: the error, and no topics."""
    return {"error_code": int(code), "topics": []}


def assign_replicas(request: object, code: ErrorCode, message: str | None) -> Response:
    """AssignReplicasToDirs: the error, and no directories."""
    return {"error_code": int(code), "directories": []}


def elect_leaders(request: ElectLeadersRequest, code: ErrorCode, message: str | None) -> Response:
    """ElectLeaders: the error, as a whole and for each named partition."""
    error = error_response(code, message)

    def topic_row(topic: ElectLeadersRequest.TopicPartitions) -> Response:
        rows = Rows(lambda index: {"partition_id": index, **error}, topic.partitions)
        return {"topic": topic.topic, "partition_result": rows}

    results = Rows(topic_row, request.topic_partitions or ())
    return {"error_code": int(code), "replica_election_results": results}


def reassignments(request: AlterPartitionReassignmentsRequest, code: ErrorCode, message: str | None) -> Response:
    """AlterPartitionReassignments: the error, as a whole and for each partition."""
    error = error_response(code, message)

    def topic_row(topic: AlterPartitionReassignmentsRequest.ReassignableTopic) -> Response:
        rows = Rows(lambda one: {"partition_index": one.partition_index, **error}, topic.partitions)
        return {"name": topic.name, "partitions": rows}

    return {**error, "responses": Rows(topic_row, request.topics)}


def list_reassignments(request: object, code: ErrorCode, message: str | None) -> Response:
    """ListPartitionReassignments: the error, and no topics."""
    return {**error_response(code, message), "topics": []}


def create_topics(request: CreateTopicsRequest, code: ErrorCode, message: str | None) -> Response:
    """CreateTopics: the error for each topic."""
    return {"topics": Rows(lambda topic: {"name": topic.name, **error_response(code, message)}, request.topics)}


def delete_topics(request: DeleteTopicsRequest, code: ErrorCode, message: str | None) -> Response:
    """DeleteTopics: the error for each topic, with the name or id of the request."""
    named = request.get("topics", None)
    error = error_response(code, message)
    if named is None:
        return {"responses": Rows(lambda name: {"name": name, "topic_id": None, **error}, request.topic_names)}
    return {"responses": Rows(lambda topic: {"name": topic.name, "topic_id": topic.topic_id, **error}, named)}


def create_partitions(request: CreatePartitionsRequest, code: ErrorCode, message: str | None) -> Response:
    """CreatePartitions: the error for each topic."""
    return {"results": Rows(lambda topic: {"name": topic.name, **error_response(code, message)}, request.topics)}


def alter_configs(
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest, code: ErrorCode, message: str | None
) -> Response:
    """AlterConfigs and IncrementalAlterConfigs: the error for each resource."""
    error = error_response(code, message)
    return {
        "responses": Rows(
            lambda resource: {
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
                **error,
            },
            request.resources,
        )
    }


def scram_credentials(request: AlterUserScramCredentialsRequest, code: ErrorCode, message: str | None) -> Response:
    """AlterUserScramCredentials: the error for each user."""
    names = dict.fromkeys(one.name for one in (*request.deletions, *request.upsertions))
    return {"results": [{"user": name, **error_response(code, message)} for name in names]}


def create_token(request: CreateDelegationTokenRequest, code: ErrorCode, message: str | None) -> Response:
    """CreateDelegationToken: the error, and no token."""
    owner = {
        "principal_type": request.get("owner_principal_type", None) or "",
        "principal_name": request.get("owner_principal_name", None) or "",
    }
    times = dict.fromkeys(("issue_timestamp", "expiry_timestamp", "max_timestamp"), -1)
    return {"error_code": int(code), **owner, **times, "token_id": "", "hmac": b""}


def change_token(request: object, code: ErrorCode, message: str | None) -> Response:
    """RenewDelegationToken and ExpireDelegationToken: the error, and no time."""
    return {"error_code": int(code), "expiry_timestamp": -1}


def client_quotas(request: AlterClientQuotasRequest, code: ErrorCode, message: str | None) -> Response:
    """AlterClientQuotas: the error for each entity."""
    error = error_response(code, message)
    return {"entries": Rows(lambda entry: {**error, "entity": entry.entity}, request.entries)}


def create_acls(request: CreateAclsRequest, code: ErrorCode, message: str | None) -> Response:
    """CreateAcls: the error for each entry."""
    return {"results": Rows(lambda creation: error_response(code, message), request.creations)}


def delete_acls(request: DeleteAclsRequest, code: ErrorCode, message: str | None) -> Response:
    """DeleteAcls: the error for each filter."""
    return {"filter_results": Rows(lambda one: {**error_response(code, message), "matching_acls": []}, request.filters)}
