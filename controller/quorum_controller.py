"""The active controller's shell: requests in, decisions, records appended, responses out after commit.

Every node with the controller role has a `QuorumController`. It is active while its node leads the quorum. Then it
holds a second image, ahead of the committed one by the records it has appended: decisions see the outcome of all
decisions before them. A decision's records are replayed to that image first, where a broken invariant stops the node
before anything is written, and then appended as one batch. A response waits until everything that it may have seen is
committed. When leadership is lost, whatever was pending is answered NOT_CONTROLLER and the second image is dropped; the
records may or may not survive, and the next controller's log tells.

All events run on the loop, one at a time, in the order they came in.

Failure detection. A broker is fenced when its session ends, and at once when it is known to be dead: its last
connection to this node is gone, and a connect to its listener is refused. A new controller asks the same of every
unfenced broker that has not connected yet. Anything else than a refusal waits for the session to end. A probe is
repeated a few times: while a process dies, its listener may outlive the connection by a moment.

Preferred leaders. Kafka puts them back every 300 s. Here the first change of a partition or broker starts a timer of a
few seconds, after which all imbalance that can be mended is mended in one batch: a restarted broker leads again
soon, but not at the first moment it is in sync, when its other partitions are still coming in one by one. When nothing
changes, nothing ticks.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, NamedTuple, TypeAlias

from ..raft.driver.raft_driver import QuorumFailedError
from ..raft.types import LeaderAndEpoch, NotLeaderError
from ..runtime.invariants import invariant
from ..runtime.ports import Runtime
from ..wire.errors import ErrorCode, ProtocolError
from . import refusals
from .brokers import broker_registration, producer_ids
from .brokers.broker_sessions import BrokerSessions
from .brokers.listener_probe import Probe, ProbeResult
from .configs import alter_configs
from .metadata import features
from .metadata.metadata_image import BrokerRegistration, MetadataDelta, MetadataImage
from .metadata.metadata_loader import MetadataLoader
from .metadata.metadata_records import ConfigRecord, Record, encode_record
from .partitions import alter_partition, leader_election, reassignment, replica_directories, topic_changes
from .result import ControllerResult, Response
from .settings import UNCLEAN_ELECTION_KEY, ControllerSettings

_logger = logging.getLogger(__name__)

STALL_MS = 500
"""A timer this late means that this process was stopped: heartbeats wait unread, and silence proves nothing."""

PROBE_BACKOFF_S = (0.05, 0.2, 0.5)
"""Pauses between the first probes of a broker that is out of contact."""
PROBE_INTERVAL_S = 1.0
"""And between the others, until it is heard or fenced: one that never spoke to this controller may die unnoticed."""

Refusal: TypeAlias = Callable[[Any, ErrorCode, str | None], Response]


@dataclass(frozen=True, slots=True)
class ControllerPorts:
    """What the controller needs of its node.

    `append(records, epoch)` writes one batch to the metadata log and returns its last offset, or raises
    `NotLeaderError`, or `QuorumFailedError` when the disk failed; `log_end_offset()` is the offset the next record
    will get.
    """

    append: Callable[[Sequence[bytes], int], int]
    log_end_offset: Callable[[], int]
    probe: Probe
    kraft_version: Callable[[], int]
    upgrade_kraft_version: Callable[[int, int, bool], None]
    """`(epoch, level, validate_only)`: finalize `kraft.version`; raises as `append`, and `ProtocolError`."""
    voter_ids: Callable[[], Sequence[int]]


class _Pending(NamedTuple):
    """A response that waits for `offset` to be committed."""

    offset: int
    future: asyncio.Future[Response]
    response: Response
    not_controller: Response


class _KRaftVersions(NamedTuple):
    """The quorum's part in UpdateFeatures, for the leader of `epoch`."""

    ports: ControllerPorts
    epoch: int

    @property
    def level(self) -> int:
        return self.ports.kraft_version()

    @property
    def voter_ids(self) -> Sequence[int]:
        return self.ports.voter_ids()

    def upgrade(self, level: int, *, validate_only: bool) -> int:
        self.ports.upgrade_kraft_version(self.epoch, level, validate_only)
        return self.ports.log_end_offset() - 1


class _Asked(NamedTuple):
    """A request that is decided on, perhaps in several parts."""

    request: Any
    decide: Callable[[MetadataImage], ControllerResult]
    refusal: Refusal
    finish: Callable[[_Term, Response], None] | None
    future: asyncio.Future[Response]
    not_controller: Response


class _Term:
    """What lives as long as one leadership: the image ahead of commit, responses that wait, timers."""

    def __init__(self, epoch: int, image: MetadataImage) -> None:
        self.epoch = epoch
        self.image = image
        self.pending: deque[_Pending] = deque()
        self.expiry: asyncio.TimerHandle | None = None
        self.rebalance: asyncio.TimerHandle | None = None

    def end(self) -> None:
        for timer in (self.expiry, self.rebalance):
            if timer is not None:
                timer.cancel()
        for waiting in self.pending:
            if not waiting.future.done():
                waiting.future.set_result(waiting.not_controller)
        self.pending.clear()


class QuorumController:
    """See the module. Requests are decoded structs; each method gives a future of the response's fields."""

    def __init__(
        self, settings: ControllerSettings, runtime: Runtime, loader: MetadataLoader, ports: ControllerPorts
    ) -> None:
        self._settings = settings
        self._config_rules = alter_configs.ConfigRules(settings.group_limits, settings.policies)
        self._rng = runtime.rng
        self._committed = loader.image
        self._ports = ports
        self._sessions = BrokerSessions(settings.broker_session_timeout_ms)
        self._term: _Term | None = None
        self._probes: dict[int, asyncio.Task[None]] = {}
        self._closed = False
        loader.subscribe(self._on_commit)
        loader.subscribe_leader(self._on_leader_change)

    @property
    def active(self) -> bool:
        """Whether this node is the active controller."""
        return self._term is not None

    @property
    def image(self) -> MetadataImage:
        """What decisions are made on: ahead of commit while active, the committed image else."""
        return self._committed if self._term is None else self._term.image

    def close(self) -> None:
        """Stop: refuse what is pending, and start nothing more."""
        self._closed = True
        self._resign()
        for probe in self._probes.values():
            probe.cancel()

    # -- requests ----------------------------------------------------------------------------------------------------

    def register_broker(self, request: Any) -> asyncio.Future[Response]:
        """BrokerRegistration; `broker_epoch` is the offset of the registration's record."""

        def decide(image: MetadataImage) -> ControllerResult:
            return broker_registration.register_broker(image, self._settings, self._sessions, request, self._now_ms())

        def finish(term: _Term, response: Response) -> None:
            epoch = term.image.brokers[request.broker_id].epoch
            response["broker_epoch"] = epoch
            session = self._sessions.get(request.broker_id)
            if session is None or session.broker_epoch != epoch:
                self._sessions.grant(request.broker_id, epoch, self._now_ms())

        return self._handle(request, decide, refusals.refuse, finish)

    def broker_heartbeat(self, request: Any) -> asyncio.Future[Response]:
        """BrokerHeartbeat."""

        def decide(image: MetadataImage) -> ControllerResult:
            return broker_registration.broker_heartbeat(image, self._settings, self._sessions, request, self._now_ms())

        def finish(term: _Term, response: Response) -> None:
            session = self._sessions.get(request.broker_id)
            leaving = term.image.brokers[request.broker_id].in_controlled_shutdown
            if session is not None and leaving and session.shutdown_offset is None:
                session.shutdown_offset = term.image.offset

        return self._handle(request, decide, refusals.refuse, finish)

    def unregister_broker(self, request: Any) -> asyncio.Future[Response]:
        """UnregisterBroker."""
        return self._handle(
            request,
            lambda image: broker_registration.unregister_broker(image, self._settings, request.broker_id),
            refusals.refuse,
        )

    def register_controller(self, request: Any) -> asyncio.Future[Response]:
        """ControllerRegistration."""
        return self._handle(
            request, lambda image: broker_registration.register_controller(image, request), refusals.refuse
        )

    def alter_partition(self, request: Any) -> asyncio.Future[Response]:
        """AlterPartition."""
        return self._handle(
            request,
            lambda image: alter_partition.alter_partition(image, self._settings, request),
            refusals.refuse_alter_partition,
        )

    def assign_replicas_to_dirs(self, request: Any) -> asyncio.Future[Response]:
        """AssignReplicasToDirs."""
        return self._handle(
            request,
            lambda image: replica_directories.assign_replicas_to_dirs(image, self._settings, request),
            refusals.refuse_assign_replicas,
        )

    def allocate_producer_ids(self, request: Any) -> asyncio.Future[Response]:
        """AllocateProducerIds."""
        return self._handle(request, lambda image: producer_ids.allocate_producer_ids(image, request), refusals.refuse)

    def create_topics(self, request: Any) -> asyncio.Future[Response]:
        """CreateTopics."""
        creation = topic_changes.TopicCreation(request)
        return self._handle(request, lambda image: creation.decide(self._context(image)), refusals.refuse_create_topics)

    def delete_topics(self, request: Any) -> asyncio.Future[Response]:
        """DeleteTopics."""
        return self._handle(
            request,
            lambda image: topic_changes.delete_topics(self._context(image), request),
            refusals.refuse_delete_topics,
        )

    def create_partitions(self, request: Any) -> asyncio.Future[Response]:
        """CreatePartitions."""
        return self._handle(
            request,
            lambda image: topic_changes.create_partitions(self._context(image), request),
            refusals.refuse_create_partitions,
        )

    def elect_leaders(self, request: Any) -> asyncio.Future[Response]:
        """ElectLeaders."""
        return self._handle(
            request,
            lambda image: leader_election.elect_leaders(image, self._settings, request),
            refusals.refuse_elect_leaders,
        )

    def alter_partition_reassignments(self, request: Any) -> asyncio.Future[Response]:
        """AlterPartitionReassignments."""
        return self._handle(
            request,
            lambda image: reassignment.alter_partition_reassignments(image, self._settings, request),
            refusals.refuse_reassignments,
        )

    def list_partition_reassignments(self, request: Any) -> asyncio.Future[Response]:
        """ListPartitionReassignments."""
        return self._handle(
            request,
            lambda image: reassignment.list_partition_reassignments(image, request),
            refusals.refuse_list_reassignments,
        )

    def update_features(self, request: Any) -> asyncio.Future[Response]:
        """UpdateFeatures."""
        kraft = _KRaftVersions(self._ports, self._term.epoch if self._term is not None else -1)
        supported = self._settings.supported_features
        return self._handle(
            request, lambda image: features.update_features(image, request, kraft, supported), refusals.refuse
        )

    def alter_configs(self, request: Any) -> asyncio.Future[Response]:
        """AlterConfigs."""
        return self._handle(
            request,
            lambda image: alter_configs.alter_configs(image, request, self._config_rules),
            refusals.refuse_alter_configs,
        )

    def incremental_alter_configs(self, request: Any) -> asyncio.Future[Response]:
        """IncrementalAlterConfigs."""
        return self._handle(
            request,
            lambda image: alter_configs.incremental_alter_configs(image, request, self._config_rules),
            refusals.refuse_alter_configs,
        )

    def _context(self, image: MetadataImage) -> topic_changes.Context:
        return topic_changes.Context(image, self._settings, self._rng)

    # -- from decision to response -----------------------------------------------------------------------------------

    def _handle(
        self,
        request: Any,
        decide: Callable[[MetadataImage], ControllerResult],
        refusal: Refusal,
        finish: Callable[[_Term, Response], None] | None = None,
    ) -> asyncio.Future[Response]:
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        not_controller = refusal(request, ErrorCode.NOT_CONTROLLER, "This node is not the active controller.")
        term = self._term
        if term is None:
            future.set_result(not_controller)
        else:
            self._decide(term, _Asked(request, decide, refusal, finish, future, not_controller))
        return future

    def _decide(self, term: _Term, asked: _Asked) -> None:
        """Decide, append, and let the answer wait for the commit; a decision of many parts goes on in later turns."""
        if self._term is not term:
            asked.future.set_result(asked.not_controller)
            return
        finish = asked.finish
        try:
            result = asked.decide(term.image)
        except ProtocolError as error:
            result = ControllerResult([], asked.refusal(asked.request, error.code, error.message))
            finish = None
        except (NotLeaderError, QuorumFailedError):
            self._resign()
            asked.future.set_result(asked.not_controller)
            return
        if not self._append(term, result.records):
            asked.future.set_result(asked.not_controller)
            return
        if result.has_more:
            asyncio.get_running_loop().call_soon(self._decide, term, asked)
            return
        if finish is not None:
            finish(term, result.response)
        awaited = max(term.image.offset, result.written_offset)
        if awaited <= self._committed.offset:
            asked.future.set_result(result.response)
        else:
            term.pending.append(_Pending(awaited, asked.future, result.response, asked.not_controller))

    def _append(self, term: _Term, records: Sequence[Record]) -> bool:
        """Replay ahead of commit, then append as one batch; False when leadership is gone, and with it the term."""
        if not records:
            return True
        delta = MetadataDelta()
        base_offset = self._ports.log_end_offset()
        level = term.image.record_level
        for offset, record in enumerate(records, start=base_offset):
            term.image.replay(record, offset, delta)
        # A batch that lowers the level is itself read by older software.
        level = min(level, term.image.record_level)
        try:
            last_offset = self._ports.append([encode_record(record, level) for record in records], term.epoch)
        except (NotLeaderError, QuorumFailedError):
            self._resign()
            return False
        invariant(last_offset == base_offset + len(records) - 1, "a decision's records are one batch at the log's end")
        if delta.changed_brokers:
            self._arm_expiry(term)
        if delta.moves_leadership:
            self._arm_rebalance(term)
        if any(isinstance(record, ConfigRecord) and record.name == UNCLEAN_ELECTION_KEY for record in records):
            asyncio.get_running_loop().call_soon(self._elect_where_allowed, term)
        return True

    def _on_commit(self, image: MetadataImage, delta: MetadataDelta) -> None:
        term = self._term
        if term is None:
            return
        while term.pending and term.pending[0].offset <= image.offset:
            done = term.pending.popleft()
            if not done.future.done():
                done.future.set_result(done.response)

    # -- leadership --------------------------------------------------------------------------------------------------

    def _on_leader_change(self, leader: LeaderAndEpoch) -> None:
        if leader.leader_id != self._settings.node_id or self._closed:
            self._resign()
        elif self._term is None or self._term.epoch != leader.epoch:
            self._resign()
            self._activate(leader.epoch)

    def _activate(self, epoch: int) -> None:
        term = self._term = _Term(epoch, self._committed.copy())
        term.image.advance(term.image.offset, epoch)
        self._sessions.start(term.image, self._now_ms())
        settings = self._settings
        first = features.bootstrap_records(term.image, settings.supported_features, settings.first_features)
        if not self._append(term, first):
            return
        self._arm_expiry(term)
        self._arm_rebalance(term)
        for broker_id in sorted(term.image.brokers):
            self._start_probe(broker_id)

    def _resign(self) -> None:
        term, self._term = self._term, None
        if term is not None:
            term.end()

    # -- who is alive ------------------------------------------------------------------------------------------------

    def on_broker_disconnected(self, broker_id: int) -> None:
        """The connection over which that broker spoke last went down, which raises the question whether it is dead."""
        self._sessions.lose_contact(broker_id)
        self._start_probe(broker_id)

    def _start_probe(self, broker_id: int) -> None:
        """Probe the broker, starting over when a round of probes is under way."""
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
            probe.result()  # whatever went wrong in it is not to be swallowed

    def _suspect(self, broker_id: int) -> BrokerRegistration | None:
        """The registration of an unfenced broker that this active controller is not in contact with.

        A connection alone proves nothing: its other end may be gone.
        """
        if self._term is None:
            return None
        broker = self._term.image.brokers.get(broker_id)
        session = self._sessions.get(broker_id)
        if broker is None or broker.fenced or (session is not None and session.in_contact):
            return None
        return broker

    async def _probe(self, broker_id: int) -> None:
        for pause_s in chain(PROBE_BACKOFF_S, repeat(PROBE_INTERVAL_S)):
            suspect = self._suspect(broker_id)
            if suspect is None:
                return
            endpoint = suspect.endpoint(self._settings.inter_broker_listener_name) or suspect.listeners[0]
            result = await self._ports.probe(endpoint.host, endpoint.port)
            if result is ProbeResult.REFUSED:
                self._on_refused(suspect)
                return
            await asyncio.sleep(pause_s)

    def _on_refused(self, dead: BrokerRegistration) -> None:
        suspect = self._suspect(dead.broker_id)
        if self._term is None or suspect is None or suspect.epoch != dead.epoch:
            return
        self._sessions.end(dead.broker_id)
        _logger.warning("broker %d is fenced: its connections closed and its port refuses", dead.broker_id)
        self._fence(self._term, suspect)

    def _arm_expiry(self, term: _Term) -> None:
        if term.expiry is not None:
            return
        look_ms = self._sessions.next_look_ms(term.image, self._now_ms())
        if look_ms is not None:
            loop = asyncio.get_running_loop()
            term.expiry = loop.call_at(look_ms / 1_000, self._look_for_silent, term, look_ms)

    def _look_for_silent(self, term: _Term, look_ms: int) -> None:
        term.expiry = None
        now_ms = max(self._now_ms(), look_ms)  # the loop's clock may round down to just before the time
        if now_ms - look_ms > STALL_MS:
            self._sessions.extend(now_ms - look_ms)
        for broker_id in self._sessions.silent(term.image, now_ms):
            self._sessions.lose_contact(broker_id)
            self._start_probe(broker_id)
        for broker in self._sessions.expired(term.image, now_ms):
            self._sessions.end(broker.broker_id)
            _logger.warning("broker %d is fenced: it was silent for its session", broker.broker_id)
            self._fence(term, broker)
        if self._term is term:
            self._arm_expiry(term)

    def _fence(self, term: _Term, broker: BrokerRegistration) -> None:
        """Fence this incarnation of the broker; one with very many partitions over some turns of the loop."""
        known = term.image.brokers.get(broker.broker_id)
        if self._term is not term or known is None or known.epoch != broker.epoch or known.fenced:
            return
        if self._append(
            term,
            broker_registration.fence_broker(term.image, self._settings, broker.broker_id, self._sessions.departures),
        ):
            asyncio.get_running_loop().call_soon(self._fence, term, broker)

    def _elect_where_allowed(self, term: _Term) -> None:
        """Unclean elections were allowed somewhere: what waits for one has it now."""
        if self._term is term:
            self._append(term, leader_election.unclean_leaders(term.image, self._settings))

    # -- preferred leaders -------------------------------------------------------------------------------------------

    def _arm_rebalance(self, term: _Term) -> None:
        if term.rebalance is None and self._settings.auto_leader_rebalance_enable:
            delay_s = self._settings.leader_imbalance_check_interval_ms / 1_000
            term.rebalance = asyncio.get_running_loop().call_later(delay_s, self._on_rebalance, term)

    def _on_rebalance(self, term: _Term) -> None:
        term.rebalance = None
        self._append(term, leader_election.preferred_leaders(term.image, self._settings))

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1_000)
