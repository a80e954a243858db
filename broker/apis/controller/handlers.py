"""Handlers of the requests that the controller of this node decides, one for each API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ....controller.quorum_controller import QuorumController
from ....runtime.incremental_work import PLAIN_STEP, Work
from ....wire.codec import Struct
from ...api import DecodedHandler, Fields, Result
from ...network.request import Request
from ...services import ControllerServices

Decision = Callable[[QuorumController, Any], Awaitable[Fields]]


def _decided(decision: Decision) -> DecodedHandler[ControllerServices]:
    """A handler that asks the controller of this node, active or not."""
    return lambda services, request, message: decision(services.controller, message)


def _decided_for_all(decision: Decision) -> DecodedHandler[ControllerServices]:
    """As `_decided`, for short requests that may have very long answers: these are encoded in steps, too."""

    async def handle(services: ControllerServices, request: Request, message: Struct) -> Work[Result]:
        return _in_steps(await decision(services.controller, message))

    return handle


def _in_steps(fields: Fields) -> Work[Result]:
    yield PLAIN_STEP
    return fields


def _from_broker(decision: Decision) -> DecodedHandler[ControllerServices]:
    """As `_decided`, for requests that make a connection a broker's: see `broker_connections`."""

    def handle(services: ControllerServices, request: Request, message: Struct) -> Awaitable[Fields]:
        services.broker_connections.on_request(request.sink, message.broker_id)
        return decision(services.controller, message)

    return handle


create_topics = _decided(lambda controller, message: controller.create_topics(message))
delete_topics = _decided(lambda controller, message: controller.delete_topics(message))
create_partitions = _decided(lambda controller, message: controller.create_partitions(message))
elect_leaders = _decided_for_all(lambda controller, message: controller.elect_leaders(message))
alter_reassignments = _decided(lambda controller, message: controller.alter_partition_reassignments(message))
list_reassignments = _decided_for_all(lambda controller, message: controller.list_partition_reassignments(message))
update_features = _decided(lambda controller, message: controller.update_features(message))
alter_configs = _decided(lambda controller, message: controller.alter_configs(message))
incremental_alter_configs = _decided(lambda controller, message: controller.incremental_alter_configs(message))
unregister_broker = _decided(lambda controller, message: controller.unregister_broker(message))
register_broker = _from_broker(lambda controller, message: controller.register_broker(message))
broker_heartbeat = _from_broker(lambda controller, message: controller.broker_heartbeat(message))
register_controller = _decided(lambda controller, message: controller.register_controller(message))
alter_partition = _decided(lambda controller, message: controller.alter_partition(message))
assign_replicas = _decided(lambda controller, message: controller.assign_replicas_to_dirs(message))
allocate_producer_ids = _decided(lambda controller, message: controller.allocate_producer_ids(message))
alter_scram_credentials = _decided(lambda controller, message: controller.alter_scram_credentials(message))
alter_client_quotas = _decided(lambda controller, message: controller.alter_client_quotas(message))
