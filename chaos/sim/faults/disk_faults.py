"""What may happen to a host's disk, and what is promised then, which is what Apache Kafka promises too.

- fsync fails, no space: the node ends by itself, and others lead. Nothing acked is lost. After a failed fsync nobody
  knows what the page cache is worth, so the machine is booted again before the node is: what the device never got is
  gone, as after a loss of power.
- The disk is wiped, or an old copy of it is brought back: nothing is lost if, at that moment, every replica is in
  sync and every voter holds all that is committed and knows the epoch. A quorum of fixed voters cannot tell that one of
  them forgot its vote, nor a partition that a lone ISR member forgot its log. So these faults wait for such a moment.
- One of several log directories fails, or is exchanged for an empty one: the others go on, and so does the node. The
  replicas in it are led and followed elsewhere, and made anew on the empty disk; nothing acked is lost.
- Bits rot in cold data of one replica: brokers do not check what they read, as Kafka's do not; but no follower appends
  what does not match its checksum, so rot never spreads, and consumers see the mismatch. What is promised: every record
  is read unharmed once the replica was replaced, and no harmed one passes for a good one.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ....wire.records import BATCH_HEADER_SIZE, iter_headers
from ..disk.inodes import DiskCopy
from ..disk.sim_disk import SimDisk
from ..kernel.world import Host
from .target_cluster import TargetCluster

USUAL_SYNC_S = (0.0002, 0.002)
_SLOW_SYNC_S = (0.05, 0.5)
_LEFT_BYTES_MAX = 4096

Undo = Callable[[], None]


def slow(host: Host) -> Undo:
    """Every fsync takes long."""
    host.disk.set_sync_latency(*_SLOW_SYNC_S)
    return lambda: host.disk.set_sync_latency(*USUAL_SYNC_S)


def fail_fsync(cluster: TargetCluster, host: Host) -> Undo:
    """EIO; then a boot, if the node has ended as it should."""
    refused_before = host.disk.refusals
    host.disk.fail_fsync("")

    def undo() -> None:
        host.disk.fail_fsync(None)
        if host.disk.refusals == refused_before:
            return
        if host.running:
            cluster.crash(host.name, power_loss=True)
        else:
            host.disk.crash(power_loss=True)
        cluster.restart(host.name)

    return undo


def fill(cluster: TargetCluster, host: Host, rng: Random) -> Undo:
    """Almost no space is left; then there is again."""
    host.disk.fill(rng.randrange(_LEFT_BYTES_MAX))

    def undo() -> None:
        host.disk.set_capacity()
        if not host.running:
            cluster.restart(host.name)

    return undo


def wipe(cluster: TargetCluster, host: Host) -> Undo:
    """The node dies; it comes back with an empty disk."""
    _take_down(cluster, host)
    host.disk.wipe()
    cluster.on_disk_replaced(host.name)
    return lambda: _bring_up(cluster, host)


def bring_back(cluster: TargetCluster, host: Host, copy: DiskCopy) -> None:
    """The node dies, and is back at once with the disk as it was when `copy` was taken."""
    _take_down(cluster, host)
    host.disk.restore(copy)
    cluster.on_disk_replaced(host.name)
    _bring_up(cluster, host)


def repair_dirs(cluster: TargetCluster, host: Host) -> None:
    """All of the host's directories work; the node is started again to see it."""
    if host.disk.repair_dirs():
        _take_down(cluster, host)
        _bring_up(cluster, host)


def wipe_dir(cluster: TargetCluster, host: Host, path: str) -> Undo:
    """The node dies; it comes back with an empty disk in the place of one log directory."""
    _take_down(cluster, host)
    host.disk.wipe_dir(path)
    cluster.on_disk_replaced(host.name)
    return lambda: _bring_up(cluster, host)


def rot(host: Host, rng: Random) -> bool:
    """Flip a bit in the records of some batch; false when there are none yet."""
    disk = host.disk
    found = [path for path in _log_files(disk) if len(disk.read_bytes(path)) > BATCH_HEADER_SIZE]
    if not found:
        return False
    path = rng.choice(found)
    batches = list(iter_headers(disk.read_bytes(path), allow_partial_tail=True))
    position, header = batches[rng.randrange((len(batches) + 1) // 2)]
    disk.rot(path, position + rng.randrange(BATCH_HEADER_SIZE, header.size_bytes), rng.randrange(8))
    return True


def _log_files(disk: SimDisk) -> list[str]:
    partitions = [name for name in disk.listdir("/data") if "-" in name and not name.startswith("__")]
    folders = [f"/data/{name}" for name in partitions if disk.is_dir(f"/data/{name}")]
    return [f"{folder}/{name}" for folder in folders for name in disk.listdir(folder) if name.endswith(".log")]


def _take_down(cluster: TargetCluster, host: Host) -> None:
    if host.running:
        cluster.crash(host.name, power_loss=False)


def _bring_up(cluster: TargetCluster, host: Host) -> None:
    if not host.running:
        cluster.restart(host.name)
