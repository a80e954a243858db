"""The partitions of a coordinator's topic that this broker leads, with a shard for each.

A shard is loaded by replay when the broker becomes the leader; until then its keys answer COORDINATOR_LOAD_IN_PROGRESS.
It is active when all that was replayed is committed, too: else it could act on a record that a later leader does not
have. It is dropped when the leadership ends. A shard belongs to one leader epoch: a write that began in one epoch never
changes the shard of another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from ...controller.metadata.metadata_image import MetadataDelta, MetadataImage, required
from ...isr.purgatory.delayed_operation_timers import DelayedOperationTimers
from ...isr.replica_manager import ReplicaManager
from ...runtime.invariants import sometimes
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.types import TopicPartition
from .coordinator_loader import CoordinatorLoader, Shard
from .coordinator_partition_writer import IN_THE_LOG, ProducerTransaction, batches_of, write_records
from .coordinator_topic import CoordinatorTopic
from .record_fields import CoordinatorRecord

S = TypeVar("S", bound=Shard)

_LOAD_RETRY_MS = 1_000
_COMMIT_RETRY_MS = 100
_COMMIT_TIMEOUT_MS = 10_000


class ShardOwner(Protocol[S]):
    """The coordinator, which makes shards and is told of their ends."""

    def new_shard(self, partition: int, leader_epoch: int) -> S:
        """An empty shard, to be loaded."""
        ...

    def on_loaded(self, shard: S, loader: CoordinatorLoader[S]) -> None:
        """All records are replayed: the shard is active from here on."""
        ...

    def on_resigned(self, shard: S) -> None:
        """The shard is dropped: requests that wait get NOT_COORDINATOR."""
        ...


class LedPartitions(Generic[S]):
    """Until `start` there are none."""

    def __init__(
        self,
        topic: CoordinatorTopic,
        node_id: int,
        replicas: ReplicaManager,
        owner: ShardOwner[S],
        logger: logging.Logger,
    ) -> None:
        self._topic = topic
        self._node_id = node_id
        self._replicas = replicas
        self._owner = owner
        self._logger = logger
        self._timers: DelayedOperationTimers | None = None
        self._is_started = False
        self.shards: dict[int, S] = {}
        self.loaders: dict[int, CoordinatorLoader[S]] = {}
        self.passed_over = 0
        """Records that could not be read or applied; for metrics."""
        replicas.watch_leadership(topic.name, self._on_led)

    # ---------------------------------------------------------------- start, stop, leadership

    def start(self, image: MetadataImage) -> None:
        """Begin to coordinate, after the replicas have taken up their roles."""
        self._is_started = True
        self._timers = DelayedOperationTimers(asyncio.get_running_loop())
        self._follow_leadership(image)

    def stop(self) -> None:
        """Drop all shards."""
        self._is_started = False
        self._topic.close()
        for partition in list(self.shards):
            self._resign(partition)
        if self._timers is not None:
            self._timers.close()

    @property
    def is_started(self) -> bool:
        """Whether it is between `start` and `stop`."""
        return self._is_started

    @property
    def timers(self) -> DelayedOperationTimers:
        """The time-outs of the coordinator, from `start` on."""
        return required(self._timers, "a coordinator with shards was started")

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Take up and drop shards with the leadership. Call it after the replicas have seen the metadata."""
        self._topic.on_metadata(image)
        topic = image.topics_by_name.get(self._topic.name)
        if any(one.name == self._topic.name for one in delta.deleted_topics.values()):
            sometimes(topic is not None, "a coordinator heard at once that its topic was deleted and created again")
            for partition in list(self.shards):
                self._resign(partition)
        if topic is not None and any(topic_id == topic.topic_id for topic_id, _ in delta.changed_partitions):
            self._follow_leadership(image)

    def _on_led(self, partition: int) -> None:
        """The replica leads. Mostly its metadata comes here next; but the replica may have been made only now."""
        if self._is_started and partition not in self.shards:
            asyncio.get_running_loop().call_soon(self._load_if_missing, partition)

    def _load_if_missing(self, partition: int) -> None:
        if partition not in self.shards:
            self._retry_loads()

    def _follow_leadership(self, image: MetadataImage) -> None:
        topic = image.topics_by_name.get(self._topic.name)
        partitions = {} if topic is None else topic.partitions
        for partition in list(self.shards):
            registration = partitions.get(partition)
            led = registration is not None and registration.leader == self._node_id
            if registration is None or not led or registration.leader_epoch != self.shards[partition].leader_epoch:
                sometimes(led, "a coordinator resigned and loaded its partition again in the next leader epoch")
                sometimes(self.shards[partition].is_loading, "a coordinator resigned while it was loading")
                self._resign(partition)
        for partition, registration in sorted(partitions.items()):
            if registration.leader == self._node_id and partition not in self.shards:
                self._start_loading(partition, registration.leader_epoch)

    def _start_loading(self, partition: int, leader_epoch: int, delay_ms: int = 0) -> None:
        replica = self._replicas.partitions.get(TopicPartition(self._topic.name, partition))
        if replica is None or not replica.is_leader:
            return
        shard = self.shards[partition] = self._owner.new_shard(partition, leader_epoch)
        call_soon = asyncio.get_running_loop().call_soon
        mend = partial(self._replicas.mend, replica.topic_partition)
        loader = self.loaders[partition] = CoordinatorLoader(
            shard, replica, call_soon, self._on_loaded, mend, self._logger
        )
        if delay_ms:
            self.timers.add(delay_ms, loader.step)
        elif replica.log.log_start_offset == replica.log.log_end_offset:
            loader.step()
        else:
            call_soon(loader.step)

    def _on_loaded(self, shard: S, is_complete: bool) -> None:
        if is_complete:
            self._wait_until_committed(shard)
            return
        is_being_mended = self.loaders[shard.partition].is_being_mended
        sometimes(True, "a coordinator could not load its partition and tried again")
        self._resign(shard.partition)
        if is_being_mended:  # clients get COORDINATOR_LOAD_IN_PROGRESS meanwhile, and wait
            self._start_loading(shard.partition, shard.leader_epoch, _LOAD_RETRY_MS)
        else:
            self.timers.add(_LOAD_RETRY_MS, self._retry_loads)

    def _wait_until_committed(self, shard: S) -> None:
        loader = self.loaders[shard.partition]
        topic_partition = TopicPartition(self._topic.name, shard.partition)

        def done(is_committed: bool) -> None:
            if not self.is_current(shard):
                return
            sometimes(not is_committed, "a coordinator waited for what it had loaded to be committed")
            if is_committed:
                del self.loaders[shard.partition]
                self._owner.on_loaded(shard, loader)
                self.passed_over += loader.passed_over
                if loader.passed_over > 1:
                    self._logger.warning("%s: %d more are passed over", shard.name, loader.passed_over - 1)
            else:
                self.timers.add(_COMMIT_RETRY_MS, lambda: self._wait_again(shard))

        self._replicas.when_committed(topic_partition, loader.end_offset, _COMMIT_TIMEOUT_MS, done)

    def _wait_again(self, shard: S) -> None:
        if self.is_current(shard):
            self._wait_until_committed(shard)

    def _retry_loads(self) -> None:
        if self._is_started:
            self._follow_leadership(self._topic.metadata.image)

    def _resign(self, partition: int) -> None:
        shard = self.shards.pop(partition)
        loader = self.loaders.pop(partition, None)
        if loader is not None:
            loader.cancel()
        self._owner.on_resigned(shard)

    def reload(self, shard: S) -> None:
        """Load the shard again: its memory may differ from the log."""
        if self.is_current(shard):
            sometimes(True, "a coordinator loaded its partition again")
            self._resign(shard.partition)
            self._start_loading(shard.partition, shard.leader_epoch)

    # ---------------------------------------------------------------- lookup

    def is_current(self, shard: S) -> bool:
        """Whether the shard has not been dropped."""
        return self.shards.get(shard.partition) is shard

    @property
    def active(self) -> list[S]:
        """The shards that are loaded."""
        return [shard for shard in self.shards.values() if not shard.is_loading]

    def shard_of(self, key: str) -> S:
        """The loaded shard of the key. Raises NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        shard = self.shards.get(self._topic.partition_of(key))
        if shard is None:
            raise ProtocolError(ErrorCode.NOT_COORDINATOR)
        if shard.is_loading:
            raise ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def all_loaded(self) -> list[S]:
        """All shards. Raises COORDINATOR_LOAD_IN_PROGRESS when one is not loaded."""
        shards = list(self.shards.values())
        if any(shard.is_loading for shard in shards):
            raise ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shards

    # ---------------------------------------------------------------- reads

    def confirm(self, shard: S, timeout_ms: int, done: Callable[[bool], None]) -> None:
        """Call `done` once: with true when the shard had, when this was called, all that was acknowledged to clients.

        It is false when the shard is dropped, or the other replicas do not confirm within `timeout_ms` that this
        broker leads its partition (`ReplicaManager.confirm_leadership`).
        """
        if self.is_current(shard):
            topic_partition = TopicPartition(self._topic.name, shard.partition)
            self._replicas.confirm_leadership(topic_partition, shard.leader_epoch, timeout_ms, done)
        else:
            done(False)

    # ---------------------------------------------------------------- writes

    def append(
        self,
        shard: S,
        records: Sequence[CoordinatorRecord],
        times: tuple[int, int],
        done: Callable[[ErrorCode], None],
        transaction: ProducerTransaction | None = None,
        committed: Callable[[], None] | None = None,
    ) -> None:
        """Write to the shard's partition, as `write_records`; tombstones in as many batches as they need.

        When the shard is dropped meanwhile, `done` gets NOT_COORDINATOR, and `committed` is not called.
        """

        def finished(error: ErrorCode) -> None:
            is_current = self.is_current(shard)
            sometimes(not is_current, "a coordinator had resigned when its records were answered")
            done(error if is_current else ErrorCode.NOT_COORDINATOR)

        def while_current() -> None:
            if committed is not None and self.is_current(shard):
                committed()

        topic_partition = TopicPartition(self._topic.name, shard.partition)
        replica = self._replicas.partitions.get(topic_partition)
        if replica is None or not self.is_current(shard):
            done(ErrorCode.NOT_COORDINATOR)
            return
        *first, last = batches_of(records, replica.log.config.max_message_bytes)
        errors: list[ErrorCode] = []

        def written(error: ErrorCode) -> None:
            errors.append(error)
            if len(errors) <= len(first):
                return
            refused = [one for one in errors if one not in IN_THE_LOG]
            if 0 < len(refused) < len(errors):
                self.reload(shard)
            finished(next((one for one in errors if one), ErrorCode.NONE))

        for batch in first:
            write_records(self._replicas, topic_partition, batch, times, written, transaction)
        write_records(self._replicas, topic_partition, last, times, written, transaction, while_current)
