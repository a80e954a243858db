"""Who is alive, as far as this active controller has heard: soft state that dies with its leadership.

A session is a promise of the controller to wait: until its deadline, silence does not fence the broker. A new active
controller has heard from nobody, so it grants every unfenced broker a full session. A connection proves nothing: its
other end may be gone without a word. So a broker that is silent for a third of its session, longer than it is between
two heartbeats, counts as out of contact. Times are milliseconds of the loop's clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..metadata.metadata_image import BrokerRegistration, MetadataImage
from ..metadata.metadata_records import Endpoint
from ..partitions.broker_departures import Departures


@dataclass(slots=True)
class Session:
    """What is known of one broker incarnation."""

    broker_epoch: int
    deadline_ms: int
    metadata_offset: int = -1
    """How far the broker has applied the metadata log, by its last heartbeat."""
    in_contact: bool = False
    """It sent a heartbeat to this controller not long ago, and its connection has not ended since."""
    shutdown_offset: int | None = None
    """In controlled shutdown: the offset that the others must have reached before it may go."""


class BrokerSessions:
    """The sessions of all brokers, by id."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._silence_ms = timeout_ms // 3
        self._sessions: dict[int, Session] = {}
        self.departures = Departures()
        """Where brokers that leave with many partitions are."""

    def start(self, image: MetadataImage, now_ms: int) -> None:
        """This controller became active: forget the past, and give every unfenced broker a full session."""
        self._sessions.clear()
        self.departures = Departures()
        for broker in image.brokers.values():
            if not broker.fenced:
                self.grant(broker.broker_id, broker.epoch, now_ms)

    def grant(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """A new session for a new incarnation, or one that this controller has not heard from yet."""
        self._sessions[broker_id] = Session(broker_epoch, now_ms + self._timeout_ms)

    def touch(self, broker_id: int, broker_epoch: int, metadata_offset: int, now_ms: int) -> Session:
        """A heartbeat came."""
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch:
            session = self._sessions[broker_id] = Session(broker_epoch, now_ms)
        session.deadline_ms = now_ms + self._timeout_ms
        session.metadata_offset = metadata_offset
        session.in_contact = True
        return session

    def end(self, broker_id: int) -> None:
        """The broker is known to be gone: wait for it no longer."""
        self._sessions.pop(broker_id, None)

    def extend(self, by_ms: int) -> None:
        """Nobody could be heard for that long, through no fault of theirs."""
        for session in self._sessions.values():
            session.deadline_ms += by_ms

    def get(self, broker_id: int) -> Session | None:
        """The broker's session, live or overdue."""
        return self._sessions.get(broker_id)

    def blocks(self, known: BrokerRegistration, listeners: tuple[Endpoint, ...], now_ms: int) -> bool:
        """Whether another incarnation has to wait for the session of `known` to end.

        Two processes must not take turns under one id. But where the incarnation in the books is out of contact and the
        new one listens at the same addresses, it is the same broker restarted: a port has one owner. Waiting out the
        session would only cost time; if the old one lives after all, its epoch is stale and nobody listens to it.
        """
        session = self._sessions.get(known.broker_id)
        if session is None or session.broker_epoch != known.epoch or session.deadline_ms <= now_ms:
            return False
        return session.in_contact or listeners != known.listeners

    def expired(self, image: MetadataImage, now_ms: int) -> list[BrokerRegistration]:
        """Unfenced brokers whose session is over, in order of their ids."""
        return [broker for broker in self._unfenced(image) if self._deadline_ms(broker) <= now_ms]

    def silent(self, image: MetadataImage, now_ms: int) -> list[int]:
        """Unfenced brokers in contact that have not been heard for too long, in order of their ids."""
        return [
            broker.broker_id
            for broker in self._unfenced(image)
            if self._in_contact(broker) and self._next_check_ms(broker) <= now_ms
        ]

    def next_check_ms(self, image: MetadataImage, now_ms: int) -> int | None:
        """When an unfenced broker may next be silent for too long, or its session end; None when there is none."""
        soonest_ms = min((self._next_check_ms(broker) for broker in self._unfenced(image)), default=None)
        return None if soonest_ms is None else min(soonest_ms, now_ms + self._silence_ms)

    def lowest_active_offset(self, image: MetadataImage) -> int | None:
        """What all active brokers have applied of the metadata log; None when there are none."""
        offsets = [self._offset(broker) for broker in image.brokers.values() if broker.active]
        return min(offsets, default=None)

    def lose_contact(self, broker_id: int) -> None:
        """The broker's connection went down, or nothing came over it."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.in_contact = False

    def _unfenced(self, image: MetadataImage) -> Iterable[BrokerRegistration]:
        return (image.brokers[broker_id] for broker_id in sorted(image.brokers) if not image.brokers[broker_id].fenced)

    def _deadline_ms(self, broker: BrokerRegistration) -> int:
        session = self._sessions.get(broker.broker_id)
        return session.deadline_ms if session is not None and session.broker_epoch == broker.epoch else 0

    def _in_contact(self, broker: BrokerRegistration) -> bool:
        session = self._sessions.get(broker.broker_id)
        return session is not None and session.broker_epoch == broker.epoch and session.in_contact

    def _next_check_ms(self, broker: BrokerRegistration) -> int:
        deadline_ms = self._deadline_ms(broker)
        return deadline_ms - self._timeout_ms + self._silence_ms if self._in_contact(broker) else deadline_ms

    def _offset(self, broker: BrokerRegistration) -> int:
        session = self._sessions.get(broker.broker_id)
        return session.metadata_offset if session is not None else -1
