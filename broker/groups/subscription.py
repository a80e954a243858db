"""What the coordinator reads of the clients' own protocol: the topics that a consumer subscribes to.

The metadata of a member is the clients' affair ("ConsumerProtocolSubscription"); it begins with a version and the
topics in every version. Source: KIP-429, and Apache Kafka's ConsumerProtocol.
"""

from __future__ import annotations

from .packing import BadRecord, FieldReader

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """The topics, None where the bytes are something else."""
    try:
        reader = FieldReader(metadata)
        return tuple(reader.array(reader.string)) if reader.int16() >= 0 else None
    except BadRecord:
        return None
