"""Keeps the committed image of a node and tells its parts what changed.

Every node, broker or controller, has one `MetadataLoader`. It replays what the quorum has committed and calls its
subscribers in the order of their subscription. The image it hands out is the live one, changed in place by the next
commit: look things up in it during the call or later, but `copy` it to keep a state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ..raft.types import CommittedBatch, LeaderAndEpoch
from .image import MetadataDelta, MetadataImage
from .records import decode_record

MetadataPublisher: TypeAlias = Callable[[MetadataImage, MetadataDelta], None]
LeaderObserver: TypeAlias = Callable[[LeaderAndEpoch], None]


class MetadataLoader:
    """The quorum's listener on a node (`raft.types.RaftListener`)."""

    def __init__(self, cluster_id: str) -> None:
        self.image = MetadataImage(cluster_id)
        self.leader = LeaderAndEpoch(None, 0)
        self._publishers: list[MetadataPublisher] = []
        self._leader_observers: list[LeaderObserver] = []

    def subscribe(self, publisher: MetadataPublisher) -> None:
        """Call `publisher(image, delta)` after every commit; the delta is empty where only the offset moved."""
        self._publishers.append(publisher)

    def subscribe_leader(self, observer: LeaderObserver) -> None:
        """Call `observer` at every change of the quorum's leader or epoch."""
        self._leader_observers.append(observer)

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Replay the batches, then publish them as one delta."""
        delta = MetadataDelta()
        for batch in batches:
            for index, payload in enumerate(batch.records):
                self.image.replay(decode_record(payload), batch.base_offset + index, delta)
            self.image.advance(batch.last_offset, batch.epoch)
        for publisher in self._publishers:
            publisher(self.image, delta)

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Pass the news on."""
        self.leader = leader
        for observer in self._leader_observers:
            observer(leader)
