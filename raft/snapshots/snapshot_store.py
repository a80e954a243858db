"""Snapshots of the metadata on disk: `<end offset>-<epoch>.checkpoint` beside the log's segments (KIP-630).

A snapshot is a file of record batches in the format of the log: a control record as the header, the data records, and
a control record as the footer. While it is written its name ends in `.part`. It gets its own name when all of it is
durable, so a file with a snapshot's name is complete. The log before a snapshot is deleted only after that name is
durable too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...log.errors import StorageError
from ...runtime.ports import Buffer, Disk, File
from ...wire.codec import encode_data
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.records import (
    BATCH_HEADER_SIZE,
    ControlRecordType,
    NewRecord,
    RecordLike,
    control_record_type,
    encode_batch,
    encode_control_record,
    iter_headers,
    iter_records,
    read_header,
    verify_crc,
)
from ...wire.types import SnapshotId
from ..messages.control_records import encode_control, voter_records
from ..voters.voter_set import ControlRecord

SNAPSHOT_SUFFIX = ".checkpoint"
_PART_SUFFIX = ".part"
_OFFSET_DIGITS, _EPOCH_DIGITS = 20, 10
_RECORD_VERSION = 0


def snapshot_name(snapshot_id: SnapshotId) -> str:
    """The name of the snapshot's file."""
    end_offset, epoch = snapshot_id
    return f"{end_offset:0{_OFFSET_DIGITS}d}-{epoch:0{_EPOCH_DIGITS}d}{SNAPSHOT_SUFFIX}"


def parse_snapshot_name(name: str) -> SnapshotId | None:
    """The snapshot of a file name; None for other files."""
    stem, dot, suffix = name.partition(".")
    offset, _, epoch = stem.partition("-")
    is_snapshot = dot + suffix == SNAPSHOT_SUFFIX and len(offset) == _OFFSET_DIGITS and len(epoch) == _EPOCH_DIGITS
    return SnapshotId(int(offset), int(epoch)) if is_snapshot and offset.isdecimal() and epoch.isdecimal() else None


@dataclass(frozen=True, slots=True)
class SnapshotRetention:
    """How much is kept: `metadata.max.retention.bytes` and `metadata.max.retention.ms`, -1 for everything."""

    max_bytes: int = 100 * 1024 * 1024
    max_ms: int = 7 * 24 * 60 * 60 * 1000

    def exceeds_size(self, kept_bytes: int) -> bool:
        """Whether that is more than `max_bytes`."""
        return 0 <= self.max_bytes < kept_bytes

    def expiry_ms(self, timestamp_ms: int) -> int | None:
        """When a snapshot of that time is too old, in wall clock milliseconds; None for never."""
        return None if self.max_ms < 0 else timestamp_ms + self.max_ms + 1


class SnapshotStore:
    """The snapshots in the metadata log's directory. Every method may raise `OSError`."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = disk
        self.directory = directory
        self.ids: list[SnapshotId] = []
        """Ascending by end offset."""
        for name in disk.listdir(directory):
            found = parse_snapshot_name(name)
            if found is not None:
                self.ids.append(found)
            elif name.endswith(SNAPSHOT_SUFFIX + _PART_SUFFIX):
                disk.remove(f"{directory}/{name}")
        self.ids.sort()

    @property
    def latest(self) -> SnapshotId | None:
        """The snapshot with the highest end offset."""
        return self.ids[-1] if self.ids else None

    def path(self, snapshot_id: SnapshotId) -> str:
        """The path of the snapshot's file."""
        return f"{self.directory}/{snapshot_name(snapshot_id)}"

    def begin(self, snapshot_id: SnapshotId) -> File:
        """Make the empty file of a new snapshot."""
        file = self.disk.open(self.path(snapshot_id) + _PART_SUFFIX, create=True)
        file.truncate(0)
        return file

    def publish(self, snapshot_id: SnapshotId) -> None:
        """Give a file that is complete and synced its name, durably."""
        path = self.path(snapshot_id)
        self.disk.rename(path + _PART_SUFFIX, path)
        self.disk.fsync_dir(self.directory)
        if snapshot_id not in self.ids:
            self.ids.append(snapshot_id)
            self.ids.sort()

    def discard(self, snapshot_id: SnapshotId) -> None:
        """Remove a file that was begun and not published."""
        path = self.path(snapshot_id) + _PART_SUFFIX
        if self.disk.exists(path):
            self.disk.remove(path)

    def delete_before(self, end_offset: int) -> None:
        """Delete the snapshots that end before `end_offset`."""
        while self.ids and self.ids[0].end_offset < end_offset:
            self.disk.remove(self.path(self.ids[0]))
            del self.ids[0]

    def read(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> tuple[int, bytes] | None:
        """The size in bytes and the part from `position` on, b"" outside of it; None when there is no such snapshot."""
        if snapshot_id not in self.ids:
            return None
        file = self.disk.open(self.path(snapshot_id))
        try:
            size = file.size()
            if not 0 <= position < size:  # it comes from another node, and pread(2) fails where it is far too large
                return size, b""
            return size, file.pread(position, min(max_bytes, size - position))
        finally:
            file.close()

    def size_bytes(self, snapshot_id: SnapshotId) -> int:
        """The size of the snapshot's file; 0 when there is none."""
        found = self.read(snapshot_id, 0, 0)
        return 0 if found is None else found[0]

    def timestamp_ms(self, snapshot_id: SnapshotId) -> int:
        """When the last record in it was written, by its writer's wall clock; 0 when the file does not say."""
        found = self.read(snapshot_id, 0, BATCH_HEADER_SIZE)
        return 0 if found is None or len(found[1]) < BATCH_HEADER_SIZE else read_header(found[1], 0).base_timestamp

    def check(self, snapshot_id: SnapshotId) -> None:
        """Raise `StorageError` when the file is damaged."""
        self._read_sound(snapshot_id)

    def _read_sound(self, snapshot_id: SnapshotId) -> bytes:
        data = self.disk.read_bytes(self.path(snapshot_id))
        try:
            snapshot_batches(data)
        except ProtocolError as error:
            raise self._damaged(snapshot_id, error) from error
        return data

    def remove(self, snapshot_id: SnapshotId) -> None:
        """Remove the snapshot."""
        self.disk.remove(self.path(snapshot_id))
        self.ids.remove(snapshot_id)

    def controls(self, snapshot_id: SnapshotId) -> list[ControlRecord]:
        """The control records about the voters. Raises `StorageError` when the file is damaged."""
        data = self._read_sound(snapshot_id)
        try:
            return [record for _, record in voter_records(data)]
        except ProtocolError as error:
            raise self._damaged(snapshot_id, error) from error

    def batches(self, snapshot_id: SnapshotId) -> Iterator[list[bytes]]:
        """The data records, by batch. Raises `StorageError` when the file is damaged."""
        try:
            yield from snapshot_batches(self.disk.read_bytes(self.path(snapshot_id)))
        except ProtocolError as error:
            raise self._damaged(snapshot_id, error) from error

    def _damaged(self, snapshot_id: SnapshotId, error: ProtocolError) -> StorageError:
        return StorageError(
            f"{self.path(snapshot_id)} is damaged ({error}). Restore it. Or let the node fetch all from the "
            f"controllers: empty {self.directory}; or, if this node is a controller and a majority of the others runs, "
            "empty its log directory and format it again."
        )


# ---- the format ------------------------------------------------------------------------------------------------------


def encode_snapshot(
    snapshot_id: SnapshotId,
    timestamp_ms: int,
    batches: Iterator[Sequence[bytes]],
    controls: Sequence[ControlRecord] = (),
) -> Iterator[bytearray]:
    """The batches of a snapshot's file; `timestamp_ms` is that of the last record in it.

    `controls` are the records about the voters (`VoterHistory.snapshot_records`); they follow the header in its batch.
    """
    offset = 0

    def batch(records: Sequence[RecordLike], *, is_control: bool = False) -> bytearray:
        nonlocal offset
        encoded = encode_batch(records, base_offset=offset, leader_epoch=snapshot_id.epoch, is_control=is_control)
        offset += len(records)
        return encoded

    header = {"version": _RECORD_VERSION, "last_contained_log_timestamp": timestamp_ms}
    message = encode_data("snapshot_header_record", _RECORD_VERSION, header)
    head = [encode_control_record(ControlRecordType.SNAPSHOT_HEADER, message, timestamp_ms)]
    yield batch([*head, *(encode_control(record, timestamp_ms) for record in controls)], is_control=True)
    for payloads in batches:
        if payloads:
            yield batch([NewRecord(None, payload, (), timestamp_ms) for payload in payloads])
    message = encode_data("snapshot_footer_record", _RECORD_VERSION, {"version": _RECORD_VERSION})
    yield batch([encode_control_record(ControlRecordType.SNAPSHOT_FOOTER, message, timestamp_ms)], is_control=True)


def snapshot_batches(data: Buffer) -> Iterator[list[bytes]]:
    """The data records of a snapshot's file, decoded batch by batch, since a large file takes long.

    Raises `ProtocolError` at once when a batch is damaged, or the header or the footer is missing.
    """
    view = memoryview(data)
    controls: list[tuple[int, int]] = []
    positions: list[tuple[int, int]] = []
    count = 0
    for position, header in iter_headers(view):
        if not verify_crc(view, position, header):
            raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, f"the batch at {position} has another checksum")
        end = position + header.size_bytes
        count += header.record_count
        if header.is_control:
            controls += [
                (control_record_type(record.key), record.offset) for record in iter_records(view[position:end])
            ]
        else:
            positions.append((position, end))
    ends = [(ControlRecordType.SNAPSHOT_HEADER, 0), (ControlRecordType.SNAPSHOT_FOOTER, count - 1)]
    if len(controls) < 2 or [controls[0], controls[-1]] != ends:
        raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, "it does not go from a header to a footer")
    return ([record.value or b"" for record in iter_records(view[start:end])] for start, end in positions)
