"""KAFKA_STORAGE_ERROR for clients that do not know it (KIP-112): Fetch before version 6, Produce before version 4."""

from __future__ import annotations

from collections.abc import Iterable

from ....wire.errors import ErrorCode
from ....wire.fetch import FetchPartitionResponse
from ....wire.produce import ProducePartitionResponse


def replace_storage_errors(rows: Iterable[FetchPartitionResponse | ProducePartitionResponse]) -> None:
    """Tell these clients NOT_LEADER_OR_FOLLOWER, so that they look for the new leader."""
    for row in rows:
        if row.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
            row.error_code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
