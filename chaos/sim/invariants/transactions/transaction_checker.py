"""Transactions as Kafka promises them, checked at each batch that a leader appends or commits.

Everything is counted from the records of `__transaction_state` and from the batches of the partitions' logs, by replays
of the simulator's own (`chaos/specification/transactions`). "A transaction is complete when all its markers are
committed", unless the topic is deleted meanwhile, or the partition has a later epoch of the producer. "A marker ends
the transaction that it is of", not a later one of the same producer. "Only a transaction that its coordinator knows is
opened in a partition" (KIP-890), else nobody would end it. "A granted epoch is recorded, and nobody had it before",
"a producer id has one transactional id". "No transaction stays open in the end", for longer than its time-out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from .....broker.transactions.transaction_config import TRANSACTION_TOPIC
from .....broker.transactions.transaction_coordinator import TransactionCoordinator
from .....broker.transactions.transaction_coordinator_shard import TransactionCoordinatorShard
from .....controller.metadata.metadata_image import MetadataImage
from .....isr.replica import Replica
from .....wire.records import BatchHeader
from .....wire.types import TopicPartition
from ....specification.transactions.log_replay import LogReplay, Marker, marker_in
from ....specification.transactions.recorded_state import Phase, RecordedState
from ...kernel.clock import SIMULATION_EPOCH_MS
from ..decision_invariants import DecisionChecker
from ..invariant_broken import InvariantBroken
from .cleaned_logs import Span, check_cleaned, check_newest
from .coordinator_log import CoordinatorLog, records_in, told
from .expirations import DEFAULT_EXPIRATIONS, Expirations, check_removed
from .leader_log import LeaderLog, batches_of

PartitionKey = tuple[UUID, int]
_NO_TIMEOUT_MS = 2**31 - 1
_NO_EPOCH_LEFT = 2**15
_CLOCKS_DIFFER_S = 0.1
_SLACK_S = 3.0
"""After its time-out a transaction is looked at now and then, and its markers take a moment."""


@dataclass(slots=True)
class _Committed:
    """The committed part of a partition's log."""

    name: TopicPartition
    replay: LogReplay = field(default_factory=LogReplay)
    marked: dict[tuple[int, int, bool], int] = field(default_factory=dict)
    """In which event a marker of a producer id and epoch, commit or abort, was committed last."""
    spans: list[Span] = field(default_factory=list)
    """The batches of transactions of a compacted log."""


@dataclass(slots=True)
class _Identity:
    """What is committed of a transactional id. Events are numbered, times are virtual seconds."""

    state: RecordedState | None = None
    coordinator_epoch: int = -1
    """The leader epoch of the last record."""
    began_s: float = 0.0
    """When it was committed that the transaction began."""
    decided_s: float = 0.0
    """When its coordinator decided that it begins, or shortly before: what was deleted since then has no marker."""
    prepared: int = 0
    """The event when its end was decided."""


class TransactionChecker:
    """Follows all partitions once there is a `__transaction_state`."""

    def __init__(
        self, now_s: Callable[[], float], *, is_verified: bool = True, expirations: Expirations = DEFAULT_EXPIRATIONS
    ) -> None:
        """`is_verified`: leaders ask the coordinator before a batch opens a transaction."""
        self.expirations = expirations
        self.decisions = DecisionChecker()
        self.is_blind = False
        """Bits of the logs have flipped: nothing is judged any more."""
        self._now_s = now_s
        self._is_verified = is_verified
        self.event = 0
        """How many events the nodes have run."""
        self._image = MetadataImage()
        self._topics: dict[str, UUID] = {}
        self._deleted: dict[str, float] = {}
        """When topics of this name were deleted last."""
        self._logs: dict[PartitionKey, _Committed] = {}
        self._by_name: dict[TopicPartition, list[_Committed]] = {}
        self._ids: dict[str, _Identity] = {}
        self._owners: dict[int, str] = {}
        """The transactional id of each producer id, in the order in which they were given."""
        self._granted: dict[tuple[int, int], str] = {}
        self._hung: dict[tuple[TopicPartition, int, int], int] = {}
        """First offsets of transactions that no coordinator knows, by partition, producer id and epoch."""
        self._idempotent: dict[int, str] = {}
        """The clients without a transactional id by producer id."""
        self._answered: dict[tuple[int, int], str] = {}
        """The producers that clients were told to be."""
        self._living: dict[int, int] = {}
        """The lowest epoch of each producer id whose producer has not been told to have a successor."""
        self._coordinators: dict[int, TransactionCoordinator] = {}
        self._loaded: dict[tuple[int, int], TransactionCoordinatorShard] = {}

    @property
    def is_on(self) -> bool:
        """Whether there may be transactions."""
        return TRANSACTION_TOPIC in self._topics

    def on_image(self, image: MetadataImage) -> None:
        """The metadata has changed."""
        self._image = image
        topics = {topic.name: topic_id for topic_id, topic in image.topics_by_id.items()}
        for name, topic_id in self._topics.items():
            if topics.get(name) != topic_id:
                self._deleted[name] = self._now_s()
        self._topics = topics

    def forget(self, node_id: int) -> None:
        """The node's process has ended."""
        self._coordinators.pop(node_id, None)
        for key in [key for key in self._loaded if key[0] == node_id]:
            del self._loaded[key]

    # -- what is committed

    def on_committed(self, replica: Replica, header: BatchHeader, batch: bytes) -> None:
        """A batch is committed, the next one of its partition."""
        name = replica.topic_partition
        key = (replica.topic_id, name.partition)
        if self.is_blind and name.topic == TRANSACTION_TOPIC and not header.is_control:
            self.decisions.on_committed(batch)
        if not self.is_on or self.is_blind or (header.producer_id < 0 and name.topic != TRANSACTION_TOPIC):
            return
        log = self._logs.get(key)
        if log is None:
            log = self._logs[key] = _Committed(name)
            self._by_name.setdefault(name, []).append(log)
        if replica.log.config.is_compacted and (header.is_control or header.is_transactional):
            log.spans.append(Span(header.base_offset, header.last_offset, header.producer_id, header.is_control))
        marker = log.replay.follow(header, batch)
        if marker is not None:
            log.marked[header.producer_id, header.producer_epoch, marker.is_commit] = self.event
        if name.topic == TRANSACTION_TOPIC and not header.is_control:
            for transactional_id, state in records_in(batch):
                self._on_record(transactional_id, state, header.partition_leader_epoch)

    def _on_record(self, transactional_id: str, state: RecordedState | None, leader_epoch: int) -> None:
        one = self._ids.setdefault(transactional_id, _Identity())
        before, one.state, one.coordinator_epoch = one.state, state, leader_epoch
        if state is None:
            return
        self.decisions.on_state(state)
        for producer_id in (state.producer_id, state.client[0], state.next_producer_id):
            owner = self._owners.setdefault(producer_id, transactional_id) if producer_id >= 0 else transactional_id
            if owner != transactional_id:
                detail = f"{producer_id} of {transactional_id} is {owner}'s"
                raise InvariantBroken("a producer id has one transactional id", detail)
            if producer_id in self._idempotent:
                detail = f"{producer_id} of {transactional_id} is {self._idempotent[producer_id]}'s"
                raise InvariantBroken("a producer id is given once", detail)
        if not state.phase.is_idle and (before is None or before.phase.is_idle):
            one.began_s = self._now_s()
            one.decided_s = min(one.began_s, (state.start_ms - SIMULATION_EPOCH_MS) / 1000) - _CLOCKS_DIFFER_S
        if state.phase.is_prepared:
            one.prepared = self.event
        if state.phase is Phase.EMPTY or state.is_kept:
            self._granted[state.client] = transactional_id

    # -- what leaders append

    def lead(self, replica: Replica, replay: LogReplay | None) -> LeaderLog | None:
        """A replica leads in an epoch; `replay` has followed its log, if that could be read."""
        if replay is None:
            return None
        is_coordinator = replica.topic_partition.topic == TRANSACTION_TOPIC
        return LeaderLog(replica, replay, CoordinatorLog() if is_coordinator else None)

    def after_leaders(self, node_id: int, logs: Iterable[LeaderLog]) -> None:
        """The logs of a leader have grown, or their high watermarks have moved. Raises `InvariantBroken`."""
        for log in logs if self.is_on else ():
            self._after_leader(node_id, log)

    def _after_leader(self, node_id: int, log: LeaderLog) -> None:
        held = log.replica.log
        silences: dict[int, float] = {}
        for header, batch in batches_of(held, log.replay.end_offset, held.log_end_offset):
            if not self._is_abort_of_hung(log.replica.topic_partition, header, batch):
                self.decisions.check_appended(log.replica.topic_partition, header, batch)
            if self.is_blind:
                log.replay.end_offset = header.next_offset
                continue
            if header.producer_id >= 0:
                silences.setdefault(header.producer_id, log.silence_ms(header, self._now_s()))
            self._check_appended(node_id, log, header, batch)
        if self.is_blind:
            return
        log.check_remembered(silences, self.expirations)
        if log.coordinator is not None:
            log.coordinator.on_committed(log.replica.high_watermark, self._now_s())
        log.check_stable_offset()

    def _check_appended(self, node_id: int, log: LeaderLog, header: BatchHeader, batch: bytes) -> None:
        name, is_latest = log.replica.topic_partition, self._is_latest(log.replica)
        if header.is_control:
            marker = marker_in(batch)
            opened = log.replay.open.get(header.producer_id)
            if marker is not None and log.check_marker(header, marker, is_latest=is_latest) and is_latest:
                key = name, header.producer_id, header.producer_epoch
                if marker.is_commit or opened is None or self._hung.get(key) != opened[0]:
                    self._check_ended(name, header, marker)
        elif header.producer_id >= 0:
            if is_latest:
                self._check_living(name, header)
            if log.check_data(header, is_latest=is_latest) and is_latest:
                self._check_opened(name, header)
        elif log.coordinator is not None:
            where, shard = f"{name} on {node_id}", self._shard(node_id, name.partition)
            for transactional_id, before, state in log.coordinator.append(header, batch, self._now_s(), shard, where):
                if state is None:
                    check_removed(before, header.max_timestamp, self.expirations.id_ms, f"{where}, {transactional_id}")
                if before is not None and state is not None and before.phase.is_prepared and is_latest:
                    self._check_complete(transactional_id, before)
        log.replay.follow(header, batch)

    def _check_living(self, name: TopicPartition, header: BatchHeader) -> None:
        """A batch is appended: no client was told before that it comes after the producer of the batch."""
        living = self._living.get(header.producer_id, -1)
        if self._is_verified and header.is_transactional and header.producer_epoch < living:
            producer = header.producer_id, header.producer_epoch
            detail = f"{name} at {header.base_offset}: {producer}, its successor was answered before"
            raise InvariantBroken("a producer whose successor was answered writes nothing", detail)

    def _is_abort_of_hung(self, name: TopicPartition, header: BatchHeader, batch: bytes) -> bool:
        """Whether an administrator may have written this marker, to end a transaction that hangs."""
        if not header.is_control or (name, header.producer_id, header.producer_epoch) not in self._hung:
            return False
        marker = marker_in(batch)
        return marker is not None and not marker.is_commit

    def has_hung(self, name: TopicPartition, producer_id: int, epoch: int) -> bool:
        """Whether a producer has opened a transaction in this partition that no coordinator knew."""
        return (name, producer_id, epoch) in self._hung

    def hanging(self) -> list[str]:
        """The partitions with the producers of transactions that hang, as far as that is committed."""
        return [
            f"{name}: {producer_id} epoch {epoch} since {offset}"
            for (name, producer_id, epoch), offset in self._hung.items()
            if any(log.replay.open.get(producer_id) == (offset, epoch) for log in self._by_name.get(name, ()))
        ]

    def _is_latest(self, replica: Replica) -> bool:
        """Whether no later leader is known: what a former one appends is never committed."""
        registration = self._image.partition(replica.topic_id, replica.topic_partition.partition)
        return registration is None or replica.partition.leader_epoch >= registration.leader_epoch

    def _check_opened(self, name: TopicPartition, header: BatchHeader) -> None:
        """A batch opens a transaction: its coordinator knows it, and will send a marker."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        one = self._ids.get(self._owners.get(producer_id, ""))
        state = None if one is None else one.state
        where = f"{name} at {header.base_offset}: producer {producer_id} epoch {epoch}"
        is_known = (
            state is not None
            and state.producer_id == producer_id
            and name in state.partitions
            and (
                (state.phase is Phase.ONGOING and state.producer_epoch == epoch)
                or (state.phase.is_prepared and state.producer_epoch in (epoch, epoch + 1))
            )
        )
        if not is_known and not self._is_verified:
            self._hung[name, producer_id, epoch] = header.base_offset
        elif not is_known:
            detail = f"{where}, the coordinator has {told(state)}"
            raise InvariantBroken("only a transaction that its coordinator knows is opened in a partition", detail)

    def _check_ended(self, name: TopicPartition, header: BatchHeader, marker: Marker) -> None:
        """A marker ends a transaction: it is the one that is ending now."""
        one = self._ids.get(self._owners.get(header.producer_id, ""))
        state = None if one is None else one.state
        is_ending = (
            state is not None
            and state.phase.is_prepared
            and (state.producer_id, state.producer_epoch) == (header.producer_id, header.producer_epoch)
            and state.phase.is_commit == marker.is_commit
        )
        if one is None or not is_ending or marker.coordinator_epoch < one.coordinator_epoch:
            detail = (
                f"{name} at {header.base_offset}: {'commit' if marker.is_commit else 'abort'} of {header.producer_id} "
                f"epoch {header.producer_epoch} by coordinator epoch {marker.coordinator_epoch}, it has {told(state)}"
            )
            raise InvariantBroken("a marker ends the transaction that it is of", detail)

    def _check_complete(self, transactional_id: str, prepared: RecordedState) -> None:
        """A transaction is recorded as complete."""
        one = self._ids.get(transactional_id)
        for name in sorted(prepared.partitions):
            deleted_s = self._deleted.get(name.topic, -math.inf)
            if one is None or name.topic not in self._topics or deleted_s >= one.decided_s:
                continue
            if not any(self._is_marked(log, prepared, one.prepared) for log in self._by_name.get(name, ())):
                detail = f"{transactional_id}: {name} has no marker, {told(prepared)}"
                raise InvariantBroken("a transaction is complete when all its markers are committed", detail)

    @staticmethod
    def _is_marked(log: _Committed, prepared: RecordedState, since: int) -> bool:
        """Whether the transaction that was prepared in an event has ended in this log."""
        producer_id, epoch = prepared.producer_id, prepared.producer_epoch
        if log.marked.get((producer_id, epoch, prepared.phase.is_commit), -1) >= since:
            return True
        known, opened = log.replay.producers.get(producer_id), log.replay.open.get(producer_id)
        return known is not None and known.epoch > epoch and (opened is None or opened[1] > epoch)

    # -- memory of coordinators

    def _shard(self, node_id: int, partition: int) -> TransactionCoordinatorShard | None:
        """What a node has loaded and still coordinates."""
        shard = self._loaded.get((node_id, partition))
        coordinator = self._coordinators.get(node_id)
        is_current = coordinator is not None and coordinator.partitions.shards.get(partition) is shard
        return shard if is_current else None

    def after_coordinator(
        self, node_id: int, coordinator: TransactionCoordinator, led_by: Callable[[int], Iterable[LeaderLog]]
    ) -> None:
        """A broker has run an event: look for partitions that it has loaded. `led_by` has what a broker leads."""
        shards = coordinator.partitions.shards
        if not shards or self.is_blind or not self.is_on:
            return
        self._coordinators[node_id] = coordinator
        for partition, shard in shards.items():
            if self._loaded.get((node_id, partition)) is shard or shard.is_loading:
                continue
            self._loaded[node_id, partition] = shard
            for log in led_by(node_id):
                if log.coordinator is not None and log.replica.topic_partition.partition == partition:
                    log.coordinator.check_memory(shard, f"{log.replica.topic_partition} on {node_id}, loaded")

    def check_in_the_end(self, node_id: int, logs: Iterable[LeaderLog]) -> None:
        """Compare the memory of a node's coordinators with the logs that it leads. Raises `InvariantBroken`."""
        for log in () if self.is_blind else logs:
            shard = self._shard(node_id, log.replica.topic_partition.partition)
            if log.coordinator is not None and shard is not None:
                log.coordinator.check_memory(shard, f"{log.replica.topic_partition} on {node_id}")
            log.check_stable_offset()

    def check_cleaned(self, node_id: int, replica: Replica) -> None:
        """Compare a compacted log with all that was committed to it. Raises `InvariantBroken`."""
        committed = self._logs.get((replica.topic_id, replica.topic_partition.partition))
        if committed is not None and not self.is_blind and replica.log.config.is_compacted and not replica.offline:
            check_cleaned(replica.log, committed.replay, f"{replica.topic_partition} on {node_id}")

    def committed_of(self, key: PartitionKey) -> tuple[LogReplay, Sequence[Span]]:
        """The replay of all that was committed to a compacted log, and the batches of its transactions."""
        committed = self._logs.get(key)
        return (LogReplay(), ()) if committed is None else (committed.replay, committed.spans)

    def check_newest(self, node_id: int, replica: Replica, records: Mapping[int, tuple[bytes, bytes]]) -> None:
        """Compare what is left of a compacted log with all its committed records. Raises `InvariantBroken`."""
        committed = self._logs.get((replica.topic_id, replica.topic_partition.partition))
        if committed is not None and not self.is_blind and replica.log.config.is_compacted and not replica.offline:
            where = f"{replica.topic_partition} on {node_id}"
            check_newest(replica.log, committed.replay, committed.spans, records, where)

    # -- what clients are told

    def check_ended(self, client: str, producer: tuple[int, int], *, is_commit: bool) -> None:
        """A client was told that its transaction has ended, and goes on as this producer."""
        had_it = self._answered.setdefault(producer, client)
        if had_it != client:
            detail = f"{client} is {producer} after the end of its transaction; {had_it} was it before"
            raise InvariantBroken("a granted epoch is recorded, and nobody had it before", detail)
        self.decisions.check_reported(producer, is_commit=is_commit)

    def check_initialized(
        self, client: str, transactional_id: str, producer: tuple[int, int], *, is_new: bool, is_kept: bool = False
    ) -> None:
        """A client was told to be this producer. `is_new`: it did not say which one it was before.

        Who says it may ask again, as the answer may have been lost; no other client has been that producer.
        `is_kept`: a transaction of a producer before stays open.
        """
        owner = self._granted.get(producer)
        if owner != transactional_id and not self.is_blind:
            detail = f"{transactional_id} is {producer}, which is recorded of {owner}"
            raise InvariantBroken("a granted epoch is recorded, and nobody had it before", detail)
        had_it = self._answered.get(producer)
        if had_it is not None and (is_new or had_it != client):
            detail = f"{transactional_id} is {producer} again, as {client}; {had_it} was it before"
            raise InvariantBroken("a granted epoch is recorded, and nobody had it before", detail)
        self._answered[producer] = client
        if not is_kept:
            self._end_all_before(transactional_id, producer)

    def _end_all_before(self, transactional_id: str, producer: tuple[int, int]) -> None:
        """Remember that the producers of the id with lower epochs, or with producer ids before, are over."""
        for producer_id in [one for one, owner in self._owners.items() if owner == transactional_id]:
            is_same = producer_id == producer[0]
            self._living[producer_id] = max(
                producer[1] if is_same else _NO_EPOCH_LEFT, self._living.get(producer_id, -1)
            )
            if is_same:
                return

    def on_idempotent_producer(self, client: str, producer_id: int) -> None:
        """A client without a transactional id was given a producer id. Raises `InvariantBroken`."""
        owner = self._owners.get(producer_id) or self._idempotent.get(producer_id)
        self._idempotent[producer_id] = client
        if owner is not None:
            detail = f"{client} is {producer_id}, which {owner} was before"
            raise InvariantBroken("a producer id is given once", detail)

    def ids_in_use(self, start: str) -> list[str]:
        """The transactional ids that begin with a text and are in the log, as far as that is committed."""
        return [one for one, known in self._ids.items() if known.state is not None and one.startswith(start)]

    def explanation(self, transactional_id: str, producer: tuple[int, int]) -> str | None:
        """Why a coordinator may refuse who was told to be this producer; None if the log does not say why.

        A coordinator that has loaded since the last record, or that another one has followed, may not know it.
        """
        one = self._ids.get(transactional_id)
        if one is None or one.state is None or one.state.heir != producer:
            return f"the log has {told(None if one is None else one.state)}"
        for coordinator in self._coordinators.values():
            shard = coordinator.partitions.shards.get(coordinator.partition_of(transactional_id))
            if shard is not None and shard.leader_epoch != one.coordinator_epoch:
                return f"there is a coordinator of epoch {shard.leader_epoch}, the record is of {one.coordinator_epoch}"
        return None

    # -- in the end

    def why_unsettled(self, logs: Iterable[LeaderLog]) -> str | None:
        """What is open for no reason, when nothing fails and no client acts any more; None if nothing is."""
        if self.is_blind:
            return None
        for transactional_id, one in self._ids.items():
            state = one.state
            if state is not None and not (state.phase.is_idle or self._may_be_open(one)):
                return f"{transactional_id} is in {told(state)}"
        for log in logs:
            for producer_id, (offset, epoch) in log.replay.open.items():
                known = self._ids.get(self._owners.get(producer_id, ""))
                state = None if known is None else known.state
                name = log.replica.topic_partition
                if known is None or state is None or name not in state.partitions or not self._may_be_open(known):
                    return (
                        f"{name}: open since {offset} is {producer_id} epoch {epoch}, its coordinator has {told(state)}"
                    )
        return None

    def _may_be_open(self, one: _Identity) -> bool:
        """Whether its transaction is open for no longer than its time-out."""
        state = one.state
        if state is None or state.phase is not Phase.ONGOING:
            return False
        if state.timeout_ms == _NO_TIMEOUT_MS:
            return True
        return self._now_s() < one.began_s + state.timeout_ms / 1000 + _SLACK_S
