"""The APIs that a broker hands on to the active controller as they are (KIP-590). The controller decides everything."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from ....wire.api_keys import ApiKey
from ....wire.codec import Struct
from ...api import Api, ErrorFields, Fields, top_level_error
from ...network.request import Request
from ...services import BrokerServices


def forward(services: BrokerServices, request: Request, message: Struct) -> Awaitable[Fields]:
    return services.forwarder.forward(request, message)


def _create_topics_error(message: Struct, code: int, text: str) -> Fields:
    return {"topics": [{"name": one.name, "error_code": code, "error_message": text} for one in message.topics]}


def _delete_topics_error(message: Struct, code: int, text: str) -> Fields:
    rows: list[dict[str, Any]] = [{"name": name, "topic_id": None} for name in message.get("topic_names", ())]
    rows += [{"name": one.name, "topic_id": one.topic_id} for one in message.get("topics", ())]
    return {"responses": [row | {"error_code": code, "error_message": text} for row in rows]}


def _create_partitions_error(message: Struct, code: int, text: str) -> Fields:
    return {"results": [{"name": one.name, "error_code": code, "error_message": text} for one in message.topics]}


def alter_configs_error(message: Struct, code: int, text: str) -> Fields:
    """Every resource gets the error."""
    return {
        "responses": [
            {
                "error_code": code,
                "error_message": text,
                "resource_type": one.resource_type,
                "resource_name": one.resource_name,
            }
            for one in message.resources
        ]
    }


def _api(key: ApiKey, versions: tuple[int, int], error: ErrorFields) -> Api[BrokerServices]:
    return Api(key, versions, handle=forward, error=error)


CREATE_TOPICS = _api(ApiKey.CREATE_TOPICS, (2, 7), _create_topics_error)
DELETE_TOPICS = _api(ApiKey.DELETE_TOPICS, (1, 6), _delete_topics_error)
CREATE_PARTITIONS = _api(ApiKey.CREATE_PARTITIONS, (0, 3), _create_partitions_error)
ELECT_LEADERS = _api(ApiKey.ELECT_LEADERS, (0, 2), top_level_error)
UPDATE_FEATURES = _api(ApiKey.UPDATE_FEATURES, (0, 2), top_level_error)
ALTER_CONFIGS = _api(ApiKey.ALTER_CONFIGS, (0, 2), alter_configs_error)
DESCRIBE_QUORUM = _api(ApiKey.DESCRIBE_QUORUM, (0, 2), top_level_error)
ADD_RAFT_VOTER = _api(ApiKey.ADD_RAFT_VOTER, (0, 1), top_level_error)
REMOVE_RAFT_VOTER = _api(ApiKey.REMOVE_RAFT_VOTER, (0, 0), top_level_error)
ALTER_PARTITION_REASSIGNMENTS = _api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, (0, 1), top_level_error)
LIST_PARTITION_REASSIGNMENTS = _api(ApiKey.LIST_PARTITION_REASSIGNMENTS, (0, 0), top_level_error)
UNREGISTER_BROKER = _api(ApiKey.UNREGISTER_BROKER, (0, 0), top_level_error)

APIS = (
    CREATE_TOPICS,
    DELETE_TOPICS,
    CREATE_PARTITIONS,
    ELECT_LEADERS,
    ALTER_CONFIGS,
    DESCRIBE_QUORUM,
    ADD_RAFT_VOTER,
    REMOVE_RAFT_VOTER,
    UPDATE_FEATURES,
    UNREGISTER_BROKER,
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
)
