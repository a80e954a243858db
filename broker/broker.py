"""A broker's life beside its requests: registered, kept alive, told what it leads, and let go in good order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from uuid import UUID

from ..controller.metadata.metadata_image import MetadataDelta, MetadataImage
from ..controller.metadata.metadata_loader import MetadataLoader
from ..isr.leader.leader_state import AlterPartitionResult
from ..isr.ports import AlterPartitionItem, ReplicaPorts
from ..raft.types import LeaderAndEpoch
from ..runtime.ports import Runtime
from ..wire.api_keys import ApiKey
from ..wire.client import Connection, connect
from ..wire.codec import Struct
from ..wire.errors import ErrorCode, ProtocolError
from .apis.registry import broker_registry
from .config import BrokerConfig
from .fetch_sessions import FetchSessionCache
from .groups.config import OFFSETS_TOPIC
from .groups.coordinator import GroupCoordinator
from .network.dispatch import Dispatcher
from .services import BrokerServices, Replicas
from .to_controller.alter_partition_messages import alter_partition_fields, alter_partition_results
from .to_controller.assign_replicas import AssignmentSender
from .to_controller.auto_topic_creation import AutoTopicCreator
from .to_controller.broker_lifecycle import BrokerLifecycle, BrokerState, LifecycleRequest, RegistrationRefused
from .to_controller.controller_channel import ControllerAddress, ControllerChannel
from .to_controller.producer_id_manager import ProducerIdBlock, ProducerIdManager
from .to_controller.recently_fenced_brokers import RecentlyFencedBrokers
from .to_controller.suspected_brokers import SuspectedBrokers
from .topic_view import endpoint_of

logger = logging.getLogger("raftwerk.broker")

ALTER_PARTITION_VERSION = 3
ALLOCATE_PRODUCER_IDS_VERSION = 0
LIFECYCLE_TRY_TIMEOUT_MS = 3_000
REPLICA_CONNECT_TIMEOUT_S = 2.0


class DirFailureUnreportedError(Exception):
    """A directory failed, and the controller does not know."""


class Broker:
    """Assemble as: Broker, then its replicas from `replica_ports()`, then `dispatcher(replicas)` for each listener.

    `find_controller` names the active controller by the quorum's knowledge; `on_fatal` is called when the cluster
    refuses this broker for good.
    """

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        loader: MetadataLoader,
        find_controller: Callable[[], ControllerAddress | None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self.config = config
        self._runtime = runtime
        self._loader = loader
        self._on_fatal = on_fatal
        self.lifecycle = BrokerLifecycle(config, UUID(int=runtime.rng.getrandbits(128), version=4))
        client_id = f"broker-{config.node_id}"
        self.channel = ControllerChannel(find_controller, runtime, client_id, config.request_timeout_ms)
        # Of its own, so that a heartbeat that is given up takes nothing else with it.
        self._lifecycle_channel = ControllerChannel(find_controller, runtime, client_id, config.request_timeout_ms)
        self.producer_ids = ProducerIdManager(self._allocate_producer_ids)
        self.sessions = FetchSessionCache(config.fetch_session_slots, runtime.rng)
        self._topic_creator = AutoTopicCreator(self.channel, config.topics, {OFFSETS_TOPIC: config.groups.topic})
        self.groups: GroupCoordinator | None = None
        self._replicas: Replicas | None = None
        self._lingering = RecentlyFencedBrokers()
        self._suspects = SuspectedBrokers()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] | None = None
        self._registered: asyncio.Future[None] | None = None
        self._is_serving = False
        self._dir_timers: list[asyncio.TimerHandle] = []
        self._assignments = AssignmentSender(self.channel, config.node_id, lambda: self.broker_epoch)
        loader.subscribe(self._on_metadata)
        loader.subscribe_leader(self._on_leader_change)

    @property
    def broker_epoch(self) -> int:
        """The epoch of the present registration, -1 before there is one."""
        return self.lifecycle.broker_epoch

    @property
    def state(self) -> BrokerState:
        return self.lifecycle.state

    def replica_ports(self) -> ReplicaPorts:
        """What the replica manager needs of its broker."""
        return ReplicaPorts(
            self.alter_partition,
            self.connect,
            lambda: self.lifecycle.broker_epoch,
            assign_to_dirs=self._assignments.send,
        )

    def dispatcher(self, replicas: Replicas) -> Dispatcher[BrokerServices]:
        """What a listener's server runs its requests with."""
        registry = broker_registry()
        self._replicas = replicas
        groups = GroupCoordinator(self.config.node_id, self.config.groups, self._runtime, self._loader, replicas)
        self._loader.subscribe(groups.on_metadata)  # after the replicas, whose roles it asks
        self.groups = groups
        services = BrokerServices(
            config=self.config,
            runtime=self._runtime,
            metadata=self._loader,
            replicas=replicas,
            sessions=self.sessions,
            forwarder=self.channel,
            producer_ids=self.producer_ids,
            topic_creator=self._topic_creator,
            active_controller=lambda: self._loader.leader.leader_id,
            lingering_brokers=lambda: self._lingering.ids(asyncio.get_running_loop().time()),
            suspects=self._suspects,
            version_rows=registry.version_rows,
            groups=groups,
        )
        return Dispatcher(registry, services, self._on_fatal)

    async def start(self) -> None:
        """Begin to register and to send heartbeats; `ready` tells when that has led somewhere.

        The broker asks to stay fenced until `begin_serving`. Its replicas may take up their roles when `registered`
        returns, not before: the metadata of a former incarnation may name this broker leader, with a log whose end it
        has lost.
        """
        loop = asyncio.get_running_loop()
        self._registered = loop.create_future()
        self._ready = loop.create_future()
        self._gone = loop.create_future()
        self._task = loop.create_task(self._run())

    async def ready(self) -> None:
        """Return when the broker is unfenced and knows it from its own metadata."""
        if self._ready is not None:
            await asyncio.shield(self._ready)

    async def registered(self) -> None:
        """Return when this broker's own metadata shows its present registration."""
        if self._registered is not None:
            await asyncio.shield(self._registered)

    def begin_serving(self) -> None:
        """Replicas and listeners are up: ask to be unfenced."""
        if self.groups is not None:
            self.groups.start()
        self._is_serving = True
        self._wake.set()

    def on_dir_failed(self, path: str, directory_id: UUID) -> None:
        """A directory is used no more: tell the controller, and give up where that cannot be done in time."""
        self.lifecycle.on_dir_failed(directory_id)
        self._wake.set()
        limit_ms = self.config.log_dir_failure_timeout_ms
        loop = asyncio.get_running_loop()
        self._dir_timers.append(loop.call_later(limit_ms / 1000, self._check_failure_known, path, directory_id))

    def ask_to_be_fenced(self, wanted: bool) -> None:
        """Have others lead what this broker does, until it is asked to be fenced no more."""
        if self.lifecycle.wants_fence != wanted:
            self.lifecycle.wants_fence = wanted
            self._wake.set()

    def _check_failure_known(self, path: str, directory_id: UUID) -> None:
        if self.lifecycle.over or self.lifecycle.knows_failed(directory_id):
            return
        reason = (
            f"log directory {path} has failed, and no controller could be told within log.dir.failure.timeout.ms: "
            "others cannot take over what it led while this node runs"
        )
        logger.critical("%s", reason)
        self._on_fatal(DirFailureUnreportedError(reason))

    async def controlled_shutdown(self) -> bool:
        """Have the controller move leaders away; whether it let the broker go within the time-out."""
        if self._task is None or self._gone is None or self._task.done():
            return False
        self.lifecycle.begin_shutdown()
        self._wake.set()
        timeout_s = self.config.controlled_shutdown_timeout_ms / 1000
        await asyncio.wait([self._gone], timeout=timeout_s)
        return self._gone.done()

    async def stop(self) -> None:
        """End heartbeats and everything on its way to the controller."""
        if self.groups is not None:
            self.groups.stop()
        self._topic_creator.close()
        self.producer_ids.close()
        self.channel.close()
        self._lifecycle_channel.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for timer in self._dir_timers:
            timer.cancel()
        for future in (self._ready, self._registered):
            if future is not None:
                future.cancel()

    async def alter_partition(self, items: Sequence[AlterPartitionItem]) -> Sequence[AlterPartitionResult]:
        """Ask the controller for new ISRs. Raises ProtocolError when it refuses all of them or does not answer."""
        fields = alter_partition_fields(self.config.node_id, self.broker_epoch, items)
        response = await self.channel.request(ApiKey.ALTER_PARTITION, ALTER_PARTITION_VERSION, fields)
        if response.error_code:
            raise ProtocolError(ErrorCode(response.error_code), "AlterPartition refused")
        return alter_partition_results(response, items)

    async def connect(self, broker_id: int) -> Connection:
        """A new connection to another broker's inter-broker listener. Raises OSError."""
        endpoint = endpoint_of(self._loader.image.brokers.get(broker_id), self.config.inter_broker_listener)
        if endpoint is None:
            raise ConnectionError(f"broker {broker_id} is not registered on {self.config.inter_broker_listener}")
        client_id = f"broker-{self.config.node_id}-fetcher"
        connection = await connect(
            endpoint.host, endpoint.port, client_id=client_id, timeout_s=REPLICA_CONNECT_TIMEOUT_S
        )
        self._suspects.on_connected(broker_id)
        connection.closed.add_done_callback(lambda closed: self._on_connection_closed(broker_id, closed.result()))
        return connection

    def _on_connection_closed(self, broker_id: int, reason: Exception | None) -> None:
        if reason is not None:
            now = asyncio.get_running_loop().time()
            self._suspects.on_connection_lost(broker_id, self._loader.image, now)

    async def _allocate_producer_ids(self) -> ProducerIdBlock:
        fields = {"broker_id": self.config.node_id, "broker_epoch": self.broker_epoch}
        response = await self.channel.request(
            ApiKey.ALLOCATE_PRODUCER_IDS, ALLOCATE_PRODUCER_IDS_VERSION, fields, timeout_ms=5_000
        )
        if response.error_code:
            raise ProtocolError(ErrorCode(response.error_code), "AllocateProducerIds refused")
        return ProducerIdBlock(response.producer_id_start, response.producer_id_len)

    async def _run(self) -> None:
        while not self.lifecycle.over:
            self._wake.clear()
            request = self.lifecycle.next_request(self._applied_offset() if self._is_serving else -1)
            response = await self._send(request)
            if response is not None and not self._take(request, response):
                return
            delay_ms = self.lifecycle.delay_ms if response is not None else 0
            if delay_ms and not self.lifecycle.over:
                await self._sleep(delay_ms / 1000)
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def _applied_offset(self) -> int:
        """What the metadata asks of this broker up to here, it does."""
        offset = self._loader.image.offset
        return offset if self._replicas is None else min(offset, self._replicas.applied_offset)

    async def _send(self, request: LifecycleRequest) -> Struct | None:
        timeout = LIFECYCLE_TRY_TIMEOUT_MS
        try:
            return await self._lifecycle_channel.request(
                request.api_key, request.version, request.fields, timeout_ms=timeout, try_timeout_ms=timeout
            )
        except ProtocolError:
            await self._sleep(0.02)
            return None

    async def _sleep(self, delay_s: float) -> None:
        try:
            async with asyncio.timeout(delay_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _take(self, request: LifecycleRequest, response: Struct) -> bool:
        before = self.lifecycle.state
        try:
            self.lifecycle.on_response(request, response)
        except RegistrationRefused as error:
            logger.critical("%s", error)
            if self._ready is not None and not self._ready.done():
                self._ready.set_exception(error)
            self._on_fatal(error)
            return False
        if self.lifecycle.state is not before:
            logger.info(
                "broker %d, epoch %d: Transitioning from %s to %s",  # Kafka's words: tools wait for this line
                self.config.node_id,
                self.lifecycle.broker_epoch,
                before.name,
                self.lifecycle.state.name,
            )
        elif response.error_code and before is not BrokerState.STARTING:
            logger.warning("heartbeat refused: %s", ErrorCode(response.error_code).name)
        self._check_registered()
        self._check_ready()
        return True

    def _on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        if delta.changed_brokers:
            settled = self.lifecycle.state is BrokerState.RUNNING
            self._suspects.on_metadata(image, delta)
            self._lingering.on_metadata(image, delta, asyncio.get_running_loop().time(), settled=settled)
        if self.config.node_id in delta.changed_brokers:
            self._check_ready()
        if self.lifecycle.state is BrokerState.RECOVERY and image.offset >= self.lifecycle.broker_epoch:
            self._wake.set()
        self._check_registered()

    def _on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.channel.on_leader_change()
        self._lifecycle_channel.on_leader_change()
        self._wake.set()  # a new controller should hear from us before it believes us dead

    def _check_registered(self) -> None:
        registered = self._registered
        if registered is None or registered.done():
            return
        own = self._loader.image.brokers.get(self.config.node_id)
        if own is not None and own.epoch == self.lifecycle.broker_epoch:
            registered.set_result(None)

    def _check_ready(self) -> None:
        ready = self._ready
        if ready is None or ready.done() or self.lifecycle.state is not BrokerState.RUNNING:
            return
        registration = self._loader.image.brokers.get(self.config.node_id)
        if registration is not None and not registration.fenced and registration.epoch == self.lifecycle.broker_epoch:
            ready.set_result(None)
