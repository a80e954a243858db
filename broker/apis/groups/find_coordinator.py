"""FindCoordinator: the broker that leads the partition of a group or of a transactional id.

The partition is one of `__consumer_offsets` or of `__transaction_state`. The first request creates the topic. The
answer waits up to a second for it, so that the client need not ask again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ....runtime.incremental_work import Work, map_in_steps
from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....security.authorizer.authorizer import DENIED
from ....wire.codec import Rows
from ....wire.errors import ErrorCode
from ...api import Fields, Result
from ...coordinators.coordinator_topic import CoordinatorTopic
from ...network.request import Request
from ...services import BrokerServices
from ...topic_view import endpoint_of

if TYPE_CHECKING:
    from ....wire.message_types.groups import FindCoordinatorRequest

FIRST_BATCHED_VERSION = 4
GROUP_KEY_TYPE, TRANSACTION_KEY_TYPE = 0, 1
_NO_NODE = {"node_id": -1, "host": "", "port": -1}
_CREATION_WAIT_S = 1.0
_RESOURCE_TYPES = {GROUP_KEY_TYPE: ResourceType.GROUP, TRANSACTION_KEY_TYPE: ResourceType.TRANSACTIONAL_ID}


def handle(services: BrokerServices, request: Request, message: FindCoordinatorRequest) -> Result:
    """Find each key's coordinator; create the coordinators' topic if it is missing."""
    topic = _topic(services, message.get("key_type", GROUP_KEY_TYPE))
    if topic is None or topic.image is not None or not _may_create(services, request, message):
        return _answer(services, request, message)
    services.topic_creator.request_topics([topic.name])
    return _answer_when_created(topic, services, request, message)


def _may_create(services: BrokerServices, request: Request, message: FindCoordinatorRequest) -> bool:
    """Whether the client has the right on any key: for others no topic is created."""
    rights = services.authorization
    if not rights.is_on:
        return True
    resource_type = _RESOURCE_TYPES[message.get("key_type", GROUP_KEY_TYPE)]
    keys = message.coordinator_keys if request.api_version >= FIRST_BATCHED_VERSION else [message.key]
    may_describe = rights.permission(request, AclOperation.DESCRIBE, resource_type)
    return any(may_describe(key) for key in keys)


async def _answer_when_created(
    topic: CoordinatorTopic, services: BrokerServices, request: Request, message: FindCoordinatorRequest
) -> Result:
    await topic.wait(_CREATION_WAIT_S)
    return _answer(services, request, message)


def _topic(services: BrokerServices, key_type: int) -> CoordinatorTopic | None:
    """The topic of the coordinators of this type; None where the type is not served."""
    if key_type == GROUP_KEY_TYPE:
        return services.groups.topic
    return services.transactions.topic if key_type == TRANSACTION_KEY_TYPE else None


def _answer(services: BrokerServices, request: Request, message: FindCoordinatorRequest) -> Result:
    key_type = message.get("key_type", GROUP_KEY_TYPE)

    def found(key: str) -> dict[str, Any]:
        return {"key": key, **_row(services, request, key_type, key)}

    if request.api_version < FIRST_BATCHED_VERSION:
        return found(message.key)
    return _answer_in_steps(found, message)


def _answer_in_steps(found: Callable[[str], Fields], message: FindCoordinatorRequest) -> Work[Result]:
    return {"coordinators": (yield from map_in_steps(found, message.coordinator_keys))}


def _row(services: BrokerServices, request: Request, key_type: int, key: str) -> dict[str, Any]:
    topic = _topic(services, key_type)
    if topic is None:
        return _refused(ErrorCode.INVALID_REQUEST, f"coordinators of type {key_type} are not served")
    resource_type = _RESOURCE_TYPES[key_type]
    if not services.authorization.is_allowed(request, AclOperation.DESCRIBE, resource_type, key):
        return _refused(DENIED[resource_type], "")
    if not key and key_type == GROUP_KEY_TYPE:
        return _refused(ErrorCode.INVALID_GROUP_ID, "The configured groupId is invalid.")
    registration = topic.registration_of(key)
    broker = None if registration is None else services.metadata.image.brokers.get(registration.leader)
    endpoint = endpoint_of(broker, request.sink.listener_name)
    if broker is None or endpoint is None or broker.fenced:
        return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
    found = {"node_id": broker.broker_id, "host": endpoint.host, "port": endpoint.port}
    return {"error_code": 0, "error_message": None, **found}


def _refused(code: ErrorCode, text: str) -> dict[str, Any]:
    return {"error_code": int(code), "error_message": text, **_NO_NODE}


def error(message: FindCoordinatorRequest, code: int, text: str) -> Fields:
    """Every key asked for gets the error."""
    failed = {"error_code": code, "error_message": text, **_NO_NODE}
    return {**failed, "coordinators": Rows(lambda key: {"key": key, **failed}, message.get("coordinator_keys", ()))}
