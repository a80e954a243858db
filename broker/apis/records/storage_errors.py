"""KAFKA_STORAGE_ERROR for clients that do not know it (KIP-112): Fetch before version 6, Produce before version 4."""

from __future__ import annotations

from collections.abc import Iterable

from ....wire.errors import ErrorCode
from ....wire.fetch import FetchTopicResponse
from ....wire.produce import ProduceTopicResponse


def replace_storage_errors(topics: Iterable[FetchTopicResponse | ProduceTopicResponse]) -> None:
    """Tell these clients NOT_LEADER_OR_FOLLOWER, so that they look for the new leader."""
    for topic in topics:
        for row in topic.partitions:
            if row.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                row.error_code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
