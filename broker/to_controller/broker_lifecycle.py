"""The registration and heartbeats of a broker, from its start to its end, as a state machine without I/O (KIP-631).

    STARTING --registered--> RECOVERY --unfenced--> RUNNING --shutdown--> PENDING_SHUTDOWN --allowed--> SHUTTING_DOWN

In STARTING the broker asks to be registered. Afterwards it sends heartbeats: at a short interval until it is unfenced
and while it waits to be let go, else at the ordinary interval. Until it has applied its own registration it asks to
stay fenced. When the controller does not know the registration, the state is STARTING again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any
from uuid import UUID

from ...runtime.invariants import sometimes
from ...wire.api_keys import ApiKey
from ...wire.codec import Struct
from ...wire.errors import ErrorCode
from ..config import BrokerConfig

REGISTRATION_VERSION = 4
HEARTBEAT_VERSION = 1
REGISTRATION_RETRY_MS = 100
_LOST_REGISTRATION = frozenset(
    {ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.DUPLICATE_BROKER_REGISTRATION}
)
_FATAL = frozenset({ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_REGISTRATION, ErrorCode.UNSUPPORTED_VERSION})


_REASONS = {
    ErrorCode.INVALID_REGISTRATION: (
        ". Another broker has registered a directory of the same directory.id, as after a copy of its disk: empty the "
        "copy, and format it again"
    ),
}


class BrokerState(Enum):
    """The values are those of Kafka's metric BrokerState."""

    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class RegistrationRefused(Exception):
    """The cluster refuses this broker, and would refuse it again."""


@dataclass(frozen=True, slots=True)
class LifecycleRequest:
    """The next request to the controller."""

    api_key: ApiKey
    version: int
    fields: Mapping[str, Any]


class BrokerLifecycle:
    """Decides which request is sent next, and when."""

    def __init__(self, config: BrokerConfig, incarnation_id: UUID) -> None:
        self._config = config
        self.incarnation_id = incarnation_id
        self.state = BrokerState.STARTING
        self.broker_epoch = -1
        self.fenced = True
        self._last_error = 0
        self._wants_shutdown = False
        self.wants_fence = False
        """Whether the broker asks to be fenced, so that others lead its partitions."""
        self._failed_dirs: dict[UUID, bool] = {}
        """The directories that failed in this incarnation, and whether the controller knows."""

    def on_unclean_shutdown_found(self) -> None:
        """The previous incarnation did not stop cleanly in every directory. Call it before the registration."""
        self._config = replace(self._config, previous_broker_epoch=-1)

    def next_request(self, metadata_offset: int) -> LifecycleRequest:
        """A registration, or a heartbeat with `metadata_offset` as the offset up to which metadata is applied."""
        if self.state is BrokerState.STARTING:
            return LifecycleRequest(ApiKey.BROKER_REGISTRATION, REGISTRATION_VERSION, self._registration())
        fields = {
            "broker_id": self._config.node_id,
            "broker_epoch": self.broker_epoch,
            "current_metadata_offset": metadata_offset,
            "want_fence": self.wants_fence or metadata_offset < self.broker_epoch,
            "want_shut_down": self._wants_shutdown,
            "offline_log_dirs": list(self._failed_dirs),
        }
        return LifecycleRequest(ApiKey.BROKER_HEARTBEAT, HEARTBEAT_VERSION, fields)

    def on_response(self, request: LifecycleRequest, response: Struct) -> None:
        """Take the response to a request. Raises `RegistrationRefused`."""
        self._last_error = response.error_code
        if request.api_key == ApiKey.BROKER_REGISTRATION:
            self._on_registration(response, request.fields["log_dirs"])
        else:
            self._on_heartbeat(request, response)

    def on_dir_failed(self, directory_id: UUID) -> None:
        """Report the directory as failed from now on."""
        self._failed_dirs.setdefault(directory_id, False)

    def knows_failed(self, directory_id: UUID) -> bool:
        """Whether the controller knows that the directory failed."""
        return self._failed_dirs.get(directory_id, False)

    def begin_shutdown(self) -> None:
        """Ask for a controlled shutdown from now on: leaders move away first."""
        self._wants_shutdown = True
        if self.state in (BrokerState.RECOVERY, BrokerState.RUNNING):
            self.state = BrokerState.PENDING_SHUTDOWN
        elif self.state is BrokerState.STARTING:
            self.state = BrokerState.SHUTTING_DOWN

    @property
    def over(self) -> bool:
        """Whether no more requests are needed."""
        return self.state is BrokerState.SHUTTING_DOWN

    @property
    def delay_ms(self) -> int:
        """The pause between a response and the next request."""
        if self.state is BrokerState.STARTING:
            return REGISTRATION_RETRY_MS
        if self.state is BrokerState.RUNNING and not self._last_error and self.fenced == self.wants_fence:
            return self._config.heartbeat_interval_ms
        return self._config.registration_heartbeat_interval_ms

    def _on_registration(self, response: Struct, registered: Sequence[UUID]) -> None:
        code = response.error_code
        if code in _FATAL:
            raise RegistrationRefused(
                f"the controller refuses broker {self._config.node_id}: {ErrorCode(code).name}{_REASONS.get(code, '')}"
            )
        if code == ErrorCode.NONE:
            self.broker_epoch = response.broker_epoch
            self.fenced = True
            self.state = BrokerState.PENDING_SHUTDOWN if self._wants_shutdown else BrokerState.RECOVERY
            self._mark_failures_known(directory for directory in self._failed_dirs if directory not in registered)

    def _on_heartbeat(self, request: LifecycleRequest, response: Struct) -> None:
        if request.fields["broker_epoch"] != self.broker_epoch:
            return
        if response.error_code in _LOST_REGISTRATION:
            sometimes(True, "a broker had lost its registration, and registered again")
            self.fenced = True
            self.state = BrokerState.SHUTTING_DOWN if self._wants_shutdown else BrokerState.STARTING
            return
        if response.error_code:
            return
        self._mark_failures_known(request.fields["offline_log_dirs"])
        sometimes(
            self.state is BrokerState.RUNNING and response.is_fenced and not self.fenced,
            "a running broker learned that it had been fenced",
        )
        self.fenced = response.is_fenced
        if self.state is BrokerState.RECOVERY and not self.fenced:
            self.state = BrokerState.RUNNING
        elif self.state is BrokerState.PENDING_SHUTDOWN and response.should_shut_down:
            self.state = BrokerState.SHUTTING_DOWN

    def _mark_failures_known(self, directories: Iterable[UUID]) -> None:
        for directory in directories:
            self._failed_dirs[directory] = True

    def _registration(self) -> dict[str, Any]:
        config = self._config
        return {
            "broker_id": config.node_id,
            "cluster_id": config.cluster_id,
            "incarnation_id": self.incarnation_id,
            "listeners": [
                {"name": one.name, "host": one.host, "port": one.port, "security_protocol": one.security_protocol}
                for one in config.listeners
            ],
            "features": [
                {"name": name, "min_supported_version": low, "max_supported_version": high}
                for name, (low, high) in sorted(config.supported_features.items())
            ],
            "rack": config.rack,
            "is_migrating_zk_broker": False,
            "log_dirs": [directory for directory in config.log_dir_ids if directory not in self._failed_dirs],
            "previous_broker_epoch": config.previous_broker_epoch if self.broker_epoch < 0 else self.broker_epoch,
        }
