"""ListConfigResources: the resources that can have configurations (KIP-1142). Version 0: client metrics only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....controller.metadata.metadata_image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from ....security.authorizer.acl_binding import AclOperation
from ....wire.errors import ErrorCode, ProtocolError
from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices

if TYPE_CHECKING:
    from ....wire.message_types.configs import ListConfigResourcesRequest

_KNOWN = (TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE)


def handle(services: BrokerServices, request: Request, message: ListConfigResourcesRequest) -> Fields:
    """The resources of the types asked for; of all types where none is."""
    services.authorization.check_cluster(request, AclOperation.DESCRIBE_CONFIGS)
    wanted = message.get("resource_types", [CLIENT_METRICS_RESOURCE]) or list(_KNOWN)
    if any(kind not in _KNOWN for kind in wanted):
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION)
    image = services.metadata.image
    brokers = [str(broker_id) for broker_id in sorted(image.brokers)]
    names = {
        TOPIC_RESOURCE: sorted(image.topics_by_name),
        BROKER_RESOURCE: brokers,
        BROKER_LOGGER_RESOURCE: brokers,
        CLIENT_METRICS_RESOURCE: sorted(name for kind, name in image.configs if kind == CLIENT_METRICS_RESOURCE),
        GROUP_RESOURCE: sorted(name for kind, name in image.configs if kind == GROUP_RESOURCE),
    }
    return {
        "error_code": 0,
        "config_resources": [
            {"resource_name": name, "resource_type": kind}
            for kind in dict.fromkeys(wanted)
            for name in names.get(kind, ())
        ],
    }
