"""Policies of the operator for new topics (KIP-108) and for changed configurations (KIP-133).

A policy is a class of the operator, named by `create.topic.policy.class.name` or `alter.config.policy.class.name` of
the controllers. The controller calls it after its own checks and before it decides, also for requests that only
validate. `PolicyViolation` refuses one topic or resource, and its text goes to the client. Every other exception is a
bug of the policy; it refuses too, and is logged. A policy runs on the controller's loop and holds it meanwhile.
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
    """A policy refuses; the client gets POLICY_VIOLATION (44) with this text."""


@dataclass(frozen=True, slots=True)
class NewTopicRequest:
    """A topic that a client wants to create, with the configurations that the client named.

    Either the client chose the replicas (`assignments`, by partition), or `partitions` and `replication_factor` are
    numbers, with the defaults filled in.
    """

    topic: str
    partitions: int | None
    replication_factor: int | None
    assignments: Mapping[int, tuple[int, ...]] | None
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AlterConfigRequest:
    """A change of configurations that a client wants.

    `resource_type` is `topic`, `broker`, `group` or `client-metrics`; an empty name means all brokers. `configs` has
    the values that change; None removes a value.
    """

    resource_type: str
    resource_name: str
    configs: Mapping[str, str | None]


class CreateTopicPolicy(Protocol):
    """A class without constructor arguments. `configure(settings)`, if it has that, gets server.properties as texts."""

    def validate(self, request: NewTopicRequest) -> None:
        """Raise `PolicyViolation` with the reason to refuse."""
        ...


class AlterConfigPolicy(Protocol):
    """As `CreateTopicPolicy`, for changes of configurations."""

    def validate(self, request: AlterConfigRequest) -> None:
        """Raise `PolicyViolation` with the reason to refuse."""
        ...


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of a controller; None where it has none."""

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
