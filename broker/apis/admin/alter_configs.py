"""IncrementalAlterConfigs: forwarded to the controller, except for the levels of this broker's loggers (KIP-412)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ....controller.configs.alter_configs import parse_node_id
from ....controller.metadata.metadata_image import BROKER_LOGGER_RESOURCE
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
    """Forward the request; changes of this broker's loggers are made here."""
    body = bytes(request.body)  # its memory is used again while this is done in steps
    pace = Pace()
    own: list[IncrementalAlterConfigsRequest.AlterConfigsResource] = []
    others: list[IncrementalAlterConfigsRequest.AlterConfigsResource] = []
    for one in message.resources:
        (own if one.resource_type == BROKER_LOGGER_RESOURCE else others).append(one)
        if pace.ends_step():
            yield PLAIN_STEP
    if not own:
        return services.controller_channel.forward(request, body)
    alter = partial(_alter_loggers, services, request, validate_only=message.validate_only)
    answers = yield from map_in_steps(alter, own, pace)
    if not others:
        return {"responses": answers}
    resources = yield from map_in_steps(lambda one: one.to_dict(), others, pace)
    return _both(services, request, {"resources": resources, "validate_only": message.validate_only}, answers)


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
            complaint = f"Unexpected node id. Expected {services.config.node_id}, but received {name}"
            raise ProtocolError(ErrorCode.INVALID_REQUEST, complaint)
        alter_logger_levels(wanted.configs, validate_only=validate_only)
    except ProtocolError as refused:
        code, text = refused.code, refused.message
    row = {"resource_type": wanted.resource_type, "resource_name": name}
    return {"error_code": int(code), "error_message": text, **row}
