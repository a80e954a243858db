"""Handlers of the requests that the controller of this node decides, one for each API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from ....controller.quorum_controller import QuorumController
from ....controller.result import Response
from ....controller.security.rights import IsAllowed, allows_all
from ....controller.topics.new_partitions import CountPartitions, counts_nothing
from ....runtime.incremental_work import PLAIN_STEP, Work
from ....security.authorizer.acl_binding import AclOperation
from ....security.principals import KafkaPrincipal
from ....wire.codec import Struct
from ....wire.errors import ErrorCode, ProtocolError
from ...api import DecodedHandler, Fields, Result
from ...network.request import Request, RequestSink
from ...quotas.controller_mutations import ControllerMutationQuota
from ...services import ControllerServices
from ..security.token_requests import check_token_request
from .broker_connections import BrokerConnections

Decision = Callable[[QuorumController, Any], Awaitable[Fields]]
DecisionForBroker = Callable[[QuorumController, Any], Awaitable[Response]]
DecisionByRights = Callable[[QuorumController, Any, IsAllowed], Awaitable[Fields]]
"""A decision that asks for each resource whether who makes the request may do it."""
DecisionByQuota = Callable[[QuorumController, Any, IsAllowed, CountPartitions], Awaitable[Fields]]
"""A decision that counts the partitions that it creates or deletes, too."""

DecisionForRequester = Callable[[QuorumController, Any, KafkaPrincipal, IsAllowed], Awaitable[Fields]]
"""A decision by rights that depends on who makes the request, too."""


def _decided(needed: AclOperation, decision: Decision) -> DecodedHandler[ControllerServices]:
    """A handler that asks the controller of this node, active or not. `needed` is the right to the cluster."""

    def handle(services: ControllerServices, request: Request, message: Struct) -> Awaitable[Fields]:
        services.authorization.check_cluster(request, needed)
        return decision(services.controller, message)

    return handle


def _decided_by_rights(decision: DecisionByRights) -> DecodedHandler[ControllerServices]:
    """As `_decided`, where the rights depend on what the request names."""

    def handle(services: ControllerServices, request: Request, message: Struct) -> Awaitable[Fields]:
        authorization = services.authorization
        is_allowed = partial(authorization.is_allowed, request) if authorization.is_on else allows_all
        return decision(services.controller, message, is_allowed)

    return handle


def _counted(strict_since: int, decision: DecisionByQuota) -> DecodedHandler[ControllerServices]:
    """As `_decided_by_rights`, where the quota `controller_mutation_rate` counts, strictly from that version on."""

    def handle(services: ControllerServices, request: Request, message: Struct) -> Awaitable[Fields]:
        authorization = services.authorization
        is_allowed = partial(authorization.is_allowed, request) if authorization.is_on else allows_all
        quota = services.mutation_quotas.quota_of(request, strict_since)
        if quota is None:
            return decision(services.controller, message, is_allowed, counts_nothing)
        return _throttled(request, quota, decision(services.controller, message, is_allowed, quota.count))

    return handle


async def _throttled(request: Request, quota: ControllerMutationQuota, decided: Awaitable[Fields]) -> Fields:
    fields = await decided
    quota.throttle(request)
    return fields


def _decided_for_all(needed: AclOperation, decision: Decision) -> DecodedHandler[ControllerServices]:
    """As `_decided`, for short requests that may have very long answers: these are encoded in steps, too."""

    async def handle(services: ControllerServices, request: Request, message: Struct) -> Work[Result]:
        services.authorization.check_cluster(request, needed)
        return _in_steps(await decision(services.controller, message))

    return handle


def _in_steps(fields: Fields) -> Work[Result]:
    yield PLAIN_STEP
    return fields


def _from_broker(decision: DecisionForBroker) -> DecodedHandler[ControllerServices]:
    """As `_decided`, for requests that make a connection a broker's, when they are accepted: `broker_connections`."""

    def handle(services: ControllerServices, request: Request, message: Struct) -> Awaitable[Fields]:
        services.authorization.check_cluster(request, AclOperation.CLUSTER_ACTION)
        decided = decision(services.controller, message)
        return _accepted(services.broker_connections, request.sink, message.broker_id, decided)

    return handle


async def _accepted(
    connections: BrokerConnections, sink: RequestSink, broker_id: int, decided: Awaitable[Response]
) -> Response:
    response = await decided
    if response["error_code"] == ErrorCode.NONE:
        connections.on_accepted(sink, broker_id)
    return response


def _with_authorizer(decision: Decision) -> DecodedHandler[ControllerServices]:
    """As `_decided_for_all` with ALTER, for changes of access control lists, which need an authorizer."""
    decided = _decided_for_all(AclOperation.ALTER, decision)

    def handle(services: ControllerServices, request: Request, message: Struct) -> Result:
        if not services.authorization.is_on:
            raise ProtocolError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
        return decided(services, request, message)

    return handle


def _about_tokens(decision: DecisionForRequester) -> DecodedHandler[ControllerServices]:
    """As `_decided_by_rights`, for requests about delegation tokens."""

    def handle(services: ControllerServices, request: Request, message: Struct) -> Awaitable[Fields]:
        check_token_request(request)
        authorization = services.authorization
        is_allowed = partial(authorization.is_allowed, request) if authorization.is_on else allows_all
        return decision(services.controller, message, request.sink.principal, is_allowed)

    return handle


_ALTER, _DESCRIBE, _CLUSTER_ACTION = AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION

create_topics = _counted(6, lambda controller, message, rights, count: controller.create_topics(message, rights, count))
delete_topics = _counted(5, lambda controller, message, rights, count: controller.delete_topics(message, rights, count))
create_partitions = _counted(
    3, lambda controller, message, rights, count: controller.create_partitions(message, rights, count)
)
alter_configs = _decided_by_rights(lambda controller, message, rights: controller.alter_configs(message, rights))
incremental_alter_configs = _decided_by_rights(
    lambda controller, message, rights: controller.incremental_alter_configs(message, rights)
)
elect_leaders = _decided_for_all(_ALTER, lambda controller, message: controller.elect_leaders(message))
alter_reassignments = _decided(_ALTER, lambda controller, message: controller.alter_partition_reassignments(message))
list_reassignments = _decided_for_all(
    _DESCRIBE, lambda controller, message: controller.list_partition_reassignments(message)
)
update_features = _decided(_ALTER, lambda controller, message: controller.update_features(message))
unregister_broker = _decided(_ALTER, lambda controller, message: controller.unregister_broker(message))
alter_scram_credentials = _decided(_ALTER, lambda controller, message: controller.alter_scram_credentials(message))
create_token = _about_tokens(lambda controller, message, who, rights: controller.create_token(message, who, rights))
renew_token = _about_tokens(lambda controller, message, who, rights: controller.renew_token(message, who, rights))
expire_token = _about_tokens(lambda controller, message, who, rights: controller.expire_token(message, who, rights))
create_acls = _with_authorizer(lambda controller, message: controller.create_acls(message))
delete_acls = _with_authorizer(lambda controller, message: controller.delete_acls(message))
register_broker = _from_broker(lambda controller, message: controller.register_broker(message))
broker_heartbeat = _from_broker(lambda controller, message: controller.broker_heartbeat(message))
register_controller = _decided(_CLUSTER_ACTION, lambda controller, message: controller.register_controller(message))
alter_partition = _decided(_CLUSTER_ACTION, lambda controller, message: controller.alter_partition(message))
assign_replicas = _decided(_CLUSTER_ACTION, lambda controller, message: controller.assign_replicas_to_dirs(message))
allocate_producer_ids = _decided(_CLUSTER_ACTION, lambda controller, message: controller.allocate_producer_ids(message))
alter_client_quotas = _decided(
    AclOperation.ALTER_CONFIGS, lambda controller, message: controller.alter_client_quotas(message)
)
