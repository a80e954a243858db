"""The broker role of a node: its partitions, its listeners, and its registration with the controller."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from ...broker.authorization import Authorization
from ...broker.broker import Broker
from ...broker.network.connection_quota import ConnectionQuota
from ...broker.network.server import Server
from ...controller.metadata.metadata_image import BROKER_RESOURCE, MetadataDelta, MetadataImage
from ...controller.metadata.metadata_loader import MetadataLoader
from ...isr.replica_manager import ReplicaManager
from ...log.manager.log_manager import LogManager
from ...raft.driver.raft_driver import RaftDriver
from ...runtime.ports import Runtime
from ...wire.types import TopicPartition
from ..settings.authorizer_settings import make_authorizer
from ..settings.current_config import CurrentConfig
from ..settings.listener_security import (
    certificates_complaint,
    listener_security,
    login_to_brokers,
    login_to_controllers,
)
from ..settings.settings_per_package import (
    broker_config,
    log_maintenance_change,
    replica_manager_config,
    request_memories,
    server_config,
    unused_min_isr,
    verifies_transactions,
)
from .controller_registration import leader_address
from .disk_space_guard import DiskSpaceGuard, others_can_lead
from .errors import listen
from .observers import NodeObservers
from .token_logins import token_logins

_STUCK_LIMIT_S = 0.6
_STUCK_CHECK_S = 0.05

logger = logging.getLogger("raftwerk.node")


class BrokerRole:
    """Made and used on the node's loop.

    It starts when the node knows the committed metadata, and stops before the quorum.
    """

    def __init__(
        self,
        current: CurrentConfig,
        runtime: Runtime,
        loader: MetadataLoader,
        raft: RaftDriver,
        log_manager: LogManager,
        observers: NodeObservers,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._config = config = current.config
        self._raft = raft
        self._loader = loader
        self.log_manager = log_manager
        self._is_loaded = False
        log_manager.begin_load()
        directory_ids = tuple(log_manager.directories.online_ids)
        cluster_id = raft.config.cluster_id
        settings = replace(
            broker_config(config, cluster_id, directory_ids),
            previous_broker_epoch=log_manager.previous_broker_epoch,
            supported_features=loader.supported_features,
            certificates_complaint=lambda dynamic: certificates_complaint(current, dynamic, runtime),
            login_to_brokers=login_to_brokers(current, runtime),
            login_to_controllers=login_to_controllers(current, runtime),
        )
        self._authorization = Authorization(make_authorizer(config))
        loader.subscribe(self._authorization.on_metadata, is_fatal=True)
        self.broker = Broker(settings, runtime, loader, lambda: leader_address(raft), on_fatal, self._authorization)
        self.replica_manager = ReplicaManager(
            replica_manager_config(config, cluster_id),
            runtime,
            log_manager,
            replace(
                self.broker.replica_ports(),
                on_storage_error=log_manager.directories.on_storage_error,
                on_no_space=self._on_no_space,
                observer=observers.replicas,
            ),
        )
        reserve_bytes, directories = config["log.dirs.reserve.bytes"], log_manager.directories
        self._space = DiskSpaceGuard(
            reserve_bytes, lambda: list(directories.ids), runtime.disk.free_bytes, self._on_space
        )
        loader.subscribe(self.replica_manager.apply)
        loader.subscribe(self._on_metadata)
        dispatcher = self.broker.attach_replicas(self.replica_manager)
        quota = ConnectionQuota(loader.image, config.node_id, config.properties, self.broker.config.quota_window)
        memories = request_memories(config)
        find = loader.find_scram_credential, token_logins(config, runtime, loader).find
        self.servers = [
            Server(
                server_config(config, one, listener_security(current, one, runtime, *find)),
                dispatcher,
                quota,
                observers.requests,
                memories[one.name],
            )
            for one in config.broker_listeners
        ]

    async def start(self) -> None:
        """Open the logs, register, take up the partitions, listen, then ask to be unfenced.

        Raises OSError when a port is in use, and what `LogManager.load` raises. The quorum runs while logs are checked.
        """
        self._authorization.begin(self._loader.image)
        await self.log_manager.load_soon()
        self._is_loaded = True
        if self.log_manager.previous_broker_epoch < 0:
            self.broker.lifecycle_manager.lifecycle.on_unclean_shutdown_found()
        await self.broker.start()
        await self.broker.lifecycle_manager.registered()
        warning = unused_min_isr(self._config, self._loader.image)
        if warning is not None:
            logger.warning(warning)
        self.log_manager.set_strays_aside(self._topic_id_of)
        await self.replica_manager.start()
        replicas = self.replica_manager
        self.log_manager.start(replicas.high_watermark_of, replicas.on_damaged, replicas.on_log_start_incremented)
        self._change_settings(self._loader.image)
        for server in self.servers:
            await listen(server)
        self._space.start()
        self.broker.begin_serving()

    def _on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        if any(kind == BROKER_RESOURCE for kind, _ in delta.changed_configs):
            self._change_settings(image)

    def _change_settings(self, image: MetadataImage) -> None:
        self.log_manager.change_maintenance(log_maintenance_change(self._config, image))
        self.replica_manager.verifies_transactions = verifies_transactions(self._config, image)

    def _on_space(self, full: list[str]) -> None:
        self.replica_manager.set_full_dirs(full)
        # Logs that waited for space are made again then, and may have found a directory full within that call.
        self.broker.lifecycle_manager.ask_to_be_fenced(
            bool(self._space.full) and others_can_lead(self._loader.image, self._config.node_id)
        )

    def _on_no_space(self, tp: TopicPartition) -> None:
        log = self.log_manager.get(tp)  # None where no directory had space for a new log
        paths = list(self.log_manager.directories.ids) if log is None else [log.directory.rpartition("/")[0]]
        for path in paths:
            self._space.on_no_space(path)

    def on_dir_failed(self, path: str, error: OSError) -> None:
        """A log directory has failed; the node goes on without it."""
        directory_id = self.log_manager.directories.id_at(path)
        if directory_id is not None and not self._is_loaded:
            self.broker.lifecycle_manager.lifecycle.on_dir_failed(directory_id)  # the broker is not registered yet
        elif directory_id is not None:
            self.broker.lifecycle_manager.on_dir_failed(path, directory_id)
            # The failure may have been found in the middle of an operation; that operation ends first.
            asyncio.get_running_loop().call_soon(self.replica_manager.on_dir_failed, directory_id, error)

    async def stop(self, *, graceful: bool) -> None:
        """Hand leaderships over, stop serving, and write the high watermarks. The logs stay open."""
        if graceful and self._config["controlled.shutdown.enable"]:
            await self._hand_over()
        self._space.stop()
        for server in self.servers:
            await server.stop()
        await self.broker.stop()
        await self.replica_manager.stop()

    async def _hand_over(self) -> None:
        """Controlled shutdown. It is given up when the quorum makes no progress, as when the whole cluster stops."""
        raft = self._raft
        asked = asyncio.get_running_loop().create_task(self.broker.lifecycle_manager.controlled_shutdown())
        stuck_s = 0.0
        while not asked.done() and stuck_s < _STUCK_LIMIT_S:
            committed = raft.high_watermark
            await asyncio.wait([asked], timeout=_STUCK_CHECK_S)
            waits = raft.is_leader and committed == raft.high_watermark < raft.log_end_offset
            stuck_s = stuck_s + _STUCK_CHECK_S if waits or raft.leader_and_epoch.leader_id is None else 0.0
        if not asked.done():
            asked.cancel()
            logger.warning("stopping without a hand-over: the quorum has no leader, or its leader no majority")
        elif not asked.result():
            logger.warning("stopping without a hand-over: the controller did not let this broker go in time")

    def _topic_id_of(self, tp: TopicPartition) -> UUID | None:
        """The topic id of a partition of which this broker has a replica by the metadata; None for any other."""
        topic = self._loader.image.topics_by_name.get(tp.topic)
        registration = topic.partitions.get(tp.partition) if topic is not None else None
        if topic is None or registration is None or self._config.node_id not in registration.replicas:
            return None
        return topic.topic_id
