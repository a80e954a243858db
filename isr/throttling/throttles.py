"""Which replicas are throttled here, and how much may pass between brokers (KIP-73) and between directories (KIP-113).

The rates are dynamic settings of brokers, the replicas are named by topics as partition:broker or `*`. A leader stops
to give a throttled partition to a follower when the quota is used up, a follower stops to ask for it. Neither stops for
a replica that is in sync, or that the high watermark waits for: acks=all is as fast as before. Bytes of those count all
the same, so that what is left for the others is what the operator has given for all.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...controller.metadata.metadata_image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataDelta, MetadataImage
from ...wire.types import TopicPartition
from ..ports import ReplicaManagerConfig
from ..replica import Replica
from .replication_quota import UNLIMITED, ReplicationQuota

LEADER, FOLLOWER = "leader", "follower"
DIRS_RATE_KEY = "replica.alter.log.dirs.io.max.bytes.per.second"
EVERYTHING = "*"


class Throttle:
    """One side: the partitions that are throttled on this broker, and what may pass of them."""

    def __init__(self, side: str, local_id: int, quota: ReplicationQuota) -> None:
        self.quota = quota
        self.version = 0
        """Counts the changes of what is throttled."""
        self._rate_key = f"{side}.replication.throttled.rate"
        self._replicas_key = f"{side}.replication.throttled.replicas"
        self._local_id = local_id
        self._topics: dict[str, frozenset[int] | None] = {}
        """Partitions by topic; None stands for all."""

    @property
    def is_idle(self) -> bool:
        """Nothing is throttled."""
        return not self._topics

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        partitions = self._topics.get(topic_partition.topic, ())
        return partitions is None or topic_partition.partition in partitions

    def take_rate(self, image: MetadataImage) -> None:
        """The rate that the metadata gives."""
        self.quota.bytes_per_s = rate_of(image, self._local_id, self._rate_key)

    def take_topics(self, image: MetadataImage, names: Iterable[str]) -> None:
        """The throttled replicas of these topics, which may be gone."""
        for name in names:
            text = image.configs.get((TOPIC_RESOURCE, name), {}).get(self._replicas_key, "").strip()
            partitions = _partitions(text, self._local_id)
            before = self._topics.pop(name, frozenset())
            if partitions is None or partitions:
                self._topics[name] = partitions
            if before != partitions:
                self.version += 1


class Throttles:
    """Those of a broker; follows the metadata."""

    def __init__(self, config: ReplicaManagerConfig) -> None:
        between = (config.replication_quota_window_num, config.replication_quota_window_size_ms)
        self._local_id = config.node_id
        self.leader = Throttle(LEADER, config.node_id, ReplicationQuota(*between))
        self.follower = Throttle(FOLLOWER, config.node_id, ReplicationQuota(*between))
        self.dirs = ReplicationQuota(config.dirs_quota_window_num, config.dirs_quota_window_size_ms)

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """The metadata has moved on."""
        changed = delta.changed_configs
        if any(kind == BROKER_RESOURCE for kind, _ in changed):
            self.dirs.bytes_per_s = rate_of(image, self._local_id, DIRS_RATE_KEY)
            for throttle in (self.leader, self.follower):
                throttle.take_rate(image)
        topics = [name for kind, name in changed if kind == TOPIC_RESOURCE]
        topics += [topic.name for topic in delta.deleted_topics.values()]
        for throttle in (self.leader, self.follower):
            throttle.take_topics(image, topics)


class FetchShare:
    """What one fetch of a follower may have of the leader's throttled partitions."""

    def __init__(self, throttle: Throttle, replica_id: int, now_ms: int) -> None:
        self._throttle = throttle
        self._replica_id = replica_id
        self._now_ms = now_ms
        self._room_bytes = throttle.quota.room_bytes(now_ms)
        self.is_throttled = False
        """Whether something was kept back."""

    def limit(self, replica: Replica, wanted_bytes: int) -> int:
        """How much of the partition the follower gets; 0 for nothing."""
        if self._room_bytes >= wanted_bytes or not is_held_back(
            replica, self._replica_id, self._throttle, self._now_ms
        ):
            return wanted_bytes
        if self._room_bytes <= 0:
            self.is_throttled = True
        return int(self._room_bytes)

    def took(self, replica: Replica, size_bytes: int) -> None:
        """It got so much."""
        if size_bytes and self._throttle.is_throttled(replica.topic_partition):
            self._room_bytes = max(self._room_bytes - size_bytes, 0)


def is_held_back(replica: Replica, replica_id: int, throttle: Throttle, now_ms: int) -> bool:
    """Whether the quota holds for that follower of a partition led here: nobody waits for it."""
    if not throttle.is_throttled(replica.topic_partition):
        return False
    leader = replica.partition.leader
    return leader is not None and not leader.waits_for(replica_id, replica.log_end_offset, now_ms)


def rate_of(image: MetadataImage, local_id: int, key: str) -> float:
    """Bytes a second: the broker's own, or that of all brokers, or no limit."""
    for name in (str(local_id), ""):
        value = image.configs.get((BROKER_RESOURCE, name), {}).get(key)
        if value is not None:
            return float(value)
    return UNLIMITED


def _partitions(text: str, local_id: int) -> frozenset[int] | None:
    """Those of `partition:broker,...` that are of this broker."""
    if text == EVERYTHING:
        return None
    pairs = [pair.split(":") for pair in text.split(",") if pair]
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == local_id)
