"""The answer to each request that is refused as a whole: it can be sent, and says the error where clients look."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from support.controller.controller_harness import decoded

from raftwerk.controller import error_responses
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import decode_response, encode_response
from raftwerk.wire.errors import ErrorCode

REFUSED = ErrorCode.NOT_CONTROLLER
TOPIC_ID = UUID(int=7)
CONFIGS = [{"resource_type": 2, "resource_name": name, "configs": []} for name in "ab"]
CONFIGS_ROWS = [{"resource_type": 2, "resource_name": name} for name in "ab"]
ENTRY = {"resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:a", "host": "*"}
FILTER = {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 2, "permission_type": 3}
CREDENTIAL = {"mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p"}
REFUSALS: list[tuple[ApiKey, Callable[..., Any], dict[str, Any], int, list[dict[str, Any]]]] = [
    (ApiKey.ALTER_PARTITION, error_responses.alter_partition, {"broker_id": 1, "topics": []}, 3, [{}]),
    (
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        error_responses.assign_replicas,
        {"broker_id": 1, "broker_epoch": 1, "directories": []},
        0,
        [{}],
    ),
    (
        ApiKey.ELECT_LEADERS,
        error_responses.elect_leaders,
        {"topic_partitions": [{"topic": "t", "partitions": [0, 3]}], "timeout_ms": 1},
        2,
        [{}, {"partition_id": 0}, {"partition_id": 3}],
    ),
    (
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        error_responses.reassignments,
        {"topics": [{"name": "t", "partitions": [{"partition_index": 3, "replicas": [1]}]}]},
        0,
        [{}, {"partition_index": 3}],
    ),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, error_responses.list_reassignments, {"topics": None}, 0, [{}]),
    (
        ApiKey.CREATE_TOPICS,
        error_responses.create_topics,
        {"topics": [{"name": n, "num_partitions": 1, "replication_factor": 1} for n in "ab"], "timeout_ms": 1},
        7,
        [{"name": "a"}, {"name": "b"}],
    ),
    (
        ApiKey.DELETE_TOPICS,
        error_responses.delete_topics,
        {"topics": [{"name": None, "topic_id": TOPIC_ID}, {"name": "b"}], "timeout_ms": 1},
        6,
        [{"topic_id": TOPIC_ID}, {"name": "b"}],
    ),
    (
        ApiKey.DELETE_TOPICS,
        error_responses.delete_topics,
        {"topic_names": ["a", "b"], "timeout_ms": 1},
        5,
        [{"name": "a"}, {"name": "b"}],
    ),
    (
        ApiKey.CREATE_PARTITIONS,
        error_responses.create_partitions,
        {"topics": [{"name": "a", "count": 2}, {"name": "b", "count": 2}], "timeout_ms": 1, "validate_only": False},
        3,
        [{"name": "a"}, {"name": "b"}],
    ),
    (ApiKey.ALTER_CONFIGS, error_responses.alter_configs, {"resources": CONFIGS}, 2, CONFIGS_ROWS),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, error_responses.alter_configs, {"resources": CONFIGS}, 1, CONFIGS_ROWS),
    (
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        error_responses.scram_credentials,
        {"deletions": [{"name": "a", "mechanism": 1}], "upsertions": [{"name": n, **CREDENTIAL} for n in "ab"]},
        0,
        [{"user": "a"}, {"user": "b"}],
    ),
    (
        ApiKey.CREATE_DELEGATION_TOKEN,
        error_responses.create_token,
        {"owner_principal_type": "User", "owner_principal_name": "a", "renewers": [], "max_lifetime": 1},
        3,
        [{"principal_type": "User", "principal_name": "a", "hmac": b"", "max_timestamp": -1}],
    ),
    (
        ApiKey.RENEW_DELEGATION_TOKEN,
        error_responses.change_token,
        {"hmac": b"h", "renew_period": 1},
        2,
        [{"expiry_timestamp": -1}],
    ),
    (
        ApiKey.CREATE_ACLS,
        error_responses.create_acls,
        {"creations": [{**ENTRY, "operation": 2, "permission_type": 3}] * 2},
        3,
        [{}, {}],
    ),
    (
        ApiKey.ALTER_CLIENT_QUOTAS,
        error_responses.client_quotas,
        {"entries": [{"entity": [{"entity_type": "user", "entity_name": "a"}], "ops": []}], "validate_only": False},
        1,
        [{"entity": [{"entity_type": "user", "entity_name": "a"}]}],
    ),
    (ApiKey.DELETE_ACLS, error_responses.delete_acls, {"filters": [FILTER]}, 3, [{}]),
]


def rows_with_errors(value: Any) -> Iterator[dict[str, Any]]:
    """The parts of a response that have an error code, the outer ones first."""
    if isinstance(value, dict):
        if "error_code" in value:
            yield value
        for one in value.values():
            yield from rows_with_errors(one)
    elif isinstance(value, list):
        for one in value:
            yield from rows_with_errors(one)


@pytest.mark.parametrize(
    ("api_key", "respond", "fields", "version", "expected"),
    REFUSALS,
    ids=[f"{key.name.lower()}-{version}" for key, _, _, version, _ in REFUSALS],
)
def test_each_part_of_the_answer_says_the_error(
    api_key: ApiKey, respond: Callable[..., Any], fields: dict[str, Any], version: int, expected: list[dict[str, Any]]
) -> None:
    request = decoded(api_key, version=version, **fields)
    response = respond(request, REFUSED, "ask another one")
    answer = decode_response(api_key, version, encode_response(api_key, version, response))
    found = list(rows_with_errors(answer.to_dict()))
    assert [row["error_code"] for row in found] == [REFUSED] * len(expected)
    for row, parts in zip(found, expected, strict=True):
        assert {name: row[name] for name in parts} == parts
        assert row.get("error_message", "ask another one") == "ask another one"
