"""Fencing: when a broker counts as dead, and what that does to its partitions.

A broker is fenced when its session ends, and at once when it is known to be dead: its last connection to this node is
gone, and a connect to its listener is refused. A new active controller probes every unfenced broker until it has heard
from it. Every other outcome of a probe proves nothing, and the session decides. A probe is repeated: while a process
dies, its listener may outlive its connections by a moment.

A timer that fires late says that this process itself did not run. Heartbeats may then wait unread, so all sessions are
extended by the delay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import chain, repeat

from ...runtime.invariants import sometimes
from ..metadata.metadata_image import BrokerRegistration, MetadataImage
from ..metadata.metadata_records import BrokerChangeRecord
from ..partitions import broker_departures
from ..partitions.broker_departures import Departures
from ..result import ControllerResult, Decision
from ..settings import ControllerSettings
from .broker_sessions import BrokerSessions
from .listener_probe import Probe, ProbeResult

_logger = logging.getLogger(__name__)

STALL_MS = 500
"""A timer that fires later than this says that the process was stopped."""

PROBE_BACKOFF_S = (0.05, 0.2, 0.5)
"""Pauses between the first probes of a broker that is out of contact."""
PROBE_INTERVAL_S = 1.0
"""The pause between all later probes, until the broker is heard or fenced."""


def fence_broker(
    image: MetadataImage, settings: ControllerSettings, broker: BrokerRegistration, departures: Departures
) -> Decision:
    """Fence this incarnation of the broker, take it out of every ISR and give its partitions other leaders.

    Nothing changes when it is fenced already or another incarnation has registered. When it has very many partitions,
    it is fenced with the last of them.
    """
    while True:
        known = image.brokers.get(broker.broker_id)
        if known is None or known.epoch != broker.epoch or known.fenced:
            sometimes(True, "a broker came back, or was fenced, before its fencing was decided")
            return ControllerResult()
        leaving = broker_departures.remove_broker(image, settings, broker.broker_id, departures=departures)
        if len(leaving) < broker_departures.CHANGES_PER_BATCH:
            return ControllerResult([BrokerChangeRecord(broker.broker_id, broker.epoch, fenced=True), *leaving])
        yield leaving


class BrokerFailureDetector:
    """Finds dead and silent brokers while this node is the active controller, and has them fenced.

    `fence(broker)` fences that incarnation of the broker, and may end this controller's leadership.
    """

    def __init__(self, settings: ControllerSettings, probe: Probe, fence: Callable[[BrokerRegistration], None]) -> None:
        self.sessions = BrokerSessions(settings.broker_session_timeout_ms)
        self._listener_name = settings.inter_broker_listener_name
        self._probe_listener = probe
        self._fence = fence
        self._image: MetadataImage | None = None
        """The active controller's image; None while this node is not the active controller."""
        self._timer: asyncio.TimerHandle | None = None
        self._probes: dict[int, asyncio.Task[None]] = {}

    def activate(self, image: MetadataImage) -> None:
        """Leadership began: give every unfenced broker of `image` a full session."""
        self._image = image
        self.sessions.start(image, self._now_ms())

    def probe_all(self) -> None:
        """Probe every broker that this controller has not heard from."""
        for broker_id in [] if self._image is None else sorted(self._image.brokers):
            self._start_probe(broker_id)

    def deactivate(self) -> None:
        """Leadership ended: fence no more brokers."""
        self._image = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Stop the probes that are under way."""
        for probe in self._probes.values():
            probe.cancel()

    # -- probes ------------------------------------------------------------------------------------------------------

    def on_broker_disconnected(self, broker_id: int) -> None:
        """The connection over which that broker spoke last ended: find out whether the broker is dead."""
        self.sessions.lose_contact(broker_id)
        self._start_probe(broker_id)

    def _start_probe(self, broker_id: int) -> None:
        """Probe the broker. A round of probes that is under way starts over."""
        if self._suspect(broker_id) is None:
            return
        former = self._probes.pop(broker_id, None)
        if former is not None:
            former.cancel()
        probe = self._probes[broker_id] = asyncio.get_running_loop().create_task(self._probe(broker_id))
        probe.add_done_callback(lambda task: self._on_probe_done(broker_id, task))

    def _on_probe_done(self, broker_id: int, probe: asyncio.Task[None]) -> None:
        if self._probes.get(broker_id) is probe:
            del self._probes[broker_id]
        if not probe.cancelled():
            probe.result()  # raises what went wrong in the probe

    def _suspect(self, broker_id: int) -> BrokerRegistration | None:
        """The registration of an unfenced broker that this active controller is not in contact with."""
        if self._image is None:
            return None
        broker = self._image.brokers.get(broker_id)
        session = self.sessions.get(broker_id)
        if broker is None or broker.fenced or (session is not None and session.in_contact):
            return None
        return broker

    async def _probe(self, broker_id: int) -> None:
        for pause_s in chain(PROBE_BACKOFF_S, repeat(PROBE_INTERVAL_S)):
            suspect = self._suspect(broker_id)
            if suspect is None:
                sometimes(True, "a broker was heard again, or was fenced, while it was probed")
                return
            endpoint = suspect.endpoint(self._listener_name) or suspect.listeners[0]
            result = await self._probe_listener(endpoint.host, endpoint.port)
            if result is ProbeResult.REFUSED:
                self._on_refused(suspect)
                return
            await asyncio.sleep(pause_s)

    def _on_refused(self, dead: BrokerRegistration) -> None:
        suspect = self._suspect(dead.broker_id)
        if suspect is None or suspect.epoch != dead.epoch:
            sometimes(True, "a broker was heard again when its port had just refused a connection")
            return
        self.sessions.end(dead.broker_id)
        sometimes(True, "a broker was fenced because its port refused connections")
        _logger.warning("broker %d is fenced: its connections closed and its port refuses", dead.broker_id)
        self._fence(suspect)

    # -- sessions ----------------------------------------------------------------------------------------------------

    def arm_timer(self) -> None:
        """Look at the sessions when the next broker may be silent for too long; nothing if a timer is set."""
        if self._timer is not None or self._image is None:
            return
        check_ms = self.sessions.next_check_ms(self._image, self._now_ms())
        if check_ms is not None:
            self._timer = asyncio.get_running_loop().call_at(check_ms / 1_000, self._check_sessions, check_ms)

    def _check_sessions(self, check_ms: int) -> None:
        self._timer = None
        image = self._image
        if image is None:
            return
        now_ms = max(self._now_ms(), check_ms)  # the loop's clock may round down to just before the time
        if now_ms - check_ms > STALL_MS:
            sometimes(True, "the controller had not run for a while, and extended all sessions")
            self.sessions.extend(now_ms - check_ms)
        for broker_id in self.sessions.silent(image, now_ms):
            self.on_broker_disconnected(broker_id)
        for broker in self.sessions.expired(image, now_ms):
            sometimes(True, "a broker was fenced because it was silent for its session")
            self.sessions.end(broker.broker_id)
            _logger.warning("broker %d is fenced: it was silent for its session", broker.broker_id)
            self._fence(broker)
        if self._image is image:
            self.arm_timer()

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1_000)
