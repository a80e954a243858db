"""The invariant "compaction passes no open transaction": its records may not take the place of committed ones.

It is checked when a node applies metadata: a transaction that is open then was open all the time since its first batch.
"""

from __future__ import annotations

from .....isr.replica_manager import ReplicaManager
from .....log.manager.log_manager import LogManager
from ..invariant_broken import InvariantBroken


def check_compacted(node_id: int, manager: ReplicaManager, logs: LogManager) -> None:
    """Compare how far logs are clean with their open transactions. Raises `InvariantBroken`."""
    for key, replica in manager.partitions.items():
        opened = None if replica.offline else replica.log.producers.first_open_offset()
        if opened is None or not replica.log.config.is_compacted:
            continue
        clean = logs.directories.clean_offset(key)
        if opened < clean:
            detail = f"{key} on {node_id} is clean up to {clean}, a transaction is open since {opened}"
            raise InvariantBroken("compaction passes no open transaction", detail)
