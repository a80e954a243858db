"""BrokerHeartbeat: the states of a registered broker, and how it goes from one to the next.

    registered --> fenced
    fenced --(heartbeat: it has caught up and does not ask to stay fenced)--> unfenced
    unfenced --(heartbeat: it asks to shut down)--> in controlled shutdown
    in controlled shutdown --(it leads nothing, and the others know)--> fenced, may stop
    unfenced, in controlled shutdown --(session over, process dead, or it asks to be fenced)--> fenced

The broker epoch is the offset of the registration record. Requests with another epoch are refused.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from ...runtime.invariants import sometimes
from ..metadata.metadata_image import BrokerRegistration, MetadataImage
from ..metadata.metadata_records import BrokerChangeRecord, Record
from ..partitions import broker_departures, replica_directories
from ..partitions.broker_departures import Departures
from ..result import ControllerResult, Decision, Parts
from ..settings import ControllerSettings
from .broker_epoch import check_broker_epoch
from .broker_fencing import fence_broker
from .broker_sessions import BrokerSessions, Session

if TYPE_CHECKING:
    from ...wire.message_types.brokers import BrokerHeartbeatRequest


class BrokerState(Enum):
    """The states of a broker (Kafka: `BrokerControlState`)."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


def state_of(broker: BrokerRegistration) -> BrokerState:
    """The state that the registration of the broker says."""
    if broker.fenced:
        return BrokerState.FENCED
    return BrokerState.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else BrokerState.UNFENCED


def broker_heartbeat(
    image: MetadataImage,
    settings: ControllerSettings,
    sessions: BrokerSessions,
    request: BrokerHeartbeatRequest,
    now_ms: int,
) -> Decision:
    """BrokerHeartbeat 0-1. Raises `ProtocolError(STALE_BROKER_EPOCH)`.

    Failed directories are dealt with first. What else the broker asks for is decided at its next heartbeat.
    """
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    broker = image.brokers[request.broker_id]
    session = sessions.touch(request.broker_id, request.broker_epoch, request.current_metadata_offset, now_ms)
    state = state_of(broker)
    failed = replica_directories.newly_failed_directories(broker, request.get("offline_log_dirs", ()))
    if failed and len(failed) < len(broker.log_dirs):
        sometimes(True, "one of a broker's log directories failed")
        target = state
        records = yield from replica_directories.remove_offline_directories(image, settings, broker, failed)
    else:
        sometimes(failed, "all of a broker's log directories failed")
        target = _next_state(image, broker, request, bool(failed), _others_know(image, sessions, session))
        records = yield from _transition(image, settings, broker, (state, target), sessions.departures)
    if target is BrokerState.SHUTDOWN_NOW:
        sessions.end(broker.broker_id)  # its next incarnation need not wait
    response = {
        "error_code": 0,
        "is_caught_up": request.current_metadata_offset >= broker.epoch,
        "is_fenced": target in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW),
        "should_shut_down": target is BrokerState.SHUTDOWN_NOW,
    }
    return ControllerResult(records, response)


def _others_know(image: MetadataImage, sessions: BrokerSessions, session: Session) -> bool:
    """Whether every active broker has applied the metadata that moved the last leader away.

    Its offset is known when a heartbeat finds no leader left to move (`Session.shutdown_offset`).
    """
    lowest = sessions.lowest_active_offset(image)
    return lowest is None or (session.shutdown_offset is not None and session.shutdown_offset <= lowest)


def _next_state(
    image: MetadataImage,
    broker: BrokerRegistration,
    request: BrokerHeartbeatRequest,
    all_failed: bool,
    others_know: bool,
) -> BrokerState:
    state = state_of(broker)
    if request.want_shut_down:
        if state is BrokerState.FENCED or request.want_fence:
            return BrokerState.SHUTDOWN_NOW
        if broker_departures.leads_any(image, broker.broker_id):
            return BrokerState.CONTROLLED_SHUTDOWN
        done = state is BrokerState.UNFENCED or others_know
        sometimes(not done, "a broker waited until the others knew its successors before it stopped")
        return BrokerState.SHUTDOWN_NOW if done else BrokerState.CONTROLLED_SHUTDOWN
    if request.want_fence or all_failed:
        sometimes(request.want_fence and state is not BrokerState.FENCED, "a broker asked to be fenced")
        return BrokerState.FENCED
    if state is BrokerState.FENCED:
        # An incarnation that began to shut down is not unfenced any more, even by a late heartbeat.
        may_return = request.current_metadata_offset >= broker.epoch and not broker.in_controlled_shutdown
        sometimes(request.current_metadata_offset < broker.epoch, "a broker stayed fenced until it knew the metadata")
        sometimes(broker.in_controlled_shutdown, "a late heartbeat of a broker that shuts down did not unfence it")
        return BrokerState.UNFENCED if may_return else BrokerState.FENCED
    return state


def _transition(
    image: MetadataImage,
    settings: ControllerSettings,
    broker: BrokerRegistration,
    states: tuple[BrokerState, BrokerState],
    departures: Departures,
) -> Parts[list[Record]]:
    state, target = states
    if target is BrokerState.CONTROLLED_SHUTDOWN:
        return (yield from _shut_down(image, settings, broker, departures))
    if state is target:
        return []
    if target is BrokerState.UNFENCED:
        unfenced = BrokerChangeRecord(broker.broker_id, broker.epoch, fenced=False)
        return (yield from broker_departures.elect_for_returned_broker(image, settings, unfenced)).records
    return (yield from fence_broker(image, settings, broker, departures)).records


def _shut_down(
    image: MetadataImage, settings: ControllerSettings, broker: BrokerRegistration, departures: Departures
) -> Parts[list[Record]]:
    begun: list[Record] = []
    if not broker.in_controlled_shutdown:
        begun.append(BrokerChangeRecord(broker.broker_id, broker.epoch, in_controlled_shutdown=True))
    while True:
        leaving = broker_departures.remove_broker(image, settings, broker.broker_id, departures=departures)
        if len(leaving) < broker_departures.CHANGES_PER_BATCH:
            return [*begun, *leaving]
        yield [*begun, *leaving]
        begun = []
        check_broker_epoch(image, broker.broker_id, broker.epoch)
