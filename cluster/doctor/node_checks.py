"""Looks for common mistakes in the configuration of a node, in its log directories, and on this machine.

A configuration is read as a node would read it, and the ports and directories that it needs are tried.
"""

from __future__ import annotations

import os
import resource
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType

from ...log.errors import LogDirError
from ...log.manager.log_loading import METADATA_LOG
from ...log.manager.meta_properties import (
    MetaProperties,
    check_owner,
    read_meta_properties,
    refuse_copies,
    refuse_data_of_unknown_owner,
    refuse_several_clusters,
)
from ...log.state.checkpoints import DAMAGED_OFFSET_FILE, read_offsets
from ...raft.driver.log_end_checkpoint import lost_log_end
from ...raft.driver.quorum_state_store import QuorumStateError
from ...raft.driver.raft_driver import metadata_log_dir
from ...runtime.files.real_disk import RealDisk
from ...runtime.loop import real_runtime
from ...runtime.os_errors import os_words
from ...wire.record_scan import SLOW_VALIDATION, scan_compiled
from ...wire.types import TopicPartition
from ..command_line.plural import counted, size_text
from ..local.free_ports import WRONG_HOST, why_not_free
from ..local.layout import load_plan
from ..local.supervisor import brokers_that_do_not_listen
from ..local.voters_on_disk import lost_majority
from ..node.formatting import refuse_second_metadata_log
from ..settings.format_advice import format_advice, format_rest_advice
from ..settings.listener_checks import security_problems
from ..settings.network_addresses import is_loopback
from ..settings.node_config import ConfigError, NodeConfig, load_config
from .disk_checks import RESERVE, space_problem
from .findings import FAILURE, OK, WARNING, Finding, exposed, some
from .silent_nodes import WaitingBrokers

_FEW_DESCRIPTORS = 4096


def examine_config(path: str) -> list[Finding]:
    """Find what would keep a node with this server.properties from starting or running."""
    try:
        with open(path, "rb") as file:
            config = replace(load_config(file.read()), file=path)
    except OSError as error:
        return [Finding(FAILURE, f"cannot read {path}: {os_words(error)}", "name an existing server.properties")]
    except ConfigError as error:
        return [Finding(FAILURE, f"{path}: {one.key}: {one.reason}", one.way_out) for one in error.problems]
    found = [Finding(OK, f"{path}: node {config.node_id}, {','.join(config['process.roles'])}")]
    found += [Finding(WARNING, warning) for warning in config.warnings]
    found += [_port(str(one), one.host, one.port) for one in config.listeners if one.port]
    if config["metrics.port"]:
        found.append(_port("the port for metrics", config["metrics.host"] or "", config["metrics.port"]))
    found += [
        exposed(f"the controller listener {one} is open to other machines")
        for one in config.controller_listeners
        if not is_loopback(one.host) and one.protocol == "PLAINTEXT"
    ]
    problems, soon = security_problems(config, real_runtime())
    found += [Finding(FAILURE, f"{one.key}: {one.reason}", one.way_out) for one in problems]
    found += [Finding(WARNING, f"{one.key}: {one.reason}", one.way_out) for one in soon]
    formatted = _formatted(config)
    for directory in config.all_dirs:
        found += _directory(directory, config, formatted)
    if config.is_controller and config.metadata_log_dir in formatted:
        found += _metadata_log(config.metadata_log_dir)
    return [*found, *_all_directories(formatted)]


def examine_machine() -> list[Finding]:
    """Check this installation, and the limits of this process, which nodes started from here inherit."""
    return [_file_limit(), _record_scan(scan_compiled)]


def _record_scan(is_compiled: bool) -> Finding:
    if is_compiled:
        return Finding(OK, "records of produced batches are validated by compiled code")
    return Finding(WARNING, SLOW_VALIDATION, "install a C compiler and the headers of Python, then raftwerk again")


def _file_limit() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FEW_DESCRIPTORS:
        what = f"a process may open {soft} files: a node needs some for each partition and connection"
        return Finding(WARNING, what, f"ulimit -n {min(hard, 65536) if hard > 0 else 65536}, or LimitNOFILE in systemd")
    return Finding(OK, f"a process may open {soft} files")


def _port(what: str, host: str, port: int) -> Finding:
    reason = why_not_free(host, port)
    if reason is None:
        return Finding(OK, f"{what} is free")
    if reason in WRONG_HOST:
        return Finding(FAILURE, f"{what} cannot be listened on: {reason}", "name an address of this machine")
    way_out = f"if it is not this node itself, find out who uses it (ss -ltnp 'sport = :{port}')"
    return Finding(WARNING, f"{what} cannot be listened on: {reason}", way_out)


def _directory(path: str, config: NodeConfig, formatted: Mapping[str, MetaProperties]) -> Iterator[Finding]:
    existing = os.path.abspath(path)
    while not os.path.exists(existing):
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing):
        way_out = "name another directory in log.dirs, or remove that file"
        yield Finding(FAILURE, f"{path} cannot be a log directory: {existing} is a file", way_out)
        return
    if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        what = f"{existing} cannot be read and written by this user"
        yield Finding(FAILURE, what, f"chown it, or set log.dirs (is {path})")
        return
    usage = shutil.disk_usage(existing)
    free = usage.free
    if not usage.total:
        what = f"{path} cannot be a log directory: the file system at {existing} keeps no files"
        yield Finding(FAILURE, what, "name another directory in log.dirs")
        return
    little = space_problem(path, free, config[RESERVE])
    if little is not None:
        yield little
    yield from _damage(path)
    yield _owner(path, config, formatted, free)


def _owner(path: str, config: NodeConfig, formatted: Mapping[str, MetaProperties], free_bytes: int) -> Finding:
    """Whose directory it is."""
    try:
        found = read_meta_properties(RealDisk(), path)
        if found is None:
            return _unformatted(path, config, formatted)
        check_owner(path, found, found.cluster_id, config.node_id)
    except OSError as error:
        return Finding(FAILURE, f"{path} cannot be read: {os_words(error)}", "repair it, or set log.dirs to another")
    except LogDirError as error:
        return _refusal(error)
    return Finding(OK, f"{path}: formatted for cluster {found.cluster_id}, {size_text(free_bytes)} free")


def _metadata_log(log_dir: str) -> Iterator[Finding]:
    """Report a metadata log with which this controller would not start."""
    try:
        lost = lost_log_end(RealDisk(is_read_only=True), metadata_log_dir(log_dir))
    except (QuorumStateError, OSError) as error:
        reason = os_words(error) if isinstance(error, OSError) else error
        yield Finding(FAILURE, f"the metadata log in {log_dir} cannot be read: {reason}", "restore it")
    else:
        if lost is not None:
            yield Finding(FAILURE, lost.what, lost.way_out)


def _formatted(config: NodeConfig) -> dict[str, MetaProperties]:
    """The log directories that are formatted, as far as they can be read, by path."""
    found: dict[str, MetaProperties] = {}
    for path in config.all_dirs:
        with suppress(OSError, LogDirError):  # that is told of the directory
            meta = read_meta_properties(RealDisk(), path)
            if meta is not None:
                found[path] = meta
    return found


def _all_directories(formatted: Mapping[str, MetaProperties]) -> Iterator[Finding]:
    """Report directories that cannot be those of one node: of different clusters, or copies of each other."""
    try:
        refuse_several_clusters(formatted)
        refuse_copies({path: one.directory_id for path, one in formatted.items()})
    except LogDirError as error:
        yield _refusal(error)


def _refusal(error: LogDirError) -> Finding:
    """The finding for what a node says that refuses its log directories: the reason and the way out."""
    what, _, way_out = str(error).rstrip(".").rpartition(": ")
    return Finding(FAILURE, what, way_out)


def _unformatted(path: str, config: NodeConfig, formatted: Mapping[str, MetaProperties]) -> Finding:
    """A directory without `meta.properties`, which must not be formatted while it holds data."""
    try:
        refuse_data_of_unknown_owner(RealDisk(), path)
        if path == config.metadata_log_dir:
            refuse_second_metadata_log(config, RealDisk())
    except LogDirError as error:
        return _refusal(error)
    except OSError as error:
        return Finding(FAILURE, f"{path} cannot be read: {os_words(error)}", "repair it, or set log.dirs to another")
    clusters = {one.cluster_id for one in formatted.values()}
    advice = format_rest_advice(config, clusters.pop(), path) if len(clusters) == 1 else format_advice(config)
    return Finding(WARNING, f"{path} is not formatted", advice)


def examine_local_voters(directory: str) -> list[Finding]:
    """Report that the quorum of a local cluster has lost its majority for good, as log directories were lost."""
    found = lost_majority(load_plan(directory))
    return [] if found is None else [Finding(FAILURE, found.what, found.way_out)]


def waiting_brokers(directory: str) -> WaitingBrokers:
    """The brokers of a local cluster that run and do not listen."""
    plan = load_plan(directory)
    return WaitingBrokers(brokers_that_do_not_listen(plan.nodes), in_vain=lost_majority(plan) is not None)


def examine_local_logs(directory: str, local_options: str = "") -> list[Finding]:
    """Report damaged logs of the nodes of a local cluster, running or not, and which nodes have sound replicas.

    `local_options` is what commands about single nodes need behind them to find this cluster.
    """
    found: list[Finding] = []
    directories: dict[int, tuple[str, ...]] = {}
    for node in load_plan(directory).nodes:
        try:
            with open(node.properties_file, "rb") as file:
                config = load_config(file.read())
        except (OSError, ConfigError) as error:
            reason = os_words(error) if isinstance(error, OSError) else error
            found.append(Finding(FAILURE, f"{node.properties_file} cannot be read: {reason}", "restore it"))
        else:
            directories[node.node_id] = config.all_dirs
    for node_id, paths in directories.items():
        others = {other: there for other, there in directories.items() if other != node_id}
        found += [one for path in paths for one in _damage(path, others, LocalNode(node_id, local_options))]
    return found


@dataclass(frozen=True, slots=True)
class LocalNode:
    """A node of a local cluster, and what commands about it need behind them to find the cluster."""

    node_id: int
    local_options: str

    def around(self, command: str) -> str:
        """The commands that do this while the node is stopped."""
        target = f"{self.node_id}{self.local_options}"
        return f"raftwerk stop {target}; {command}; raftwerk start {target}"


def _sound_at(tp: TopicPartition, others: Mapping[int, Sequence[str]]) -> list[int]:
    """Which of the other nodes of this machine have a replica that is not known to be damaged."""
    return [
        node_id
        for node_id, paths in others.items()
        if any(os.path.isdir(os.path.join(path, str(tp))) and tp not in _damaged(path) for path in paths)
    ]


def _damaged(path: str) -> dict[TopicPartition, int]:
    """The first damaged offset of the logs in a directory that its node has found damaged."""
    try:
        return dict(read_offsets(RealDisk(), os.path.join(path, DAMAGED_OFFSET_FILE)))
    except (OSError, LogDirError):
        return {}


def _damage(
    path: str, others: Mapping[int, Sequence[str]] = MappingProxyType({}), node: LocalNode | None = None
) -> Iterator[Finding]:
    """Report logs that a node has found damaged, by its file in the log directory.

    `others` are the directories of other nodes on this machine.
    """
    found = _damaged(path)
    metadata_from = found.pop(METADATA_LOG, None)
    if metadata_from is not None:
        way_out = (
            "restart a broker, which fetches the rest again; if it is a controller and a majority of the others runs, "
            "stop it, empty its log directory, format it again and start it"
        )
        yield Finding(FAILURE, f"{path}: the metadata log is damaged from offset {metadata_from} on", way_out)
    sound = {tp: _sound_at(tp, others) for tp in found}
    who = path if node is None else f"node {node.node_id}, {path}"
    for is_mendable in (True, False):
        of = {tp: offset for tp, offset in found.items() if bool(sound[tp]) == is_mendable}
        if not of:
            continue
        names = []
        for tp, offset in of.items():
            at = f"sound on node {' and '.join(map(str, sound[tp]))}" if is_mendable else "no other replica is sound"
            names.append(f"{tp} from offset {offset} on{f' ({at})' if others else ''}")
        what = f"{who}: {counted(len(of), 'log')} damaged on the disk: {some(names)}"
        yield Finding(FAILURE, what, _mending(path, of, node, is_mendable=is_mendable))


def _mending(path: str, damaged: Iterable[TopicPartition], node: LocalNode | None, *, is_mendable: bool) -> str:
    """How damaged logs in the log directory `path` are mended; `is_mendable`: another node here has a sound replica."""
    if node is None:
        return (
            "the node mends them from other replicas; where there is none, restore a copy, or remove the damaged"
            " segments (raftwerk log verify, raftwerk log repair); replace the disk if it happens again"
        )
    if is_mendable:
        directories = shlex.join(os.path.join(path, str(tp)) for tp in damaged)
        return (
            "the node mends them from the sound replicas while it runs, checks what follows in the log, and is in sync "
            "again then; its log tells of each step; if that does not happen, let it fetch them "
            f"again: {node.around(f'rm -r {directories}')}"
        )
    repair = node.around(f"raftwerk log repair {shlex.quote(path)} --execute")
    return f"restore a copy, or cut off what is damaged: {repair}; replace the disk if it happens again"
