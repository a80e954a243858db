"""BrokerRegistration, UnregisterBroker and ControllerRegistration: which nodes the cluster knows.

A broker is registered fenced. `broker_heartbeat.py` has what happens to it after that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from ...runtime.incremental_work import Work, map_in_steps
from ...runtime.invariants import sometimes
from ...wire.errors import ErrorCode, ProtocolError
from ..metadata.features import OfferedFeature, check_supported
from ..metadata.metadata_image import MetadataImage
from ..metadata.metadata_records import Endpoint, RegisterBrokerRecord, RegisterControllerRecord, UnregisterBrokerRecord
from ..partitions import broker_departures
from ..partitions.broker_departures import Departures
from ..partitions.replica_directories import check_registered_directories
from ..result import ControllerResult, Decision, error_response
from ..settings import ControllerSettings
from .broker_sessions import BrokerSessions

if TYPE_CHECKING:
    from ...wire.message_types.brokers import BrokerRegistrationRequest, ControllerRegistrationRequest


def register_broker(
    image: MetadataImage,
    settings: ControllerSettings,
    sessions: BrokerSessions,
    request: BrokerRegistrationRequest,
    now_ms: int,
) -> Decision:
    """BrokerRegistration 0-4. The caller adds `broker_epoch` to the response: it is the offset of the record.

    The same incarnation keeps its registration when it asks again. Another incarnation first leaves all ISRs. When it
    does not prove by its previous epoch that it stopped cleanly, its logs may have lost their tails (KIP-966). Raises
    `ProtocolError`: INCONSISTENT_CLUSTER_ID, INVALID_REQUEST, INVALID_REGISTRATION, UNSUPPORTED_VERSION,
    DUPLICATE_BROKER_REGISTRATION.
    """
    listeners = yield from endpoints(request.listeners)
    features = yield from feature_ranges(request.features)
    while True:
        incarnation_id = _check_registration(image, request)
        known = image.brokers.get(request.broker_id)
        if known is not None and known.incarnation_id == incarnation_id:
            sometimes(True, "a broker registered again whose registration had not been answered")
            return ControllerResult([], {"error_code": 0})
        if known is not None and sessions.blocks(known, listeners, now_ms):
            sometimes(True, "a broker could not register while its former incarnation seemed to be alive")
            raise ProtocolError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                "Another broker is registered with that broker id. If the broker was recently restarted this should "
                "self-resolve once the heartbeat manager expires the broker's session.",
            )
        # A broker that was unregistered meanwhile may still be in an ELR, and cannot prove a clean stop.
        clean = known is not None and request.get("previous_broker_epoch", -1) == known.epoch
        leaving = broker_departures.remove_broker(
            image, settings, request.broker_id, unclean=not clean, departures=sessions.departures
        )
        if len(leaving) < broker_departures.CHANGES_PER_BATCH:
            sometimes(leaving, "a broker came back before it had left its ISRs and ELRs")
            record = _registration(request, incarnation_id, listeners, features)
            return ControllerResult([*leaving, record], {"error_code": 0})
        yield leaving


def _check_registration(image: MetadataImage, request: BrokerRegistrationRequest) -> UUID:
    """Raise `ProtocolError` when the request cannot be accepted; returns its incarnation id."""
    if request.cluster_id != image.cluster_id:
        raise ProtocolError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {image.cluster_id}, but got cluster ID {request.cluster_id}",
        )
    if request.get("is_migrating_zk_broker", False):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "Controller does not support registering ZK brokers.")
    if request.incarnation_id is None or not request.listeners or request.broker_id < 0:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "A broker has an id, an incarnation id and a listener.")
    check_registered_directories(image, request.broker_id, request.get("log_dirs", ()))
    check_supported(image, request.features, "broker")
    return request.incarnation_id


def _registration(
    request: BrokerRegistrationRequest,
    incarnation_id: UUID,
    listeners: tuple[Endpoint, ...],
    features: tuple[tuple[str, int, int], ...],
) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=incarnation_id,
        listeners=listeners,
        rack=request.rack,
        log_dirs=tuple(directory for directory in request.get("log_dirs", ()) if directory is not None),
        features=features,
    )


def endpoints(
    listeners: Iterable[BrokerRegistrationRequest.Listener | ControllerRegistrationRequest.Listener],
) -> Work[tuple[Endpoint, ...]]:
    """The listeners of a request in the form of records."""
    rows = yield from map_in_steps(lambda one: Endpoint(one.name, one.host, one.port, one.security_protocol), listeners)
    return tuple(rows)


def feature_ranges(features: Iterable[OfferedFeature]) -> Work[tuple[tuple[str, int, int], ...]]:
    """The features of a request in the form of records: name, lowest and highest supported level."""
    rows = yield from map_in_steps(
        lambda one: (one.name, one.min_supported_version, one.max_supported_version), features
    )
    return tuple(rows)


def register_controller(image: MetadataImage, request: ControllerRegistrationRequest) -> Decision:
    """ControllerRegistration 0 (KIP-919). Raises `ProtocolError(UNSUPPORTED_VERSION)`."""
    if request.incarnation_id is None:
        return ControllerResult([], error_response(ErrorCode.INVALID_REQUEST, "A controller has an incarnation id."))
    listeners = yield from endpoints(request.listeners)
    features = yield from feature_ranges(request.features)
    check_supported(image, request.features, "controller")
    record = RegisterControllerRecord(request.controller_id, request.incarnation_id, listeners, features)
    known = image.controllers.get(record.controller_id)
    unchanged = known is not None and tuple(known) == (
        record.controller_id,
        record.incarnation_id,
        record.listeners,
        record.features,
    )
    return ControllerResult([] if unchanged else [record], error_response(ErrorCode.NONE))


def unregister_broker(image: MetadataImage, settings: ControllerSettings, broker_id: int) -> Decision:
    """UnregisterBroker 0: remove the broker and take it out of ISRs. Its replicas stay assigned to it."""
    departures = Departures()
    while True:
        broker = image.brokers.get(broker_id)
        if broker is None:
            message = f"Broker ID {broker_id} is not currently registered"
            return ControllerResult([], error_response(ErrorCode.BROKER_ID_NOT_REGISTERED, message))
        leaving = broker_departures.remove_broker(image, settings, broker_id, departures=departures)
        if len(leaving) < broker_departures.CHANGES_PER_BATCH:
            records = [*leaving, UnregisterBrokerRecord(broker_id, broker.epoch)]
            return ControllerResult(records, error_response(ErrorCode.NONE))
        yield leaving
