"""Which replica a consumer is told to read from (KIP-392): the leader itself, or one in the consumer's rack.

The leader of a partition answers a consumer's fetch with the number of the preferred replica instead of with records;
the consumer then fetches there, and asks the leader again from time to time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ...controller.configs.broker_configs import LEADER_SELECTOR, RACK_AWARE_SELECTOR
from ...controller.metadata.metadata_image import BrokerRegistration
from ..leader.leader_state import LeaderState


class ReplicaView(NamedTuple):
    """What a selector may know of a replica; of two, the greater has more records, or had all of them more recently."""

    log_end_offset: int
    last_caught_up_ms: int
    """Monotonic; -1 if the replica was never caught up with this leader."""
    broker_id: int
    rack: str


ReplicaSelector = Callable[[str, Sequence[ReplicaView], str], ReplicaView | None]
"""From the consumer's rack, the followers that it may read from and the leader's rack: one of these followers, or None
for the leader."""


def select_in_rack(client_rack: str, followers: Sequence[ReplicaView], leader_rack: str) -> ReplicaView | None:
    """The leader if it is in the consumer's rack or no follower is; else the follower there that is caught up best."""
    if not client_rack or leader_rack == client_rack:
        return None
    return max((one for one in followers if one.rack == client_rack), default=None)


REPLICA_SELECTORS: Mapping[str, ReplicaSelector | None] = {
    LEADER_SELECTOR: None,
    RACK_AWARE_SELECTOR: select_in_rack,
}
"""By the values of `replica.selector.class`."""


def preferred_read_replica(
    select: ReplicaSelector,
    leader: LeaderState,
    brokers: Mapping[int, BrokerRegistration],
    client_rack: str,
    fetch_offset: int,
) -> int:
    """The follower that a consumer shall read from at this offset; -1 for the leader.

    Only members of the ISR that are not fenced and have the offset come into question: one that lags behind would keep
    the consumer back, too.
    """
    local_rack = _rack(brokers, leader.config.local_id)
    isr = leader.isr_state.isr
    followers = [
        ReplicaView(
            one.log_end_offset,
            -1 if one.last_caught_up_ms is None else one.last_caught_up_ms,
            one.replica_id,
            _rack(brokers, one.replica_id),
        )
        for one in leader.followers.values()
        if one.replica_id in isr and _serves(brokers, one.replica_id)
        if one.log_start_offset <= fetch_offset <= one.log_end_offset
    ]
    selected = select(client_rack, followers, local_rack)
    return -1 if selected is None else selected.broker_id


def _rack(brokers: Mapping[int, BrokerRegistration], broker_id: int) -> str:
    broker = brokers.get(broker_id)
    return "" if broker is None else broker.rack or ""


def _serves(brokers: Mapping[int, BrokerRegistration], broker_id: int) -> bool:
    broker = brokers.get(broker_id)
    return broker is not None and not broker.fenced
