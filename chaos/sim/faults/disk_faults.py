"""Faults of a host's disk, and what the cluster promises under each of them. Apache Kafka promises the same.

- The process is killed, or the power is lost, between two operations on the disk that belong together, such as the
  renames of a move to another directory. The promise is that of a kill or a loss of power at any other moment.
- fsync fails, or there is no space: the node ends by itself, and other nodes lead. No acked record is lost. After a
  failed fsync the page cache may differ from the device, so the host is booted before the node is started again, and
  loses what the device never got, as after a loss of power.
- The disk lies: fsyncs are answered and not done, and then this host alone loses its power, while every other replica
  has what is committed. No acked record is lost, and the replica has all of them again later.
- The disk is wiped, or replaced by an old copy: nothing is lost if every replica is in sync at that moment, and every
  voter has everything that is committed and knows the epoch. A quorum of fixed voters cannot detect that a voter forgot
  its vote, nor a partition that its only ISR member forgot its log. So these faults wait for such a moment.
- One of several log directories fails, or is replaced by an empty one: the node and its other directories continue.
  Other brokers lead the replicas in it, which are created again on the empty disk; no acked record is lost.
- Bits rot in old data of one replica: brokers do not check the data that they send, as Kafka's do not. But a follower
  refuses a batch that does not match its checksum, so the damage does not spread, and consumers detect it. The
  scrubber finds it, and the replica is mended from the others: every record can be read undamaged then.
- Small files beside a log end early when the node starts: they are made again from the batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from ....wire.records import BATCH_HEADER_SIZE, iter_headers
from ..disk.inodes import DiskCopy
from ..disk.sim_disk import SimDisk
from ..kernel.world import Host
from .target_cluster import LOG_DIR, TargetCluster

USUAL_SYNC_S = (0.0002, 0.002)
_SLOW_SYNC_S = (0.05, 0.5)
_LEFT_BYTES_MAX = 4096
_METADATA_DIR = "__cluster_metadata-0"
_DERIVED = (".snapshot", ".txnindex", ".index", ".timeindex", "leader-epoch-checkpoint")
_SHORT_FILES_MAX = 6
_REMOVED_LOGS_MAX = 2

Undo = Callable[[], None]


def slow(host: Host) -> Undo:
    """Make every fsync slow."""
    host.disk.set_sync_latency(*_SLOW_SYNC_S)
    return lambda: host.disk.set_sync_latency(*USUAL_SYNC_S)


def fail_fsync(cluster: TargetCluster, host: Host) -> Undo:
    """Let every fsync fail with EIO. The undo boots the host if any fsync has failed."""
    host.disk.fail_fsync("")

    def undo() -> None:
        host.disk.fail_fsync(None)
        if not host.disk.has_lost_pages:
            return
        if host.running:
            cluster.crash(host.name, power_loss=True)
        else:
            host.disk.crash(power_loss=True)
        cluster.restart(host.name)

    return undo


def fill(cluster: TargetCluster, host: Host, rng: Random) -> Undo:
    """Leave almost no free space."""
    host.disk.fill(rng.randrange(_LEFT_BYTES_MAX))

    def undo() -> None:
        host.disk.set_capacity()
        if not host.running:
            cluster.restart(host.name)

    return undo


def wipe(cluster: TargetCluster, host: Host) -> Undo:
    """Kill the node; it starts again with an empty disk."""
    _take_down(cluster, host)
    host.disk.wipe()
    cluster.on_disk_replaced(host.name)
    return lambda: _bring_up(cluster, host)


def bring_back(cluster: TargetCluster, host: Host, copy: DiskCopy) -> None:
    """Kill the node, and start it at once with an old copy of its disk."""
    _take_down(cluster, host)
    host.disk.restore(copy)
    cluster.on_disk_replaced(host.name)
    _bring_up(cluster, host)


def repair_dirs(cluster: TargetCluster, host: Host) -> None:
    """Repair all log directories of the host, and restart the node, which then uses them.

    A partition that the node was given anew meanwhile is in another directory by now. A node refuses to start with
    both logs, and so does Apache Kafka: the log in the repaired directory is the stale one, and is removed.
    """
    failed = list(host.disk.failed_dirs)
    if host.disk.repair_dirs():
        _take_down(cluster, host)
        for path in failed:
            _remove_stale_logs(host.disk, cluster.extra_log_dirs, path)
        _bring_up(cluster, host)


def _remove_stale_logs(disk: SimDisk, log_dirs: Sequence[str], failed: str) -> None:
    repaired = next(one for one in log_dirs if failed == one or failed.startswith(f"{one}/"))
    for name in disk.listdir(repaired):
        topic_id = _topic_id_file(disk, repaired, name)
        others = (_topic_id_file(disk, one, name) for one in (LOG_DIR, *log_dirs) if one != repaired)
        if topic_id is not None and topic_id in others:
            disk.remove_tree(f"{repaired}/{name}")


def _topic_id_file(disk: SimDisk, log_dir: str, name: str) -> bytes | None:
    path = f"{log_dir}/{name}/partition.metadata"
    return bytes(disk.read_bytes(path)) if disk.exists(path) else None


def fail_replica(host: Host, path: str, rng: Random) -> None:
    """Let every operation on the files of one replica fail with EIO, as when its sectors have failed."""
    folders = [name for name in host.disk.listdir(path) if "-" in name] if path not in host.disk.failed_dirs else []
    if folders:
        host.disk.fail_dir(f"{path}/{rng.choice(folders)}")


def wipe_dir(cluster: TargetCluster, host: Host, path: str) -> Undo:
    """Kill the node; it starts again with an empty disk in place of one log directory."""
    _take_down(cluster, host)
    host.disk.wipe_dir(path)
    cluster.on_disk_replaced(host.name)
    return lambda: _bring_up(cluster, host)


def remove_logs(cluster: TargetCluster, host: Host, rng: Random) -> Undo:
    """Remove the directories of one or two replicas of a node that does not run, and start it."""
    _take_down(cluster, host)
    disk = host.disk
    roots = [path for path in (LOG_DIR, *cluster.extra_log_dirs) if disk.is_dir(path)]
    names = [(root, name) for root in roots for name in disk.listdir(root) if "-" in name and name != _METADATA_DIR]
    logs = [(root, f"{root}/{name}") for root, name in names if disk.is_dir(f"{root}/{name}")]
    for root, path in rng.sample(logs, min(len(logs), rng.randrange(1, _REMOVED_LOGS_MAX + 1))):
        disk.remove_tree(path)
        disk.fsync_dir(root)
    cluster.on_disk_replaced(host.name)
    return lambda: _bring_up(cluster, host)


def rot(host: Host, rng: Random, *, of_coordinators: bool) -> bool:
    """Flip a bit in the records of a batch, of clients or of coordinators; False if there is no batch yet."""
    disk = host.disk
    found = [
        path
        for path in _files(disk, is_internal=of_coordinators)
        if path.endswith(".log") and len(disk.read_bytes(path)) > BATCH_HEADER_SIZE
    ]
    if not found:
        return False
    path = rng.choice(found)
    batches = list(iter_headers(disk.read_bytes(path), allow_partial_tail=True))
    position, header = batches[rng.randrange((len(batches) + 1) // 2)]
    disk.flip_bit(path, position + rng.randrange(BATCH_HEADER_SIZE, header.size_bytes), rng.randrange(8))
    return True


def cut_short(cluster: TargetCluster, host: Host, rng: Random) -> Undo:
    """End the node if it runs, and let small files of its logs end early: what they say follows from the batches."""
    _take_down(cluster, host)
    disk = host.disk
    files = [path for internal in (False, True) for path in _files(disk, is_internal=internal)]
    found = [path for path in files if path.endswith(_DERIVED) and disk.read_bytes(path)]
    for path in rng.sample(found, min(len(found), _SHORT_FILES_MAX)):
        disk.cut(path, rng.randrange(len(disk.read_bytes(path))))
    return lambda: _bring_up(cluster, host)


def _files(disk: SimDisk, *, is_internal: bool) -> list[str]:
    """The files of all replicas of the topics of clients, or of those of coordinators."""
    partitions = [name for name in disk.listdir(LOG_DIR) if "-" in name and name != _METADATA_DIR]
    folders = [f"{LOG_DIR}/{name}" for name in partitions if name.startswith("__") is is_internal]
    return [f"{folder}/{name}" for folder in folders if disk.is_dir(folder) for name in disk.listdir(folder)]


def _take_down(cluster: TargetCluster, host: Host) -> None:
    if host.running:
        cluster.crash(host.name, power_loss=False)


def _bring_up(cluster: TargetCluster, host: Host) -> None:
    if not host.running:
        cluster.restart(host.name)
