"""ApiVersions: the versions that a listener serves, and the features (KIP-35, KIP-511, KIP-584)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....wire.errors import ErrorCode
from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices

if TYPE_CHECKING:
    from ....wire.message_types.cluster import ApiVersionsRequest

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def api_versions_fields(
    request: Request,
    message: ApiVersionsRequest,
    rows: list[dict[str, int]],
    supported: Mapping[str, tuple[int, int]],
    finalized: tuple[int, Mapping[str, int]],
) -> Fields:
    """The response. `finalized` is the metadata offset and the feature levels at that offset."""
    if request.api_version >= 3:
        name, version = message.client_software_name, message.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return {"error_code": int(ErrorCode.INVALID_REQUEST)}
        request.sink.software = (name, version)
    epoch, levels = finalized
    features: list[dict[str, Any]] = [
        {"name": name, "min_version": low, "max_version": high}
        for name, (low, high) in sorted(supported.items())
        if low > 0 or request.api_version >= 4  # older clients reject a minimum of 0
    ]
    return {
        "error_code": 0,
        "api_keys": rows,
        "supported_features": features,
        "finalized_features_epoch": epoch,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in sorted(levels.items())
        ],
        "zk_migration_ready": False,
    }


def handle(services: BrokerServices, request: Request, message: ApiVersionsRequest) -> Fields:
    """The versions of a broker listener."""
    metadata, supported = services.metadata, services.config.supported_features
    finalized = metadata.image.offset, metadata.finalized_features
    return api_versions_fields(request, message, services.version_rows(), supported, finalized)
