"""Whose log directory it is: `meta.properties`, and the formatting that writes it.

Source: KIP-631 and KIP-858 for `meta.properties` version 1.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from ...runtime.os_errors import os_words
from ...runtime.ports import Disk, Runtime
from ..directory_names import is_partition_dir
from ..errors import CorruptFileError, ForeignClusterError, ForeignNodeError, LogDirError
from ..segment.segment import LOG_SUFFIX
from ..state.checkpoints import META_PROPERTIES_FILE, decode_uuid, encode_uuid

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
    """The `meta.properties` of the directory, None when it is not formatted. `CorruptFileError`, `OSError`."""
    file_path = f"{path}/{META_PROPERTIES_FILE}"
    try:
        content = disk.read_bytes(file_path)
    except FileNotFoundError:
        return None
    try:
        lines = [line.strip() for line in content.decode().splitlines()]
        rows = [line.partition("=") for line in lines if line and not line.startswith(("#", "!"))]
        without = next((name for name, equals, _ in rows if not equals), None)
        if without is not None:
            raise ValueError(f"there is no = in the line {without[:40]!r}")
        fields = {name: value for name, _, value in rows}
        if fields["version"] != "1":
            raise CorruptFileError(
                f"Log directory {path} was formatted by another version ({META_PROPERTIES_FILE} says version="
                f"{fields['version']}, and 1 is known): run that version, or format another directory."
            )
        found = MetaProperties(fields["cluster.id"], int(fields["node.id"]), decode_uuid(fields["directory.id"]))
        if found.directory_id.int < _RESERVED_IDS:
            raise ValueError(f"directory.id {fields['directory.id']} is reserved")
        return found
    except (ValueError, KeyError) as error:
        why = f"{error.args[0]} is missing" if isinstance(error, KeyError) else error
        raise CorruptFileError(
            f"{file_path} does not parse ({why}): restore it, or empty the directory and format it again."
        ) from error


def why_unusable(disk: Disk, path: str, error: OSError) -> str:
    """One sentence: why the operating system refuses a log directory, and the way out."""
    what = f"Log directory {path} cannot be used"
    other = "name another directory in log.dirs"
    file = _file_in(disk, path)
    if file is not None:
        return f"{what}: {file} is a file, not a directory; {other}, or remove that file."
    way_out = {
        errno.EACCES: f"let the user of this process read and write it (chown), or {other}",
        errno.EPERM: f"let the user of this process read and write it (chown), or {other}",
        errno.EROFS: f"mount it for writing, or {other}",
        errno.ENOSPC: f"make space, or {other}",
        errno.EDQUOT: f"raise the user's quota, or {other}",
        errno.EEXIST: f"it may be a link to what is not there; {other}",
        errno.ENOENT: f"its parent takes no directories, as /proc does not; {other}",
    }.get(error.errno or 0, f"repair its disk, or {other}")
    return f"{what}: {os_words(error)}; {way_out}."


def _file_in(disk: Disk, path: str) -> str | None:
    """The first part of the path that is a file, where a directory has to be; None if there is none."""
    parts = path.split("/")
    starts = ("/".join(parts[:end]) for end in range(1, len(parts) + 1))
    return next((one for one in starts if one and disk.exists(one) and not disk.is_dir(one)), None)


def refuse_data_of_unknown_owner(disk: Disk, path: str) -> None:
    """Raise `LogDirError` when a directory without `meta.properties` holds logs: they are another node's, or its own.

    What formatting itself writes before `meta.properties` is no log. `OSError`.
    """
    if not disk.is_dir(path):
        return
    names = [name for name in disk.listdir(path) if is_partition_dir(name) and disk.is_dir(f"{path}/{name}")]
    with_log = [name for name in names if any(file.endswith(LOG_SUFFIX) for file in disk.listdir(f"{path}/{name}"))]
    if with_log:
        raise LogDirError(
            f"Log directory {path} holds data ({min(with_log)}) and no {META_PROPERTIES_FILE}, so nobody knows whose it"
            " is: restore that file from a backup, or, once other replicas have the data or nobody needs it, empty the"
            " directory and format it again."
        )


def random_id(runtime: Runtime) -> UUID:
    """A random directory id as Kafka draws it: a version 4 UUID whose text does not start with a dash."""
    while True:
        value = UUID(int=runtime.rng.getrandbits(128), version=4)
        if not encode_uuid(value).startswith("-"):
            return value


def format_dirs(
    runtime: Runtime, paths: Sequence[str], cluster_id: str, node_id: int, chosen: Mapping[str, UUID] | None = None
) -> list[UUID]:
    """Write `meta.properties` in the directories that have none, and return the ids of all of them.

    `chosen` gives the ids of some directories by path; the others are drawn at random.
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
            raise LogDirError(why_unusable(runtime.disk, path, error)) from error
        check_owner(path, found, cluster_id, node_id)
        ids.append(found.directory_id)
    return ids


def make_durably(disk: Disk, path: str) -> None:
    """Make the directory and its parents durably: a directory that a loss of power removes loses its synced files."""
    missing = []
    while path not in ("", ".", "/") and not disk.exists(path):
        missing.append(path)
        path = path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")
    for directory in reversed(missing):
        disk.makedirs(directory)
        disk.fsync_dir(directory.rpartition("/")[0] or ("/" if directory.startswith("/") else "."))


def refuse_several_clusters(found: Mapping[str, MetaProperties]) -> None:
    """Raise `ForeignClusterError` when directories of one node, by path, belong to different clusters.

    Which of them is the node's own cannot be known.
    """
    clusters: dict[str, str] = {}
    for path, one in found.items():
        clusters.setdefault(one.cluster_id, path)
    if len(clusters) > 1:
        (cluster_id, path), (other_id, other) = list(clusters.items())[:2]
        raise ForeignClusterError(
            f"Log directory {path} belongs to cluster {cluster_id}, log directory {other} to cluster {other_id}: take "
            "the one that is not this node's out of log.dirs, or empty it, which deletes its data, and format it again."
        )


def refuse_copies(directory_ids: Mapping[str, UUID]) -> None:
    """Raise `LogDirError` when two directories, by path, have one id, as after a copy of one to the other."""
    known: dict[UUID, str] = {}
    for path, directory_id in directory_ids.items():
        other = known.setdefault(directory_id, path)
        if other != path:
            raise LogDirError(
                f"Log directories {other} and {path} have the same directory.id {encode_uuid(directory_id)}: take the "
                "one that is a copy out of log.dirs, or empty it and format it again."
            )


def check_owner(path: str, found: MetaProperties, cluster_id: str, node_id: int) -> None:
    """Raise `ForeignClusterError` or `ForeignNodeError` unless the directory belongs to this node."""
    way_out = (
        "set log.dirs to this node's own directory, or empty that one, which deletes its data, and format it again"
    )
    if found.cluster_id != cluster_id:
        raise ForeignClusterError(
            f"Log directory {path} belongs to cluster {found.cluster_id}, this node to cluster {cluster_id}: {way_out}."
        )
    if found.node_id != node_id:
        raise ForeignNodeError(
            f"Log directory {path} belongs to node {found.node_id}, this is node {node_id}: "
            f"correct node.id, or {way_out}."
        )
