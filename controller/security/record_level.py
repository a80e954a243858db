"""Whether all nodes of the cluster can read records about security."""

from __future__ import annotations

from ...wire.errors import ErrorCode, ProtocolError
from ..metadata.metadata_image import RECORD_VERSION_FEATURE, MetadataImage
from ..metadata.metadata_records import SECURITY_RECORDS


def check_security_records(image: MetadataImage) -> None:
    """Raise `ProtocolError(UNSUPPORTED_VERSION)` while older software may read the metadata log."""
    if image.record_level < SECURITY_RECORDS:
        text = (
            f"The cluster keeps {RECORD_VERSION_FEATURE} at {image.record_level}, and users, ACLs, quotas and tokens "
            f"need {SECURITY_RECORDS}: when all nodes have the new software, raise it with "
            f"kafka-features upgrade --feature {RECORD_VERSION_FEATURE}={SECURITY_RECORDS}"
        )
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, text)
