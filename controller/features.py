"""Finalized features: what the whole cluster has agreed to use.

`metadata.version` is the level that Apache Kafka 4.2 finalizes (4.2-IV1). The quorum has static voters, which is
`kraft.version` 0; a feature at level 0 is not listed as finalized, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..wire.errors import ErrorCode, ProtocolError
from .image import ELR_FEATURE, METADATA_VERSION_FEATURE, MetadataImage
from .records import FeatureLevelRecord, Record

METADATA_VERSION_MIN = 7
METADATA_VERSION = 29
KRAFT_VERSION_FEATURE = "kraft.version"

SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {
    METADATA_VERSION_FEATURE: (METADATA_VERSION_MIN, METADATA_VERSION),
    KRAFT_VERSION_FEATURE: (0, 0),
    ELR_FEATURE: (0, 1),
}
"""Lowest and highest level of each feature that this node knows; for ApiVersions and registrations."""


def bootstrap_records(image: MetadataImage) -> list[Record]:
    """The first records of a new cluster; none when there are any already."""
    if image.features:
        return []
    return [
        FeatureLevelRecord(METADATA_VERSION_FEATURE, METADATA_VERSION),
        FeatureLevelRecord(ELR_FEATURE, 1),
    ]


def check_supported(image: MetadataImage, offered: Any) -> None:
    """Raise `ProtocolError(UNSUPPORTED_VERSION)` when a finalized level is outside the range that a node offers.

    A feature that the node does not name is not held against it: versions 0 to 3 of BrokerRegistration cannot name
    those whose range starts at 0.
    """
    for one in offered:
        level = image.features.get(one.name, 0)
        low, high = one.min_supported_version, one.max_supported_version
        if level and not low <= level <= high:
            raise ProtocolError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {one.name}. "
                f"The broker wants a version between {low} and {high}, inclusive.",
            )
