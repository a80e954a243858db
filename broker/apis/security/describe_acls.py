"""DescribeAcls: the access control entries that a filter matches, by their resources (KIP-140)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....controller.metadata.metadata_image import MetadataImage
from ....controller.security.acls import checked_filter
from ....runtime.incremental_work import PLAIN_STEP, Pace, Work
from ....security.authorizer.acl_binding import AclOperation
from ....wire.errors import ErrorCode, ProtocolError
from ...api import Fields
from ...authorization import Authorization
from ...network.request import Request
from ...services import BrokerServices, ControllerServices

if TYPE_CHECKING:
    from ....wire.message_types.acls import DescribeAclsRequest


def handle(services: BrokerServices, request: Request, message: DescribeAclsRequest) -> Work[Fields]:
    """The entries as this broker has them."""
    return _describe(services.authorization, services.metadata.image, request, message)


def of_controller(services: ControllerServices, request: Request, message: DescribeAclsRequest) -> Work[Fields]:
    """The entries that are committed, as this controller has them (KIP-919)."""
    return _describe(services.authorization, services.metadata.image, request, message)


def _describe(
    authorization: Authorization, image: MetadataImage, request: Request, message: DescribeAclsRequest
) -> Work[Fields]:
    authorization.check_cluster(request, AclOperation.DESCRIBE)
    if not authorization.is_on:
        raise ProtocolError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    wanted = checked_filter(message)
    pace = Pace()
    resources: dict[tuple[int, str, int], list[dict[str, Any]]] = {}
    for binding in list(image.acls.values()):
        if wanted.matches(binding):
            entry = {
                "principal": binding.principal,
                "host": binding.host,
                "operation": binding.operation,
                "permission_type": binding.permission_type,
            }
            resources.setdefault(binding[:3], []).append(entry)
        if pace.ends_step():
            yield PLAIN_STEP
    rows = [
        {"resource_type": resource_type, "resource_name": name, "pattern_type": pattern_type, "acls": entries}
        for (resource_type, name, pattern_type), entries in resources.items()
    ]
    return {"error_code": 0, "error_message": "", "resources": rows}
