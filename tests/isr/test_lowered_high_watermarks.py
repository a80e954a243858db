"""Committed records that an unclean election has taken away do not come back by an old checkpoint after a crash."""

from __future__ import annotations

from support.isr.manager_cluster import replicated_topic

from raftwerk.log.state.checkpoints import HIGH_WATERMARK_FILE
from raftwerk.wire.types import TopicPartition

TP = TopicPartition("t", 0)


def test_a_truncation_lowers_the_checkpoint_before_the_log_grows_again() -> None:
    """Else the records in place of the lost ones would count as committed after a crash."""
    cluster, _ = replicated_topic()
    for _ in range(5):
        cluster.produce(1, TP)
    cluster.sleep(6)
    assert written(cluster.disks[2].read_bytes(f"/n2/{HIGH_WATERMARK_FILE}")) == 5
    cluster.on_loop(cluster.managers[2].partitions[TP].truncate_to, 2)
    cluster.sleep(0)
    assert written(cluster.disks[2].read_bytes(f"/n2/{HIGH_WATERMARK_FILE}")) == 2


def written(checkpoint: bytes) -> int:
    """The high watermark of the partition in the file."""
    (line,) = (line for line in checkpoint.decode().splitlines() if line.startswith("t 0 "))
    return int(line.split()[2])
