"""The active controller: requests in, decisions, records appended, responses out after their commit.

Every node with the controller role has a `QuorumController`. It is active while its node leads the quorum. Then it
holds a second image, ahead of the committed one by the records that it has appended: each decision sees the outcome of
all decisions before it. The records of a decision are replayed to that image first, where a broken invariant stops the
node before anything is written. Then they are appended as one batch. A response waits until all that the decision may
have seen is committed. When leadership is lost, pending requests are answered NOT_CONTROLLER, and the second image
is dropped. Their records may survive or not; the log of the next controller tells.

All events run on the loop, one at a time, in the order in which they came in. A decision that may be long is made in
parts (`result.py`), one part in an iteration of the loop. The requests of clients take turns: of all of them together
one part is made in an iteration. What brokers ask for, and fencing, does not wait for them.

Preferred leaders. Kafka gives them leadership back every 300 s. Here the first change of a partition or broker starts a
timer of a few seconds, after which they lead again. A restarted broker leads again soon, but not at the moment when its
first partition is in sync and the others are not. While nothing changes, no timer runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from ..raft.driver.raft_driver import QuorumFailedError
from ..raft.types import LeaderAndEpoch, NotLeaderError
from ..runtime.incremental_work import Step
from ..runtime.invariants import invariant, sometimes
from ..runtime.ports import Runtime
from ..security.principals import KafkaPrincipal
from ..wire.errors import ErrorCode, ProtocolError
from . import error_responses
from .brokers import broker_fencing, broker_heartbeat, broker_registration, producer_ids
from .brokers.broker_fencing import BrokerFailureDetector
from .brokers.listener_probe import Probe
from .configs import alter_configs
from .metadata import features
from .metadata.metadata_image import BrokerRegistration, MetadataDelta, MetadataImage
from .metadata.metadata_loader import MetadataLoader
from .metadata.metadata_records import ConfigRecord, Record, encode_record
from .partitions import alter_partition, leader_election, reassignment, replica_directories
from .partitions.eligible_leader_replicas import record_min_isr
from .result import ControllerResult, Decision, Response
from .security import acls, client_quotas, delegation_tokens, scram_credentials
from .security.delegation_tokens import TokenRequester
from .security.rights import IsAllowed, allows_all
from .settings import UNCLEAN_ELECTION_KEY, ControllerSettings
from .term import PART_PAUSE_S, Decide, PendingRequest, PendingResponse, Term
from .topics import create_partitions, create_topics, delete_topics
from .topics.new_partitions import CountPartitions, TopicContext, counts_nothing

if TYPE_CHECKING:
    from ..wire.message_types.acls import CreateAclsRequest, DeleteAclsRequest
    from ..wire.message_types.brokers import (
        AlterPartitionRequest,
        AssignReplicasToDirsRequest,
        BrokerHeartbeatRequest,
        BrokerRegistrationRequest,
        ControllerRegistrationRequest,
        UnregisterBrokerRequest,
        UpdateFeaturesRequest,
    )
    from ..wire.message_types.configs import (
        AlterClientQuotasRequest,
        AlterConfigsRequest,
        IncrementalAlterConfigsRequest,
    )
    from ..wire.message_types.security import (
        AlterUserScramCredentialsRequest,
        CreateDelegationTokenRequest,
        ExpireDelegationTokenRequest,
        RenewDelegationTokenRequest,
    )
    from ..wire.message_types.topics import (
        AlterPartitionReassignmentsRequest,
        CreatePartitionsRequest,
        CreateTopicsRequest,
        DeleteTopicsRequest,
        ElectLeadersRequest,
        ListPartitionReassignmentsRequest,
    )
    from ..wire.message_types.transactions import AllocateProducerIdsRequest

_Request = TypeVar("_Request")
ErrorResponse: TypeAlias = Callable[[_Request, ErrorCode, str | None], Response]


@dataclass(frozen=True, slots=True)
class ControllerPorts:
    """What the controller needs from its node."""

    append: Callable[[Sequence[bytes], int], int]
    """`(records, epoch)`: write one batch to the metadata log; returns the offset of its last record.

    Raises `NotLeaderError`, and `QuorumFailedError` when the disk failed.
    """
    log_end_offset: Callable[[], int]
    """The offset of the next record."""
    probe: Probe
    kraft_version: Callable[[], int]
    upgrade_kraft_version: Callable[[int, int, bool], None]
    """`(epoch, level, validate_only)`: finalize `kraft.version`; raises as `append`, and `ProtocolError`."""
    voter_ids: Callable[[], Sequence[int]]


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


class QuorumController:
    """The controller of one node, active or not. Each request method returns a future of the response's fields."""

    def __init__(
        self, settings: ControllerSettings, runtime: Runtime, loader: MetadataLoader, ports: ControllerPorts
    ) -> None:
        self._settings = settings
        self._config_rules = alter_configs.ConfigRules(settings.group_limits, settings.policies)
        self._rng = runtime.rng
        self._clock = runtime.clock
        self._committed = loader.image
        self._ports = ports
        self._failures = BrokerFailureDetector(settings, ports.probe, self._on_dead_broker)
        self._sessions = self._failures.sessions
        self._term: Term | None = None
        self._closed = False
        loader.subscribe(self._on_commit, is_fatal=True)
        loader.subscribe_leader(self._on_leader_change, is_fatal=True)

    @property
    def active(self) -> bool:
        """Whether this node is the active controller."""
        return self._term is not None

    @property
    def image(self) -> MetadataImage:
        """The image that decisions are based on: ahead of the commit while active, else the committed image."""
        return self._committed if self._term is None else self._term.image

    def close(self) -> None:
        """Stop for good. Pending requests are answered NOT_CONTROLLER."""
        self._closed = True
        self._resign()
        self._failures.close()

    # -- requests ----------------------------------------------------------------------------------------------------

    def register_broker(self, request: BrokerRegistrationRequest) -> asyncio.Future[Response]:
        """BrokerRegistration. The broker epoch is the offset of the registration record."""

        def decide(image: MetadataImage) -> Decision:
            return broker_registration.register_broker(image, self._settings, self._sessions, request, self._now_ms())

        def finish(term: Term, response: Response) -> None:
            epoch = term.image.brokers[request.broker_id].epoch
            response["broker_epoch"] = epoch
            session = self._sessions.get(request.broker_id)
            if session is None or session.broker_epoch != epoch:
                self._sessions.grant(request.broker_id, epoch, self._now_ms())

        return self._handle(request, decide, error_responses.top_level, finish)

    def broker_heartbeat(self, request: BrokerHeartbeatRequest) -> asyncio.Future[Response]:
        """BrokerHeartbeat."""

        def decide(image: MetadataImage) -> Decision:
            return broker_heartbeat.broker_heartbeat(image, self._settings, self._sessions, request, self._now_ms())

        def finish(term: Term, response: Response) -> None:
            session = self._sessions.get(request.broker_id)
            broker = term.image.brokers.get(request.broker_id)
            leaving = broker is not None and broker.in_controlled_shutdown
            if session is not None and leaving and session.shutdown_offset is None:
                session.shutdown_offset = term.image.offset

        return self._handle(request, decide, error_responses.top_level, finish)

    def unregister_broker(self, request: UnregisterBrokerRequest) -> asyncio.Future[Response]:
        """UnregisterBroker."""
        return self._handle_in_turn(
            request,
            lambda image: broker_registration.unregister_broker(image, self._settings, request.broker_id),
            error_responses.top_level,
        )

    def register_controller(self, request: ControllerRegistrationRequest) -> asyncio.Future[Response]:
        """ControllerRegistration."""
        return self._handle(
            request, lambda image: broker_registration.register_controller(image, request), error_responses.top_level
        )

    def alter_partition(self, request: AlterPartitionRequest) -> asyncio.Future[Response]:
        """AlterPartition."""
        return self._handle(
            request,
            lambda image: alter_partition.alter_partition(image, self._settings, request),
            error_responses.alter_partition,
        )

    def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> asyncio.Future[Response]:
        """AssignReplicasToDirs."""
        return self._handle(
            request,
            lambda image: replica_directories.assign_replicas_to_dirs(image, self._settings, request),
            error_responses.assign_replicas,
        )

    def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> asyncio.Future[Response]:
        """AllocateProducerIds."""
        return self._handle(
            request, lambda image: producer_ids.allocate_producer_ids(image, request), error_responses.top_level
        )

    def create_topics(
        self, request: CreateTopicsRequest, is_allowed: IsAllowed = allows_all, count: CountPartitions = counts_nothing
    ) -> asyncio.Future[Response]:
        """CreateTopics."""
        return self._handle_in_turn(
            request,
            lambda image: create_topics.create_topics(self._context(image), request, is_allowed, count),
            error_responses.create_topics,
        )

    def delete_topics(
        self, request: DeleteTopicsRequest, is_allowed: IsAllowed = allows_all, count: CountPartitions = counts_nothing
    ) -> asyncio.Future[Response]:
        """DeleteTopics."""
        return self._handle_in_turn(
            request,
            lambda image: delete_topics.delete_topics(image, self._settings, request, is_allowed, count),
            error_responses.delete_topics,
        )

    def create_partitions(
        self,
        request: CreatePartitionsRequest,
        is_allowed: IsAllowed = allows_all,
        count: CountPartitions = counts_nothing,
    ) -> asyncio.Future[Response]:
        """CreatePartitions."""
        return self._handle_in_turn(
            request,
            lambda image: create_partitions.create_partitions(self._context(image), request, is_allowed, count),
            error_responses.create_partitions,
        )

    def elect_leaders(self, request: ElectLeadersRequest) -> asyncio.Future[Response]:
        """ElectLeaders."""
        return self._handle_in_turn(
            request,
            lambda image: leader_election.elect_leaders(image, self._settings, request),
            error_responses.elect_leaders,
        )

    def alter_partition_reassignments(self, request: AlterPartitionReassignmentsRequest) -> asyncio.Future[Response]:
        """AlterPartitionReassignments."""
        return self._handle_in_turn(
            request,
            lambda image: reassignment.alter_partition_reassignments(image, self._settings, request),
            error_responses.reassignments,
        )

    def list_partition_reassignments(self, request: ListPartitionReassignmentsRequest) -> asyncio.Future[Response]:
        """ListPartitionReassignments."""
        return self._handle_in_turn(
            request,
            lambda image: reassignment.list_partition_reassignments(image, request),
            error_responses.list_reassignments,
        )

    def update_features(self, request: UpdateFeaturesRequest) -> asyncio.Future[Response]:
        """UpdateFeatures."""
        kraft = _KRaftVersions(self._ports, self._term.epoch if self._term is not None else -1)
        own = (self._settings.supported_features, self._settings.static_min_isr)
        return self._handle_in_turn(
            request, lambda image: features.update_features(image, request, kraft, *own), error_responses.top_level
        )

    def alter_configs(
        self, request: AlterConfigsRequest, is_allowed: IsAllowed = allows_all
    ) -> asyncio.Future[Response]:
        """AlterConfigs."""
        return self._handle_in_turn(
            request,
            lambda image: alter_configs.alter_configs(image, request, self._config_rules, is_allowed),
            error_responses.alter_configs,
        )

    def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, is_allowed: IsAllowed = allows_all
    ) -> asyncio.Future[Response]:
        """IncrementalAlterConfigs."""
        return self._handle_in_turn(
            request,
            lambda image: alter_configs.incremental_alter_configs(image, request, self._config_rules, is_allowed),
            error_responses.alter_configs,
        )

    def alter_scram_credentials(self, request: AlterUserScramCredentialsRequest) -> asyncio.Future[Response]:
        """AlterUserScramCredentials."""
        return self._handle_in_turn(
            request,
            lambda image: scram_credentials.alter_scram_credentials(image, request),
            error_responses.scram_credentials,
        )

    def alter_client_quotas(self, request: AlterClientQuotasRequest) -> asyncio.Future[Response]:
        """AlterClientQuotas."""
        return self._handle_in_turn(
            request,
            lambda image: client_quotas.alter_client_quotas(image, request),
            error_responses.client_quotas,
        )

    def create_acls(self, request: CreateAclsRequest) -> asyncio.Future[Response]:
        """CreateAcls."""
        return self._handle_in_turn(
            request, lambda image: acls.create_acls(image, request, self._rng), error_responses.create_acls
        )

    def delete_acls(self, request: DeleteAclsRequest) -> asyncio.Future[Response]:
        """DeleteAcls."""
        return self._handle_in_turn(
            request, lambda image: acls.delete_acls(image, request), error_responses.delete_acls
        )

    def create_token(
        self, request: CreateDelegationTokenRequest, principal: KafkaPrincipal, is_allowed: IsAllowed = allows_all
    ) -> asyncio.Future[Response]:
        """CreateDelegationToken, asked for by the principal."""
        who = TokenRequester(principal, is_allowed, self._clock.wall_ms())
        settings = self._settings.tokens
        return self._handle_in_turn(
            request,
            lambda image: delegation_tokens.create_token(image, settings, request, who, self._rng),
            error_responses.create_token,
        )

    def renew_token(
        self, request: RenewDelegationTokenRequest, principal: KafkaPrincipal, is_allowed: IsAllowed = allows_all
    ) -> asyncio.Future[Response]:
        """RenewDelegationToken, asked for by the principal."""
        who = TokenRequester(principal, is_allowed, self._clock.wall_ms())
        return self._handle_in_turn(
            request,
            lambda image: delegation_tokens.renew_token(image, self._settings.tokens, request, who),
            error_responses.change_token,
        )

    def expire_token(
        self, request: ExpireDelegationTokenRequest, principal: KafkaPrincipal, is_allowed: IsAllowed = allows_all
    ) -> asyncio.Future[Response]:
        """ExpireDelegationToken, asked for by the principal."""
        who = TokenRequester(principal, is_allowed, self._clock.wall_ms())
        return self._handle_in_turn(
            request,
            lambda image: delegation_tokens.expire_token(image, self._settings.tokens, request, who),
            error_responses.change_token,
        )

    def _context(self, image: MetadataImage) -> TopicContext:
        return TopicContext(image, self._settings, self._rng)

    # -- from decision to response -----------------------------------------------------------------------------------

    def _handle(
        self,
        request: _Request,
        decide: Decide,
        error_response: ErrorResponse[_Request],
        finish: Callable[[Term, Response], None] | None = None,
    ) -> asyncio.Future[Response]:
        """Decide what a broker asks for."""
        pending = self._pending(request, decide, error_response, finish)
        term = self._term
        if term is None:
            pending.answer(pending.not_controller)
        else:
            self._decide(term, pending)
        return pending.future

    def _handle_in_turn(
        self, request: _Request, decide: Decide, error_response: ErrorResponse[_Request]
    ) -> asyncio.Future[Response]:
        """Decide what a client asks for, at once if no other client's request was decided in this iteration."""
        pending = self._pending(request, decide, error_response, None)
        term = self._term
        if term is None:
            pending.answer(pending.not_controller)
        else:
            term.waiting.append(pending)
            if not term.is_turn_scheduled:
                self._take_turn(term)
        return pending.future

    def _pending(
        self,
        request: _Request,
        decide: Decide,
        error_response: ErrorResponse[_Request],
        finish: Callable[[Term, Response], None] | None,
    ) -> PendingRequest:
        refuse = partial(error_response, request)
        not_controller = refuse(ErrorCode.NOT_CONTROLLER, "This node is not the active controller.")
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        return PendingRequest(decide, refuse, finish, future, not_controller)

    def _take_turn(self, term: Term) -> None:
        """Make one part of one client's decision. The next turn is in the next iteration, or after `PART_PAUSE_S`."""
        term.is_turn_scheduled = bool(term.waiting)
        if not term.waiting:
            return
        pending, offset, pause_s = term.waiting.popleft(), term.image.offset, 0.0
        try:
            if self._decide_part(term, pending):
                term.waiting.append(pending)
                pause_s = PART_PAUSE_S if term.image.offset > offset else 0.0
        finally:
            asyncio.get_running_loop().call_later(pause_s, self._take_turn, term)

    def _decide(self, term: Term, pending: PendingRequest) -> None:
        """Make the first part of the decision, and one part in each iteration after this one."""
        if self._term is not term:
            sometimes(True, "a controller lost its leadership between two parts of a decision")
            pending.answer(pending.not_controller)
        elif self._decide_part(term, pending):
            asyncio.get_running_loop().call_soon(self._decide, term, pending)

    def _decide_on_its_own(self, term: Term, decide: Decide) -> None:
        """Decide what nobody has asked for. Errors go to the loop's exception handler."""
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        future.add_done_callback(asyncio.Future.result)
        self._decide(term, PendingRequest(decide, lambda code, text: {}, None, future, {}))

    def _decide_part(self, term: Term, pending: PendingRequest) -> bool:
        """Make one part of the decision and append its records. True when there are more parts."""
        try:
            return self._make_part(term, pending)
        except Exception as error:
            if pending.future.done():
                raise
            pending.future.set_exception(error)
            return False

    def _make_part(self, term: Term, pending: PendingRequest) -> bool:
        finish = pending.finish
        try:
            part = pending.next_part(term.image)
        except ProtocolError as error:
            part = ControllerResult([], pending.refuse(error.code, error.message))
            finish = None
        except (NotLeaderError, QuorumFailedError):
            self._resign()
            pending.answer(pending.not_controller)
            return False
        if isinstance(part, Step):
            return True
        if not self._append(term, part.records if isinstance(part, ControllerResult) else part):
            pending.answer(pending.not_controller)
            return False
        if not isinstance(part, ControllerResult):
            return True
        if finish is not None:
            finish(term, part.response)
        awaited = max(term.image.offset, part.written_offset)
        if awaited <= self._committed.offset:
            pending.answer(part.response)
        else:
            term.pending_responses.append(
                PendingResponse(awaited, pending.future, part.response, pending.not_controller)
            )
        return False

    def _append(self, term: Term, records: Sequence[Record]) -> bool:
        """Replay the records ahead of the commit, then append them as one batch. False when leadership is lost."""
        if not records:
            return True
        delta = MetadataDelta()
        base_offset = self._ports.log_end_offset()
        level = term.image.record_level
        for offset, record in enumerate(records, start=base_offset):
            term.image.replay(record, offset, delta)
        # A batch that lowers the record version must be readable by the older software already.
        level = min(level, term.image.record_level)
        try:
            last_offset = self._ports.append([encode_record(record, level) for record in records], term.epoch)
        except (NotLeaderError, QuorumFailedError):
            sometimes(True, "a controller lost its leadership before it had appended its decision")
            self._resign()
            return False
        invariant(last_offset == base_offset + len(records) - 1, "a decision's records are one batch at the log's end")
        if delta.changed_brokers:
            self._failures.arm_timer()
        if delta.moves_leadership:
            self._arm_rebalance(term)
        if delta.changed_tokens:
            self._arm_token_check(term)
        if any(isinstance(record, ConfigRecord) and record.name == UNCLEAN_ELECTION_KEY for record in records):
            asyncio.get_running_loop().call_soon(self._elect_where_none_leads, term)
        return True

    def _on_commit(self, image: MetadataImage, delta: MetadataDelta) -> None:
        term = self._term
        if term is None:
            return
        while term.pending_responses and term.pending_responses[0].offset <= image.offset:
            done = term.pending_responses.popleft()
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
        term = self._term = Term(epoch, self._committed.copy())
        term.image.advance(term.image.offset, epoch)
        self._failures.activate(term.image)
        settings = self._settings
        first = features.bootstrap_records(term.image, settings.supported_features, settings.bootstrap_features)
        first += settings.bootstrap_users if first else ()
        if not self._append(term, first):
            return
        self._failures.arm_timer()
        self._arm_rebalance(term)
        self._arm_token_check(term)
        self._failures.probe_all()
        self._decide_on_its_own(term, lambda image: record_min_isr(image, settings.static_min_isr))
        self._elect_where_none_leads(term)

    def _resign(self) -> None:
        term, self._term = self._term, None
        if term is not None:
            self._failures.deactivate()
            term.end()

    # -- brokers -----------------------------------------------------------------------------------------------------

    def on_broker_disconnected(self, broker_id: int) -> None:
        """The connection over which that broker spoke last ended: find out whether the broker is dead."""
        self._failures.on_broker_disconnected(broker_id)

    def _on_dead_broker(self, broker: BrokerRegistration) -> None:
        if self._term is not None:
            departures = self._sessions.departures
            self._decide_on_its_own(
                self._term, lambda image: broker_fencing.fence_broker(image, self._settings, broker, departures)
            )

    def _elect_where_none_leads(self, term: Term) -> None:
        self._decide_on_its_own(term, lambda image: leader_election.leaderless_partitions(image, self._settings))

    # -- preferred leaders -------------------------------------------------------------------------------------------

    def _arm_rebalance(self, term: Term) -> None:
        if term.rebalance is None and self._settings.auto_leader_rebalance_enable:
            delay_s = self._settings.leader_imbalance_check_interval_ms / 1_000
            term.rebalance = asyncio.get_running_loop().call_later(delay_s, self._on_rebalance, term)

    def _on_rebalance(self, term: Term) -> None:
        term.rebalance = None
        self._decide_on_its_own(term, lambda image: leader_election.preferred_leaders(image, self._settings))

    # -- delegation tokens -------------------------------------------------------------------------------------------

    def _arm_token_check(self, term: Term) -> None:
        """Look for expired tokens after the interval. Without tokens, and after the term, no timer runs."""
        if self._term is term and term.token_check is None and term.image.delegation_tokens:
            delay_s = self._settings.tokens.expiry_check_interval_ms / 1_000
            term.token_check = asyncio.get_running_loop().call_later(delay_s, self._on_token_check, term)

    def _on_token_check(self, term: Term) -> None:
        term.token_check = None
        now_ms = self._clock.wall_ms()
        self._decide_on_its_own(term, lambda image: delegation_tokens.remove_expired_tokens(image, now_ms))
        self._arm_token_check(term)

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1_000)
