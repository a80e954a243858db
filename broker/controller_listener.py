"""What a controller listener serves: the quorum's own requests, brokers' life, and what brokers forward (KIP-590).

A connection on which a broker registers or sends heartbeats belongs to that broker: the controller is told when the
first comes and the last goes, which is how it notices that a process died.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..controller.metadata.metadata_loader import MetadataLoader
from ..runtime.files.file_slice import Sendable, in_memory
from ..wire.api_keys import ApiKey
from ..wire.codec import Struct, decode_response
from ..wire.errors import ErrorCode, WireFormatError
from ..wire.fetch import FetchRequest, FetchResponse, decode_fetch_request, encode_fetch_response
from ..wire.frames import parse_request_header, parse_response_header
from .api import Api, ApiRegistry, DecodedHandler, Fields, top_level_error
from .apis.admin import alter_configs, describe_configs, forwarded
from .apis.metadata.api_versions import api_versions_fields
from .apis.metadata.describe_cluster import CONTROLLERS, endpoint_type_error
from .config import BrokerConfig
from .network.dispatch import Dispatcher
from .network.request import Request, RequestSink
from .to_controller.controller_channel import has_error_code, may_hold_code
from .topic_view import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED


class QuorumPort(Protocol):
    """The node's part in the quorum (`raft.driver.raft_driver.RaftDriver`)."""

    def handle_request(self, api_key: int, version: int, request: Any) -> Awaitable[dict[str, Any]]: ...

    def handle_fetch(self, version: int, request: FetchRequest) -> Awaitable[FetchResponse]: ...


class ControllerPort(Protocol):
    """The controller of this node (`controller.quorum_controller.QuorumController`), active or not."""

    @property
    def active(self) -> bool: ...

    def on_broker_disconnected(self, broker_id: int) -> None: ...

    def register_broker(self, request: Any) -> asyncio.Future[dict[str, Any]]: ...

    def broker_heartbeat(self, request: Any) -> asyncio.Future[dict[str, Any]]: ...

    def unregister_broker(self, request: Any) -> asyncio.Future[dict[str, Any]]: ...

    def register_controller(self, request: Any) -> asyncio.Future[dict[str, Any]]: ...

    def alter_partition(self, request: Any) -> asyncio.Future[dict[str, Any]]: ...

    def assign_replicas_to_dirs(self, request: Any) -> asyncio.Future[dict[str, Any]]: ...

    def allocate_producer_ids(self, request: Any) -> asyncio.Future[dict[str, Any]]: ...

    def create_topics(self, request: Any) -> asyncio.Future[dict[str, Any]]: ...

    def delete_topics(self, request: Any) -> asyncio.Future[dict[str, Any]]: ...

    def create_partitions(self, request: Any) -> asyncio.Future[dict[str, Any]]: ...

    def elect_leaders(self, request: Any) -> asyncio.Future[dict[str, Any]]: ...

    def incremental_alter_configs(self, request: Any) -> asyncio.Future[dict[str, Any]]: ...

    def update_features(self, request: Any) -> asyncio.Future[dict[str, Any]]: ...

    def alter_configs(self, request: Any) -> asyncio.Future[dict[str, Any]]: ...

    def alter_partition_reassignments(self, request: Any) -> asyncio.Future[dict[str, Any]]: ...

    def list_partition_reassignments(self, request: Any) -> asyncio.Future[dict[str, Any]]: ...


@dataclass(slots=True)
class ControllerServices:
    """The context of every handler on a controller listener."""

    cluster_id: str
    quorum: QuorumPort
    controller: ControllerPort
    loader: MetadataLoader
    endpoints: Callable[[], Mapping[int, tuple[str, int]]]
    """Where each controller of the quorum listens now, by node id."""
    supported_features: Mapping[str, tuple[int, int]]
    config: BrokerConfig
    """The node's settings, for those who ask for them."""
    dispatcher: Dispatcher[ControllerServices] | None = None
    links: dict[RequestSink, int] = field(default_factory=dict)
    spoken_last: dict[int, RequestSink] = field(default_factory=dict)
    """By broker, the connection over which it did."""

    @property
    def metadata(self) -> MetadataLoader:
        return self.loader

    def on_broker_request(self, sink: RequestSink, broker_id: int) -> None:
        """A broker spoke on this connection; until it speaks on another, its end is the broker's.

        A broker has one at a time. The end of a former one says nothing, and it may not come: the broker's own end may
        have been lost without a word to this one.
        """
        if sink not in self.links:
            self.links[sink] = broker_id
            sink.on_close.append(lambda: self._on_link_closed(sink))
        self.spoken_last[self.links[sink]] = sink

    def _on_link_closed(self, sink: RequestSink) -> None:
        broker_id = self.links.pop(sink)
        if self.spoken_last.get(broker_id) is sink:
            del self.spoken_last[broker_id]
            self.controller.on_broker_disconnected(broker_id)


Call = Callable[[ControllerPort, Struct], Awaitable[Fields]]
Services = ControllerServices


def _decided(call: Call) -> DecodedHandler[Services]:
    return lambda services, request, message: call(services.controller, message)


def _of_a_broker(call: Call) -> DecodedHandler[Services]:
    def handle(services: Services, request: Request, message: Struct) -> Awaitable[Fields]:
        services.on_broker_request(request.sink, message.broker_id)
        return call(services.controller, message)

    return handle


def _quorum(services: Services, request: Request, message: Struct) -> Awaitable[Fields]:
    return services.quorum.handle_request(request.api_key, request.api_version, message)


def _fetch(services: Services, request: Request) -> None:
    version = request.api_version
    message = decode_fetch_request(version, request.body, 0)
    task = asyncio.ensure_future(services.quorum.handle_fetch(version, message))

    def done(finished: asyncio.Future[FetchResponse]) -> None:
        if finished.cancelled() or finished.exception() is not None:
            request.reject("the metadata quorum cannot be read")
            return
        request.respond(encode_fetch_response(version, finished.result()))

    task.add_done_callback(done)


def _api_versions(services: Services, request: Request, message: Struct) -> Fields:
    loader, dispatcher = services.loader, services.dispatcher
    rows = dispatcher.registry.version_rows() if dispatcher is not None else []
    finalized = loader.image.offset, loader.finalized_features
    return api_versions_fields(request, message, rows, services.supported_features, finalized)


def _describe_cluster(services: Services, request: Request, message: Struct) -> Fields:
    refusal = endpoint_type_error(message.get("endpoint_type", 1), CONTROLLERS)
    if refusal is not None:
        return refusal
    leader = services.loader.leader.leader_id
    asked = message.include_cluster_authorized_operations
    return {
        "error_code": 0,
        "endpoint_type": CONTROLLERS,
        "cluster_id": services.cluster_id,
        "controller_id": -1 if leader is None else leader,
        "brokers": [
            {"broker_id": node_id, "host": host, "port": port, "rack": None, "is_fenced": False}
            for node_id, (host, port) in sorted(services.endpoints().items())
        ],
        "cluster_authorized_operations": CLUSTER_OPERATIONS if asked else OPERATIONS_NOT_ASKED,
    }


class EnvelopeSink:
    """Stands in for the connection of a request that came in an envelope; collects its answer."""

    def __init__(self, outer: RequestSink) -> None:
        self.listener_name = outer.listener_name
        self.peer = outer.peer
        self.software = outer.software
        self.opened_at = outer.opened_at
        self.on_close = outer.on_close
        self.sends_files = False
        self.answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

    def complete(self, request: Request, response: Sequence[Sendable]) -> None:
        if not self.answer.done():
            request.response = response
            self.answer.set_result(in_memory(response)[4:])

    def reject(self, reason: str) -> None:
        if not self.answer.done():
            self.answer.set_result(None)


_FORWARDABLE = frozenset(int(api.key) for api in (*forwarded.APIS, alter_configs.API))


async def _envelope(services: Services, request: Request, message: Struct) -> Fields:
    frame = memoryview(bytearray(message.request_data))
    try:
        header, _ = parse_request_header(frame)
    except WireFormatError:
        return {"error_code": int(ErrorCode.INVALID_REQUEST)}
    if header.api_key not in _FORWARDABLE or services.dispatcher is None:
        return {"error_code": int(ErrorCode.INVALID_REQUEST)}
    if not services.controller.active and header.api_key != ApiKey.DESCRIBE_QUORUM:
        return {"error_code": int(ErrorCode.NOT_CONTROLLER)}
    sink = EnvelopeSink(request.sink)
    services.dispatcher.start(sink, frame, lambda inner: None)
    answer = await sink.answer
    if answer is None:
        return {"error_code": int(ErrorCode.INVALID_REQUEST)}
    if may_hold_code(answer, ErrorCode.NOT_CONTROLLER):
        _, position = parse_response_header(header.api_key, header.api_version, answer)
        response = decode_response(header.api_key, header.api_version, answer, position)
        if has_error_code(response, ErrorCode.NOT_CONTROLLER):
            return {"error_code": int(ErrorCode.NOT_CONTROLLER)}
    return {"error_code": 0, "response_data": answer}


def _like(api: Api[Any], handle: DecodedHandler[Services]) -> Api[Services]:
    """The controller's side of an API that brokers forward."""
    return Api(api.key, api.versions, handle=handle, error=api.error)


def _simple(key: ApiKey, versions: tuple[int, int], handle: DecodedHandler[Services]) -> Api[Services]:
    return Api(key, versions, handle=handle, error=top_level_error)


def controller_registry() -> ApiRegistry[ControllerServices]:
    """What a controller listener answers."""
    return ApiRegistry(
        (
            Api(ApiKey.FETCH, (4, 18), handle_raw=_fetch, overlaps=True),
            _simple(ApiKey.API_VERSIONS, (0, 4), _api_versions),
            _simple(ApiKey.DESCRIBE_CLUSTER, (0, 2), _describe_cluster),
            _simple(ApiKey.VOTE, (0, 2), _quorum),
            _simple(ApiKey.BEGIN_QUORUM_EPOCH, (0, 1), _quorum),
            _simple(ApiKey.END_QUORUM_EPOCH, (0, 1), _quorum),
            _simple(ApiKey.FETCH_SNAPSHOT, (0, 1), _quorum),
            _like(
                describe_configs.API, lambda services, request, message: describe_configs.describe(services, message)
            ),
            _like(forwarded.DESCRIBE_QUORUM, _quorum),
            _like(forwarded.ADD_RAFT_VOTER, _quorum),
            _like(forwarded.REMOVE_RAFT_VOTER, _quorum),
            _simple(ApiKey.UPDATE_RAFT_VOTER, (0, 0), _quorum),
            _simple(ApiKey.ENVELOPE, (0, 0), _envelope),
            _simple(ApiKey.BROKER_REGISTRATION, (0, 4), _of_a_broker(lambda c, m: c.register_broker(m))),
            _simple(ApiKey.BROKER_HEARTBEAT, (0, 1), _of_a_broker(lambda c, m: c.broker_heartbeat(m))),
            _simple(ApiKey.ALTER_PARTITION, (2, 3), _decided(lambda c, m: c.alter_partition(m))),
            _simple(ApiKey.ASSIGN_REPLICAS_TO_DIRS, (0, 0), _decided(lambda c, m: c.assign_replicas_to_dirs(m))),
            _simple(ApiKey.ALLOCATE_PRODUCER_IDS, (0, 0), _decided(lambda c, m: c.allocate_producer_ids(m))),
            _simple(ApiKey.CONTROLLER_REGISTRATION, (0, 0), _decided(lambda c, m: c.register_controller(m))),
            _like(forwarded.UNREGISTER_BROKER, _decided(lambda c, m: c.unregister_broker(m))),
            _like(forwarded.CREATE_TOPICS, _decided(lambda c, m: c.create_topics(m))),
            _like(forwarded.DELETE_TOPICS, _decided(lambda c, m: c.delete_topics(m))),
            _like(forwarded.CREATE_PARTITIONS, _decided(lambda c, m: c.create_partitions(m))),
            _like(forwarded.ELECT_LEADERS, _decided(lambda c, m: c.elect_leaders(m))),
            _like(forwarded.ALTER_PARTITION_REASSIGNMENTS, _decided(lambda c, m: c.alter_partition_reassignments(m))),
            _like(forwarded.LIST_PARTITION_REASSIGNMENTS, _decided(lambda c, m: c.list_partition_reassignments(m))),
            _like(forwarded.UPDATE_FEATURES, _decided(lambda c, m: c.update_features(m))),
            _like(forwarded.ALTER_CONFIGS, _decided(lambda c, m: c.alter_configs(m))),
            _like(alter_configs.API, _decided(lambda c, m: c.incremental_alter_configs(m))),
        )
    )


def controller_dispatcher(
    services: ControllerServices, on_fatal: Callable[[BaseException], None]
) -> Dispatcher[ControllerServices]:
    """What a controller listener's server runs its requests with; give its server `ordered_start=False`."""
    services.dispatcher = Dispatcher(controller_registry(), services, on_fatal)
    return services.dispatcher
