"""The sessions of brokers, as their heartbeats keep them alive (Kafka: `BrokerHeartbeatManager`).

A silent broker is not fenced before the deadline of its session. Sessions are in memory only and end with the
leadership of this controller. A new active controller has heard from no broker yet, so it gives every unfenced broker a
full session.

An open connection does not prove that a broker is alive, since its other end may be gone without notice. So a broker
that is silent for a third of its session, which is longer than the interval of heartbeats, counts as out of contact.
Times are milliseconds of the loop's clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..metadata.metadata_image import BrokerRegistration, MetadataImage
from ..metadata.metadata_records import Endpoint
from ..partitions.broker_departures import Departures


@dataclass(slots=True)
class Session:
    """The session of one incarnation of a broker."""

    broker_epoch: int
    deadline_ms: int
    metadata_offset: int = -1
    """The offset up to which the broker had applied the metadata log at its last heartbeat."""
    in_contact: bool = False
    """It sent a heartbeat to this controller recently, and its connection has not ended since."""
    shutdown_offset: int | None = None
    """In controlled shutdown: the offset that the other brokers must have applied before it may stop."""


class BrokerSessions:
    """The sessions of all brokers, by id.

    An unfenced broker whose session was ended is being fenced. If it has very many partitions, that takes a while.
    """

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._silence_ms = timeout_ms // 3
        self._sessions: dict[int, Session] = {}
        self.departures = Departures()
        """The progress of brokers that leave with very many partitions."""

    def start(self, image: MetadataImage, now_ms: int) -> None:
        """This controller became active: drop old sessions, and give every unfenced broker a full one."""
        self._sessions.clear()
        self.departures = Departures()
        for broker in image.brokers.values():
            if not broker.fenced:
                self.grant(broker.broker_id, broker.epoch, now_ms)

    def grant(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """Begin a session for an incarnation that this controller has not heard from yet."""
        self._sessions[broker_id] = Session(broker_epoch, now_ms + self._timeout_ms)

    def touch(self, broker_id: int, broker_epoch: int, metadata_offset: int, now_ms: int) -> Session:
        """Renew the session after a heartbeat."""
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch:
            session = self._sessions[broker_id] = Session(broker_epoch, now_ms)
        session.deadline_ms = now_ms + self._timeout_ms
        session.metadata_offset = metadata_offset
        session.in_contact = True
        return session

    def end(self, broker_id: int) -> None:
        """End the session of a broker that is known to be gone."""
        self._sessions.pop(broker_id, None)

    def extend(self, by_ms: int) -> None:
        """Extend all sessions: this process did not run for `by_ms` and could not receive heartbeats."""
        for session in self._sessions.values():
            session.deadline_ms += by_ms

    def get(self, broker_id: int) -> Session | None:
        """The session of the broker, even if its deadline has passed."""
        return self._sessions.get(broker_id)

    def blocks(self, known: BrokerRegistration, listeners: tuple[Endpoint, ...], now_ms: int) -> bool:
        """Whether another incarnation must wait for the session of the `known` one to end.

        Two processes must not take over one id from each other again and again. But when the known incarnation is out
        of contact and the new one listens at the same addresses, the same broker has restarted, since a port has one
        owner. It need not wait: should the old incarnation live, its requests are refused for their stale epoch.
        """
        session = self._sessions.get(known.broker_id)
        if session is None or session.broker_epoch != known.epoch or session.deadline_ms <= now_ms:
            return False
        return session.in_contact or listeners != known.listeners

    def expired(self, image: MetadataImage, now_ms: int) -> list[BrokerRegistration]:
        """Unfenced brokers whose session is over, in order of their ids."""
        return [broker for broker, session in self._in_session(image) if session.deadline_ms <= now_ms]

    def silent(self, image: MetadataImage, now_ms: int) -> list[int]:
        """Unfenced brokers in contact that have been silent for too long, in order of their ids."""
        return [
            broker.broker_id
            for broker, session in self._in_session(image)
            if session.in_contact and self._next_check_ms(session) <= now_ms
        ]

    def next_check_ms(self, image: MetadataImage, now_ms: int) -> int | None:
        """When the next unfenced broker may be silent for too long or its session ends; None without such brokers.

        It is not before `now_ms`.
        """
        soonest_ms = min((self._next_check_ms(session) for _, session in self._in_session(image)), default=None)
        return None if soonest_ms is None else max(now_ms, min(soonest_ms, now_ms + self._silence_ms))

    def lowest_active_offset(self, image: MetadataImage) -> int | None:
        """The offset up to which all active brokers have applied the metadata log; None without active brokers."""
        offsets = [self._offset(broker) for broker in image.brokers.values() if broker.active]
        return min(offsets, default=None)

    def lose_contact(self, broker_id: int) -> None:
        """The connection of the broker ended, or nothing came over it."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.in_contact = False

    def _in_session(self, image: MetadataImage) -> Iterable[tuple[BrokerRegistration, Session]]:
        for broker_id in sorted(image.brokers):
            broker, session = image.brokers[broker_id], self._sessions.get(broker_id)
            if not broker.fenced and session is not None and session.broker_epoch == broker.epoch:
                yield broker, session

    def _next_check_ms(self, session: Session) -> int:
        early_ms = self._timeout_ms - self._silence_ms if session.in_contact else 0
        return session.deadline_ms - early_ms

    def _offset(self, broker: BrokerRegistration) -> int:
        session = self._sessions.get(broker.broker_id)
        return session.metadata_offset if session is not None else -1
