"""Which replicas are throttled, and how fast they may be copied between brokers (KIP-73) and directories (KIP-113).

The rates are dynamic settings of brokers; topic settings name the throttled replicas, as partition:broker or `*`. When
the quota is used up, a leader sends no records of a throttled partition to a follower, and a follower does not fetch
it. Neither does so for a replica that is in sync or that the high watermark waits for, so acks=all is not slowed down.
The bytes of such replicas are counted, too: the quota holds for all throttled replicas together.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...controller.metadata.metadata_image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataDelta, MetadataImage
from ...log.topic_configs import TOPIC_CONFIGS, throttled_partitions
from ...wire.types import TopicPartition
from ..ports import ReplicaManagerConfig
from ..replica import Replica
from .replication_quota import UNLIMITED, ReplicationQuota

LEADER, FOLLOWER = "leader", "follower"
DIRS_RATE_KEY = "replica.alter.log.dirs.io.max.bytes.per.second"


class Throttle:
    """One side, leader or follower: the partitions that are throttled on this broker, and the quota for them."""

    def __init__(self, side: str, local_id: int, quota: ReplicationQuota) -> None:
        self.quota = quota
        self.version = 0
        """Increments when other partitions are throttled than before."""
        self._rate_key = f"{side}.replication.throttled.rate"
        self._replicas_key = f"{side}.replication.throttled.replicas"
        self._local_id = local_id
        self._topics: dict[str, frozenset[int] | None] = {}
        """The throttled partitions by topic; None stands for all."""

    @property
    def is_idle(self) -> bool:
        """Whether no partition is throttled."""
        return not self._topics

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition is throttled on this side."""
        partitions = self._topics.get(topic_partition.topic, ())
        return partitions is None or topic_partition.partition in partitions

    def apply_rate(self, image: MetadataImage) -> None:
        """Use the rate that the metadata gives."""
        self.quota.bytes_per_s = rate_of(image, self._local_id, self._rate_key)

    def apply_topics(self, image: MetadataImage, names: Iterable[str]) -> None:
        """Use the throttled replicas that the metadata gives for these topics, some of which may be deleted."""
        for name in names:
            text = image.configs.get((TOPIC_RESOURCE, name), {}).get(self._replicas_key, "")
            partitions = throttled_partitions(TOPIC_CONFIGS[self._replicas_key].parse(text), self._local_id)
            before = self._topics.pop(name, frozenset())
            if partitions is None or partitions:
                self._topics[name] = partitions
            if before != partitions:
                self.version += 1


class Throttles:
    """All throttles of a broker; they follow the metadata."""

    def __init__(self, config: ReplicaManagerConfig) -> None:
        between = (config.replication_quota_window_num, config.replication_quota_window_size_ms)
        self._local_id = config.node_id
        self.leader = Throttle(LEADER, config.node_id, ReplicationQuota(*between))
        self.follower = Throttle(FOLLOWER, config.node_id, ReplicationQuota(*between))
        self.dirs = ReplicationQuota(config.dirs_quota_window_num, config.dirs_quota_window_size_ms)

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """The metadata changed."""
        changed = delta.changed_configs
        if any(kind == BROKER_RESOURCE for kind, _ in changed):
            self.dirs.bytes_per_s = rate_of(image, self._local_id, DIRS_RATE_KEY)
            for throttle in (self.leader, self.follower):
                throttle.apply_rate(image)
        topics = [name for kind, name in changed if kind == TOPIC_RESOURCE]
        topics += [topic.name for topic in delta.deleted_topics.values()]
        for throttle in (self.leader, self.follower):
            throttle.apply_topics(image, topics)


class FetchShare:
    """How many bytes of throttled partitions the leader sends in the answer to one fetch."""

    def __init__(self, throttle: Throttle, replica_id: int, now_ms: int) -> None:
        self._throttle = throttle
        self._replica_id = replica_id
        self._now_ms = now_ms
        self._available_bytes = throttle.quota.available_bytes(now_ms)
        self.is_throttled = False
        """Whether records were kept back."""

    def limit(self, replica: Replica, wanted_bytes: int) -> int:
        """How many bytes of the partition the follower may get; 0 for none."""
        if self._available_bytes >= wanted_bytes or not is_throttled_for(
            replica, self._replica_id, self._throttle, self._now_ms
        ):
            return wanted_bytes
        if self._available_bytes <= 0:
            self.is_throttled = True
        return int(self._available_bytes)

    def record(self, replica: Replica, size_bytes: int) -> None:
        """The follower gets so many bytes."""
        if size_bytes and self._throttle.is_throttled(replica.topic_partition):
            self._available_bytes = max(self._available_bytes - size_bytes, 0)


def is_throttled_for(replica: Replica, replica_id: int, throttle: Throttle, now_ms: int) -> bool:
    """Whether the quota holds for that follower of a throttled partition: not if the high watermark waits for it."""
    if not throttle.is_throttled(replica.topic_partition):
        return False
    leader = replica.partition.leader
    return leader is not None and not leader.waits_for(replica_id, replica.log_end_offset, now_ms)


def rate_of(image: MetadataImage, local_id: int, key: str) -> float:
    """Bytes per second by the metadata: the broker's own value, the default of all brokers, or no limit."""
    for name in (str(local_id), ""):
        value = image.configs.get((BROKER_RESOURCE, name), {}).get(key)
        if value is not None:
            return float(value)
    return UNLIMITED
