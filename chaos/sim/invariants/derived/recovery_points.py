"""The invariant "what is below a recovery point is on the disk": recovery does not look at it after a loss of power.

It is checked when a node applies metadata, so also soon after it has recovered its logs: what a process that was killed
had not synced is only in the page cache then, and must not count as durable because it could be read. Logs in which
offsets may be missing are left out, and disks that lie.
"""

from __future__ import annotations

from .....isr.replica_manager import ReplicaManager
from .....log.partition_log import PartitionLog
from ...disk.sim_disk import SimDisk
from ..durable_log import DurableLog
from ..invariant_broken import InvariantBroken


class RecoveryPointChecker:
    """Remembers which recovery points were found right."""

    def __init__(self) -> None:
        self._checked: dict[int, dict[PartitionLog, int]] = {}

    def after_metadata(self, node_id: int, manager: ReplicaManager, disk: SimDisk) -> None:
        """Check the logs of a node. Raises `InvariantBroken`."""
        wrong = self.what_is_wrong(node_id, manager, disk)
        if wrong is not None:
            raise InvariantBroken("what is below a recovery point is on the disk", wrong)

    def what_is_wrong(self, node_id: int, manager: ReplicaManager, disk: SimDisk) -> str | None:
        """The first log of a node that its disk does not have up to its recovery point; None if all are right."""
        before, now = self._checked.get(node_id, {}), {}
        for key, replica in manager.partitions.items():
            log = replica.log
            if replica.offline or log.is_failed or log.is_closed or log.may_have_gaps:
                continue
            now[log] = log.recovery_point
            if before.get(log) != log.recovery_point:
                durable = DurableLog(disk, log.directory).end_offset
                if durable < log.recovery_point:
                    return f"{key} on {node_id}: {log.recovery_point}, the disk has it up to {durable}"
        self._checked[node_id] = now
        return None
