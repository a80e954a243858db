"""A log directory: whose it is (`meta.properties`), that nobody else uses it, and how it was left.

Source: KIP-631 and KIP-858 for `meta.properties` version 1; KIP-966 for the broker epoch in the clean shutdown file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from ...runtime.ports import DirLock, Disk, Runtime
from ..errors import (
    CorruptFileError,
    DirFailedError,
    DirLockedError,
    ForeignClusterError,
    ForeignNodeError,
    LogDirError,
    UnformattedDirError,
)
from ..state.checkpoints import CLEAN_SHUTDOWN_FILE, META_PROPERTIES_FILE, decode_uuid, encode_uuid

_RESERVED_IDS = 100
"""Directory ids below this number have meanings of their own (KIP-858)."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The contents of `meta.properties`."""

    cluster_id: str
    node_id: int
    directory_id: UUID

    def encode(self) -> bytes:
        """The file's bytes."""
        lines = (
            f"cluster.id={self.cluster_id}",
            f"directory.id={encode_uuid(self.directory_id)}",
            f"node.id={self.node_id}",
            "version=1",
        )
        return "".join(f"{line}\n" for line in ("#", *lines)).encode()


def read_meta_properties(disk: Disk, path: str) -> MetaProperties | None:
    """Whose directory `path` is, None when it is not formatted. `CorruptFileError`, `OSError`."""
    file_path = f"{path}/{META_PROPERTIES_FILE}"
    try:
        content = disk.read_bytes(file_path)
    except FileNotFoundError:
        return None
    try:
        lines = [line.strip() for line in content.decode().splitlines()]
        fields = dict(line.split("=", 1) for line in lines if line and not line.startswith(("#", "!")))
        if fields["version"] != "1":
            raise ValueError(f"version {fields['version']}, only 1 is known")
        found = MetaProperties(fields["cluster.id"], int(fields["node.id"]), decode_uuid(fields["directory.id"]))
        if found.directory_id.int < _RESERVED_IDS:
            raise ValueError(f"directory.id {fields['directory.id']} is reserved")
        return found
    except (ValueError, KeyError) as error:
        raise CorruptFileError(
            f"{file_path} does not parse ({error}); restore it, or empty the directory and format it again."
        ) from error


def random_id(runtime: Runtime) -> UUID:
    """A directory id as Kafka draws them: version 4, its text not starting with a dash."""
    while True:
        value = UUID(int=runtime.rng.getrandbits(128), version=4)
        if not encode_uuid(value).startswith("-"):
            return value


def format_dirs(
    runtime: Runtime, paths: Sequence[str], cluster_id: str, node_id: int, chosen: Mapping[str, UUID] | None = None
) -> list[UUID]:
    """Make the directories this node's, and return their ids; those that are already are left alone.

    `chosen` gives ids that were decided on before, by path; the others are drawn.
    Raises `ForeignClusterError`, `ForeignNodeError`, `CorruptFileError`, or `LogDirError` when the disk refuses.
    """
    ids = []
    for path in paths:
        try:
            make_durably(runtime.disk, path)
            found = read_meta_properties(runtime.disk, path)
            if found is None:
                directory_id = (chosen or {}).get(path) or random_id(runtime)
                found = MetaProperties(cluster_id, node_id, directory_id)
                runtime.disk.write_atomic(f"{path}/{META_PROPERTIES_FILE}", found.encode())
        except OSError as error:
            raise LogDirError(f"Log directory {path} cannot be formatted: {error}.") from error
        _check_owner(path, found, cluster_id, node_id)
        ids.append(found.directory_id)
    return ids


def make_durably(disk: Disk, path: str) -> None:
    """Make the directory and its parents; one that a loss of power takes away takes along what was synced in it."""
    missing = []
    while path not in ("", ".", "/") and not disk.exists(path):
        missing.append(path)
        path = path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")
    for directory in reversed(missing):
        disk.makedirs(directory)
        disk.fsync_dir(directory.rpartition("/")[0] or ("/" if directory.startswith("/") else "."))


def _check_owner(path: str, found: MetaProperties, cluster_id: str, node_id: int) -> None:
    way_out = "set log.dirs to this node's own directory, or empty that one and format it again"
    if found.cluster_id != cluster_id:
        raise ForeignClusterError(
            f"Log directory {path} belongs to cluster {found.cluster_id}, this node to cluster {cluster_id}: {way_out}."
        )
    if found.node_id != node_id:
        raise ForeignNodeError(
            f"Log directory {path} belongs to node {found.node_id}, this is node {node_id}: "
            f"correct node.id, or {way_out}."
        )


def check_distinct(dirs: Sequence[LogDir]) -> None:
    """Raise `LogDirError` when two directories have one id, as after a copy of one to the other."""
    known: dict[UUID, str] = {}
    for log_dir in dirs:
        other = known.setdefault(log_dir.directory_id, log_dir.path)
        if other != log_dir.path:
            raise LogDirError(
                f"Log directories {other} and {log_dir.path} have the same directory.id "
                f"{encode_uuid(log_dir.directory_id)}: take the one that is a copy out of log.dirs, or empty it and "
                "format it again."
            )


class LogDir:
    """A directory that this process holds."""

    def __init__(self, disk: Disk, path: str, directory_id: UUID, lock: DirLock) -> None:
        self.path = path
        self.directory_id = directory_id
        self._disk = disk
        self._lock = lock

    @classmethod
    def acquire(cls, disk: Disk, path: str, cluster_id: str, node_id: int) -> LogDir:
        """Lock the directory and check whose it is; raises a `LogDirError` that says what to do.

        `DirFailedError` says that the disk refuses, so that a node may do without this directory.
        """
        try:
            if not disk.is_dir(path):
                raise UnformattedDirError(
                    f"Log directory {path} does not exist: run `raftwerk format` first, or mount its disk, or take it "
                    "out of log.dirs, and what it held is fetched from other replicas."
                )
            lock = disk.lock_dir(path)
        except BlockingIOError as error:
            raise DirLockedError(
                f"Log directory {path} is in use by another process: "
                "stop that one, or set log.dirs to another directory."
            ) from error
        except OSError as error:
            raise DirFailedError(f"Log directory {path} cannot be used: {error}.") from error
        try:
            found = read_meta_properties(disk, path)
            if found is None:
                raise UnformattedDirError(f"Log directory {path} is not formatted: run `raftwerk format` first.")
            _check_owner(path, found, cluster_id, node_id)
        except OSError as error:
            lock.release()
            raise DirFailedError(f"Log directory {path} cannot be read: {error}.") from error
        except BaseException:
            lock.release()
            raise
        return cls(disk, path, found.directory_id, lock)

    def take_clean_shutdown_mark(self) -> int | None:
        """Durably remove the mark of a clean shutdown.

        Returns the broker epoch in it (-1 when it has none), None when the last stop was not clean. `OSError`.
        """
        path = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
        if not self._disk.exists(path):
            return None
        content = self._disk.read_bytes(path)
        self._disk.remove(path)
        self._disk.fsync_dir(self.path)
        try:
            epoch = json.loads(content)["brokerEpoch"]
        except (ValueError, KeyError, TypeError):
            return -1
        return epoch if isinstance(epoch, int) else -1

    def mark_clean_shutdown(self, broker_epoch: int) -> None:
        """Durably say that all is on disk. `OSError`."""
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        self._disk.write_atomic(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", content.encode())

    def release(self) -> None:
        """Give the directory free."""
        self._lock.release()
