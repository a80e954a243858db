"""An operator's say in new topics (KIP-108) and in changed configurations (KIP-133).

A policy is a class of the operator's, named by `create.topic.policy.class.name` or `alter.config.policy.class.name` of
the controllers. The controller asks it after its own checks, also for requests that only validate, and before it
decides anything. `PolicyViolation` refuses the one topic or resource, with its text for the client; any other exception
is a bug of the policy's, refuses too, and is logged. It is called on the controller's loop: while it thinks, nothing
else happens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ..wire.errors import ErrorCode, ProtocolError
from .metadata.metadata_image import BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE

_Request = TypeVar("_Request")

_logger = logging.getLogger(__name__)

_RESOURCES = {
    TOPIC_RESOURCE: "topic",
    BROKER_RESOURCE: "broker",
    CLIENT_METRICS_RESOURCE: "client-metrics",
    GROUP_RESOURCE: "group",
}


class PolicyViolation(Exception):
    """A policy says no; the client is told POLICY_VIOLATION (44) with this text."""


@dataclass(frozen=True, slots=True)
class NewTopicRequest:
    """The topic that somebody wants. `assignments` are the replicas by partition where the client chose them itself;
    else `partitions` and `replication_factor` are numbers, defaults filled in. `configs` are what the client set."""

    topic: str
    partitions: int | None
    replication_factor: int | None
    assignments: Mapping[int, tuple[int, ...]] | None
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AlterConfigRequest:
    """The change that somebody wants. `resource_type` is `topic`, `broker`, `group` or `client-metrics`; the name of
    all brokers together is empty. `configs` has what changes, None for what goes back to its default."""

    resource_type: str
    resource_name: str
    configs: Mapping[str, str | None]


class CreateTopicPolicy(Protocol):
    """Made without arguments; `configure(settings)`, if there is one, gets the node's settings as texts."""

    def validate(self, request: NewTopicRequest) -> None:
        """Raise `PolicyViolation` with the reason, or let it be."""
        ...


class AlterConfigPolicy(Protocol):
    """Made and configured like a `CreateTopicPolicy`."""

    def validate(self, request: AlterConfigRequest) -> None:
        """Raise `PolicyViolation` with the reason, or let it be."""
        ...


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of a controller, if it has any."""

    create_topic: CreateTopicPolicy | None = None
    alter_config: AlterConfigPolicy | None = None

    def check_new_topic(self, request: NewTopicRequest) -> None:
        """Raise `ProtocolError`: POLICY_VIOLATION, or UNKNOWN_SERVER_ERROR when the policy itself fails."""
        if self.create_topic is not None:
            _ask(self.create_topic.validate, request, "create.topic.policy.class.name")

    def check_config(self, resource_type: int, name: str, configs: Mapping[str, str | None]) -> None:
        """Raise `ProtocolError`, as `check_new_topic` does."""
        if self.alter_config is not None:
            request = AlterConfigRequest(_RESOURCES[resource_type], name, dict(configs))
            _ask(self.alter_config.validate, request, "alter.config.policy.class.name")


def _ask(validate: Callable[[_Request], None], request: _Request, setting: str) -> None:
    try:
        validate(request)
    except PolicyViolation as refusal:
        raise ProtocolError(ErrorCode.POLICY_VIOLATION, str(refusal)) from None
    except (Exception, SystemExit) as error:
        _logger.exception("the policy of %s failed", setting)
        message = f"The policy of {setting} failed: {type(error).__name__}. The controller's log says where."
        raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, message) from error
