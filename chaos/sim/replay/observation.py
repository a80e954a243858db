"""What a replay shows of a node, read from the node without changing anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ....cluster.node.node import Node
from ....controller.metadata.metadata_image import MetadataImage
from ....isr.replica import Replica
from ....raft.driver.raft_driver import RaftDriver
from ....raft.replication.partition_raft_log import PartitionRaftLog
from ....raft.roles.nominee import Nominee
from .history import State

OF_THE_PROCESS = ("role", "epoch", "leader", "voted", "votes", "voters", "active", "fenced")
"""What is known only while a process runs; offsets stay on its disk."""
_OF_A_RUNNING_REPLICA = ("role", "leader_epoch", "isr")
_OF_A_REPLICA = (*_OF_A_RUNNING_REPLICA, "log_start_offset", "log_end_offset", "high_watermark")


def observe_quorum(name: str, raft: RaftDriver) -> State:
    """A node's place in the metadata quorum, and its metadata log."""
    quorum = raft.quorum_state
    role, log = quorum.role, quorum.log
    leader = role.as_leader()
    votes: tuple[int, ...] | None = None
    if isinstance(role, Nominee):
        votes = tuple(role.election.granting)
    elif leader is not None:
        votes = tuple(leader.granting)
    return {
        f"{name}.role": role.kind.value,
        f"{name}.epoch": role.epoch,
        f"{name}.leader": role.leader_id,
        f"{name}.voted": None if role.voted is None else role.voted.id,
        f"{name}.votes": votes,
        f"{name}.voters": tuple(quorum.voters.ids),
        f"{name}.high_watermark": quorum.high_watermark.offset or 0,
        f"{name}.log_end_offset": log.end_offset,
        f"{name}.log_start_offset": log.start.end_offset if isinstance(log, PartitionRaftLog) else 0,
    }


def observe_controller(name: str, node: Node) -> State:
    """Whether a node is the active controller."""
    return {f"{name}.active": True if node.controller is not None and node.controller.active else None}


def observe_replica(name: str, replica: Replica) -> State:
    """A replica's role, as its node has taken it up, and its log."""
    partition = replica.partition
    leader = partition.leader
    key = f"{name}.{partition_name(replica)}"
    return {
        f"{key}.role": "offline" if replica.offline else "follower" if leader is None else "leader",
        f"{key}.leader_epoch": partition.leader_epoch,
        f"{key}.isr": None if leader is None else tuple(sorted(leader.isr_state.maximal_isr)),
        f"{key}.log_start_offset": replica.log.log_start_offset,
        f"{key}.log_end_offset": replica.log.log_end_offset,
        f"{key}.high_watermark": replica.high_watermark,
    }


def observe_image(image: MetadataImage, partitions: Iterable[str]) -> State:
    """The partitions of these names, as the committed metadata has them; None for those that are not there."""
    found: State = {}
    for name in partitions:
        topic_name, _, index = name.rpartition("-")
        topic = image.topics_by_name.get(topic_name)
        registration = None if topic is None else topic.partitions.get(int(index))
        found[f"{name}.leader"] = None if registration is None else registration.leader
        found[f"{name}.leader_epoch"] = None if registration is None else registration.leader_epoch
        found[f"{name}.isr"] = None if registration is None else tuple(registration.isr)
        found[f"{name}.elr"] = None if registration is None else tuple(registration.elr)
        found[f"{name}.replicas"] = None if registration is None else tuple(registration.replicas)
    return found


def partitions_of(image: MetadataImage) -> Iterator[str]:
    """The names of all partitions, in the order of their topics' creation."""
    for topic in image.topics_by_id.values():
        yield from (f"{topic.name}-{index}" for index in topic.partitions)


def partition_name(replica: Replica) -> str:
    """The topic and the number of a replica's partition."""
    return f"{replica.topic_partition.topic}-{replica.topic_partition.partition}"


def without_replica(name: str, partition: str) -> State:
    """What the deletion of a node's replica takes away."""
    return {f"{name}.{partition}.{what}": None for what in _OF_A_REPLICA}


def without_process(name: str, partitions: Iterable[str]) -> State:
    """What a node's end takes away: everything but what is on its disk."""
    found: State = {f"{name}.{what}": None for what in OF_THE_PROCESS if what != "fenced"}
    found.update({f"{name}.{partition}.{what}": None for partition in partitions for what in _OF_A_RUNNING_REPLICA})
    return found
