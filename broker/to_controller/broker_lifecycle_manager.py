"""Registers the broker, sends its heartbeats and its controlled shutdown, and tells what came of them (KIP-631).

The decisions are in `broker_lifecycle`; this is the loop that carries them out, with a connection of its own, so that a
heartbeat that is given up takes no other request with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

from ...controller.metadata.metadata_image import MetadataDelta, MetadataImage
from ...controller.metadata.metadata_loader import MetadataLoader
from ...raft.types import LeaderAndEpoch
from ...wire.codec import Struct
from ...wire.errors import ErrorCode, ProtocolError, error_name
from ..config import BrokerConfig
from .broker_lifecycle import BrokerLifecycle, BrokerState, LifecycleRequest, RegistrationRefused
from .controller_channel import ControllerChannel

logger = logging.getLogger("raftwerk.broker")

TRY_TIMEOUT_MS = 3_000
_RETRY_S = 0.02


class DirFailureUnreportedError(Exception):
    """A directory failed, and the controller does not know."""


class BrokerLifecycleManager:
    """The loop that talks to the controller about this broker.

    `applied_offset()` is the offset of the metadata that this broker has fully applied. `on_fatal` is called when the
    cluster refuses this broker for good, or cannot be told of a failed directory.
    """

    def __init__(
        self,
        config: BrokerConfig,
        incarnation_id: UUID,
        loader: MetadataLoader,
        channel: ControllerChannel,
        applied_offset: Callable[[], int],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._config = config
        self._loader = loader
        self._channel = channel
        self._applied_offset = applied_offset
        self._on_fatal = on_fatal
        self.lifecycle = BrokerLifecycle(config, incarnation_id)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._registered: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] | None = None
        """Done when the controller has let this broker go."""
        self._is_serving = False
        self._reported_duplicate: UUID | None = None
        """The incarnation of another broker of this id of which the log tells."""
        self._has_reported_no_right = False
        self._dir_timers: list[asyncio.TimerHandle] = []

    @property
    def state(self) -> BrokerState:
        """Where the broker is between its start and its end."""
        return self.lifecycle.state

    @property
    def broker_epoch(self) -> int:
        """The epoch of the present registration, -1 before the first."""
        return self.lifecycle.broker_epoch

    def start(self) -> None:
        """Begin to register and to send heartbeats. The broker asks to stay fenced until `begin_serving`."""
        loop = asyncio.get_running_loop()
        self._registered = loop.create_future()
        self._ready = loop.create_future()
        self._gone = loop.create_future()
        self._task = loop.create_task(self._run())

    async def registered(self) -> None:
        """Return when this node's own metadata shows the broker's present registration."""
        if self._registered is not None:
            await asyncio.shield(self._registered)

    async def ready(self) -> None:
        """Return when the broker is unfenced and this node's own metadata shows it. Raises `RegistrationRefused`."""
        if self._ready is not None:
            await asyncio.shield(self._ready)

    def begin_serving(self) -> None:
        """Replicas and listeners are up: ask to be unfenced."""
        self._is_serving = True
        self._wake.set()

    def on_dir_failed(self, path: str, directory_id: UUID) -> None:
        """Tell the controller that a directory failed; stop the node where that is not done in time (KIP-858)."""
        self.lifecycle.on_dir_failed(directory_id)
        self._wake.set()
        limit_ms = self._config.log_dir_failure_timeout_ms
        loop = asyncio.get_running_loop()
        self._dir_timers.append(loop.call_later(limit_ms / 1000, self._check_failure_known, path, directory_id))

    def ask_to_be_fenced(self, wanted: bool) -> None:
        """Ask the controller to fence this broker, so that others lead its partitions; or no longer to."""
        if self.lifecycle.wants_fence != wanted:
            self.lifecycle.wants_fence = wanted
            self._wake.set()

    async def controlled_shutdown(self) -> bool:
        """Have the controller move leaders away. Returns whether it let the broker go within the time-out."""
        if self._task is None or self._gone is None or self._task.done():
            return False
        self.lifecycle.begin_shutdown()
        self._wake.set()
        timeout_s = self._config.controlled_shutdown_timeout_ms / 1000
        await asyncio.wait([self._gone], timeout=timeout_s)
        return self._gone.done()

    async def stop(self) -> None:
        """End the heartbeats."""
        self._channel.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for timer in self._dir_timers:
            timer.cancel()
        for future in (self._ready, self._registered):
            if future is not None:
                future.cancel()

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Look in new metadata for what this broker waits for."""
        if self._config.node_id in delta.changed_brokers:
            self._check_ready()
        if self.lifecycle.state is BrokerState.RECOVERY and image.offset >= self.lifecycle.broker_epoch:
            self._wake.set()
        self._check_registered()

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Send a heartbeat at once: a new controller must hear from this broker before it takes it for dead."""
        self._channel.on_leader_change()
        self._wake.set()

    async def _run(self) -> None:
        while not self.lifecycle.over:
            self._wake.clear()
            request = self.lifecycle.next_request(self._applied_offset() if self._is_serving else -1)
            response = await self._send(request)
            if response is not None and not self._take(request, response):
                return
            delay_ms = self.lifecycle.delay_ms if response is not None else 0
            if delay_ms and not self.lifecycle.over:
                await self._sleep(delay_ms / 1000)
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    async def _send(self, request: LifecycleRequest) -> Struct | None:
        try:
            return await self._channel.request(
                request.api_key,
                request.version,
                request.fields,
                timeout_ms=TRY_TIMEOUT_MS,
                try_timeout_ms=TRY_TIMEOUT_MS,
            )
        except ProtocolError:
            await self._sleep(_RETRY_S)
            return None

    async def _sleep(self, delay_s: float) -> None:
        """Sleep until the time is over or something is to be told at once."""
        try:
            async with asyncio.timeout(delay_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _take(self, request: LifecycleRequest, response: Struct) -> bool:
        """Take a response; False when the cluster refuses this broker for good."""
        before = self.lifecycle.state
        try:
            self.lifecycle.on_response(request, response)
        except RegistrationRefused as error:
            logger.critical("%s", error)
            if self._ready is not None and not self._ready.done():
                self._ready.set_exception(error)
            self._on_fatal(error)
            return False
        if self.lifecycle.state is not before:
            logger.info(
                "broker %d, epoch %d: Transitioning from %s to %s",  # Kafka's words: tools wait for this line
                self._config.node_id,
                self.lifecycle.broker_epoch,
                before.name,
                self.lifecycle.state.name,
            )
        elif response.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            self._report_duplicate()
        elif response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            self._report_no_right()
        elif response.error_code and before is not BrokerState.STARTING:
            logger.warning("heartbeat refused: %s", error_name(response.error_code))
        self._check_registered()
        self._check_ready()
        return True

    def _report_no_right(self) -> None:
        """Say once that the controllers take this broker for nobody of theirs; it goes on asking."""
        if not self._has_reported_no_right:
            self._has_reported_no_right = True
            logger.error(
                "the controller refuses the registration and heartbeats of this broker, whose principal needs "
                "ClusterAction on the cluster: make it one of super.users at the controllers"
            )

    def _report_duplicate(self) -> None:
        """Say once of each other incarnation that this broker waits for its end."""
        other = self._loader.image.brokers.get(self._config.node_id)
        if other is None or other.incarnation_id == self._reported_duplicate:
            return
        self._reported_duplicate = other.incarnation_id
        logger.warning(
            "a broker with id %d is already registered from %s, incarnation %s: this one waits until that one has "
            "stopped or its session has expired; if both are to run, give each its own node.id",
            self._config.node_id,
            ", ".join(f"{one.host}:{one.port}" for one in other.listeners),
            other.incarnation_id,
        )

    def _check_failure_known(self, path: str, directory_id: UUID) -> None:
        if self.lifecycle.over or self.lifecycle.knows_failed(directory_id):
            return
        reason = (
            f"log directory {path} has failed, and no controller could be told within log.dir.failure.timeout.ms: "
            "others cannot take over what it led while this node runs"
        )
        logger.critical("%s", reason)
        self._on_fatal(DirFailureUnreportedError(reason))

    def _check_registered(self) -> None:
        registered = self._registered
        if registered is None or registered.done():
            return
        own = self._loader.image.brokers.get(self._config.node_id)
        if own is not None and own.epoch == self.lifecycle.broker_epoch:
            registered.set_result(None)

    def _check_ready(self) -> None:
        ready = self._ready
        if ready is None or ready.done() or self.lifecycle.state is not BrokerState.RUNNING:
            return
        registration = self._loader.image.brokers.get(self._config.node_id)
        if registration is not None and not registration.fenced and registration.epoch == self.lifecycle.broker_epoch:
            ready.set_result(None)
