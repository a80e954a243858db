"""Which replica a leader tells a consumer to read from (KIP-392), compared with the racks of the brokers.

- "a consumer is told to read from a replica in its rack": one of the ISR, instead of records, and only where the
  leader itself is in another rack;
- "a consumer reads from its rack if it can": it gets no records of a leader while such a replica has its position.
"""

from __future__ import annotations

from .....cluster.node.node import Node
from .....isr.fetching.replica_selector import select_in_rack
from .....isr.leader.follower_progress import FollowerProgress
from .....isr.replica import Replica
from .....wire.fetch import FetchPartition, FetchPartitionResponse
from ..invariant_broken import InvariantBroken
from .replica_states import Around

FIRST_VERSION = 11
"""Of Fetch, in which consumers know of preferred replicas."""


def check_preferred(node: Node, row: FetchPartitionResponse, replica: Replica, rack: str, where: str) -> None:
    """Judge the replica that a row names, asked for by a consumer in this rack."""
    manager, loader, leader = node.replica_manager, node.loader, replica.partition.leader
    if manager is None or loader is None or leader is None:
        return  # it does not lead any more
    if manager.config.replica_selector is not select_in_rack:
        raise InvariantBroken("no read replica is preferred without a selector", f"{where}: {row}")
    brokers, named = loader.image.brokers, row.preferred_read_replica
    there = brokers.get(named)
    is_near = bool(rack) and there is not None and there.rack == rack != brokers[node.config.node_id].rack
    registration = loader.image.partition(replica.topic_id, row.partition)
    in_sync = leader.isr_state.isr if registration is None else (*leader.isr_state.isr, *registration.isr)
    if not is_near or named not in in_sync or row.records:
        detail = f"{where}: in rack {rack!r} {named} is told, of {in_sync}, which is in {there and there.rack}"
        raise InvariantBroken("a consumer is told to read from a replica in its rack", detail)


def check_not_preferred(
    node: Node, wanted: FetchPartition, replica: Replica, rack: str, states: Around, now_ms: int, where: str
) -> None:
    """Judge a row that names no replica, though the leader may know one. `states` are those around the answer."""
    manager, loader, leader = node.replica_manager, node.loader, replica.partition.leader
    if manager is None or loader is None or leader is None or manager.config.replica_selector is not select_in_rack:
        return
    brokers = loader.image.brokers
    if states[0].isr != states[1].isr or not rack or brokers[node.config.node_id].rack == rack:
        return
    for follower in leader.followers.values():
        broker = brokers.get(follower.replica_id)
        is_near = broker is not None and broker.rack == rack and not broker.fenced
        if is_near and follower.replica_id in states[1].isr and _had(follower, wanted.fetch_offset, now_ms):
            detail = f"{where}: {follower.replica_id} is in {rack!r} and in sync, from {follower.log_start_offset}"
            raise InvariantBroken("a consumer reads from its rack if it can", detail)


def _had(follower: FollowerProgress, offset: int, now_ms: int) -> bool:
    """Whether the leader knew before this time that the follower has the position."""
    is_known = follower.last_fetch_ms is not None and follower.last_fetch_ms < now_ms
    return is_known and follower.log_start_offset <= offset <= follower.log_end_offset
