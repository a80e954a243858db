"""IncrementalAlterConfigs: forwarded to the controller, except for the levels of this broker's loggers (KIP-412).

Certificates of this broker's listeners are tried here before the controller is told (KIP-226): it has not their files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from ....wire.message_types.configs import IncrementalAlterConfigsRequest


def handle(services: BrokerServices, request: Request, message: IncrementalAlterConfigsRequest) -> Work[Result]:
    """Forward the request; what only this broker can do or check is done here."""
    body = bytes(request.body)  # its memory is used again while this is done in steps
    pace = Pace()
    answers: list[dict[str, Any]] = []
    others: list[IncrementalAlterConfigsRequest.AlterConfigsResource] = []
    for one in message.resources:
        if one.resource_type == BROKER_LOGGER_RESOURCE:
            answers.append(_alter_loggers(services, request, one, validate_only=message.validate_only))
        elif one.resource_type == BROKER_RESOURCE and (complaint := _complaint(services, one)) is not None:
            answers.append(_row(one, ErrorCode.INVALID_REQUEST, complaint))
        else:
            others.append(one)
        if pace.ends_step():
            yield PLAIN_STEP
    if not answers:
        return services.controller_channel.forward(request, body)
    if not others:
        return {"responses": answers}
    resources = yield from map_in_steps(lambda one: one.to_dict(), others, pace)
    return _both(services, request, {"resources": resources, "validate_only": message.validate_only}, answers)


def _complaint(services: BrokerServices, wanted: IncrementalAlterConfigsRequest.AlterConfigsResource) -> str | None:
    """Why the certificates that are wanted for this broker's listeners cannot be used; None if they can, or are not."""
    config = services.config
    complain = config.certificates_complaint
    if complain is None or not wanted.resource_name or not any(certificate_config(one.name) for one in wanted.configs):
        return None
    if wanted.resource_name != str(config.node_id):
        return _unexpected_node(config.node_id, wanted.resource_name)
    values = dict(services.metadata.image.configs.get((BROKER_RESOURCE, wanted.resource_name), {}))
    for one in wanted.configs:
        if one.config_operation == Operation.SET and one.value is not None:
            values[one.name] = one.value
        elif one.config_operation == Operation.DELETE:
            values.pop(one.name, None)
    complaint = complain(values)
    return None if complaint is None else f"Validation of dynamic config update failed: {complaint}"


def _unexpected_node(node_id: int, name: str) -> str:
    return f"Unexpected node id. Expected {node_id}, but received {name}"


async def _both(
    services: BrokerServices, request: Request, message: dict[str, Any], answers: list[dict[str, Any]]
) -> dict[str, Any]:
    key, version = request.api_key, request.api_version
    data = await services.controller_channel.forward(request, encode_request(key, version, message))
    return {"responses": [*answers, *decode_response(key, version, data).responses]}


def _alter_loggers(
    services: BrokerServices,
    request: Request,
    wanted: IncrementalAlterConfigsRequest.AlterConfigsResource,
    *,
    validate_only: bool,
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


def _row(
    wanted: IncrementalAlterConfigsRequest.AlterConfigsResource, code: ErrorCode, text: str | None
) -> dict[str, Any]:
    row = {"resource_type": wanted.resource_type, "resource_name": wanted.resource_name}
    return {"error_code": int(code), "error_message": text, **row}
