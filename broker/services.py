"""What the handlers of a broker listener and of a controller listener may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..controller.metadata.metadata_loader import MetadataLoader
from ..controller.quorum_controller import QuorumController
from ..isr.replica_manager import ReplicaManager
from ..raft.driver.raft_driver import RaftDriver
from ..runtime.ports import Runtime
from .apis.controller.broker_connections import BrokerConnections
from .apis.metadata.recently_fenced_brokers import RecentlyFencedBrokers
from .apis.metadata.suspected_brokers import SuspectedBrokers
from .authorization import Authorization
from .config import BrokerConfig
from .groups.group_coordinator import GroupCoordinator
from .network.dispatch import Dispatcher
from .quotas.client_quotas import ClientQuotas
from .quotas.controller_mutations import ControllerMutationQuotas
from .to_controller.auto_topic_creation_manager import AutoTopicCreationManager
from .to_controller.controller_channel import ControllerChannel
from .to_controller.producer_id_manager import ProducerIdManager
from .transactions.partition_verifier import PartitionVerifier
from .transactions.transaction_coordinator import TransactionCoordinator
from .transactions.transactional_appends import TransactionalAppends


@dataclass(frozen=True, slots=True)
class BrokerServices:
    """The context of every handler on a broker listener."""

    config: BrokerConfig
    runtime: Runtime
    metadata: MetadataLoader
    """The committed metadata as this node has applied it."""
    replicas: ReplicaManager
    controller_channel: ControllerChannel
    producer_ids: ProducerIdManager
    topic_creator: AutoTopicCreationManager
    recently_fenced_brokers: RecentlyFencedBrokers
    suspected_brokers: SuspectedBrokers
    version_rows: Callable[[], list[dict[str, int]]]
    """The rows of this listener's ApiVersions response."""
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    verifier: PartitionVerifier
    transactional_appends: TransactionalAppends
    quotas: ClientQuotas
    authorization: Authorization = field(default_factory=Authorization)


@dataclass(slots=True)
class ControllerServices:
    """The context of every handler on a controller listener."""

    cluster_id: str
    quorum: RaftDriver
    controller: QuorumController
    """The controller of this node, active or not."""
    metadata: MetadataLoader
    endpoints: Callable[[], Mapping[int, tuple[str, int]]]
    """Where each controller of the quorum listens now, by node id."""
    supported_features: Mapping[str, tuple[int, int]]
    config: BrokerConfig
    """The node's settings, for DescribeConfigs."""
    authorization: Authorization = field(default_factory=Authorization)
    dispatcher: Dispatcher[ControllerServices] | None = None
    """The listener's own dispatcher, for requests in envelopes; set when it is made."""
    broker_connections: BrokerConnections = field(init=False)

    mutation_quotas: ControllerMutationQuotas = field(init=False)

    def __post_init__(self) -> None:
        self.mutation_quotas = ControllerMutationQuotas(self.metadata.image, self.config.quota_window)
        self.broker_connections = BrokerConnections(self.controller.on_broker_disconnected)

    def version_rows(self) -> list[dict[str, int]]:
        """The rows of this listener's ApiVersions response."""
        return [] if self.dispatcher is None else self.dispatcher.registry.version_rows()
