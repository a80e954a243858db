"""The small text files of a log directory and of a partition's directory, in Apache Kafka's format.

A checkpoint is a version line, a count line, and that many lines of fields separated by spaces.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from itertools import pairwise
from uuid import UUID

from ...runtime.ports import Disk
from ...wire.types import TopicPartition
from ..config import MAX_INT32, MAX_INT64
from ..errors import CorruptFileError
from .leader_epoch_cache import EpochEntry

LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"
PARTITION_METADATA_SIZE = len("version: 0\ntopic_id: ") + 22
RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
LOG_START_OFFSET_FILE = "log-start-offset-checkpoint"
CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"
DAMAGED_OFFSET_FILE = "damaged-offset-checkpoint"
META_PROPERTIES_FILE = "meta.properties"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
_DIGITS_MAX = 19


def encode_uuid(value: UUID) -> str:
    """Kafka's text form of an id: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> UUID:
    """The inverse of `encode_uuid`; `ValueError` for anything else."""
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except binascii.Error as error:
        raise ValueError(str(error)) from error


def read_epochs(disk: Disk, directory: str) -> list[EpochEntry]:
    """The entries of `leader-epoch-checkpoint`, none when the file is missing. `CorruptFileError`."""
    rows = _read_rows(disk, f"{directory}/{LEADER_EPOCH_FILE}", 2)
    entries = [EpochEntry(int(epoch), int(start)) for epoch, start in rows]
    if not all(one.epoch < two.epoch and one.start_offset < two.start_offset for one, two in pairwise(entries)):
        raise _corrupt(f"{directory}/{LEADER_EPOCH_FILE}", "its epochs and offsets do not grow")
    if entries and not (0 <= entries[0].epoch <= entries[-1].epoch <= MAX_INT32 and entries[0].start_offset >= 0):
        raise _corrupt(f"{directory}/{LEADER_EPOCH_FILE}", "its epochs or offsets are out of range")
    return entries


def render_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """The bytes of `leader-epoch-checkpoint`."""
    return _render([f"{epoch} {start}" for epoch, start in entries])


def write_epochs(disk: Disk, directory: str, entries: Iterable[EpochEntry]) -> None:
    """Durably write `leader-epoch-checkpoint`."""
    disk.write_atomic(f"{directory}/{LEADER_EPOCH_FILE}", render_epochs(entries))


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """The contents of an offset checkpoint, empty when the file is missing. `CorruptFileError`."""
    rows = _read_rows(disk, path, 3)
    return {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in rows}


def render_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The bytes of an offset checkpoint."""
    return _render([f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items()])


def read_topic_id(disk: Disk, directory: str) -> UUID | None:
    """The topic id in `partition.metadata`, None when the file is missing. `CorruptFileError`."""
    path = f"{directory}/{PARTITION_METADATA_FILE}"
    if not disk.exists(path):
        return None
    try:
        fields = dict(line.split(": ", 1) for line in disk.read_bytes(path).decode().splitlines())
        if fields["version"] != "0":
            raise ValueError(f"version {fields['version']}")
        return decode_uuid(fields["topic_id"])
    except (ValueError, KeyError) as error:
        raise CorruptFileError(
            f"{path} does not parse ({error}); restore or remove that partition's directory."
        ) from error


def remove_durably(disk: Disk, path: str) -> None:
    """Remove a small file, if it is there, so that no loss of power brings it back. `OSError`."""
    if disk.exists(path):
        disk.remove(path)
        disk.fsync_dir(path.rpartition("/")[0])


def render_topic_id(topic_id: UUID) -> bytes:
    """The bytes of `partition.metadata`."""
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode()


def write_topic_id(disk: Disk, directory: str, topic_id: UUID, *, durably: bool = True) -> None:
    """Write `partition.metadata`; if not `durably`, a loss of power may leave any part of it."""
    path, content = f"{directory}/{PARTITION_METADATA_FILE}", render_topic_id(topic_id)
    if durably:
        disk.write_atomic(path, content)
        return
    file = disk.open(path, create=True)
    try:
        if file.size():
            file.truncate(0)
        file.append([content])
    finally:
        file.close()


def _read_rows(disk: Disk, path: str, field_count: int) -> list[list[str]]:
    if not disk.exists(path):
        return []
    try:
        version, count, *lines = disk.read_bytes(path).decode().splitlines()
        rows = [line.split(" ") for line in lines if line]
        if version != "0" or int(count) != len(rows):
            raise ValueError(f"version {version}, {count} entries announced, {len(rows)} found")
        for row in rows:
            if len(row) != field_count or not all(_is_number(field) for field in row[-2:]):
                raise ValueError(f"entry {' '.join(row)!r}")
    except ValueError as error:
        raise _corrupt(path, str(error)) from error
    return rows


def _corrupt(path: str, what: str) -> CorruptFileError:
    return CorruptFileError(f"{path} does not parse ({what}); remove it to start from the logs themselves.")


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS_MAX and int(digits) <= MAX_INT64


def _render(rows: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in ("0", str(len(rows)), *rows)).encode()
