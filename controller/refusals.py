"""How each API says that a request as a whole is refused: at the top, or once for each thing it asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from ..wire.errors import ErrorCode
from .result import Response, error_response

if TYPE_CHECKING:
    from ..wire.message_types.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
    from ..wire.message_types.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest


def refuse(request: object, code: ErrorCode, message: str | None) -> Response:
    """For responses with an error of their own."""
    return error_response(code, message)


def refuse_alter_partition(request: object, code: ErrorCode, message: str | None) -> Response:
    """AlterPartition: the error, and no topics."""
    return {"error_code": int(code), "topics": []}


def refuse_assign_replicas(request: object, code: ErrorCode, message: str | None) -> Response:
    """AssignReplicasToDirs: the error, and no directories."""
    return {"error_code": int(code), "directories": []}


def refuse_elect_leaders(request: object, code: ErrorCode, message: str | None) -> Response:
    """ElectLeaders: the error, and no results."""
    return {"error_code": int(code), "replica_election_results": []}


def refuse_reassignments(request: object, code: ErrorCode, message: str | None) -> Response:
    """AlterPartitionReassignments: the error, and no results."""
    return {**error_response(code, message), "responses": []}


def refuse_list_reassignments(request: object, code: ErrorCode, message: str | None) -> Response:
    """ListPartitionReassignments: the error, and no topics."""
    return {**error_response(code, message), "topics": []}


def refuse_create_topics(request: CreateTopicsRequest, code: ErrorCode, message: str | None) -> Response:
    """CreateTopics: the error for each topic."""
    return {"topics": [{"name": topic.name, **error_response(code, message)} for topic in request.topics]}


def refuse_delete_topics(request: DeleteTopicsRequest, code: ErrorCode, message: str | None) -> Response:
    """DeleteTopics: the error for each topic, by the name or id it was asked by."""
    named = request.get("topics", None)
    asked: list[tuple[str | None, UUID | None]]
    asked = [(n, None) for n in request.topic_names] if named is None else [(t.name, t.topic_id) for t in named]
    error = error_response(code, message)
    return {"responses": [{"name": name, "topic_id": topic_id, **error} for name, topic_id in asked]}


def refuse_create_partitions(request: CreatePartitionsRequest, code: ErrorCode, message: str | None) -> Response:
    """CreatePartitions: the error for each topic."""
    return {"results": [{"name": topic.name, **error_response(code, message)} for topic in request.topics]}


def refuse_alter_configs(
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest, code: ErrorCode, message: str | None
) -> Response:
    """IncrementalAlterConfigs: the error for each resource."""
    error = error_response(code, message)
    return {
        "responses": [
            {"resource_type": resource.resource_type, "resource_name": resource.resource_name, **error}
            for resource in request.resources
        ]
    }
