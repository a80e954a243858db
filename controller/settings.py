"""The settings of the controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..log.topic_configs import MIN_ISR_KEY
from .configs.effective_configs import resolve
from .configs.group_configs import GroupLimits
from .metadata.features import SUPPORTED_FEATURES
from .metadata.metadata_image import MetadataImage
from .metadata.metadata_records import UserScramCredentialRecord
from .policies import Policies
from .security.delegation_tokens import TokenSettings

UNCLEAN_ELECTION_KEY = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The settings of the controller, named as in server.properties; times in milliseconds."""

    node_id: int
    broker_session_timeout_ms: int = 9_000
    num_partitions: int = 1
    default_replication_factor: int = 1
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    """The values of server.properties for topics, by the topics' names (see `log/topic_configs.py`)."""
    delete_topic_enable: bool = True
    auto_leader_rebalance_enable: bool = True
    inter_broker_listener_name: str = "PLAINTEXT"
    """The listener at which brokers are probed; a broker without it is probed at its first listener."""
    leader_imbalance_check_interval_ms: int = 5_000
    """How long after a change preferred leaders lead again (`leader.imbalance.check.interval.seconds`)."""
    group_limits: GroupLimits = field(default_factory=GroupLimits)
    policies: Policies = field(default_factory=Policies)
    tokens: TokenSettings = field(default_factory=TokenSettings)
    supported_features: Mapping[str, tuple[int, int]] = field(default_factory=lambda: SUPPORTED_FEATURES)
    """Lowest and highest level of each feature that this node's software knows."""
    bootstrap_features: Mapping[str, int] = field(default_factory=dict)
    """The levels of features that formatting chose for a new cluster."""
    bootstrap_users: Sequence[UserScramCredentialRecord] = ()
    """The SCRAM users that formatting gave to a new cluster (KIP-900)."""

    def min_insync_replicas(self, image: MetadataImage, topic: str) -> int:
        """The value of `min.insync.replicas` that holds for the topic."""
        return int(resolve(image, topic, MIN_ISR_KEY, self.topic_defaults)[0])

    @property
    def static_min_isr(self) -> int:
        """`min.insync.replicas` where the metadata say nothing: of this node's server.properties, or the default."""
        return self.min_insync_replicas(MetadataImage(), "")

    def unclean_election_enabled(self, image: MetadataImage, topic: str) -> bool:
        """The value of `unclean.leader.election.enable` that holds for the topic."""
        value = resolve(image, topic, UNCLEAN_ELECTION_KEY, self.topic_defaults)[0]
        return value.strip().lower() == "true"
