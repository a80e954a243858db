"""The group coordinator: which groups this broker coordinates, and how the effects of groups are carried out.

Each partition of `__consumer_offsets` that this broker leads is a shard (`coordinators/led_partitions.py`). When the
log refuses a write of a group, only that group is told. When a consumer group's write fails later, the shard is loaded
again, since the records may be in the log or not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from ...controller.metadata.metadata_image import GROUP_RESOURCE, MetadataDelta, MetadataImage
from ...controller.metadata.metadata_loader import MetadataLoader
from ...isr.leader.transaction_markers import MarkerEntry, TransactionMarker
from ...isr.replica_manager import ReplicaManager
from ...runtime.invariants import sometimes
from ...runtime.ports import Runtime
from ...runtime.timer_wheel import TimerHandle
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.types import TopicPartition
from ..coordinators.coordinator_loader import CoordinatorLoader
from ..coordinators.coordinator_partition_writer import IN_THE_LOG, ProducerTransaction, coordinator_error
from ..coordinators.coordinator_topic import CoordinatorTopic
from ..coordinators.effects import Persist, Reply
from ..coordinators.led_partitions import LedPartitions
from ..coordinators.record_fields import CoordinatorRecord
from ..log_limiter import LogLimiter
from .consumer.consumer_group import ConsumerGroup
from .consumer.consumer_group_heartbeat import HeartbeatRequest
from .consumer.consumer_group_member import JOIN_EPOCH
from .consumer.topics import ImageTopics
from .effects import CancelTimer, Effect, Reload, ReplaceGroup, SetTimer, TimerName
from .group_config import OFFSETS_TOPIC, GroupConfig, with_own_values
from .group_coordinator_shard import Group, GroupCoordinatorShard, expired_offsets
from .records.offset_and_classic_records import OffsetAndMetadata, offset_record

T = TypeVar("T")
logger = logging.getLogger("raftwerk.groups")


class GroupCoordinator:
    """The groups of one broker. Until `start` it coordinates nothing."""

    def __init__(
        self, node_id: int, config: GroupConfig, runtime: Runtime, metadata: MetadataLoader, replicas: ReplicaManager
    ) -> None:
        self.config = config
        self.metadata = metadata
        self.topic = CoordinatorTopic(OFFSETS_TOPIC, config.topic, metadata)
        self.partitions: LedPartitions[GroupCoordinatorShard] = LedPartitions(
            self.topic, node_id, replicas, self, logger
        )
        self._topics = ImageTopics(lambda: metadata.image)
        self._runtime = runtime
        self._replicas = replicas
        self._timers: dict[int, dict[tuple[str, TimerName], TimerHandle]] = {}
        self._expiry: TimerHandle | None = None
        self._refused_upgrades = LogLimiter()

    # ---------------------------------------------------------------- start, stop, leadership

    def start(self) -> None:
        """Begin to coordinate, after the replicas have taken up their roles."""
        self.partitions.start(self.metadata.image)

    def stop(self) -> None:
        """Drop all shards; requests that wait get NOT_COORDINATOR."""
        self.partitions.stop()

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Take up and drop shards with the leadership. Call it after the replicas have seen the metadata."""
        if not self.partitions.is_started:
            return
        self.partitions.on_metadata(image, delta)
        if delta.changed_partitions or delta.created_topics or delta.deleted_topics or delta.changed_acls:
            self._mark_topics_stale()
        if any(kind == GROUP_RESOURCE for kind, _ in delta.changed_configs):
            self.apply_configs()
        if delta.deleted_topics:
            self._forget_topics([one.name for one in delta.deleted_topics.values()])

    def _mark_topics_stale(self) -> None:
        for shard in self.partitions.shards.values():
            for group in shard.groups.values():
                if isinstance(group, ConsumerGroup):
                    group.are_topics_stale = True

    def new_shard(self, partition: int, leader_epoch: int) -> GroupCoordinatorShard:
        """See `ShardOwner`."""
        self._timers[partition] = {}
        return GroupCoordinatorShard(partition, leader_epoch, self.config_of, self._topics)

    def on_loaded(self, shard: GroupCoordinatorShard, loader: CoordinatorLoader[GroupCoordinatorShard]) -> None:
        """See `ShardOwner`."""
        shard.finish_loading(self.now_ms(), loader.pass_over)
        for group in list(shard.groups.values()):
            self.carry_out(shard, group)
        if shard.groups:
            logger.info("loaded %d groups of partition %d", len(shard.groups), shard.partition)
            self.watch_expiry()

    def on_resigned(self, shard: GroupCoordinatorShard) -> None:
        """See `ShardOwner`."""
        for group in list(shard.groups.values()):
            group.close(ErrorCode.NOT_COORDINATOR)
            self.carry_out(shard, group)
        for handle in self._timers.pop(shard.partition).values():
            handle.cancel()

    # ---------------------------------------------------------------- lookup

    @property
    def active_shards(self) -> list[GroupCoordinatorShard]:
        """The shards that are loaded; for metrics."""
        return self.partitions.active

    def partition_of(self, group_id: str) -> int:
        """The group's partition of `__consumer_offsets`, also before the topic is created."""
        return self.topic.partition_of(group_id)

    def config_of(self, group_id: str) -> GroupConfig:
        """The settings of the group: its own, else the broker's."""
        own = self.metadata.image.configs.get((GROUP_RESOURCE, group_id))
        return with_own_values(self.config, own) if own else self.config

    def apply_configs(self) -> None:
        """Give all groups their settings again, after a change of settings."""
        for shard in self.partitions.shards.values():
            shard.apply_configs()

    def shard_of(self, group_id: str) -> GroupCoordinatorShard:
        """The loaded shard of the group. Raises NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        return self.partitions.shard_of(group_id)

    def loaded_shards(self) -> list[GroupCoordinatorShard]:
        """All shards. Raises COORDINATOR_LOAD_IN_PROGRESS when one is not loaded."""
        return self.partitions.all_loaded()

    def group_to_join(self, shard: GroupCoordinatorShard, group_id: str) -> Group:
        """The group that a member of the classic protocol joins; a new one if there is none.

        A consumer group without members is replaced by a classic group, which keeps the offsets.
        """
        group = shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup) and group.is_empty:
            self._end_group(shard, group)
            group = None
        return shard.new_classic(group_id) if group is None else group

    def consumer_group(self, shard: GroupCoordinatorShard, group_id: str, request: HeartbeatRequest) -> ConsumerGroup:
        """The consumer group of a heartbeat. A member that joins creates it, or upgrades a classic group.

        Raises GROUP_ID_NOT_FOUND where there is none and none can be made, or the error that refuses the heartbeat.
        """
        group = shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if request.member_epoch != JOIN_EPOCH:
            text = f"Group {group_id} is not a consumer group." if group else f"Consumer group {group_id} not found."
            raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND, text)
        if group is None:
            return shard.new_consumer(group_id)
        try:
            upgraded = ConsumerGroup.upgraded(group, self.config_of(group_id), self._topics)
        except ProtocolError as refused:
            if self._refused_upgrades.should_log("", "upgrade", asyncio.get_running_loop().time()):
                logger.info("%s", refused.message)
            raise
        refusal = upgraded.refusal(request)
        if refusal is not None:
            raise ProtocolError(refusal.error, refusal.message or "")
        group.close(ErrorCode.REBALANCE_IN_PROGRESS)
        self.carry_out(shard, group)
        upgraded.restore(self.now_ms())
        shard.groups[group_id] = upgraded
        sometimes(True, "a classic group with members became a consumer group")
        logger.info("group %s is a consumer group from here on, with %d members", group_id, len(upgraded.members))
        return upgraded

    def _end_group(self, shard: GroupCoordinatorShard, group: ConsumerGroup) -> None:
        """End a group that is replaced by a classic one, whose records follow its tombstones."""
        group.close(ErrorCode.NOT_COORDINATOR)
        self.carry_out(shard, group)
        self.append(shard, group.tombstones(), lambda _: None)

    def confirm(self, shard: GroupCoordinatorShard, done: Callable[[bool], None]) -> None:
        """See `LedPartitions.confirm`; within the time-out of a commit."""
        self.partitions.confirm(shard, self.config.offsets.commit_timeout_ms, done)

    # ---------------------------------------------------------------- events and effects

    def now_ms(self) -> int:
        """Monotonic milliseconds."""
        return self.partitions.timers.now_ms()

    def wall_ms(self) -> int:
        """Milliseconds of the wall clock."""
        return self._runtime.clock.wall_ms()

    def new_member_id(self) -> str:
        """A new unique id, in the form of a UUID."""
        return str(UUID(int=self._runtime.rng.getrandbits(128), version=4))

    def run(self, shard: GroupCoordinatorShard, group: Group, event: Callable[[int, int], T]) -> T:
        """Run an event of the group, with monotonic and wall-clock milliseconds, and carry out its effects."""
        result = event(self.now_ms(), self.wall_ms())
        self.carry_out(shard, group)
        return result

    def append(
        self,
        shard: GroupCoordinatorShard,
        records: Sequence[CoordinatorRecord],
        done: Callable[[ErrorCode], None],
        committed: Callable[[], None] | None = None,
    ) -> None:
        """Write to the shard's partition. `done` gets NOT_COORDINATOR when the shard is dropped meanwhile.

        `committed` applies the records, in the order of the log. It is called before `done`, or later when the write
        has timed out and is committed all the same.
        """
        self._write(shard, records, done, committed=committed)

    def commit(
        self,
        shard: GroupCoordinatorShard,
        group_id: str,
        offsets: Collection[tuple[TopicPartition, OffsetAndMetadata]],
        records: Sequence[CoordinatorRecord],
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Write the records of offsets, and store the offsets when they are committed. `done` as in `append`."""
        self._commit(shard, group_id, offsets, records, done, lambda: shard.store(group_id, offsets), None)

    def commit_in_transaction(
        self,
        shard: GroupCoordinatorShard,
        transaction: ProducerTransaction,
        group_id: str,
        offsets: Collection[tuple[TopicPartition, OffsetAndMetadata]],
        records: Sequence[CoordinatorRecord],
        done: Callable[[ErrorCode], None],
    ) -> None:
        """As `commit`, in a transaction: the offsets are pending until its marker."""

        def store() -> None:
            shard.store_pending(transaction.producer_id, group_id, offsets)

        self._commit(shard, group_id, offsets, records, done, store, transaction)

    def _commit(
        self,
        shard: GroupCoordinatorShard,
        group_id: str,
        offsets: Collection[tuple[TopicPartition, OffsetAndMetadata]],
        records: Sequence[CoordinatorRecord],
        done: Callable[[ErrorCode], None],
        store: Callable[[], None],
        transaction: ProducerTransaction | None,
    ) -> None:
        ended = shard.in_flight.begin(group_id, (key for key, _ in offsets))

        def committed() -> None:
            ended()
            store()

        def finished(error: ErrorCode) -> None:
            if error not in IN_THE_LOG:
                ended()

        self._write(shard, records, done, finished, transaction=transaction, committed=committed)

    def _write(
        self,
        shard: GroupCoordinatorShard,
        records: Sequence[CoordinatorRecord],
        done: Callable[[ErrorCode], None],
        finished: Callable[[ErrorCode], None] = lambda _: None,
        *,
        transaction: ProducerTransaction | None = None,
        committed: Callable[[], None] | None = None,
    ) -> None:
        """As `append`; `finished` gets the code of the append itself, before `done` gets that of the coordinator."""

        def answer(error: ErrorCode) -> None:
            finished(error)
            done(coordinator_error(error, ErrorCode.INVALID_COMMIT_OFFSET_SIZE))

        times = self.wall_ms(), self.config.offsets.commit_timeout_ms
        self.partitions.append(shard, records, times, answer, transaction, committed)

    def write_marker(
        self, partition: int, marker: TransactionMarker, timeout_ms: int, done: Callable[[ErrorCode], None]
    ) -> None:
        """Write the marker of a transaction to a partition of `__consumer_offsets`.

        The offsets of the transaction take effect when the marker is committed: before `done` is called, or after it
        when that was REQUEST_TIMED_OUT. The codes are those of `ReplicaManager.write_markers`; NOT_LEADER_OR_FOLLOWER
        also while the partition is loading.
        """
        shard = self.partitions.shards.get(partition)
        if shard is None or shard.is_loading:
            sometimes(shard is not None, "a marker reached a group coordinator that was loading")
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return

        def committed(_: MarkerEntry) -> None:
            if self.partitions.is_current(shard):
                shard.end_transaction(marker.producer_id, is_committed=marker.is_commit)

        entry = TopicPartition(OFFSETS_TOPIC, partition), marker
        self._replicas.write_markers(timeout_ms, [entry], lambda codes: done(codes[0]), committed)

    def carry_out(self, shard: GroupCoordinatorShard, group: Group) -> None:
        """Carry out the group's effects in order, and the effects that these cause."""
        if group.is_applying_effects:
            return
        group.is_applying_effects = True
        try:
            while effects := group.drain():
                for effect in effects:
                    self._carry_out_one(shard, group, effect)
        finally:
            group.is_applying_effects = False

    def _carry_out_one(self, shard: GroupCoordinatorShard, group: Group, effect: Effect) -> None:
        if isinstance(effect, Reply):
            if not effect.token.done():
                effect.token.set_result(effect.result)
        elif isinstance(effect, Persist):
            self._persist(shard, group, effect)
        elif isinstance(effect, SetTimer):
            self._set_timer(shard, group, effect)
        elif isinstance(effect, CancelTimer):
            handle = self._timers.get(shard.partition, {}).pop((group.group_id, effect.name), None)
            if handle is not None:
                handle.cancel()
        elif isinstance(effect, ReplaceGroup):
            self._replace(shard, group, effect.group)
        elif isinstance(effect, Reload):
            self.partitions.reload(shard)

    def _replace(self, shard: GroupCoordinatorShard, group: Group, successor: Group | None) -> None:
        is_closed = isinstance(group, ConsumerGroup) and group.is_closed  # else the log has refused its successor
        if not is_closed or shard.groups.get(group.group_id) is not group:
            return
        if successor is None:
            del shard.groups[group.group_id]
            return
        shard.groups[group.group_id] = successor
        if isinstance(group, ConsumerGroup):
            shard.note_downgrade(group)
        sometimes(True, "a consumer group became a classic group")
        logger.info("group %s is a classic group from here on", group.group_id)
        self.carry_out(shard, successor)

    def _persist(self, shard: GroupCoordinatorShard, group: Group, effect: Persist[Any]) -> None:
        is_appending = True
        is_refused = False

        def finished(code: ErrorCode) -> None:
            """The log refuses a batch before the call returns. What fails later may be in it."""
            nonlocal is_refused
            is_refused = is_appending and code not in IN_THE_LOG and self.partitions.is_current(shard)

        def persisted(error: ErrorCode) -> None:
            if error == ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
                error = ErrorCode.UNKNOWN_SERVER_ERROR
            times = self.now_ms(), self.wall_ms()
            if is_refused and isinstance(group, ConsumerGroup):
                group.on_refused(effect.tag, error, *times)
            else:
                group.on_persisted(effect.tag, error, *times)
            shard.note_written(group)
            self.carry_out(shard, group)

        self._write(shard, effect.records, persisted, finished)
        is_appending = False

    def _set_timer(self, shard: GroupCoordinatorShard, group: Group, effect: SetTimer) -> None:
        if not self.partitions.is_current(shard):
            return
        timers = self._timers[shard.partition]
        key = (group.group_id, effect.name)
        old = timers.pop(key, None)
        if old is not None:
            old.cancel()

        def expired() -> None:
            timers.pop(key, None)
            group.on_timer(effect.name, self.now_ms(), self.wall_ms())
            self.carry_out(shard, group)

        timers[key] = self.partitions.timers.add(max(effect.deadline_ms - self.now_ms(), 0), expired)

    # ---------------------------------------------------------------- expiry of offsets and groups

    def watch_expiry(self) -> None:
        """Check for expired offsets and groups after the check interval."""
        if self._expiry is None:
            self._expiry = self.partitions.timers.add(self.config.offsets.retention_check_interval_ms, self._on_expiry)

    def _on_expiry(self) -> None:
        self._expiry = None
        for shard in list(self.partitions.shards.values()):
            if not shard.is_loading:
                self.expire(shard)
        if any(shard.groups for shard in self.partitions.shards.values()):
            self.watch_expiry()

    def expire(self, shard: GroupCoordinatorShard) -> None:
        """Remove expired offsets, and groups that have neither members nor offsets."""
        wall_ms, retention_ms = self.wall_ms(), self.config.offsets.retention_ms
        for group_id, group in list(shard.groups.items()):
            offsets = shard.offsets_of(group_id)
            unsettled = frozenset(shard.unsettled_partitions(group_id))
            old = expired_offsets(group, offsets, wall_ms, retention_ms)
            expired = [key for key in old if key not in unsettled]
            if len(expired) == len(offsets) and group.is_empty and not unsettled:
                self.remove_group(shard, group, lambda _: None)
            elif expired:
                self._remove_offsets(shard, group_id, expired)

    def remove_group(self, shard: GroupCoordinatorShard, group: Group, done: Callable[[ErrorCode], None]) -> None:
        """Remove an empty group and its offsets, also those on their way to the log. `done` as in `append`.

        If a member joins before the tombstones are committed, only the offsets go.
        """
        partitions = shard.partitions_with_offsets(group.group_id)

        def removed() -> None:
            shard.forget_group(group, partitions)

        records = [*_offset_tombstones(group.group_id, partitions), *group.tombstones()]
        if records:
            self.append(shard, records, done, removed)
        else:
            removed()
            done(ErrorCode.NONE)

    def _remove_offsets(self, shard: GroupCoordinatorShard, group_id: str, partitions: list[TopicPartition]) -> None:
        records = _offset_tombstones(group_id, partitions)
        self.append(shard, records, lambda _: None, lambda: shard.forget(group_id, partitions))

    def _forget_topics(self, names: list[str]) -> None:
        """Remove the offsets of topics that were deleted."""
        for shard in list(self.partitions.shards.values()):
            for group_id in shard.groups_with_offsets if not shard.is_loading else ():
                gone = [one for one in shard.partitions_with_offsets(group_id) if one.topic in names]
                if gone:
                    self._remove_offsets(shard, group_id, gone)


def _offset_tombstones(group_id: str, partitions: Iterable[TopicPartition]) -> list[CoordinatorRecord]:
    return [offset_record(group_id, one, None) for one in partitions]
