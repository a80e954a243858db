"""Keeps a broker that just died in the Metadata response for some seconds.

librdkafka drops its handle of a broker that Metadata no longer lists, and when that happens in the same response that
moves a partition's leader, the partition falls between the two and rests until the client's next scan, a second or two
later. Apache Kafka lists a dead broker until its session ends, after nine seconds. Here death is noticed within
milliseconds; so a broker that is fenced without having said good-bye stays listed about as long as it would be there.
Its partitions have their new leaders all the same.
"""

from __future__ import annotations

from ...controller.metadata.metadata_image import MetadataDelta, MetadataImage

LINGER_S = 9.0


class RecentlyFencedBrokers:
    """Told of each metadata change; `ids` are the brokers to list beside the live ones."""

    def __init__(self) -> None:
        self._alive: dict[int, int] = {}  # broker id to epoch, of the unfenced
        self._until: dict[int, float] = {}

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta, now: float, *, is_running: bool) -> None:
        """`is_running`: this broker is in operation, so that what it reads is news and not history."""
        for broker_id in delta.changed_brokers:
            broker = image.brokers.get(broker_id)
            was_alive_in = self._alive.pop(broker_id, None)
            self._until.pop(broker_id, None)
            if broker is None:
                continue
            if not broker.fenced:
                self._alive[broker_id] = broker.epoch
            elif is_running and was_alive_in == broker.epoch and not broker.in_controlled_shutdown:
                self._until[broker_id] = now + LINGER_S

    def ids(self, now: float) -> list[int]:
        """Brokers that died less than nine seconds ago and have not come back."""
        if not self._until:
            return []
        self._until = {broker_id: until for broker_id, until in self._until.items() if until > now}
        return list(self._until)
