"""The life of a broker: registered and fenced, caught up and unfenced, in controlled shutdown, fenced again, gone.

    registration -> fenced --(heartbeat, caught up, no wish to stay fenced)--> unfenced
    unfenced --(wants to shut down)--> in controlled shutdown --(leads nothing, the others know)--> fenced, may stop
    unfenced, in controlled shutdown --(session over, process dead, wants to be fenced)--> fenced

The broker epoch is the offset of the registration record. It fences all that a former incarnation still says.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from ...wire.errors import ErrorCode, ProtocolError
from ..metadata.features import check_supported
from ..metadata.metadata_image import BrokerRegistration, MetadataImage
from ..metadata.metadata_records import (
    BrokerChangeRecord,
    Endpoint,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from ..partitions.alter_partition import check_broker_epoch
from ..partitions.leader_election import CHANGES_AT_ONCE, Departures, broker_leaves, broker_returns, leads_any
from ..partitions.replica_directories import check_registered_directories, directories_went_offline, failed_since
from ..result import ControllerResult, error_response
from ..settings import ControllerSettings
from .broker_sessions import BrokerSessions, Session


class BrokerState(Enum):
    """What the controller holds a broker to be."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


def state_of(broker: BrokerRegistration) -> BrokerState:
    """The state its registration says."""
    if broker.fenced:
        return BrokerState.FENCED
    return BrokerState.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else BrokerState.UNFENCED


# -- registration --------------------------------------------------------------------------------------------------


def register_broker(
    image: MetadataImage, settings: ControllerSettings, sessions: BrokerSessions, request: Any, now_ms: int
) -> ControllerResult:
    """BrokerRegistration 0-4. The response lacks `broker_epoch`: it is the offset that the record will get.

    The same incarnation asking again keeps its registration. Another one first leaves all ISRs; unless it proves by its
    former epoch that it stopped cleanly, it counts as having lost its tail (KIP-966). Raises `ProtocolError`:
    INCONSISTENT_CLUSTER_ID, INVALID_REQUEST, INVALID_REGISTRATION, UNSUPPORTED_VERSION, DUPLICATE_BROKER_REGISTRATION.
    """
    _check_registration(image, request)
    known = image.brokers.get(request.broker_id)
    if known is not None and known.incarnation_id == request.incarnation_id:
        return ControllerResult([], {"error_code": 0})
    listeners = endpoints(request.listeners)
    if known is not None and sessions.blocks(known, listeners, now_ms):
        raise ProtocolError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently restarted this should "
            "self-resolve once the heartbeat manager expires the broker's session.",
        )
    # One that was unregistered meanwhile may still be eligible somewhere, and can prove nothing.
    clean = known is not None and request.get("previous_broker_epoch", -1) == known.epoch
    records = broker_leaves(image, settings, request.broker_id, unclean=not clean, departures=sessions.departures)
    if len(records) >= CHANGES_AT_ONCE:
        return ControllerResult(records, has_more=True)
    records.append(_registration(request, listeners))
    return ControllerResult(records, {"error_code": 0})


def _check_registration(image: MetadataImage, request: Any) -> None:
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


def _registration(request: Any, listeners: tuple[Endpoint, ...]) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        listeners=listeners,
        rack=request.rack,
        log_dirs=tuple(request.get("log_dirs", ())),
        features=feature_ranges(request.features),
    )


def endpoints(listeners: Any) -> tuple[Endpoint, ...]:
    """Listeners of a request as records hold them."""
    return tuple(Endpoint(one.name, one.host, one.port, one.security_protocol) for one in listeners)


def feature_ranges(features: Any) -> tuple[tuple[str, int, int], ...]:
    """Features of a request as records hold them: name, lowest and highest supported level."""
    return tuple((one.name, one.min_supported_version, one.max_supported_version) for one in features)


def register_controller(image: MetadataImage, request: Any) -> ControllerResult:
    """ControllerRegistration 0 (KIP-919). Raises `ProtocolError(UNSUPPORTED_VERSION)`, as for a broker."""
    if request.incarnation_id is None:
        return ControllerResult([], error_response(ErrorCode.INVALID_REQUEST, "A controller has an incarnation id."))
    check_supported(image, request.features, "controller")
    record = RegisterControllerRecord(
        request.controller_id, request.incarnation_id, endpoints(request.listeners), feature_ranges(request.features)
    )
    known = image.controllers.get(record.controller_id)
    unchanged = known is not None and tuple(known) == (
        record.controller_id,
        record.incarnation_id,
        record.listeners,
        record.features,
    )
    return ControllerResult([] if unchanged else [record], error_response(ErrorCode.NONE))


def unregister_broker(image: MetadataImage, settings: ControllerSettings, broker_id: int) -> ControllerResult:
    """UnregisterBroker 0: forget the broker and its place in ISRs; its replicas stay assigned."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        message = f"Broker ID {broker_id} is not currently registered"
        return ControllerResult([], error_response(ErrorCode.BROKER_ID_NOT_REGISTERED, message))
    records = broker_leaves(image, settings, broker_id)
    if len(records) >= CHANGES_AT_ONCE:
        return ControllerResult(records, has_more=True)
    records.append(UnregisterBrokerRecord(broker_id, broker.epoch))
    return ControllerResult(records, error_response(ErrorCode.NONE))


# -- heartbeats ----------------------------------------------------------------------------------------------------


def broker_heartbeat(
    image: MetadataImage, settings: ControllerSettings, sessions: BrokerSessions, request: Any, now_ms: int
) -> ControllerResult:
    """BrokerHeartbeat 0-1. Raises `ProtocolError(STALE_BROKER_EPOCH)`.

    News of failed directories come first: what else the broker wishes is decided at its next heartbeat.
    """
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    broker = image.brokers[request.broker_id]
    session = sessions.touch(request.broker_id, request.broker_epoch, request.current_metadata_offset, now_ms)
    state = state_of(broker)
    failed = failed_since(broker, request.get("offline_log_dirs", ()))
    if failed and len(failed) < len(broker.log_dirs):
        target = state
        records = directories_went_offline(image, settings, broker, failed)
    else:
        target = _next_state(image, broker, request, bool(failed), _others_know(image, sessions, session))
        records = _transition(image, settings, broker, (state, target), sessions.departures)
    if target is BrokerState.SHUTDOWN_NOW:
        sessions.end(broker.broker_id)  # its next incarnation need not wait
    response = {
        "error_code": 0,
        "is_caught_up": request.current_metadata_offset >= broker.epoch,
        "is_fenced": target in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW),
        "should_shut_down": target is BrokerState.SHUTDOWN_NOW,
    }
    return ControllerResult(records, response, has_more=len(records) >= CHANGES_AT_ONCE)


def _others_know(image: MetadataImage, sessions: BrokerSessions, session: Session) -> bool:
    """Whether every active broker has applied the metadata that moved the leaders away: all of them, which is known
    when a heartbeat found nothing left to move (`Session.shutdown_offset`)."""
    lowest = sessions.lowest_active_offset(image)
    return lowest is None or (session.shutdown_offset is not None and session.shutdown_offset <= lowest)


def _next_state(
    image: MetadataImage, broker: BrokerRegistration, request: Any, all_failed: bool, others_know: bool
) -> BrokerState:
    state = state_of(broker)
    if request.want_shut_down:
        if state is BrokerState.FENCED or request.want_fence:
            return BrokerState.SHUTDOWN_NOW
        if leads_any(image, broker.broker_id):
            return BrokerState.CONTROLLED_SHUTDOWN
        done = state is BrokerState.UNFENCED or others_know
        return BrokerState.SHUTDOWN_NOW if done else BrokerState.CONTROLLED_SHUTDOWN
    if request.want_fence or all_failed:
        return BrokerState.FENCED
    if state is BrokerState.FENCED:
        # An incarnation that began to shut down does not come back, whatever a late heartbeat says.
        may_return = request.current_metadata_offset >= broker.epoch and not broker.in_controlled_shutdown
        return BrokerState.UNFENCED if may_return else BrokerState.FENCED
    return state


def _transition(
    image: MetadataImage,
    settings: ControllerSettings,
    broker: BrokerRegistration,
    states: tuple[BrokerState, BrokerState],
    departures: Departures,
) -> list[Record]:
    state, target = states
    if target is BrokerState.CONTROLLED_SHUTDOWN:
        leaving = broker_leaves(image, settings, broker.broker_id, departures=departures)
        if state is target:
            return leaving
        return [BrokerChangeRecord(broker.broker_id, broker.epoch, in_controlled_shutdown=True), *leaving]
    if state is target:
        return []
    if target is BrokerState.UNFENCED:
        unfenced: list[Record] = [BrokerChangeRecord(broker.broker_id, broker.epoch, fenced=False)]
        return unfenced + broker_returns(image, settings, broker.broker_id)
    return fence_broker(image, settings, broker.broker_id, departures)


def fence_broker(
    image: MetadataImage, settings: ControllerSettings, broker_id: int, departures: Departures | None = None
) -> list[Record]:
    """Fence the broker, take it out of every ISR and give its partitions other leaders; nothing when it is fenced.

    With very many partitions, these are the first of them only, and the broker is fenced with the last.
    """
    broker = image.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return []
    leaving = broker_leaves(image, settings, broker_id, departures=departures)
    if len(leaving) >= CHANGES_AT_ONCE:
        return leaving
    return [BrokerChangeRecord(broker_id, broker.epoch, fenced=True), *leaving]
