"""The invariant "compaction passes no open transaction": its records may not take the place of committed ones.

It is checked when a node applies metadata: a transaction that is open then was open all the time since its first batch.
"""

from __future__ import annotations

from uuid import UUID

from .....isr.replica import Replica
from .....isr.replica_manager import ReplicaManager
from .....log.manager.log_manager import LogManager
from ..invariant_broken import InvariantBroken


class CompactedLogs:
    """Remembers how far each log of each node was clean."""

    def __init__(self) -> None:
        self._clean: dict[tuple[int, UUID, int], int] = {}

    def after_metadata(self, node_id: int, manager: ReplicaManager, logs: LogManager) -> list[Replica]:
        """Compare how far logs are clean with their open transactions; returns those that were compacted meanwhile.

        Raises `InvariantBroken`.
        """
        compacted = []
        for key, replica in manager.partitions.items():
            if replica.offline or not replica.log.config.is_compacted:
                continue
            clean = logs.directories.clean_offset(key)
            opened = replica.log.producers.first_open_offset()
            if opened is not None and opened < clean:
                detail = f"{key} on {node_id} is clean up to {clean}, a transaction is open since {opened}"
                raise InvariantBroken("compaction passes no open transaction", detail)
            where = node_id, replica.topic_id, key.partition
            if clean != self._clean.get(where, 0):
                self._clean[where] = clean
                compacted.append(replica)
        return compacted
