"""The transaction coordinator: which transactional ids this broker coordinates, and how their effects are carried out.

Each partition of `__transaction_state` that this broker leads is a shard. All requests about an id come to its shard,
one at a time; the shard decides, and this class writes, answers and sends markers. A transaction that is open for too
long is aborted, and an id that is not used for a week is removed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from ...controller.metadata.features import transaction_version
from ...controller.metadata.metadata_image import MetadataDelta, MetadataImage
from ...controller.metadata.metadata_loader import MetadataLoader
from ...isr.leader.transaction_markers import TransactionMarker
from ...isr.replica_manager import ReplicaManager
from ...runtime.incremental_work import PLAIN_STEP, IncrementalTask, Work
from ...runtime.invariants import sometimes
from ...runtime.ports import Runtime
from ...runtime.timer_wheel import TimerHandle
from ...wire.errors import ErrorCode
from ...wire.types import TopicPartition
from ..coordinators.coordinator_loader import CoordinatorLoader
from ..coordinators.coordinator_partition_writer import coordinator_error
from ..coordinators.coordinator_topic import CoordinatorTopic
from ..coordinators.effects import Persist, Reply
from ..coordinators.led_partitions import LedPartitions
from ..to_brokers.broker_channels import Channels
from .marker_queues import Ending
from .transaction_config import TRANSACTION_TOPIC, TransactionConfig
from .transaction_coordinator_shard import (
    Effect,
    PendingWrite,
    RetryCompletion,
    TransactionCoordinatorShard,
    WriteMarkers,
)
from .transaction_decisions import Answer, InitRequest, Producer, ProducerIds
from .transaction_marker_sender import TransactionMarkerSender

logger = logging.getLogger("raftwerk.transactions")

_WRITE_TIMEOUT_MS = 5_000
_COMPLETION_RETRY_MS = 100
_FORMER_END_WAIT_S = 0.05

Waiter = asyncio.Future[Answer]


class TransactionCoordinator:
    """The transactional ids of one broker. Until `start` it coordinates nothing."""

    def __init__(
        self,
        node_id: int,
        config: TransactionConfig,
        runtime: Runtime,
        metadata: MetadataLoader,
        replicas: ReplicaManager,
        producer_ids: ProducerIds,
        channels: Channels,
    ) -> None:
        self.config = config
        self.topic = CoordinatorTopic(TRANSACTION_TOPIC, config.topic, metadata)
        self.partitions: LedPartitions[TransactionCoordinatorShard] = LedPartitions(
            self.topic, node_id, replicas, self, logger
        )
        self._runtime = runtime
        self._metadata = metadata
        self._producer_ids = producer_ids
        self._markers = TransactionMarkerSender(channels, metadata, self._on_marked)
        self._waiting_for_change: dict[str, list[asyncio.Future[None]]] = {}
        """Requests that wait for the next write of an id, by transactional id."""
        self._abort_timer: TimerHandle | None = None
        self._expiry_timer: TimerHandle | None = None

    # ---------------------------------------------------------------- start, stop, leadership

    def start(self) -> None:
        """Begin to coordinate, after the replicas have taken up their roles."""
        self.partitions.start(self._metadata.image)

    def stop(self) -> None:
        """Drop all shards; requests that wait get NOT_COORDINATOR."""
        self.partitions.stop()
        self._markers.close()

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Take up and drop shards with the leadership. Call it after the replicas have seen the metadata."""
        if not self.partitions.is_started:
            return
        version = transaction_version(image)
        for shard in self.partitions.shards.values():
            shard.transaction_version = version
        self.partitions.on_metadata(image, delta)
        self._markers.on_metadata(image, delta)

    def new_shard(self, partition: int, leader_epoch: int) -> TransactionCoordinatorShard:
        """See `ShardOwner`."""
        shard = TransactionCoordinatorShard(partition, leader_epoch, self._producer_ids)
        shard.transaction_version = transaction_version(self._metadata.image)
        return shard

    def on_loaded(
        self, shard: TransactionCoordinatorShard, loader: CoordinatorLoader[TransactionCoordinatorShard]
    ) -> None:
        """See `ShardOwner`."""
        shard.finish_loading(self.wall_ms())
        if shard.entries:
            logger.info("loaded %d transactional ids of partition %d", len(shard.entries), shard.partition)
        self._carry_out(shard)
        self._watch()

    def on_resigned(self, shard: TransactionCoordinatorShard) -> None:
        """See `ShardOwner`."""
        self._markers.drop(shard.partition)
        shard.close(ErrorCode.NOT_COORDINATOR)
        self._carry_out(shard)

    # ---------------------------------------------------------------- requests

    def partition_of(self, transactional_id: str) -> int:
        """The id's partition of `__transaction_state`, also before the topic is created."""
        return self.topic.partition_of(transactional_id)

    def shard_of(self, transactional_id: str) -> TransactionCoordinatorShard:
        """The loaded shard of the id. Raises NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        return self.partitions.shard_of(transactional_id)

    def loaded_shards(self) -> list[TransactionCoordinatorShard]:
        """All shards. Raises COORDINATOR_LOAD_IN_PROGRESS when one is not loaded."""
        return self.partitions.all_loaded()

    def wall_ms(self) -> int:
        """Milliseconds of the wall clock, by which transactions time out."""
        return self._runtime.clock.wall_ms()

    def init_producer_id(self, transactional_id: str, request: InitRequest) -> Waiter:
        """The id's next producer id and epoch. Raises as `shard_of`."""
        return self._ask(
            transactional_id,
            lambda shard, waiter: shard.init_producer_id(waiter, transactional_id, request, self.wall_ms()),
        )

    def add_partitions(
        self, transactional_id: str, producer: Producer, partitions: frozenset[TopicPartition], client_version: int
    ) -> Waiter:
        """Add partitions to the id's transaction. Raises as `shard_of`."""
        return self._ask(
            transactional_id,
            lambda shard, waiter: shard.add_partitions(
                waiter, transactional_id, producer, partitions, client_version, self.wall_ms()
            ),
        )

    async def add_partitions_of_client(
        self, transactional_id: str, producer: Producer, partitions: frozenset[TopicPartition]
    ) -> Answer:
        """As `add_partitions`, for a client that may have ended its former transaction a moment ago.

        Until that has its markers, the answer would be CONCURRENT_TRANSACTIONS, after which clients wait for longer
        than markers mostly need. So the end of the former transaction is waited for here, for a short time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _FORMER_END_WAIT_S
        while True:
            answer = await self.add_partitions(transactional_id, producer, partitions, client_version=0)
            left_s = deadline - loop.time()
            if answer.error != ErrorCode.CONCURRENT_TRANSACTIONS or left_s <= 0:
                return answer
            changed: asyncio.Future[None] = loop.create_future()
            self._waiting_for_change.setdefault(transactional_id, []).append(changed)
            try:
                await asyncio.wait([changed], timeout=left_s)
            finally:
                self._forget_waiting(transactional_id, changed)

    def _forget_waiting(self, transactional_id: str, changed: asyncio.Future[None]) -> None:
        """A request waits no more. It wakes no other, as two of them would wake each other by turns."""
        waiting = self._waiting_for_change.get(transactional_id, [])
        if changed in waiting:
            waiting.remove(changed)
            if not waiting:
                del self._waiting_for_change[transactional_id]

    def _wake(self, transactional_id: str) -> None:
        """Let the requests go on that wait for a change of the id."""
        for changed in self._waiting_for_change.pop(transactional_id, ()):
            if not changed.done():
                changed.set_result(None)

    def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: frozenset[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether each partition belongs to the id's open transaction. Raises as `shard_of`."""
        return self.shard_of(transactional_id).verify_partitions(transactional_id, producer, partitions)

    def end_transaction(
        self, transactional_id: str, producer: Producer, *, is_commit: bool, client_version: int
    ) -> Waiter:
        """Decide the end of the id's transaction. Raises as `shard_of`."""
        return self._ask(
            transactional_id,
            lambda shard, waiter: shard.end(
                waiter, transactional_id, producer, is_commit, client_version, self.wall_ms()
            ),
        )

    def _ask(self, transactional_id: str, event: Callable[[TransactionCoordinatorShard, Waiter], None]) -> Waiter:
        shard = self.shard_of(transactional_id)
        waiter: Waiter = asyncio.get_running_loop().create_future()
        event(shard, waiter)
        self._carry_out(shard)
        self._watch()
        if waiter.done() and not waiter.result().error:
            return self._confirmed(shard, waiter.result())
        return waiter

    def _confirmed(self, shard: TransactionCoordinatorShard, answer: Answer) -> Waiter:
        """The answer, if no other broker coordinates the id by now; else NOT_COORDINATOR.

        A success that nothing was written for is told from memory: the partitions belong to the transaction already, or
        it has ended. With `transaction.version` 0 and 1 transactions have the same epoch, so what a former coordinator
        remembers may be the end of an earlier one. A refusal needs no confirmation, since it changes nothing.
        """
        confirmed: Waiter = asyncio.get_running_loop().create_future()

        def done(is_confirmed: bool) -> None:
            sometimes(not is_confirmed, "a transaction coordinator could not confirm that it still led its partition")
            if not confirmed.done():
                confirmed.set_result(answer if is_confirmed else Answer(ErrorCode.NOT_COORDINATOR))

        self.partitions.confirm(shard, _WRITE_TIMEOUT_MS, done)
        return confirmed

    # ---------------------------------------------------------------- effects

    def _carry_out(self, shard: TransactionCoordinatorShard) -> None:
        """Carry out the shard's effects in order, and the effects that these cause."""
        while effects := shard.drain():
            for effect in effects:
                self._carry_out_one(shard, effect)

    def _carry_out_one(self, shard: TransactionCoordinatorShard, effect: Effect) -> None:
        if isinstance(effect, Reply):
            if not effect.token.done():
                effect.token.set_result(effect.result)
        elif isinstance(effect, Persist):
            self._persist(shard, effect)
        elif isinstance(effect, WriteMarkers):
            value = effect.value
            marker = TransactionMarker(
                value.producer_id, value.producer_epoch, shard.leader_epoch, value.is_commit, value.client_version
            )
            self._markers.send(Ending(shard.partition, effect.transactional_id, marker), sorted(value.partitions))
        elif isinstance(effect, RetryCompletion):
            transactional_id = effect.transactional_id
            self.partitions.timers.add(_COMPLETION_RETRY_MS, lambda: self._complete(shard, transactional_id))

    def _persist(self, shard: TransactionCoordinatorShard, effect: Persist[PendingWrite]) -> None:
        def persisted(code: ErrorCode) -> None:
            error = coordinator_error(code, ErrorCode.UNKNOWN_SERVER_ERROR)
            shard.on_persisted(effect.tag, error, self.wall_ms())
            self._carry_out(shard)
            if self._waiting_for_change:
                for transactional_id, _ in effect.tag.values:
                    self._wake(transactional_id)

        self.partitions.append(shard, effect.records, (self.wall_ms(), _WRITE_TIMEOUT_MS), persisted)

    def _on_marked(self, ending: Ending, partitions: Sequence[TopicPartition]) -> None:
        shard = self.partitions.shards.get(ending.coordinator_partition)
        if shard is None or shard.leader_epoch != ending.marker.coordinator_epoch:
            return
        producer = Producer(ending.marker.producer_id, ending.marker.producer_epoch)
        shard.on_marked(ending.transactional_id, producer, partitions, self.wall_ms())
        self._carry_out(shard)

    def _complete(self, shard: TransactionCoordinatorShard, transactional_id: str) -> None:
        if self.partitions.is_current(shard):
            shard.complete(transactional_id, self.wall_ms())
            self._carry_out(shard)

    # ---------------------------------------------------------------- time-outs and expiration

    def _watch(self) -> None:
        """Look for transactions that have timed out and for expired ids, as long as there are ids."""
        if not any(shard.entries for shard in self.partitions.shards.values()):
            return
        if self._abort_timer is None:
            self._abort_timer = self.partitions.timers.add(self.config.abort_interval_ms, self._abort_timed_out)
        if self._expiry_timer is None:
            self._expiry_timer = self.partitions.timers.add(self.config.expiration_interval_ms, self._expire)

    def _abort_timed_out(self) -> None:
        self._abort_timer = None
        for shard in self.partitions.active:
            for transactional_id in shard.abort_timed_out(self.wall_ms()):
                logger.info("the transaction of %s has timed out and is aborted", transactional_id)
            self._carry_out(shard)
        self._watch()

    def _expire(self) -> None:
        self._expiry_timer = None
        for shard in self.partitions.active:
            IncrementalTask(self._expire_in_steps(shard))
        self._watch()

    def _expire_in_steps(self, shard: TransactionCoordinatorShard) -> Work[None]:
        for _ in shard.expire(self.wall_ms(), self.config.id_expiration_ms):
            self._carry_out(shard)
            yield PLAIN_STEP
            if not self.partitions.is_current(shard):
                return
