"""Which partitions were led by a replica that need not have all that was committed, by the records of the metadata log.

The committed records are replayed one by one, so no election is passed over. An election is unclean if the controller
says that the new leader has to recover (KIP-704), or if the leader was neither in the ISR nor in the ELR. The
invariants are "an unclean election is on record" and "an unclean election is the last resort".
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from ....controller.metadata.metadata_image import MetadataDelta, MetadataImage, PartitionRegistration
from ....controller.metadata.metadata_records import NO_LEADER, RECOVERING, PartitionChangeRecord, decode_record
from ....wire.records import iter_headers, iter_records
from ..disk.sim_disk import SimDisk
from .invariant_broken import InvariantBroken

_SUFFIX = ".log"
_Election = tuple[UUID, int, PartitionRegistration, PartitionRegistration]
"""The partition, and its registration before and after the election."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What an unclean election took: the committed records from `kept_end` to `lost_end`."""

    leader_epoch: int
    kept_end: int
    lost_end: int


class UncleanElections:
    """The unclean elections, by partition: their leader epochs in order."""

    def __init__(self) -> None:
        self.epochs: dict[tuple[UUID, int], list[int]] = {}
        self._image = MetadataImage("simulated")
        self._positions: dict[str, int] = {}
        """How much of each segment of the metadata log was read."""

    def read(self, disk: SimDisk, directory: str, end_offset: int) -> None:
        """Read the records of a node's metadata log below `end_offset`, which are committed; judge the elections."""
        for name in disk.listdir(directory):
            if name.endswith(_SUFFIX) and name.removesuffix(_SUFFIX).isdigit():
                self._read_segment(name, memoryview(disk.read_bytes(f"{directory}/{name}")), end_offset)

    def _read_segment(self, name: str, data: memoryview, end_offset: int) -> None:
        """A segment has the same batches on each node, so it is read on from where another one ended."""
        begin = self._positions.get(name, 0)
        for position, header in iter_headers(data[begin:], allow_partial_tail=True):
            if header.next_offset > end_offset:
                return
            batch = data[begin + position : begin + position + header.size_bytes]
            self._positions[name] = begin + position + header.size_bytes
            if header.base_offset > self._image.offset and not header.is_control:
                self._replay(header.base_offset, batch)

    def since(self, key: tuple[UUID, int], after_epoch: int, epoch: int) -> bool:
        """Whether there was one after a leader epoch, up to another one."""
        return any(after_epoch < one <= epoch for one in self.epochs.get(key, ()))

    def _replay(self, base_offset: int, batch: memoryview) -> None:
        image, elections = self._image, []
        for offset, found in enumerate(iter_records(batch), start=base_offset):
            record = decode_record(bytes(found.value or b""))
            election = self._election_by(record) if isinstance(record, PartitionChangeRecord) else None
            image.replay(record, offset, MetadataDelta())
            if election is not None:
                elections.append(election)
        for election in elections:
            self._judge(election)

    def _election_by(self, record: PartitionChangeRecord) -> _Election | None:
        before = self._image.topics_by_id[record.topic_id].partitions[record.partition]
        if record.leader in (None, NO_LEADER):
            return None
        after = before.merge(record)
        is_recovering = record.leader_recovery_state == RECOVERING
        if is_recovering or (after.leader != before.leader and after.leader not in (*before.isr, *before.elr)):
            return record.topic_id, record.partition, before, after
        return None

    def _judge(self, election: _Election) -> None:
        topic_id, index, before, after = election
        image = self._image
        where = f"{image.topics_by_id[topic_id].name}-{index} at {image.offset}: from {before} to {after}"
        self.epochs.setdefault((topic_id, index), []).append(after.leader_epoch)
        if after.leader_recovery_state != RECOVERING:
            raise InvariantBroken("an unclean election is on record", where)
        others = [
            each
            for each in dict.fromkeys((*before.isr, *before.elr))
            if each != after.leader and image.is_active(each) and image.is_replica_online(each, before)
        ]
        if others:
            raise InvariantBroken("an unclean election is the last resort", f"{where}; active are {others}")
