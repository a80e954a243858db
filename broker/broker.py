"""The broker of a node: its registration with the controller, its group coordinator, and what its listeners serve.

A broker and its replicas need each other. So the node makes the broker first, then the replica manager with
`replica_ports()`, and then calls `attach_replicas` once; all listeners share the dispatcher that it returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

from ..controller.metadata.metadata_image import MetadataDelta, MetadataImage
from ..controller.metadata.metadata_loader import MetadataLoader
from ..isr.ports import ReplicaPorts
from ..isr.replica_manager import ReplicaManager
from ..raft.types import LeaderAndEpoch
from ..runtime.invariants import invariant
from ..runtime.ports import Runtime
from ..wire.client import Connection, connect
from .apis.api_table import broker_registry
from .apis.metadata.recently_fenced_brokers import RecentlyFencedBrokers
from .apis.metadata.suspected_brokers import SuspectedBrokers
from .authorization import Authorization
from .config import BrokerConfig
from .groups.group_config import OFFSETS_TOPIC
from .groups.group_coordinator import GroupCoordinator
from .network.dispatch import Dispatcher
from .quotas.client_quotas import ClientQuotas
from .services import BrokerServices
from .to_brokers.broker_channels import BrokerChannels
from .to_controller.alter_partition_sender import AlterPartitionSender
from .to_controller.assignment_sender import AssignmentSender
from .to_controller.auto_topic_creation_manager import AutoTopicCreationManager
from .to_controller.broker_lifecycle import BrokerState
from .to_controller.broker_lifecycle_manager import BrokerLifecycleManager
from .to_controller.controller_channel import ControllerAddress, ControllerChannel
from .to_controller.producer_id_manager import ProducerIdBlockSource, ProducerIdManager
from .topic_view import endpoint_of
from .transactions.partition_verifier import PartitionVerifier
from .transactions.transaction_config import TRANSACTION_TOPIC
from .transactions.transaction_coordinator import TransactionCoordinator
from .transactions.transactional_appends import TransactionalAppends

REPLICA_CONNECT_TIMEOUT_S = 2.0


class Broker:
    """Owns the broker's parts, and starts and stops them.

    `find_controller` gives the active controller as the quorum knows it; `on_fatal` is called when the cluster refuses
    this broker for good.
    """

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        loader: MetadataLoader,
        find_controller: Callable[[], ControllerAddress | None],
        on_fatal: Callable[[BaseException], None],
        authorization: Authorization | None = None,
    ) -> None:
        self.config = config
        self._authorization = authorization or Authorization()
        self._runtime = runtime
        self._loader = loader
        self._on_fatal = on_fatal

        def channel() -> ControllerChannel:
            return ControllerChannel(
                find_controller,
                runtime,
                f"broker-{config.node_id}",
                config.request_timeout_ms,
                config.login_to_controllers,
            )

        incarnation_id = UUID(int=runtime.rng.getrandbits(128), version=4)
        self.lifecycle_manager = BrokerLifecycleManager(
            config, incarnation_id, loader, channel(), self._applied_offset, on_fatal
        )
        self.controller_channel = channel()
        to_controller = self.controller_channel, config.node_id, lambda: self.broker_epoch
        self.producer_ids = ProducerIdManager(ProducerIdBlockSource(*to_controller).allocate)
        self._isr_proposals = AlterPartitionSender(*to_controller)
        self._assignments = AssignmentSender(*to_controller)
        self._topic_creator = AutoTopicCreationManager(
            self.controller_channel,
            config.topics,
            {OFFSETS_TOPIC: config.groups.topic, TRANSACTION_TOPIC: config.transactions.topic},
        )
        self._broker_channels = BrokerChannels(self.connect, runtime.rng)
        self._marker_channels = BrokerChannels(self.connect, runtime.rng)
        self.groups: GroupCoordinator | None = None
        self._verifier: PartitionVerifier | None = None
        self.transactions: TransactionCoordinator | None = None
        self._replicas: ReplicaManager | None = None
        self._recently_fenced_brokers = RecentlyFencedBrokers()
        self._suspected_brokers = SuspectedBrokers()
        self.quotas = ClientQuotas(loader.image, config.quota_window, runtime.stopwatch)
        loader.subscribe(self._on_metadata)
        loader.subscribe(self.quotas.on_metadata)
        loader.subscribe(self._broker_channels.on_metadata)
        loader.subscribe(self._marker_channels.on_metadata)
        loader.subscribe_leader(self._on_leader_change)

    @property
    def broker_epoch(self) -> int:
        """The epoch of the present registration, -1 before the first."""
        return self.lifecycle_manager.broker_epoch

    @property
    def state(self) -> BrokerState:
        """Where the broker is between its start and its end."""
        return self.lifecycle_manager.state

    def replica_ports(self) -> ReplicaPorts:
        """What the replica manager needs of its broker."""
        return ReplicaPorts(
            self._isr_proposals.send,
            self.connect,
            lambda: self.broker_epoch,
            assign_to_dirs=self._assignments.send,
        )

    def attach_replicas(self, replicas: ReplicaManager) -> Dispatcher[BrokerServices]:
        """Make the group coordinator and the dispatcher, which all listeners share. Call it once.

        The replicas must be subscribed to the metadata before: the coordinator asks them for their roles.
        """
        invariant(self._replicas is None, "a broker has one replica manager and one group coordinator")
        self._replicas = replicas
        self.groups = GroupCoordinator(self.config.node_id, self.config.groups, self._runtime, self._loader, replicas)
        self._loader.subscribe(self.groups.on_metadata)
        self.transactions = TransactionCoordinator(
            self.config.node_id,
            self.config.transactions,
            self._runtime,
            self._loader,
            replicas,
            self.producer_ids.next_id,
            self._marker_channels,
        )
        self._loader.subscribe(self.transactions.on_metadata)
        verifier = self._verifier = PartitionVerifier(
            self.config.verifier,
            replicas,
            self._broker_channels,
            self.transactions.topic.coordinator_of,
        )
        registry = broker_registry()
        services = BrokerServices(
            config=self.config,
            runtime=self._runtime,
            metadata=self._loader,
            replicas=replicas,
            controller_channel=self.controller_channel,
            producer_ids=self.producer_ids,
            topic_creator=self._topic_creator,
            recently_fenced_brokers=self._recently_fenced_brokers,
            suspected_brokers=self._suspected_brokers,
            version_rows=registry.version_rows,
            groups=self.groups,
            transactions=self.transactions,
            verifier=verifier,
            transactional_appends=TransactionalAppends(verifier, replicas, self._topic_id_of),
            authorization=self._authorization,
            quotas=self.quotas,
        )
        return Dispatcher(registry, services, self._on_fatal, request_quota=self.quotas.request)

    async def start(self) -> None:
        """Begin to register and to send heartbeats.

        The replicas may take up their roles when `lifecycle_manager.registered()` returns, not before: the metadata of
        a former incarnation may name this broker leader, with a log whose end it has lost.
        """
        self.lifecycle_manager.start()

    def begin_serving(self) -> None:
        """Replicas and listeners are up: coordinate groups and transactions, and ask to be unfenced."""
        if self.groups is not None:
            self.groups.start()
        if self.transactions is not None:
            self.transactions.start()
        self.lifecycle_manager.begin_serving()

    async def stop(self) -> None:
        """End heartbeats and every request to the controller."""
        if self.groups is not None:
            self.groups.stop()
        if self.transactions is not None:
            self.transactions.stop()
        if self._verifier is not None:
            self._verifier.close()
        self._broker_channels.close()
        self._marker_channels.close()
        self._topic_creator.close()
        self.producer_ids.close()
        self.controller_channel.close()
        await self.lifecycle_manager.stop()

    async def connect(self, broker_id: int) -> Connection:
        """A new connection to another broker's inter-broker listener. Raises OSError."""
        endpoint = endpoint_of(self._loader.image.brokers.get(broker_id), self.config.inter_broker_listener)
        if endpoint is None:
            raise ConnectionError(f"broker {broker_id} is not registered on {self.config.inter_broker_listener}")
        client_id = f"broker-{self.config.node_id}-fetcher"
        connection = await connect(
            endpoint.host,
            endpoint.port,
            client_id=client_id,
            timeout_s=REPLICA_CONNECT_TIMEOUT_S,
            max_frame_bytes=self.config.fetched_frame_bytes_max,
            login=self.config.login_to_brokers,
        )
        self._suspected_brokers.on_connected(broker_id)
        connection.closed.add_done_callback(lambda closed: self._on_connection_closed(broker_id, closed.result()))
        return connection

    def _on_connection_closed(self, broker_id: int, reason: Exception | None) -> None:
        if reason is not None:
            now = asyncio.get_running_loop().time()
            self._suspected_brokers.on_connection_lost(broker_id, self._loader.image, now)

    def _applied_offset(self) -> int:
        """The offset up to which this broker does what the metadata asks of it."""
        offset = self._loader.image.offset
        return offset if self._replicas is None else min(offset, self._replicas.applied_offset)

    def _topic_id_of(self, name: str) -> UUID | None:
        topic = self._loader.image.topics_by_name.get(name)
        return None if topic is None else topic.topic_id

    def _on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        if delta.changed_brokers:
            is_running = self.state is BrokerState.RUNNING
            now = asyncio.get_running_loop().time()
            lost = self._suspected_brokers.ids(now)
            self._recently_fenced_brokers.on_metadata(image, delta, now, lost=lost, is_running=is_running)
            self._suspected_brokers.on_metadata(image, delta)
        self.lifecycle_manager.on_metadata(image, delta)

    def _on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.controller_channel.on_leader_change()
        self.lifecycle_manager.on_leader_change(leader)
