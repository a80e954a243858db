"""One node as an operating-system process: reads the settings, runs until a signal, returns the exit code.

Exit codes: 0, it stopped cleanly; 1, it could not start or had to stop (one line says why); 2, the configuration is
wrong (one line for each problem); 70, a broken invariant stopped it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...log.errors import LogDirError
from ...runtime.log_lines import TEXT, configure_logging, flush_logs
from ...runtime.loop import real_runtime, run, stop_event_on_signals
from ...runtime.os_errors import os_reason
from ...runtime.ports import Disk, Runtime
from ...runtime.process.garbage_collection import ServerCollections, tune_gc_for_start
from ...runtime.process.stall_watch import StallWatch
from ...wire.record_scan import SLOW_VALIDATION, scan_compiled
from ..settings.node_config import ConfigError, NodeConfig, load_config
from .exit_codes import EXIT_BAD_CONFIG, EXIT_FAILED, EXIT_STOPPED

if TYPE_CHECKING:
    from ...controller.metadata.metadata_records import UserScramCredentialRecord
    from ...raft.voters.voter_set import Voter
    from ..metrics.exporter import Exporter
    from .formatting import FirstVoters

_LOOK_FOR_SPACE_S = 0.5
_SPACE_MIN_BYTES = 8 << 20
"""A node that found no space starts again when so much is free at least."""

_logger = logging.getLogger("raftwerk.node")


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """The options of `raftwerk node`."""

    file: str | None
    overrides: tuple[str, ...] = ()
    use_env: bool = False
    format_id: str | None = None
    log_level: str = "INFO"
    log_format: str = TEXT
    ready_fd: int | None = None
    stop_at_eof: bool = False
    initial_controllers: str | None = None
    """The first voters, where `format_id` formats a controller with dynamic voters."""
    no_initial_controllers: bool = False
    progress_file: str | None = None
    """Says what the node does in a start or a stop that takes long, for the command that waits for it."""
    pid_file: str | None = None
    """Has the process id; the node empties it when it has stopped cleanly, which its parent alone learns otherwise."""


def run_node(options: NodeOptions) -> int:
    """Run a node until it stops; returns the exit code."""
    try:
        config = _load(options.file, options.use_env, options.overrides)
    except ConfigError as error:
        return _refuse(error)
    except OSError as error:
        return _fail(f"cannot read {os.path.abspath(options.file or '')}: {error.strerror}", EXIT_BAD_CONFIG)
    configure_logging(options.log_level, node_id=config.node_id, line_format=options.log_format)
    for warning in config.warnings:
        _logger.warning("%s", warning)
    if not scan_compiled:
        _logger.info("%s", SLOW_VALIDATION)
    tune_gc_for_start()
    return run(serve(config, options))


def run_format(
    file: str,
    cluster_id: str | None,
    first_voters: FirstVoters,
    overrides: Iterable[str],
    *,
    ignore_formatted: bool,
    levels: dict[str, int],
    users: Sequence[UserScramCredentialRecord] = (),
) -> int:
    """Format the directories of a node; returns the exit code."""
    from ...log.state.checkpoints import encode_uuid
    from ..local.layout import new_cluster_id
    from ..settings.format_advice import other_nodes_advice
    from .formatting import FormatChoiceError, FormatError, format_node, formatted_cluster_id, formatted_directory_id

    try:
        config = _load(file, False, overrides)
    except ConfigError as error:
        return _refuse(error)
    except OSError as error:
        return _fail(f"cannot read {os.path.abspath(file)}: {error.strerror}", EXIT_BAD_CONFIG)
    try:
        known = cluster_id or formatted_cluster_id(config, real_runtime())
        chosen = known or new_cluster_id()
        formatted = format_node(
            config,
            real_runtime(),
            chosen,
            ignore_formatted=ignore_formatted,
            first_voters=first_voters,
            levels=levels,
            users=users,
        )
    except FormatError as error:
        return _fail(str(error), EXIT_BAD_CONFIG if isinstance(error, FormatChoiceError) else EXIT_FAILED)
    except OSError as error:
        return _fail(os_reason(error))
    for directory in formatted:
        print(f"Formatted {directory} for node {config.node_id} of cluster {chosen}.")
    if known is None:
        print(other_nodes_advice(chosen, first_voters.options_of_others))
    if not formatted:
        print("All directories were formatted already.")
    directory_id = formatted_directory_id(config, real_runtime())
    if config.is_controller and directory_id is not None:
        print(f"Directory id of the controller: {encode_uuid(directory_id)}")
    return EXIT_STOPPED


def formatted_controller(file: str) -> tuple[Voter, Sequence[tuple[str, int]]]:
    """The controller whose settings are in `file`, as a voter, and its `controller.quorum.bootstrap.servers`.

    Raises `FormatChoiceError` when they cannot be used, and `FormatError` when its directory cannot.
    """
    from ...raft.types import ReplicaKey
    from ...raft.voters.voter_set import Voter
    from ..settings.settings_per_package import voter_listeners
    from .formatting import FormatChoiceError, FormatError, formatted_directory_id

    try:
        config = _load(file, False, ())
    except OSError as error:
        raise FormatChoiceError(os_reason(error)) from error
    except ConfigError as error:
        raise FormatChoiceError(str(error)) from error
    if not config.is_controller:
        raise FormatChoiceError(f"node {config.node_id} of {file} is not a controller")
    try:
        directory_id = formatted_directory_id(config, real_runtime())
    except OSError as error:
        raise FormatError(os_reason(error)) from error
    except LogDirError as error:
        raise FormatError(str(error)) from error
    if directory_id is None:
        raise FormatError(f"node {config.node_id} of {file} is not formatted")
    return Voter(ReplicaKey(config.node_id, directory_id), voter_listeners(config)), config.bootstrap


async def serve(config: NodeConfig, options: NodeOptions) -> int:
    """Run a node on the running loop until a signal or a failure; returns the exit code.

    A node that a full disk has ended starts again when there is space.
    """
    asked_to_stop = stop_event_on_signals()
    if options.stop_at_eof:
        _watch_stdin(asked_to_stop)
    ready_fd, has_served = options.ready_fd, False
    runtime = _runtime(config)
    while (code := await _serve_once(config, options, runtime, ready_fd, asked_to_stop, has_served)) is None:
        ready_fd, has_served = None, True  # who waits for it was told of the first start
        await _until_space(config, runtime.disk, asked_to_stop)
        if asked_to_stop.is_set():
            code = EXIT_STOPPED
            break
        gc.collect()  # what the former start has left is in reference cycles, and may keep files open
    if code == EXIT_STOPPED and options.pid_file is not None:
        with contextlib.suppress(OSError):
            os.truncate(options.pid_file, 0)
    return code


def _runtime(config: NodeConfig) -> Runtime:
    """What all starts of the node use. Faults that are injected outlive a start, too."""
    if not config["fault.injection.enable"]:
        return real_runtime()
    from ...runtime.faults.fault_socket import FaultListener

    listener = FaultListener()
    listener.listen()
    return replace(real_runtime(), disk=listener.new_disk())


async def _serve_once(
    config: NodeConfig,
    options: NodeOptions,
    runtime: Runtime,
    ready_fd: int | None,
    asked_to_stop: asyncio.Event,
    has_served: bool,
) -> int | None:
    """Run the node until it is to stop or fails. None: it has served, and can again when its disk is no longer full."""
    from ..settings.listener_checks import security_problems
    from .errors import NodeFailedError
    from .formatting import FirstVoters, FormatChoiceError, FormatError, format_node
    from .node import Node
    from .policies import PolicyError

    exporter = _exporter(config)
    stall_ms = config["event.loop.stall.log.ms"]
    on_progress = _progress_writer(options.progress_file)
    stalls = StallWatch(stall_ms) if stall_ms else None
    collections: ServerCollections | None = None
    if exporter is None:
        node = Node(config, runtime, on_progress=on_progress)
    else:
        disk_timed = exporter.with_timed_disk(runtime)
        node = Node(config, disk_timed, observers=exporter.observers, on_progress=on_progress)
    reason: str | None = None
    code = EXIT_FAILED
    try:
        if options.format_id:
            first = FirstVoters(initial=options.initial_controllers, none=options.no_initial_controllers)
            format_node(config, runtime, options.format_id, ignore_formatted=True, first_voters=first)
        if stalls is not None:
            stalls.start()
        if exporter is not None:
            await exporter.listen(node)
        await node.start()
        if exporter is not None:
            exporter.subscribe(node)
        await _first(node.ready(), node.wait_failed(), asked_to_stop.wait())
        if not asked_to_stop.is_set():
            collections = ServerCollections()
            _tell_ready(config, ready_fd)
        has_served = True
        await _first(node.wait_failed(), asked_to_stop.wait())
    except (NodeFailedError, FormatError) as error:
        reason = str(error)
        if has_served and _is_full_disk(error):
            if collections is not None:
                collections.close()
            _logger.error("%s; the node starts again when there is space", reason)
            return None
        is_refused = isinstance(error, FormatChoiceError) or isinstance(error.__cause__, PolicyError)
        code = EXIT_BAD_CONFIG if is_refused else EXIT_FAILED
    except ConfigError as error:
        others, _ = security_problems(config, runtime)
        return _refuse(ConfigError(dict.fromkeys((*error.problems, *others))))
    finally:
        await node.stop()
        if exporter is not None:
            await exporter.stop()
        if stalls is not None:
            stalls.stop()
    return EXIT_STOPPED if reason is None else _fail(reason, code)  # it is the last line of the log


async def _until_space(config: NodeConfig, disk: Disk, asked_to_stop: asyncio.Event) -> None:
    """Wait until every directory has as much space as a broker needs to take records, or the node is to stop.

    A directory that cannot be read does not count: its disk has failed, and the node goes on without it.
    """
    from .disk_space_guard import readable_free_bytes

    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asked_to_stop.wait(), _LOOK_FOR_SPACE_S)
        if asked_to_stop.is_set():
            return
        free = readable_free_bytes(disk, config.all_dirs)
        if min(free.values(), default=0) >= max(2 * config["log.dirs.reserve.bytes"], _SPACE_MIN_BYTES):
            return


def _is_full_disk(error: BaseException | None) -> bool:
    """Whether what began this chain of errors is a write that found no space."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__
    return False


def _progress_writer(path: str | None) -> Callable[[str], None]:
    """A function that writes what the node does into this file, if there is one."""

    def tell(text: str) -> None:
        flush_logs()  # no iteration of the loop ends while logs are closed
        if path is not None:
            with contextlib.suppress(OSError), open(path, "w", encoding="utf-8") as file:  # the disk may be full
                file.write(text)

    return tell


def _exporter(config: NodeConfig) -> Exporter | None:
    """The metrics port, if `metrics.port` is set. It is imported only then: its libraries cost 12 MB and 0.2 s."""
    if config["metrics.port"] is None:
        return None
    from ..metrics.exporter import Exporter, ExporterConfig

    return Exporter(ExporterConfig(config["metrics.host"], config["metrics.port"], config["metrics.partition.limit"]))


def _tell_ready(config: NodeConfig, ready_fd: int | None) -> None:
    _logger.info("%s", _where(config))
    if ready_fd is not None:
        _report_ready(ready_fd)


def _where(config: NodeConfig) -> str:
    """Where the node listens, by its configuration."""
    told = [str(one) for one in config.listeners]
    if config["metrics.port"] is not None:
        told.append(f"http://{config['metrics.host'] or '0.0.0.0'}:{config['metrics.port']}/metrics")
    return f"node {config.node_id} ({','.join(config['process.roles'])}) is ready and listens on {', '.join(told)}"


def _report_ready(ready_fd: int) -> None:
    """Write a line to the pipe of the process that started this node, which may have given up waiting."""
    try:
        os.write(ready_fd, b"ready\n")
    except BrokenPipeError:
        _logger.info("the process that started this node did not wait until it was ready")
    finally:
        os.close(ready_fd)


async def _first(*waits: object) -> None:
    """Wait until one is done, and cancel the others. Raises the error of the one that is done."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]  # type: ignore[call-overload]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()


def _load(file: str | None, use_env: bool, overrides: Iterable[str]) -> NodeConfig:
    content = None
    if file is not None:
        with open(file, "rb") as opened:
            content = opened.read()
    environ = os.environ if use_env else None
    config = load_config(content, environ=environ, overrides=overrides, file=file or "server.properties")
    return replace(config.with_default_host(socket.gethostname()), file=file)


def _watch_stdin(asked_to_stop: asyncio.Event) -> None:
    """Stop when standard input ends, since the supervisor is gone then."""
    loop = asyncio.get_running_loop()

    def on_readable() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            asked_to_stop.set()

    loop.add_reader(0, on_readable)


def _refuse(error: ConfigError) -> int:
    for problem in error.problems:
        sys.stderr.write(f"raftwerk: {problem}\n")
    return EXIT_BAD_CONFIG


def _fail(reason: str, code: int = EXIT_FAILED) -> int:
    flush_logs()
    sys.stderr.write(f"raftwerk: {reason}\n")
    return code
