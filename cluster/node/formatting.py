"""Formats a node's directories for one cluster and one node, and reads back which cluster they belong to.

With dynamic voters (KIP-853) formatting also sets the first voters: it writes the snapshot `0-0.checkpoint` with the
voters' record into the metadata log. `--standalone` names this node only. `--initial-controllers` names several nodes,
which must all be formatted with the same list. A node that is added later, or that has lost its disk, is formatted
without voters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from ...controller.metadata.metadata_image import RECORD_VERSION_FEATURE
from ...controller.metadata.metadata_records import SECURITY_RECORDS, UserScramCredentialRecord
from ...log.errors import DirFailedError, ForeignClusterError, LogDirError, UnformattedDirError
from ...log.manager.meta_properties import (
    MetaProperties,
    check_owner,
    format_dirs,
    make_durably,
    random_id,
    read_meta_properties,
    refuse_data_of_unknown_owner,
    refuse_several_clusters,
    why_unusable,
)
from ...log.state.checkpoints import decode_uuid, remove_durably
from ...raft.driver.raft_driver import metadata_log_dir
from ...raft.snapshots.snapshot_store import encode_snapshot, snapshot_name
from ...raft.types import LOG_BEGIN, ReplicaKey
from ...raft.voters.voter_set import DYNAMIC_VERSION, KRaftVersion, Voter, VoterListener, VoterSet
from ...runtime.ports import Disk, Runtime
from ..settings.format_advice import format_advice
from ..settings.node_config import NodeConfig
from ..settings.settings_per_package import voter_listeners
from .bootstrap_features import write_levels
from .bootstrap_users import write_users

_CONTROLLER = re.compile(r"(\d+)@(\[[0-9A-Fa-f:.]+\]|[^:/@\[\]]+):(\d+):([A-Za-z0-9_-]{22})")
_CHOICES = "--standalone, --initial-controllers or --no-initial-controllers"


class FormatError(Exception):
    """The directories cannot be formatted; the text is one sentence and says what to do."""


class FormatChoiceError(FormatError):
    """The command line or the settings ask for something that cannot be; the directories are not the reason."""


@dataclass(frozen=True, slots=True)
class FirstVoters:
    """The first voters, as the command line gives them.

    At most one of the three is set; none is set with static voters or on a broker.
    """

    standalone: bool = False
    initial: str | None = None
    none: bool = False

    @property
    def options_of_others(self) -> str:
        """The options of `raftwerk format` for the other nodes of the same cluster, with a blank before them."""
        if self.initial is not None:
            return f" --initial-controllers {self.initial} (without that option for a broker)"
        return " --no-initial-controllers" if self.standalone or self.none else ""


def format_node(
    config: NodeConfig,
    runtime: Runtime,
    cluster_id: str,
    *,
    ignore_formatted: bool,
    first_voters: FirstVoters = FirstVoters(),
    levels: dict[str, int] | None = None,
    users: Sequence[UserScramCredentialRecord] = (),
) -> list[str]:
    """Format the node's directories; returns those that were not formatted before.

    `levels` are the feature levels that a new cluster begins with, `users` its SCRAM users. Raises `FormatError` for a
    directory that belongs to another node or cluster, that cannot be read, that holds data of an unknown owner, or that
    is formatted already. With `ignore_formatted` formatted directories are left alone and unreadable ones are skipped:
    a node goes on without a disk that has failed.
    """
    _check_cluster_id(cluster_id)
    fresh: list[str] = []
    done: list[str] = []
    try:
        for path in config.all_dirs:
            try:
                found = read_meta_properties(runtime.disk, path)
                if found is not None:
                    check_owner(path, found, cluster_id, config.node_id)  # before anything is written
                    done.append(path)
                    continue
                refuse_data_of_unknown_owner(runtime.disk, path)
                fresh.append(path)
            except OSError as error:
                if not ignore_formatted:
                    raise FormatError(why_unusable(runtime.disk, path, error)) from error
        if config.metadata_log_dir in fresh:
            refuse_second_metadata_log(config, runtime.disk)
        if config.metadata_log_dir in fresh or first_voters != FirstVoters():
            _check_choice(config, first_voters)
        if done and not ignore_formatted:
            raise FormatError(
                f"Log directory {done[0]} is formatted already: use --ignore-formatted, which leaves it as it is and "
                "formats the others. To begin anew, empty it, which deletes its data."
            )
        chosen = {}
        if config.metadata_log_dir in fresh:
            _check_users(levels or {}, users)
            directory_id = random_id(runtime)
            voters = _first_voters(config, first_voters, directory_id)
            own = None if voters is None else voters.get(config.node_id)
            chosen[config.metadata_log_dir] = directory_id if own is None else own.key.directory_id
            _write_beginning(runtime, config, levels or {}, users, voters)
        format_dirs(runtime, [*fresh, *done], cluster_id, config.node_id, chosen)
    except LogDirError as error:
        raise FormatError(str(error)) from error
    return fresh


def formatted_cluster_id(config: NodeConfig, runtime: Runtime) -> str | None:
    """As `cluster_id_of`; None where no directory that can be read is formatted.

    Raises `FormatError` where the directories belong to different clusters.
    """
    try:
        return cluster_id_of(config, runtime)
    except ForeignClusterError as error:
        raise FormatError(str(error)) from error
    except LogDirError:
        pass  # formatting tells it, where it is in its way
    return None


def formatted_directory_id(config: NodeConfig, runtime: Runtime) -> UUID | None:
    """The id of the metadata directory, which identifies a controller as a voter; None when it is not formatted."""
    found = read_meta_properties(runtime.disk, config.metadata_log_dir)
    return None if found is None else found.directory_id


def _check_choice(config: NodeConfig, asked: FirstVoters) -> None:
    given = [asked.standalone, asked.initial is not None, asked.none]
    if sum(given) > 1:
        raise FormatChoiceError(f"Only one of {_CHOICES} can be true: choose one.")
    if config.has_static_voters:
        if any(given):
            raise FormatChoiceError(
                "controller.quorum.voters is set, so the voters are static: remove it and set "
                f"controller.quorum.bootstrap.servers instead, or leave out {_CHOICES}."
            )
    elif config.is_controller and not any(given):
        raise FormatChoiceError(
            "controller.quorum.voters is not set on this controller: say who votes first, with raftwerk format and one "
            f"of {_CHOICES}, before the first start."
        )
    elif not config.is_controller and (asked.standalone or asked.initial is not None):
        raise FormatChoiceError("This node is not a controller: leave out --standalone and --initial-controllers.")


def _first_voters(config: NodeConfig, asked: FirstVoters, directory_id: UUID) -> VoterSet | None:
    if asked.standalone:
        return VoterSet.of([Voter(ReplicaKey(config.node_id, directory_id), voter_listeners(config))])
    if asked.initial is None:
        return None
    voters = VoterSet.of(parse_controllers(asked.initial, config.controller_listener_names))
    if voters.get(config.node_id) is None:
        raise FormatChoiceError(
            f"--initial-controllers does not name this node: add {config.node_id}@host:port:directory-id."
        )
    return voters


def parse_controllers(text: str, listener_names: Sequence[str]) -> list[Voter]:
    """The voters of `id@host:port:directory-id,...`.

    The listener is the first of `listener_names`. Raises `FormatChoiceError`.
    """
    voters: dict[int, Voter] = {}
    for entry in text.split(","):
        match = _CONTROLLER.fullmatch(entry.strip())
        if match is None or not 0 < int(match[3]) <= 65535:
            raise FormatChoiceError(
                f"{entry.strip()!r} is not id@host:port:directory-id, for example 1@localhost:9093:{'A' * 21}Q; "
                "`raftwerk format --new-id` prints directory ids."
            )
        node_id, directory_id = int(match[1]), decode_uuid(match[4])
        if node_id in voters or any(voter.key.directory_id == directory_id for voter in voters.values()):
            raise FormatChoiceError(f"{entry.strip()!r}: two controllers have the same node id or directory id.")
        listener = VoterListener(listener_names[0], match[2].strip("[]"), int(match[3]))
        voters[node_id] = Voter(ReplicaKey(node_id, directory_id), (listener,))
    return list(voters.values())


def _check_users(levels: Mapping[str, int], users: Sequence[UserScramCredentialRecord]) -> None:
    if users and levels.get(RECORD_VERSION_FEATURE, SECURITY_RECORDS) < SECURITY_RECORDS:
        raise FormatChoiceError(
            f"With {RECORD_VERSION_FEATURE} below {SECURITY_RECORDS} a cluster has no users: leave one of both out."
        )


def _write_beginning(
    runtime: Runtime,
    config: NodeConfig,
    levels: Mapping[str, int],
    users: Sequence[UserScramCredentialRecord],
    voters: VoterSet | None,
) -> None:
    """Write what the first records of a new cluster are made of, beside what follows from the software.

    It takes the place of what a format that was interrupted before `meta.properties` has left.
    """
    disk, log_dir, is_controller = runtime.disk, config.metadata_log_dir, config.is_controller
    try:
        make_durably(disk, log_dir)
        write_levels(disk, log_dir, levels if is_controller else {})
        write_users(disk, log_dir, users if is_controller else ())
        _write_first_snapshot(runtime, metadata_log_dir(log_dir), voters)
    except OSError as error:
        raise FormatError(why_unusable(disk, log_dir, error)) from error


def _write_first_snapshot(runtime: Runtime, directory: str, voters: VoterSet | None) -> None:
    """Write the snapshot with the first voters, or remove it where none are given."""
    path = f"{directory}/{snapshot_name(LOG_BEGIN)}"
    if voters is not None:
        make_durably(runtime.disk, directory)
        records = (KRaftVersion(DYNAMIC_VERSION), voters)
        data = b"".join(encode_snapshot(LOG_BEGIN, runtime.clock.wall_ms(), iter(()), records))
        runtime.disk.write_atomic(path, data)
    else:
        remove_durably(runtime.disk, path)


def refuse_second_metadata_log(config: NodeConfig, disk: Disk) -> None:
    """Raise `LogDirError` where another directory of this controller holds its metadata log.

    The first of `log.dirs` holds it unless `metadata.log.dir` names one, so a new first directory would take its place.
    """
    others = [path for path in config.all_dirs if path != config.metadata_log_dir] if config.is_controller else []
    there = next((path for path in others if disk.is_dir(metadata_log_dir(path))), None)
    if there is not None:
        raise LogDirError(
            f"Log directory {config.metadata_log_dir} would hold the metadata log of this controller, which is in "
            f"{there}: set metadata.log.dir={there}, or name that directory first in log.dirs."
        )


def cluster_id_of(config: NodeConfig, runtime: Runtime) -> str:
    """The id of the cluster that the node's directories were formatted for.

    Raises `LogDirError`, which says what to do; formatting is no way out for a directory that holds data.
    """
    refused: list[str] = []
    formatted: dict[str, MetaProperties] = {}
    for path in config.all_dirs:
        try:
            found = read_meta_properties(runtime.disk, path)
        except OSError as error:
            refused.append(why_unusable(runtime.disk, path, error))
            continue  # `LogManager.acquire` decides whether the node can do without it
        if found is not None:
            formatted[path] = found
    refuse_several_clusters(formatted)
    if formatted:
        if config.metadata_log_dir not in formatted:
            refuse_second_metadata_log(config, runtime.disk)
        return next(iter(formatted.values())).cluster_id
    if refused:
        raise DirFailedError(refused[0])
    for path in config.all_dirs:
        refuse_data_of_unknown_owner(runtime.disk, path)
    raise UnformattedDirError(f"Log directory {config.all_dirs[0]} is not formatted: {format_advice(config)}.")


def _check_cluster_id(cluster_id: str) -> None:
    try:
        decode_uuid(cluster_id)
        valid = len(cluster_id) == 22
    except ValueError:
        valid = False
    if not valid:
        raise FormatChoiceError(
            f"Cluster id {cluster_id!r} is not an id: an id has 22 characters of URL-safe base64, for example "
            "MkU3OEVBNTcwNTJENDM2Qg."
        )
