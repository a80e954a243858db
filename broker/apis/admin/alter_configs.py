"""IncrementalAlterConfigs and AlterConfigs: forwarded to the controller, but for the levels of this broker's loggers.

The loggers are those of KIP-412. Certificates of this broker's listeners are tried here before the controller is told
(KIP-226): it has not their files. They are tried only for clients that may alter the cluster's configuration, since the
names of the files are the client's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from ....controller.configs.alter_configs import Operation, parse_node_id
from ....controller.configs.security_configs import certificate_config
from ....controller.metadata.metadata_image import BROKER_LOGGER_RESOURCE, BROKER_RESOURCE
from ....runtime.incremental_work import PLAIN_STEP, Pace, Work, map_in_steps
from ....security.authorizer.acl_binding import AclOperation
from ....wire.codec import decode_response, encode_request
from ....wire.errors import ErrorCode, ProtocolError
from ...api import Result
from ...loggers import alter_logger_levels
from ...network.request import Request
from ...services import BrokerServices
from ..controller.forwarding import forward

if TYPE_CHECKING:
    from ....wire.message_types.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest

_Values: TypeAlias = Mapping[str, str]
_Increments: TypeAlias = "IncrementalAlterConfigsRequest.AlterConfigsResource"
_Replacement: TypeAlias = "AlterConfigsRequest.AlterConfigsResource"


def handle(services: BrokerServices, request: Request, message: IncrementalAlterConfigsRequest) -> Work[Result]:
    """Forward the request; what only this broker can do or check is done here."""

    def answer(wanted: _Increments) -> dict[str, Any] | None:
        if wanted.resource_type == BROKER_LOGGER_RESOURCE:
            return _alter_loggers(services, request, wanted, validate_only=message.validate_only)
        return _refusal(services, request, wanted, lambda values: _incremented(values, wanted))

    return _forward_others(services, request, message, answer)


def handle_replacement(services: BrokerServices, request: Request, message: AlterConfigsRequest) -> Work[Result]:
    """As `handle`, of the request that replaces all configurations of a resource. It knows no loggers."""

    def answer(wanted: _Replacement) -> dict[str, Any] | None:
        replacement = {one.name: one.value for one in wanted.configs if one.value is not None}
        return _refusal(services, request, wanted, lambda _: replacement)

    return _forward_others(services, request, message, answer)


def _forward_others(
    services: BrokerServices,
    request: Request,
    message: IncrementalAlterConfigsRequest | AlterConfigsRequest,
    answer: Callable[[Any], dict[str, Any] | None],
) -> Work[Result]:
    """Forward the resources to which there is no `answer` here."""
    body = bytes(request.body)  # its memory is used again while this is done in steps
    pace = Pace()
    answers: list[dict[str, Any]] = []
    others: list[Any] = []
    for one in message.resources:
        answered = answer(one)
        if answered is not None:
            answers.append(answered)
        else:
            others.append(one)
        if pace.ends_step():
            yield PLAIN_STEP
    if not answers:
        return forward(services, request, body)
    if not others:
        return {"responses": answers}
    resources = yield from map_in_steps(lambda one: one.to_dict(), others, pace)
    return _both(services, request, {"resources": resources, "validate_only": message.validate_only}, answers)


def _refusal(
    services: BrokerServices,
    request: Request,
    wanted: _Increments | _Replacement,
    change: Callable[[_Values], _Values],
) -> dict[str, Any] | None:
    """The row that refuses certificates for this broker's listeners; None if they can be used, or none are given.

    `change` makes the broker's new values out of the old ones.
    """
    if wanted.resource_type != BROKER_RESOURCE or not wanted.resource_name:
        return None
    config = services.config
    complain = config.certificates_complaint
    if complain is None or not any(certificate_config(one.name) for one in wanted.configs):
        return None
    try:
        services.authorization.check_cluster(request, AclOperation.ALTER_CONFIGS)
    except ProtocolError as denied:
        return _row(wanted, denied.code, denied.message)
    if wanted.resource_name != str(config.node_id):
        return _row(wanted, ErrorCode.INVALID_REQUEST, _unexpected_node(config.node_id, wanted.resource_name))
    complaint = complain(change(services.metadata.image.configs.get((BROKER_RESOURCE, wanted.resource_name), {})))
    if complaint is None:
        return None
    return _row(wanted, ErrorCode.INVALID_REQUEST, f"Validation of dynamic config update failed: {complaint}")


def _incremented(old: _Values, wanted: _Increments) -> _Values:
    values = dict(old)
    for one in wanted.configs:
        if one.config_operation == Operation.SET and one.value is not None:
            values[one.name] = one.value
        elif one.config_operation == Operation.DELETE:
            values.pop(one.name, None)
    return values


def _unexpected_node(node_id: int, name: str) -> str:
    return f"Unexpected node id. Expected {node_id}, but received {name}"


async def _both(
    services: BrokerServices, request: Request, message: dict[str, Any], answers: list[dict[str, Any]]
) -> dict[str, Any]:
    key, version = request.api_key, request.api_version
    data = await forward(services, request, encode_request(key, version, message))
    return {"responses": [*answers, *decode_response(key, version, data).responses]}


def _alter_loggers(
    services: BrokerServices, request: Request, wanted: _Increments, *, validate_only: bool
) -> dict[str, Any]:
    name = wanted.resource_name
    code, text = ErrorCode.NONE, None
    try:
        services.authorization.check_cluster(request, AclOperation.ALTER_CONFIGS)
        if parse_node_id(name) != services.config.node_id:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, _unexpected_node(services.config.node_id, name))
        alter_logger_levels(wanted.configs, validate_only=validate_only)
    except ProtocolError as refused:
        code, text = refused.code, refused.message
    return _row(wanted, code, text)


def _row(wanted: _Increments | _Replacement, code: ErrorCode, text: str | None) -> dict[str, Any]:
    row = {"resource_type": wanted.resource_type, "resource_name": wanted.resource_name}
    return {"error_code": int(code), "error_message": text, **row}
