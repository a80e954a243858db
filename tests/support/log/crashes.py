"""The end of a process in the middle of a change of files, and a log with an aborted transaction to try it on."""

from __future__ import annotations

from support.log.damaged_files import marker
from support.log.logs import NOW_MS, append, batch, make_runtime, open_log

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.log.config import LogConfig
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.state.transaction_verification import VERIFICATION_OFF
from raftwerk.runtime.ports import Runtime

CONFIG = LogConfig(index_interval_bytes=100)


class KilledError(Exception):
    """The process ends."""


class Kill:
    """Ends the process at the operation with this number of those that block, counted from now on."""

    def __init__(self, disk: SimDisk, at: int) -> None:
        self.left = at
        self._disk = disk
        disk.on_blocking = self._count

    def _count(self, operation: str, path: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise KilledError(operation, path)

    def end(self, *, power_loss: bool) -> None:
        """End the process, and let the next one live."""
        self._disk.on_blocking = lambda operation, path: None
        self._disk.crash(power_loss=power_loss)


def transactional_log() -> tuple[Runtime, SimDisk, PartitionLog]:
    """Three segments, the first of which ends with an aborted transaction."""
    runtime, disk = make_runtime()
    log = open_log(runtime, CONFIG)
    for sequence in range(5):
        options = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence, "is_transactional": True}
        data = batch(1, value=b"x" * 60, timestamp=NOW_MS, **options)
        log.append_as_leader(data, 0, NOW_MS, guard=VERIFICATION_OFF)
    log.append_as_leader(marker(7, NOW_MS), 0, NOW_MS, internal=True)
    for _ in range(2):
        log.roll()
        append(log, 3, timestamp=NOW_MS)
    log.flush()
    return runtime, disk, log
