"""A broker's settings, named after the keys of server.properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from ..security.delegation_token import TokenKey
from ..wire.client import DEFAULT_MAX_FRAME_BYTES, Login
from .groups.group_config import GroupConfig
from .quotas.sampled_rate import QuotaWindow
from .transactions.partition_verifier import VerifierConfig
from .transactions.transaction_config import TransactionConfig


@dataclass(frozen=True, slots=True)
class AdvertisedListener:
    """An advertised endpoint. `security_protocol`: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """auto.create.topics.enable, num.partitions, default.replication.factor, and the node's topic-level defaults."""

    auto_create: bool = True
    partitions: int = 1
    replication_factor: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """One broker. Times in milliseconds."""

    node_id: int
    cluster_id: str
    listeners: tuple[AdvertisedListener, ...]
    inter_broker_listener: str
    rack: str | None = None
    topics: TopicDefaults = field(default_factory=TopicDefaults)
    values: Mapping[str, str] = field(default_factory=dict)
    """The values of server.properties, for DescribeConfigs."""
    supported_features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    log_dir_ids: tuple[UUID, ...] = ()
    log_dirs: tuple[str, ...] = ()
    previous_broker_epoch: int = -1
    """The epoch in which this broker last stopped cleanly; -1 when it did not stop cleanly (KIP-966)."""
    groups: GroupConfig = field(default_factory=GroupConfig)
    transactions: TransactionConfig = field(default_factory=TransactionConfig)
    verifier: VerifierConfig = field(default_factory=VerifierConfig)
    heartbeat_interval_ms: int = 2_000
    registration_heartbeat_interval_ms: int = 50
    request_timeout_ms: int = 30_000
    controlled_shutdown_timeout_ms: int = 30_000
    log_dir_failure_timeout_ms: int = 30_000
    fetch_max_bytes: int = 55 * 1024 * 1024
    fetched_frame_bytes_max: int = DEFAULT_MAX_FRAME_BYTES
    """The largest response of another broker that this one takes when it fetches as a follower."""
    sendfile_min_bytes: int = 128 * 1024
    """Responses with at least this many bytes of records use sendfile on plaintext sockets; -1: never."""
    max_describe_partitions: int = 2_000
    quota_window: QuotaWindow = field(default_factory=QuotaWindow)
    token_key: TokenKey | None = None
    """What the secrets of delegation tokens are made of; None without delegation tokens."""
    certificates_complaint: Callable[[Mapping[str, str]], str | None] | None = None
    """Why the listeners could not use the certificates of these dynamic settings, or None."""
    login_to_brokers: Login | None = None
    login_to_controllers: Login | None = None
