"""One fetcher for each broker that leads partitions which this broker follows (Kafka: ReplicaFetcherManager)."""

from __future__ import annotations

from ..replica import Replica
from .follower_fetch_session import PartitionKey
from .replica_fetcher import FetcherContext, ReplicaFetcher


class FetcherManager:
    """Owns the fetchers, and knows which of them has which partition."""

    def __init__(self, context: FetcherContext) -> None:
        self._context = context
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._assigned: dict[PartitionKey, int] = {}
        self._broker_epochs: dict[int, int] = {}

    def add(self, leader_id: int, replicas: list[Replica]) -> None:
        """Fetch these followers from their leader."""
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = ReplicaFetcher(leader_id, self._context)
        for replica in replicas:
            self._assigned[_key(replica)] = leader_id
        fetcher.add(replicas)

    def remove(self, replica: Replica) -> None:
        """Stop fetching it."""
        key = _key(replica)
        leader_id = self._assigned.pop(key, None)
        if leader_id is not None:
            self._fetchers[leader_id].remove(key)

    def on_broker_changed(self, broker_id: int, broker_epoch: int) -> None:
        """The registration of a broker changed; another epoch means that it was restarted."""
        restarted = self._broker_epochs.get(broker_id, broker_epoch) != broker_epoch
        self._broker_epochs[broker_id] = broker_epoch
        fetcher = self._fetchers.get(broker_id)
        if fetcher is not None:
            fetcher.on_broker_changed(restarted=restarted)

    async def stop(self) -> None:
        """Stop all fetchers."""
        for fetcher in self._fetchers.values():
            await fetcher.stop()
        self._fetchers.clear()
        self._assigned.clear()


def _key(replica: Replica) -> PartitionKey:
    return replica.topic_id, replica.topic_partition.partition
