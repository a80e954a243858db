"""One node, assembled from the lower layers: a broker, a controller, or both.

Start order: the directories are locked and checked, the metadata log is read, the controller's listener opens, the
quorum starts. When the node knows all committed metadata, the broker opens its partitions and its listeners and asks to
be unfenced. Stopping takes the opposite order, so that leaderships are handed over while the node can still act.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...broker.network.server import Server
from ...controller.metadata.features import SUPPORTED_FEATURES, VersionRanges
from ...controller.metadata.metadata_loader import MetadataLoader
from ...isr.replica_manager import ReplicaManager
from ...log.errors import LogDirError, StorageError
from ...log.manager.log_manager import LogManager
from ...log.segment.batch_scan import Damage
from ...raft.driver.network_channel import connector
from ...raft.driver.quorum_state_store import QuorumStateError
from ...raft.driver.raft_driver import RaftDriver, metadata_log_dir, open_metadata_log
from ...runtime.invariants import InvariantViolation
from ...runtime.os_errors import os_reason
from ...runtime.ports import Runtime
from ..settings.current_config import CurrentConfig
from ..settings.listener_security import login_to_controllers
from ..settings.node_config import NodeConfig
from ..settings.settings_per_package import log_manager_config, raft_config, snapshot_policy
from .broker_role import BrokerRole
from .controller_role import ControllerRole
from .disk_space_guard import readable_free_bytes
from .errors import NodeFailedError
from .formatting import cluster_id_of
from .observers import NO_OBSERVERS, NodeObservers
from .policies import PolicyError
from .state_change_log import StateChangeLog

logger = logging.getLogger("raftwerk.node")


class Node:
    """Can be made anywhere, and is used on one running loop. `stop` releases everything, in any state.

    `supported_features` are the feature levels that the node supports; with fewer it behaves like older software.
    `observers` see its requests and records. `on_progress` hears what a start or a stop that takes long has done, as
    "has closed 100 of 9,000 logs".
    """

    def __init__(
        self,
        config: NodeConfig,
        runtime: Runtime,
        supported_features: VersionRanges = SUPPORTED_FEATURES,
        observers: NodeObservers = NO_OBSERVERS,
        on_progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.config = config
        self._observers = observers
        self._on_progress = on_progress
        self._supported_features = supported_features
        self._runtime = runtime
        self.log_manager: LogManager | None = None
        self.loader: MetadataLoader | None = None
        self.raft: RaftDriver | None = None
        self._controller_role: ControllerRole | None = None
        self._broker_role: BrokerRole | None = None
        self._caught_up: asyncio.Future[None] | None = None
        self._failure: asyncio.Future[BaseException] | None = None
        self._started: asyncio.Task[None] | None = None

    @property
    def controller(self) -> Any:
        """The `QuorumController` of a controller, else None."""
        return self._controller_role.controller if self._controller_role else None

    @property
    def broker(self) -> Any:
        """The `Broker` of a broker, else None."""
        return self._broker_role.broker if self._broker_role else None

    @property
    def replica_manager(self) -> ReplicaManager | None:
        """The `ReplicaManager` of a broker, else None."""
        return self._broker_role.replica_manager if self._broker_role else None

    @property
    def has_failed(self) -> bool:
        """Whether the node has failed and must be stopped; see `wait_failed`."""
        return self._failure is not None and self._failure.done()

    @property
    def servers(self) -> list[Server]:
        """The servers of all listeners."""
        parts = (self._controller_role, self._broker_role)
        return [server for part in parts if part is not None for server in part.servers]

    def free_bytes(self) -> dict[str, int]:
        """Free bytes on the file system of each directory in use, but for those where that cannot be read."""
        directories = self.log_manager.directories.ids if self.log_manager is not None else {}
        return readable_free_bytes(self._runtime.disk, directories)

    async def start(self) -> None:
        """Lock the directories, open the metadata log, join the quorum. The rest follows in a task; see `ready`.

        Raises `NodeFailedError` with the reason in one sentence, and `ConfigError` for TLS and SASL.
        """
        loop = asyncio.get_running_loop()
        self._failure = loop.create_future()
        self._caught_up = loop.create_future()
        try:
            await self._start_quorum()
        except (LogDirError, StorageError, QuorumStateError, PolicyError) as error:
            raise NodeFailedError(str(error)) from error
        except OSError as error:
            raise NodeFailedError(_reason_of(error)) from error
        self._started = loop.create_task(self._start_broker())

    async def ready(self) -> None:
        """Return when the node serves: a broker when it is unfenced, a controller when it knows a leader."""
        await self._wait_started()
        if self._broker_role is not None:
            await self._broker_role.broker.lifecycle_manager.ready()

    async def wait_failed(self) -> None:
        """Wait until the node fails; raises `NodeFailedError`, or the `InvariantViolation` that was the cause."""
        if self._failure is None:
            raise NodeFailedError("the node was not started")
        reason = await asyncio.shield(self._failure)
        if isinstance(reason, InvariantViolation):
            raise reason
        raise NodeFailedError(_reason_of(reason)) from reason

    async def stop(self, *, graceful: bool = True) -> None:
        """Hand leaderships over, stop serving, close the logs, unlock the directories, end threads. Safe in any state.

        A stop that is not `graceful` hands nothing over, and this node's controller decides nothing any more: it would
        fence brokers that stop at the same time, and its own.
        """
        failed = self.has_failed
        if not graceful and self._controller_role is not None:
            self._controller_role.controller.close()
        if self._started is not None and not self._started.done():
            self._started.cancel()
        if self._broker_role is not None:
            self._on_progress("hands over its leaderships")
            await self._broker_role.stop(graceful=graceful and not failed)
        self._on_progress("leaves the quorum")
        if self.raft is not None:
            await self.raft.stop()
        if self._controller_role is not None:
            await self._controller_role.stop()
        if self.log_manager is not None:
            epoch = self._broker_role.broker.broker_epoch if self._broker_role else -1
            # A broker that stops before it has registered has changed nothing, so its former incarnation's epoch still
            # holds.
            self.log_manager.shutdown(max(epoch, self.log_manager.previous_broker_epoch))
        self._broker_role = self._controller_role = None
        self.raft = self.log_manager = None
        self._runtime.threads.close()

    # ---- starting

    async def _start_quorum(self) -> None:
        config, runtime = self.config, self._runtime
        cluster_id = cluster_id_of(config, runtime)
        logs = replace(log_manager_config(config, cluster_id, self._on_dir_failed), on_progress=self._on_progress)
        self.log_manager = LogManager(runtime, logs)
        self.log_manager.acquire()
        directory_id = self.log_manager.directories.ids[config.metadata_log_dir]
        self.loader = MetadataLoader(cluster_id, snapshot_policy(config), self._supported_features)
        log = open_metadata_log(runtime, config.metadata_log_dir)
        settings = raft_config(config, cluster_id, directory_id)
        current = CurrentConfig(config)
        self.loader.subscribe(current.on_metadata)
        connect = connector(settings, login_to_controllers(current, runtime))
        self.raft = RaftDriver(settings, runtime, log, metadata_log_dir(config.metadata_log_dir), self.loader, connect)
        self.loader.set_snapshot_sink(self.raft.create_snapshot)
        self.loader.set_kraft_version_reader(lambda: self.raft.kraft_version if self.raft is not None else 0)
        self.log_manager.scrub_metadata_log(log, self._on_metadata_damaged)
        self.raft.failure.add_done_callback(lambda done: self._fail(done.result()))
        if config.is_controller:
            self._controller_role = ControllerRole(
                current, runtime, self.loader, self.raft, self._observers, self._fail
            )
            await self._controller_role.start()
        if config.is_broker:
            self._broker_role = BrokerRole(
                current, runtime, self.loader, self.raft, self.log_manager, self._observers, self._fail
            )
        changes = StateChangeLog(config.node_id)
        self.loader.subscribe(changes.on_metadata)
        self.loader.subscribe_leader(changes.on_leader)
        self.loader.subscribe(lambda image, delta: self._check_caught_up())
        self.loader.subscribe_leader(lambda leader: self._check_caught_up())
        await self.raft.start()

    def _on_metadata_damaged(self, damage: Damage) -> None:
        directory = self.config.metadata_log_dir
        if not self.config.is_controller:
            logger.error("restart this node: it fetches the metadata from offset %d on again", damage.offset)
            return
        logger.error(
            "the metadata log of this controller is damaged from offset %d on: while a majority of the other "
            "controllers runs, stop it, empty %s, format it again and start it; it fetches all from them",
            *(damage.offset, directory),
        )

    async def _start_broker(self) -> None:
        if self._caught_up is None:
            return
        await self._caught_up
        if self._broker_role is None:
            return
        try:
            await self._broker_role.start()
        except (OSError, NodeFailedError, LogDirError, StorageError) as error:
            self._fail(error)

    async def _wait_started(self) -> None:
        if self._started is not None:
            await asyncio.shield(self._started)

    def _check_caught_up(self) -> None:
        """Note whether the node has replayed all records that are committed, by the high watermark of the quorum's
        leader.
        """
        if self._caught_up is None or self._caught_up.done() or self.raft is None or self.loader is None:
            return
        known = self.loader.leader.leader_id is not None and self.raft.is_high_watermark_current
        if known and self.loader.image.offset >= self.raft.high_watermark - 1:
            self._caught_up.set_result(None)
            if self._controller_role is not None:
                self._controller_role.on_caught_up()

    # ---- failing

    def _fail(self, reason: BaseException) -> None:
        if self._failure is not None and not self._failure.done():
            self._failure.set_result(reason)

    def _on_dir_failed(self, path: str, error: OSError) -> None:
        if self.log_manager is None:
            return
        is_metadata_there = self.config.metadata_log_dir in self.log_manager.directories.ids
        if not is_metadata_there or (self.config.is_broker and not self.log_manager.directories.online_ids):
            self._fail(error)
        elif self._broker_role is not None:
            self._broker_role.on_dir_failed(path, error)


def _reason_of(error: BaseException) -> str:
    return os_reason(error) if isinstance(error, OSError) else str(error) or type(error).__name__
