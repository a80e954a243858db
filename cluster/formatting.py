"""Whose a node's directories are: formatting them, and reading back which cluster they belong to."""

from __future__ import annotations

from ..log.checkpoints import decode_uuid
from ..log.errors import LogDirError, UnformattedDirError
from ..log.log_dir import format_dirs, read_meta_properties
from ..runtime.ports import Runtime
from .config import NodeConfig


class FormatError(Exception):
    """The directories cannot be formatted; the text is one sentence that names the way out."""


def format_node(config: NodeConfig, runtime: Runtime, cluster_id: str, *, ignore_formatted: bool) -> list[str]:
    """Make the node's directories its own; returns those that were not before.

    `FormatError` for one that is another's, cannot be read, or (unless `ignore_formatted`) is formatted already. With
    `ignore_formatted` one that cannot be read is passed over: a node goes on without a disk that has failed.
    """
    _check_cluster_id(cluster_id)
    fresh: list[str] = []
    done: list[str] = []
    try:
        for path in config.all_dirs:
            try:
                (fresh if read_meta_properties(runtime.disk, path) is None else done).append(path)
            except OSError as error:
                if not ignore_formatted:
                    raise FormatError(f"Log directory {path} cannot be read: {error}.") from error
        if done and not ignore_formatted:
            raise FormatError(f"Log directory {done[0]} is formatted already: empty it, or use --ignore-formatted.")
        format_dirs(runtime, [*fresh, *done], cluster_id, config.node_id)
    except LogDirError as error:
        raise FormatError(str(error)) from error
    return fresh


def cluster_id_of(config: NodeConfig, runtime: Runtime) -> str:
    """The cluster that the node's directories were formatted for. `LogDirError` with the way out."""
    for path in config.all_dirs:
        try:
            found = read_meta_properties(runtime.disk, path)
        except OSError:
            continue  # whether the node can do without it is seen when the directories are taken
        if found is not None:
            return found.cluster_id
    raise UnformattedDirError(
        f"Log directory {config.all_dirs[0]} is not formatted: run `raftwerk format -t CLUSTER_ID -c "
        "server.properties` first."
    )


def _check_cluster_id(cluster_id: str) -> None:
    try:
        decode_uuid(cluster_id)
        valid = len(cluster_id) == 22
    except ValueError:
        valid = False
    if not valid:
        raise FormatError(
            f"Cluster id {cluster_id!r} is no id: it has 22 characters of URL-safe base64, for example "
            "MkU3OEVBNTcwNTJENDM2Qg."
        )
