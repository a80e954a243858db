"""The invariants of partitions and of the metadata, checked after every event.

`CommittedLog` holds what the cluster has promised of a partition: the batches below the highest high watermark that a
leader ever had. The names of the invariants are: "committed batches never change" (which makes replicas byte-identical
below their high watermarks), "every replica holds what is committed in the end", "only a leader commits", "the high
watermark does not go back", "the high watermark is within the log", "a leader holds every committed batch", "one leader
an epoch", "the high watermark moves only with min ISR", "every ISR member has what is committed", "a leader waits for
all whom the controller holds in sync", "who enters the ISR has what is committed", "an ISR member cuts nothing
committed", "an acked record is committed", "only committed batches are consumed", "ISR and ELR are disjoint parts of
the replicas", "a leader is in its ISR", "a fenced broker is in no ISR", "epochs of partitions do not go back", "a log
gives up only what it was asked to", "an elected replica has what it had in the ISR". Those of transactions are in
`transactions/` and `decision_invariants.py`, those of producers in `producer_invariants.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from uuid import UUID

from ....controller.metadata.metadata_image import MetadataImage, PartitionRegistration
from ....controller.metadata.metadata_loader import MetadataLoader
from ....isr.leader.leader_state import LeaderState
from ....isr.replica import Replica
from ....isr.replica_manager import ReplicaManager
from ....log.errors import StorageError
from ....wire.records import CorruptBatchError, iter_headers, iter_records, read_header, verify_crc
from ....wire.types import TopicPartition
from ...specification.transactions.log_replay import LogReplay
from .derived.counted_replicas import check_leader
from .derived.reassignments import check_reassignment
from .derived.settings_in_force import required_isr
from .invariant_broken import InvariantBroken
from .producer_invariants import check_producers
from .retention_rules import RetentionRules
from .transactions.leader_log import LeaderLog
from .transactions.transaction_checker import TransactionChecker
from .unclean_elections import Loss, UncleanElections

_READ_BYTES = 1 << 20
PartitionKey = tuple[UUID, int]


@dataclass(slots=True)
class CommittedLog:
    """Batches by base offset, contiguous from 0 to `end_offset`.

    `promised_end_offset` is larger than `end_offset` if the leader's disk failed before its batches could be read; they
    are then read from the next replica that has them.
    """

    batches: dict[int, bytes] = field(default_factory=dict)
    end_offset: int = 0
    promised_end_offset: int = 0
    records: dict[int, tuple[bytes, bytes]] | None = None
    """For a compacted log, instead of `batches`: keys and values by offset, since compaction rewrites batches."""


@dataclass(slots=True)
class _ReplicaView:
    """The state of a replica after the last event of its node."""

    replica: Replica
    high_watermark: int = 0
    led_epoch: int = -1
    log_end_offset: int = 0
    log_start_offset: int = 0
    compared: int = 0
    """Up to this offset its batches equal the committed ones, and it was not truncated since."""
    leading: LeaderLog | None = None
    """Its log, followed while it leads."""


@dataclass(slots=True)
class _Node:
    manager: ReplicaManager
    loader: MetadataLoader
    wall_ms: Callable[[], int]
    read_metadata: Callable[[int], None]
    replicas: list[Replica] = field(default_factory=list)
    seen: list[_ReplicaView] = field(default_factory=list)
    """In the order of `replicas`."""

    def update_replicas(self, replicas: list[Replica]) -> None:
        """Replicas were added or removed."""
        known = {seen.replica: seen for seen in self.seen}
        self.seen = [known.get(replica) or _ReplicaView(replica) for replica in replicas]
        self.replicas = replicas


class PartitionChecker:
    """Checks the replicas of all brokers, and the metadata."""

    def __init__(
        self, note: Callable[[str, str], None], min_isr: int = 1, transactions: TransactionChecker | None = None
    ) -> None:
        """`min_isr` is min.insync.replicas in the files of the nodes."""
        self._min_isr = min_isr
        self.committed: dict[PartitionKey, CommittedLog] = {}
        self.transactions = transactions or TransactionChecker(lambda: 0.0)
        self._note = note
        self._nodes: dict[int, _Node] = {}
        self._leaders: dict[tuple[UUID, int, int], int] = {}
        self._lost_power: dict[int, dict[PartitionKey, None]] = {}
        """Nodes that have lost power or their disk, each with the partitions of which it has all again since then."""
        self._with_bit_rot: dict[int, None] = {}
        self._image_offset = -1
        self._registrations: dict[PartitionKey, PartitionRegistration] = {}
        self.requested_log_start: dict[PartitionKey, int] = {}
        """The highest offset up to which a client has asked to delete records; 0 without an entry."""
        self.may_lose: dict[str, None] = {}
        """The topics that may lose records by unclean elections. There are none in most runs."""
        self.unclean = UncleanElections()
        self.losses: dict[PartitionKey, list[Loss]] = {}
        self.retention = RetentionRules()
        self._led_epochs: dict[PartitionKey, int] = {}
        """The highest leader epoch that a leader has taken up; only of those topics."""
        self._had: dict[tuple[PartitionKey, int], int] = {}
        """What was committed when a replica left the ISR, which it had then; only of those topics."""

    def watch(
        self,
        node_id: int,
        manager: ReplicaManager,
        loader: MetadataLoader,
        wall_ms: Callable[[], int],
        read_metadata: Callable[[int], None],
    ) -> None:
        """A broker has started. `read_metadata` gives the records of its metadata log below an offset to `unclean`."""
        self._nodes[node_id] = _Node(manager, loader, wall_ms, read_metadata)

    def forget(self, node_id: int, *, power_loss: bool) -> None:
        """The broker's process has ended."""
        self._nodes.pop(node_id, None)
        self.transactions.forget(node_id)
        if power_loss:
            self._lost_power[node_id] = {}

    def on_disk_replaced(self, node_id: int) -> None:
        """The node has an empty disk, or an old one."""
        self._lost_power[node_id] = {}
        self._with_bit_rot.pop(node_id, None)

    def on_bit_rot(self, node_id: int) -> None:
        """Batches of this node may fail their checksums from now on."""
        self._with_bit_rot[node_id] = None
        self.transactions.is_blind = True

    def has_bit_rot(self, node_id: int) -> bool:
        """Whether the node's disk may hold damaged batches."""
        return node_id in self._with_bit_rot

    def is_mended(self, node_id: int) -> bool:
        """Whether a running node with bit rot holds what is committed again; from then on its batches must be right."""
        node = self._nodes.get(node_id)
        if node is None:
            return False
        replicas = list(node.manager.partitions.values())
        hosted = [(each.topic_id, each.topic_partition.partition) for each in replicas if not each.offline]
        if any(node_id in one.replicas and key not in hosted for key, one in self._registrations.items()):
            return False
        self._with_bit_rot.pop(node_id, None)
        try:
            for replica in replicas:
                end = self._committed_end(replica)
                self._compare(node_id, replica, 0, end, "rot is mended where another replica is sound")
        except InvariantBroken:
            self._with_bit_rot[node_id] = None
            return False
        return True

    # -- after every event

    def after_event(self, node_id: int, changed: Sequence[Replica]) -> None:
        """Check the node whose event has just run, and changed these replicas. Raises `InvariantBroken`."""
        node = self._nodes.get(node_id)
        if node is None:
            return
        self.transactions.event += 1
        if node.loader.image.offset > self._image_offset:
            if self.may_lose:
                node.read_metadata(node.loader.image.offset + 1)
            self._on_image(node.loader.image)
        replicas = list(node.manager.partitions.values())
        if replicas != node.replicas:
            known = node.replicas
            node.update_replicas(replicas)
            for replica in replicas:
                if replica not in known:
                    self._check_producers(node_id, replica)
        led: list[LeaderLog] = []
        for seen in [one for one in node.seen if one.replica in changed] if changed else ():
            replica, partition = seen.replica, seen.replica.partition
            leader = partition.leader
            if leader is not None and leader.leader_epoch != seen.led_epoch and not replica.offline:
                seen.led_epoch = leader.leader_epoch
                self._on_leadership(node_id, seen)
            registration = self._registrations.get((replica.topic_id, replica.topic_partition.partition))
            check_leader(node.manager, replica.topic_partition, replica.topic_id, registration)
            log_end_offset = replica.log.log_end_offset
            is_moved = log_end_offset != seen.log_end_offset or partition.high_watermark != seen.high_watermark
            if is_moved and leader is not None and seen.leading is not None:
                led.append(seen.leading)
            if log_end_offset != seen.log_end_offset:
                if log_end_offset < seen.log_end_offset:
                    seen.compared = min(seen.compared, log_end_offset)
                    self._on_truncation(node_id, replica, log_end_offset)
                    self._check_producers(node_id, replica)
                seen.log_end_offset = log_end_offset
            if partition.high_watermark != seen.high_watermark:
                self._on_high_watermark(node_id, seen)
            if replica.log.log_start_offset != seen.log_start_offset:
                seen.log_start_offset = replica.log.log_start_offset
                self._on_log_start(node_id, replica)
        self.transactions.after_leaders(node_id, led)

    def _on_leadership(self, node_id: int, seen: _ReplicaView) -> None:
        replica, epoch = seen.replica, seen.replica.partition.leader_epoch
        where = f"{_name(replica)} epoch {epoch}"
        self._note(f"n{node_id}", f"leads {where} from {replica.log_end_offset}")
        key = (replica.topic_id, replica.topic_partition.partition, epoch)
        if self._leaders.setdefault(key, node_id) != node_id:
            raise InvariantBroken("one leader an epoch", f"{where}: both {self._leaders[key]} and {node_id}")
        if replica.topic_partition.topic in self.may_lose:
            self._account_for_losses(node_id, replica)
        seen.leading = self.transactions.lead(replica, self._check_producers(node_id, replica))
        if epoch < self.leader_epoch(key[:2]):  # who leads next may have committed more
            return
        committed = self._committed(replica)
        if replica.log_end_offset < committed.promised_end_offset:
            detail = f"{where}: leader {node_id} has {replica.log_end_offset} of {committed.promised_end_offset}"
            raise InvariantBroken("a leader holds every committed batch", detail)
        name = "a leader holds every committed batch"
        self._compare(node_id, replica, seen.compared, committed.end_offset, name)

    def _account_for_losses(self, node_id: int, replica: Replica) -> None:
        """A leader of a topic that may lose records: after an unclean election only what it has stays committed."""
        key = (replica.topic_id, replica.topic_partition.partition)
        epoch, before = replica.partition.leader_epoch, self._led_epochs.get(key, -1)
        self._led_epochs[key] = max(epoch, before)
        if epoch <= before or not self.unclean.since(key, before, epoch):
            return
        committed = self._committed(replica)
        kept_end, lost_end = self._common_end(replica), committed.promised_end_offset
        if kept_end >= lost_end:
            return
        had = 0 if self._may_lack(node_id, key) else self._had.get((key, node_id), 0)
        where = f"{_name(replica)} epoch {epoch}: leader {node_id} has {kept_end} of {lost_end} in common"
        if kept_end < had:
            raise InvariantBroken("an elected replica has what it had in the ISR", f"{where}, it had {had}")
        self._note(f"n{node_id}", f"unclean election: {where}")
        self.losses.setdefault(key, []).append(Loss(epoch, kept_end, lost_end))
        for offset in [one for one in committed.batches if one >= kept_end]:
            del committed.batches[offset]
        committed.end_offset = committed.promised_end_offset = kept_end
        for one in [one for one, end in self._had.items() if one[0] == key and end > kept_end]:
            self._had[one] = kept_end
        for node in self._nodes.values():
            for seen in node.seen:
                if seen.replica.topic_id == key[0] and seen.replica.topic_partition.partition == key[1]:
                    seen.compared = min(seen.compared, kept_end)

    def _common_end(self, replica: Replica) -> int:
        """Up to where the replica's log is what is committed."""
        committed, offset = self._committed(replica), 0
        while (batch := committed.batches.get(offset)) is not None and offset < replica.log_end_offset:
            if bytes(replica.log.read(offset, len(batch), end_offset=replica.log_end_offset))[: len(batch)] != batch:
                break
            offset = read_header(batch, 0).next_offset
        return offset

    def _check_producers(self, node_id: int, replica: Replica) -> LogReplay | None:
        if node_id in self._with_bit_rot or replica.offline:
            return None
        with suppress(StorageError):
            may_forget = self.transactions.expirations.forgets_producers
            return check_producers(replica.log, f"{_name(replica)} on {node_id}", may_forget=may_forget)
        return None  # its disk has failed

    def _on_truncation(self, node_id: int, replica: Replica, log_end_offset: int) -> None:
        committed, key = self._committed(replica), (replica.topic_id, replica.topic_partition.partition)
        registration = self._registrations.get(key)
        in_isr = registration is not None and node_id in registration.isr
        if replica.high_watermark > log_end_offset:
            detail = f"{_name(replica)} on {node_id}: cut to {log_end_offset}, high watermark {replica.high_watermark}"
            raise InvariantBroken("the high watermark is within the log", detail)
        if in_isr and log_end_offset < committed.end_offset and not self._may_lack(node_id, key):
            detail = f"{_name(replica)} on {node_id}: cut to {log_end_offset} of {committed.end_offset}"
            raise InvariantBroken("an ISR member cuts nothing committed", detail)

    def _on_high_watermark(self, node_id: int, seen: _ReplicaView) -> None:
        replica, before, now = seen.replica, seen.high_watermark, seen.replica.high_watermark
        seen.high_watermark = now
        losses = self.losses.get((replica.topic_id, replica.topic_partition.partition), [])
        if losses and replica.is_leader and replica.partition.leader_epoch < losses[-1].leader_epoch:
            # It has not heard of the election, and its ISR was enough: what it commits is lost.
            losses[-1] = replace(losses[-1], lost_end=max(now, losses[-1].lost_end))
            return
        if not replica.is_leader and now <= max((loss.lost_end for loss in losses), default=-1):
            return  # it has not cut off what is lost yet, or it just has
        if now < before and now < min((loss.kept_end for loss in losses), default=before):
            detail = f"{_name(replica)} on {node_id}: from {before} to {now}"
            raise InvariantBroken("the high watermark does not go back", detail)
        committed = self._committed(replica)
        if now > committed.promised_end_offset:
            self._check_may_commit(node_id, replica, now)
            committed.promised_end_offset = now
        self._compare(node_id, replica, min(before, committed.end_offset), now, "committed batches never change")
        seen.compared = now
        if node_id in self._lost_power and committed.promised_end_offset <= now <= replica.log_end_offset:
            self._lost_power[node_id][replica.topic_id, replica.topic_partition.partition] = None

    def _may_lack(self, node_id: int, key: PartitionKey) -> bool:
        """Whether a loss of power or of a disk explains that the node has not all that it once had."""
        return node_id in self._lost_power and key not in self._lost_power[node_id]

    def log_start_offset(self, node_id: int, key: PartitionKey) -> int:
        """Where the log of a node's replica starts; 0 if the node does not run, or has no such replica."""
        node = self._nodes.get(node_id)
        replicas = [] if node is None else list(node.manager.partitions.values())
        found = [one for one in replicas if (one.topic_id, one.topic_partition.partition) == key]
        return found[0].log.log_start_offset if found else 0

    def _on_log_start(self, node_id: int, replica: Replica) -> None:
        topic = replica.topic_partition.topic
        if topic in self.retention.topics:
            committed, key = self._committed(replica), (replica.topic_id, replica.topic_partition.partition)
            wall_ms = self._nodes[node_id].wall_ms()
            known = committed.promised_end_offset, committed.batches
            self.retention.check(key, topic, replica.log, known, wall_ms)
            return
        allowed = self.requested_log_start.get((replica.topic_id, replica.topic_partition.partition), 0)
        if replica.log.log_start_offset > allowed:
            detail = f"{_name(replica)} on {node_id} starts at {replica.log.log_start_offset}, {allowed} was asked for"
            raise InvariantBroken("a log gives up only what it was asked to", detail)

    def _check_may_commit(self, node_id: int, replica: Replica, high_watermark: int) -> None:
        leader = replica.partition.leader
        where = f"{_name(replica)} on {node_id}, high watermark {high_watermark}"
        if leader is None:
            raise InvariantBroken("only a leader commits", where)
        isr = leader.isr_state.maximal_isr
        required = required_isr(self._nodes[node_id].loader.image, replica, leader, self._min_isr)
        if len(isr) < required:
            raise InvariantBroken("the high watermark moves only with min ISR", f"{where}, ISR {isr}, not {required}")
        for member in isr:
            other = self._nodes.get(member)
            key = (replica.topic_id, replica.topic_partition.partition)
            if other is None or self._may_lack(member, key) or self._has_left(member, replica, leader):
                continue
            copy = other.manager.partitions.get(replica.topic_partition)
            if copy is not None and copy.topic_id == replica.topic_id and copy.log_end_offset < high_watermark:
                detail = f"{where}: {member} ends at {copy.log_end_offset}"
                raise InvariantBroken("every ISR member has what is committed", detail)

    def _has_left(self, member: int, replica: Replica, leader: LeaderState) -> bool:
        """Whether the controller has removed the member from the ISR, and a leader that was paused does not know it."""
        registration = self._registrations.get((replica.topic_id, replica.topic_partition.partition))
        is_outdated = registration is not None and registration.partition_epoch > leader.partition_epoch
        return is_outdated and registration is not None and member not in registration.isr

    def _compare(self, node_id: int, replica: Replica, start: int, end: int, name: str) -> None:
        committed, has_rot = self._committed(replica), node_id in self._with_bit_rot
        where = f"{_name(replica)} on {node_id}"
        offset = max(start, replica.log.log_start_offset)
        while offset < end:
            try:
                data = replica.log.read(offset, _READ_BYTES, end_offset=end)
                batches = list(iter_headers(data))
            except (StorageError, CorruptBatchError) as error:
                if has_rot or isinstance(error, StorageError):  # its disk has failed
                    return
                raise InvariantBroken(name, f"{where}: {error.message}") from error
            if not data:
                return
            for position, header in batches:
                batch = bytes(data[position : position + header.size_bytes])
                if replica.log.config.is_compacted:
                    offset = header.next_offset
                    if has_rot and _is_harmed(batch):
                        continue
                    is_new = header.base_offset >= committed.end_offset
                    if is_new:
                        self.transactions.on_committed(replica, header, batch)
                    _compare_records(committed, batch, where, name)
                    continue
                if header.base_offset > offset and not has_rot:
                    raise InvariantBroken(name, f"{where}: {header.base_offset} after {offset}")
                known = committed.batches.get(header.base_offset)
                if known is None and header.base_offset == committed.end_offset:
                    committed.batches[header.base_offset] = batch
                    committed.end_offset = header.next_offset
                    self.transactions.on_committed(replica, header, batch)
                elif known != batch and not (has_rot and _is_harmed(batch)):
                    raise InvariantBroken(name, f"{where} at {header.base_offset}: {_differs(batch, known)}")
                offset = header.next_offset

    def leader_logs(self, node_id: int) -> list[LeaderLog]:
        """The logs that a running node leads."""
        seen = self._nodes[node_id].seen if node_id in self._nodes else []
        return [one.leading for one in seen if one.leading is not None and one.replica.is_leader]

    def _committed_end(self, replica: Replica) -> int:
        return min(self._committed(replica).end_offset, replica.log_end_offset)

    def _committed(self, replica: Replica) -> CommittedLog:
        key = (replica.topic_id, replica.topic_partition.partition)
        return self.committed.setdefault(key, CommittedLog())

    # -- metadata

    def _on_image(self, image: MetadataImage) -> None:
        self._image_offset = image.offset
        self.transactions.on_image(image)
        for topic_id, topic in image.topics_by_id.items():
            for index, registration in topic.partitions.items():
                before = self._registrations.get((topic_id, index))
                if registration != before:
                    self._registrations[topic_id, index] = registration
                    self._on_registration(f"{topic.name}-{index}", registration, before)
                    if before is not None:
                        check_reassignment(f"{topic.name}-{index}", before, registration)
                        self._note_leaving(topic.name, (topic_id, index), registration, before)
                        self._check_entered(TopicPartition(topic.name, index), topic_id, registration, before)
                    if (led_by := self._nodes.get(registration.leader)) is not None:
                        check_leader(led_by.manager, TopicPartition(topic.name, index), topic_id, registration)
                self._check_fenced(image, f"{topic.name}-{index}", registration)

    def _on_registration(self, name: str, now: PartitionRegistration, before: PartitionRegistration | None) -> None:
        if before is None or (now.isr, now.leader) != (before.isr, before.leader):
            text = f"{name}: leader {now.leader} epoch {now.leader_epoch} isr {list(now.isr)} elr {list(now.elr)}"
            self._note("metadata", text)
        members = [*now.isr, *now.elr]
        if len(set(members)) != len(members) or any(member not in now.replicas for member in members):
            raise InvariantBroken("ISR and ELR are disjoint parts of the replicas", f"{name}: {now}")
        if now.leader >= 0 and now.leader not in now.isr:
            raise InvariantBroken("a leader is in its ISR", f"{name}: {now}")
        if before is not None and (
            now.partition_epoch <= before.partition_epoch or now.leader_epoch < before.leader_epoch
        ):
            raise InvariantBroken("epochs of partitions do not go back", f"{name}: from {before} to {now}")

    def _note_leaving(
        self, topic: str, key: PartitionKey, now: PartitionRegistration, before: PartitionRegistration
    ) -> None:
        committed, led_epoch = self.committed.get(key), self._led_epochs.get(key, -1)
        if topic not in self.may_lose or committed is None or self.unclean.since(key, led_epoch, before.leader_epoch):
            return  # while who was elected uncleanly has not led yet, what it lacks still counts as committed
        left = [member for member in before.isr if member not in now.isr]
        self._had.update({(key, member): committed.promised_end_offset for member in left})

    def _check_entered(
        self, key: TopicPartition, topic_id: UUID, now: PartitionRegistration, before: PartitionRegistration
    ) -> None:
        """Who enters the ISR has all that is committed, unless he has lost power or his disk since he said so."""
        committed = self.committed.get((topic_id, key.partition))
        led_epoch = self._led_epochs.get((topic_id, key.partition), -1)
        if committed is None or self.unclean.since((topic_id, key.partition), led_epoch, now.leader_epoch):
            return
        for member in now.isr:
            node = self._nodes.get(member)
            if member in before.isr or node is None or self._may_lack(member, (topic_id, key.partition)):
                continue
            replica = node.manager.partitions.get(key)
            if replica is None or replica.topic_id != topic_id or replica.offline:
                continue
            if replica.log_end_offset < committed.promised_end_offset:
                detail = f"{key}: {member} ends at {replica.log_end_offset} of {committed.promised_end_offset}; {now}"
                raise InvariantBroken("who enters the ISR has what is committed", detail)

    def _check_fenced(self, image: MetadataImage, name: str, now: PartitionRegistration) -> None:
        for member in now.isr:
            broker = image.brokers.get(member)
            if (broker is None or broker.fenced) and (len(now.isr) > 1 or now.leader == member):
                raise InvariantBroken("a fenced broker is in no ISR", f"{name}: {member} in {now} at {image.offset}")

    # -- answers to clients

    def leader_epoch(self, key: PartitionKey) -> int:
        """The latest leader epoch that is committed in the metadata; -1 if there is none."""
        registration = self._registrations.get(key)
        return -1 if registration is None else registration.leader_epoch

    def on_acked(self, key: PartitionKey, base_offset: int, count: int) -> None:
        """A producer got an ack for records that it sent with acks=all."""
        end_offset = self.committed.setdefault(key, CommittedLog()).promised_end_offset
        end_offset = max((end_offset, *(loss.lost_end for loss in self.losses.get(key, ()))))
        if base_offset + count > end_offset:
            detail = f"partition {key[1]}: acked {base_offset}+{count}, committed up to {end_offset}"
            raise InvariantBroken("an acked record is committed", detail)

    def on_consumed(self, key: PartitionKey, base_offset: int, batch: bytes) -> None:
        """A consumer has read a batch."""
        committed = self.committed.setdefault(key, CommittedLog())
        if committed.records is not None and base_offset < committed.end_offset:
            _compare_records(committed, batch, f"partition {key[1]}, consumed", "only committed batches are consumed")
            return
        known = committed.batches.get(base_offset)
        unseen = known is None and committed.end_offset <= base_offset < committed.promised_end_offset
        if known != batch and not unseen:
            detail = f"partition {key[1]} at {base_offset}: {_differs(batch, known)}"
            raise InvariantBroken("only committed batches are consumed", detail)

    # -- at the end

    def check_whole_logs(self) -> None:
        """Compare all of every replica with what is committed, when all have caught up. Raises `InvariantBroken`."""
        for node_id, node in self._nodes.items():
            for replica in node.manager.partitions.values():
                end = self._committed_end(replica)
                self._compare(node_id, replica, 0, end, "every replica holds what is committed in the end")

    def ends(self) -> dict[PartitionKey, int]:
        """The end of what is committed, for each partition."""
        return {key: committed.promised_end_offset for key, committed in self.committed.items()}

    def one_can_be_spared(self, image: MetadataImage) -> bool:
        """Whether one disk may be lost: two replicas are in sync, and running replicas have all committed records."""
        partitions = [each for topic in image.topics_by_id.values() for each in topic.partitions.values()]
        if any(len(each.isr) < min(2, len(each.replicas)) for each in partitions):
            return False
        return all(
            replica.offline or replica.log_end_offset >= self._committed(replica).promised_end_offset
            for node in self._nodes.values()
            for replica in node.manager.partitions.values()
        )

    def describe_lag(
        self, image: MetadataImage, ends: Mapping[PartitionKey, int], failing: Sequence[int]
    ) -> str | None:
        """A partition without a leader or a full ISR, or a replica that is behind `ends`; None if there is none.

        Replicas in failed log directories of the `failing` nodes are not waited for.
        """
        for topic in image.topics_by_id.values():
            for index, registration in topic.partitions.items():
                sound = [
                    each
                    for each in registration.replicas
                    if each not in failing or image.is_replica_online(each, registration)
                ]
                heirs = (*registration.isr, *registration.elr) or registration.last_known_elr
                if registration.leader < 0 and not any(each in sound for each in heirs):
                    continue  # every replica that has all committed records is on a failed disk
                if registration.leader < 0 or len(registration.isr) < len(sound):
                    return f"{topic.name}-{index}: {registration}"
                for member in sound:
                    few = len(sound) < len(registration.replicas)
                    if (lag := self._lag(member, topic.name, index, ends, may_stand_still=few)) is not None:
                        return lag
        return None

    def _lag(
        self, node_id: int, topic: str, index: int, ends: Mapping[PartitionKey, int], *, may_stand_still: bool
    ) -> str | None:
        """`may_stand_still`: there may be too few replicas for the high watermark to advance."""
        node = self._nodes.get(node_id)
        replica = None if node is None else node.manager.partitions.get(TopicPartition(topic, index))
        if replica is None or replica.offline:
            return f"{topic}-{index} is not on {node_id}"
        end_offset = min(ends.get((replica.topic_id, index), 0), self._committed(replica).promised_end_offset)
        reached = replica.log_end_offset if may_stand_still else replica.high_watermark
        if reached < end_offset:
            return f"{topic}-{index} on {node_id}: {reached} of {end_offset}"
        return None


def _compare_records(committed: CommittedLog, batch: bytes, where: str, name: str) -> None:
    """Add the new records of a batch to what is committed, and compare the others."""
    header = read_header(batch, 0)
    if _is_harmed(batch):
        raise InvariantBroken(name, f"{where} at {header.base_offset}: CRC does not match")
    committed.records = records = {} if committed.records is None else committed.records
    for record in iter_records(batch):
        content = bytes(record.key or b""), bytes(record.value or b"")
        known = records.setdefault(record.offset, content) if record.offset >= committed.end_offset else None
        if (known or records.get(record.offset)) != content:
            raise InvariantBroken(name, f"{where} at {record.offset}: {content}, was {records.get(record.offset)}")
    committed.end_offset = max(committed.end_offset, header.next_offset)


def _name(replica: Replica) -> str:
    return f"{replica.topic_partition.topic}-{replica.topic_partition.partition}"


def _is_harmed(batch: bytes) -> bool:
    return not verify_crc(batch, 0, read_header(batch, 0))


def _differs(batch: bytes, known: bytes | None) -> str:
    return f"{_summary(batch)}, committed was {_summary(known)}" if known else "nothing was committed at this offset"


def _summary(batch: bytes) -> str:
    _, header = next(iter(iter_headers(batch)))
    return (
        f"[{header.base_offset}..{header.last_offset} epoch {header.partition_leader_epoch} "
        f"producer {header.producer_id} sequence {header.base_sequence} crc {header.crc:08x}]"
    )
