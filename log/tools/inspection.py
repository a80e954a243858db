"""The contents of a log directory, a partition's directory or one of their files, as rows.

Nothing is changed, and nothing is trusted: a file that does not parse gives a row that says so.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

from ...runtime.ports import Disk
from ...wire.compression import Compression
from ...wire.records import BatchHeader, CorruptBatchError, Record, control_record_type, iter_records
from ..cleaner.batch_filter import delete_horizon_ms
from ..directory_names import is_partition_dir
from ..errors import CorruptFileError
from ..manager.meta_properties import read_meta_properties
from ..segment.batch_scan import ValidatingScan
from ..segment.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    base_offsets,
)
from ..segment.transaction_index import CorruptTransactionIndexError, decode_transaction_index
from ..state.checkpoints import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LEADER_EPOCH_FILE,
    LOG_START_OFFSET_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    encode_uuid,
    read_epochs,
    read_offsets,
    read_topic_id,
)
from ..state.producer_state import CorruptSnapshotError, ProducerStateManager

Row: TypeAlias = dict[str, Any]
ReadMetadata: TypeAlias = Callable[[Record, bool], Row | None]
"""Tells what a record of the metadata log says, a control record or another; None where it cannot."""
_ShowRecords: TypeAlias = Callable[[BatchHeader, bytes], Iterator[Row]]
OFFSET_CHECKPOINTS = (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE, LOG_START_OFFSET_FILE, CLEANER_OFFSET_FILE)
_SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX)
_OTHER_FILES = (*OFFSET_CHECKPOINTS, LEADER_EPOCH_FILE, PARTITION_METADATA_FILE, META_PROPERTIES_FILE)
_METADATA_SNAPSHOT = re.compile(r"\d{20}-\d{10}\.checkpoint")
_METADATA_DIRECTORY = "__cluster_metadata-0"
KNOWN_FILES = f"OFFSET followed by {', '.join(_SEGMENT_SUFFIXES)}; OFFSET-EPOCH.checkpoint; {', '.join(_OTHER_FILES)}"
"""The names of the files that can be described, for people."""
_INDEX_ENTRY = struct.Struct(">II")
_TIME_ENTRY = struct.Struct(">qI")


def describe(
    disk: Disk, path: str, *, with_records: bool = False, read_metadata: ReadMetadata | None = None
) -> Iterator[Row]:
    """Rows for all files at or below `path`; each names its `file`. `OSError` when the disk refuses.

    Records of the metadata log are shown by `read_metadata`, as far as it can tell what they say.
    """
    if not disk.is_dir(path):
        is_metadata = path.rpartition("/")[0].rpartition("/")[2] == _METADATA_DIRECTORY
        show = partial(_record_rows, read_metadata if is_metadata else None)
        yield from _describe_file(disk, path, show if with_records else None)
        return
    names = disk.listdir(path)
    deeper = [name for name in names if disk.is_dir(f"{path}/{name}")]
    for name in (*(one for one in names if one not in deeper), *filter(is_partition_dir, deeper)):
        yield from describe(disk, f"{path}/{name}", with_records=with_records, read_metadata=read_metadata)


def is_describable(disk: Disk, path: str) -> bool:
    """Whether `path` is a file that `describe` knows by its name, or a directory with such files."""
    if not disk.is_dir(path):
        return _is_known(path.rpartition("/")[2])
    names = disk.listdir(path)
    below = (name for name in names if is_partition_dir(name) and disk.is_dir(f"{path}/{name}"))
    return any(map(_is_known, names)) or any(is_describable(disk, f"{path}/{name}") for name in below)


def _is_known(name: str) -> bool:
    stem, dot, suffix = name.partition(".")
    is_of_segment = stem.isdecimal() and dot + suffix in _SEGMENT_SUFFIXES
    return name in _OTHER_FILES or is_of_segment or _METADATA_SNAPSHOT.fullmatch(name) is not None


def partition_dirs(disk: Disk, path: str) -> list[str]:
    """The partitions' directories at or directly below `path`."""
    names = disk.listdir(path)
    if base_offsets(names):
        return [path]
    return [f"{path}/{name}" for name in names if is_partition_dir(name) and disk.is_dir(f"{path}/{name}")]


def _describe_file(disk: Disk, path: str, show: _ShowRecords | None) -> Iterator[Row]:
    name = path.rpartition("/")[2]
    try:
        for row in _rows(disk, path, name, show):
            yield {"file": path, **row}
    except (CorruptFileError, CorruptSnapshotError, CorruptTransactionIndexError, CorruptBatchError) as error:
        yield {"file": path, "kind": "damage", "what": str(error)}


def _rows(disk: Disk, path: str, name: str, show: _ShowRecords | None) -> Iterator[Row]:
    directory = path.rpartition("/")[0] or "."
    stem, dot, suffix = name.partition(".")
    if stem.isdecimal() and dot:
        yield from _segment_rows(disk, path, int(stem), "." + suffix, show)
    elif _METADATA_SNAPSHOT.fullmatch(name):
        yield from _batch_rows(disk, path, 0, show)
    elif name in OFFSET_CHECKPOINTS:
        for (topic, partition), offset in read_offsets(disk, path).items():
            yield {"kind": "offset", "topic": topic, "partition": partition, "offset": offset}
    elif name == LEADER_EPOCH_FILE:
        for epoch, start in read_epochs(disk, directory):
            yield {"kind": "epoch", "epoch": epoch, "start_offset": start}
    elif name == PARTITION_METADATA_FILE:
        topic_id = read_topic_id(disk, directory)
        yield {"kind": "topic", "topic_id": None if topic_id is None else encode_uuid(topic_id)}
    elif name == META_PROPERTIES_FILE:
        found = read_meta_properties(disk, directory)
        if found is not None:
            yield {
                "kind": "directory",
                "cluster_id": found.cluster_id,
                "node_id": found.node_id,
                "directory_id": encode_uuid(found.directory_id),
            }


def _segment_rows(disk: Disk, path: str, base: int, suffix: str, show: _ShowRecords | None) -> Iterator[Row]:
    if suffix == LOG_SUFFIX:
        yield from _batch_rows(disk, path, base, show)
    elif suffix == INDEX_SUFFIX:
        data = disk.read_bytes(path)
        for relative, position in _INDEX_ENTRY.iter_unpack(data[: len(data) // 8 * 8]):
            yield {"kind": "index", "offset": base + relative, "position": position}
    elif suffix == TIME_INDEX_SUFFIX:
        data = disk.read_bytes(path)
        for timestamp, relative in _TIME_ENTRY.iter_unpack(data[: len(data) // 12 * 12]):
            yield {"kind": "time_index", "timestamp": timestamp, "offset": base + relative}
    elif suffix == TRANSACTION_INDEX_SUFFIX:
        for aborted in decode_transaction_index(disk.read_bytes(path)):
            yield {"kind": "aborted_transaction", **aborted._asdict()}
    elif suffix == SNAPSHOT_SUFFIX:
        yield from _producer_rows(disk.read_bytes(path))


def _batch_rows(disk: Disk, path: str, base: int, show: _ShowRecords | None) -> Iterator[Row]:
    file = disk.open(path)
    try:
        if not file.size():
            yield {"kind": "empty", "base_offset": base, "what": "the segment has no batches"}
        scan = ValidatingScan(file, base)
        for position, header in scan:
            yield {"kind": "batch", "position": position, **_batch_row(header)}
            if show is not None:
                yield from show(header, file.pread(position, header.size_bytes))
        if scan.damage is not None:
            yield {"kind": "damage", "what": scan.damage, "bytes_left": file.size() - scan.end_position}
    finally:
        file.close()


def _batch_row(header: BatchHeader) -> Row:
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "size_bytes": header.size_bytes,
        "leader_epoch": header.partition_leader_epoch,
        "compression": _codec_name(header.compression),
        "timestamp_type": header.timestamp_type.name,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "delete_horizon_ms": delete_horizon_ms(header),
        "crc": header.crc,
    }


def _codec_name(codec: int) -> str:
    return Compression(codec).name.lower() if codec <= max(Compression) else str(codec)


def _record_rows(read_metadata: ReadMetadata | None, header: BatchHeader, batch: bytes) -> Iterator[Row]:
    for record in iter_records(batch):
        row: Row = {"kind": "record", "offset": record.offset, "timestamp": record.timestamp}
        if header.is_control:
            row["control_type"] = control_record_type(record.key)
        told = None if read_metadata is None else read_metadata(record, header.is_control)
        if told is None and not header.is_control:
            headers = {key: _text(value) for key, value in record.headers}
            told = {"key": _text(record.key), "value": _text(record.value), "headers": headers}
        yield {**row, **(told or {})}


def _text(data: bytes | None) -> str | None:
    """The bytes as UTF-8 text; invalid bytes as \\x escapes."""
    return None if data is None else data.decode("utf-8", "backslashreplace")


def _producer_rows(data: bytes) -> Iterator[Row]:
    producers = ProducerStateManager()
    producers.load_snapshot(data)
    for producer_id, entry in producers.items():
        yield {
            "kind": "producer",
            "producer_id": producer_id,
            "producer_epoch": entry.epoch,
            "last_sequence": entry.last_sequence,
            "last_offset": entry.batches[-1].last_offset if entry.batches else -1,
            "last_timestamp": entry.last_timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "transaction_first_offset": entry.transaction_first_offset,
            "remembered_batches": len(entry.batches),
        }
