"""Brokers that died and were fenced just now: Metadata responses list them for nine more seconds.

librdkafka drops its handle of a broker that Metadata no longer lists. When the same response moves the leader of a
partition, the partition has no broker until the client's next scan, a second or two later. Apache Kafka lists a dead
broker until its session expires, after nine seconds. Here a dead broker is fenced within milliseconds, so it is listed
for that time as well, unless it was shut down in a controlled way. Its partitions have their new leaders at once.

A broker that was fenced because its session expired is not listed. Clients have had it in their lists for that session
already, and a request to a frozen broker waits, while a dead one refuses the connection. This broker tells them apart
by its own connections: those to a dead broker are lost just before it is fenced.
"""

from __future__ import annotations

from collections.abc import Container

from ....controller.metadata.metadata_image import MetadataDelta, MetadataImage

LISTED_S = 9.0


class RecentlyFencedBrokers:
    """Follows the metadata; `ids` are the brokers to list besides the unfenced ones."""

    def __init__(self) -> None:
        self._alive: dict[int, int] = {}  # broker id to epoch, of the unfenced
        self._until: dict[int, float] = {}

    def on_metadata(
        self, image: MetadataImage, delta: MetadataDelta, now: float, *, lost: Container[int], is_running: bool
    ) -> None:
        """Take a change of the metadata.

        `lost`: the brokers to which a connection was lost just now.
        `is_running`: this broker runs, so the change is new and not replayed history.
        """
        for broker_id in delta.changed_brokers:
            broker = image.brokers.get(broker_id)
            was_alive_in = self._alive.pop(broker_id, None)
            self._until.pop(broker_id, None)
            if broker is None:
                continue
            died = broker_id in lost and was_alive_in == broker.epoch and not broker.in_controlled_shutdown
            if not broker.fenced:
                self._alive[broker_id] = broker.epoch
            elif is_running and died:
                self._until[broker_id] = now + LISTED_S

    def ids(self, now: float) -> list[int]:
        """Brokers that were fenced less than nine seconds ago and are not back."""
        if not self._until:
            return []
        self._until = {broker_id: until for broker_id, until in self._until.items() if until > now}
        return list(self._until)
