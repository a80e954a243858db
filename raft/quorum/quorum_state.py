"""The state that one node's roles share, and the changes between them (Kafka's QuorumState).

It owns the epoch and the vote, the log, the high watermark, the voters that count, the random time-outs, and the
effects that are collected for the driver. The roles decide (`roles/`); they ask this object for what they share, and
for another role. The moves that are legal are in `roles/role_transitions.py`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from ...runtime.invariants import invariant, sometimes
from ...wire.errors import ErrorCode
from ..messages import requests
from ..messages.messages import ChangeReply, EpochReply, FetchReply, Outgoing, Request, SnapshotReply, VoteReply
from ..replication.raft_log import RaftLog
from ..replication.replica_progress import ProgressTracker
from ..roles.candidate import Candidate
from ..roles.epoch_election import EpochElection
from ..roles.follower import Follower
from ..roles.leader import Leader
from ..roles.prospective import Prospective
from ..roles.resigned import Resigned
from ..roles.role import Role
from ..roles.role_transitions import is_legal
from ..roles.unattached import Unattached
from ..types import EPOCH_MAX, ElectionState, LeaderAndEpoch, ReplicaKey, RoleKind
from ..voters.voter_set import Voter, VoterEndpoint, VoterSet
from .config import RaftConfig
from .effects import Effects
from .election_timeouts import ElectionTimeouts
from .high_watermark import HighWatermark


class QuorumState:
    """What one node knows of the quorum, and its role in it. Times are monotonic milliseconds."""

    def __init__(self, config: RaftConfig, log: RaftLog, state: ElectionState, rng: random.Random) -> None:
        """`state` is what the quorum-state file holds."""
        self.config = config
        self.timing = config.timing
        self.own_key = config.own_key
        self.log = log
        snapshot = log.latest_snapshot
        self.high_watermark = HighWatermark(None if snapshot is None else snapshot.end_offset)
        self.timeouts = ElectionTimeouts(config, rng, lambda: self.voters.ids)
        self.effects = Effects()
        self._static_voters = config.static_voters
        self._persisted = state
        self._last_request_id = 0
        self._next_contact = rng.randrange(max(1, len(self._contacts())))
        if log.last_epoch > state.epoch:
            state = ElectionState(epoch=log.last_epoch)
        self.role: Role = Unattached(
            quorum=self, epoch=state.epoch, leader_id=state.leader_id, voted=state.voted, deadline_ms=None
        )

    # ---- what is known -----------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The highest epoch that this node knows."""
        return self.role.epoch

    @property
    def is_leader(self) -> bool:
        """Whether this node leads the epoch."""
        return self.role.kind is RoleKind.LEADER

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The leader while it is followed or is this node; a leader that was given up is not named."""
        return LeaderAndEpoch(self.role.active_leader.id, self.role.epoch)

    @property
    def leader_endpoint(self) -> VoterEndpoint | None:
        """Where the leader that `leader_and_epoch` names listens."""
        return self.role.active_leader.endpoint

    @property
    def voters(self) -> VoterSet:
        """The voters that count now: by the log, committed or not, or else by the configuration."""
        return self.log.voters.last or self._static_voters

    @property
    def is_voter(self) -> bool:
        """Whether this node, with its directory, is one of the voters."""
        return self.voters.is_voter(self.own_key)

    @property
    def may_stand(self) -> bool:
        """Whether this node may stand for election: as a voter, or while its removal may be uncommitted.

        If only this node has the record of its removal, and a majority of the voters before needs its vote, then no
        other node can be elected. It wins by the votes of the remaining voters, among which it does not count
        (Ongaro's dissertation, 4.2.2).
        """
        if self.is_voter:
            return True
        changed_at, before = self.log.voters.last_change
        former = before or self._static_voters
        return changed_at >= (self.high_watermark.offset or 0) and former.is_voter(self.own_key)

    # ---- the other nodes ---------------------------------------------------------------------------------------------

    def endpoint_of(self, voter: Voter) -> VoterEndpoint | None:
        """Where the voter's listener for the quorum is."""
        return voter.endpoint(self.config.listener_name)

    def other_voters(self) -> list[tuple[Voter, VoterEndpoint]]:
        """The voters beside this node and their endpoints, by ascending id."""
        found = [(voter, self.endpoint_of(voter)) for voter in self.voters.voters if voter.key.id != self.own_key.id]
        return [(voter, endpoint) for voter, endpoint in found if endpoint is not None]

    def next_contact(self) -> tuple[int, VoterEndpoint] | None:
        """The next node to ask for the leader, in turn. Bootstrap servers have negative ids."""
        contacts = self._contacts()
        if not contacts:
            return None
        self._next_contact = (self._next_contact + 1) % len(contacts)
        return contacts[self._next_contact]

    def _contacts(self) -> list[tuple[int, VoterEndpoint]]:
        """The voters, then the bootstrap servers that are none of them."""
        contacts = [(voter.key.id, endpoint) for voter, endpoint in self.other_voters()]
        known = [endpoint for _, endpoint in contacts]
        for index, endpoint in enumerate(self.config.bootstrap):
            if endpoint not in known and endpoint != self.config.own_endpoint:
                contacts.append((-2 - index, endpoint))
        return contacts

    def _leader_endpoint(self, leader_id: int, told: VoterEndpoint | None) -> VoterEndpoint | None:
        """Where a leader listens; None for this node.

        Static voters are where the configuration says. For others, what a message told is newer than their record.
        """
        if leader_id == self.config.node_id:
            return None
        static = self._static_voters.get(leader_id)
        if self.log.voters.last is None and static is not None:
            return self.endpoint_of(static)
        known = self.voters.get(leader_id)
        return told if told is not None or known is None else self.endpoint_of(known)

    def fetch_timeout_ms(self, leader_id: int) -> int:
        """How long this node follows that leader without hearing from it."""
        return self.timeouts.fetch_timeout_ms(leader_id, is_voter=self.may_stand)

    # ---- effects -----------------------------------------------------------------------------------------------------

    def take_effects(self) -> Effects:
        """The effects of all events since the last call."""
        effects, self.effects = self.effects, Effects()
        return effects

    def send(self, to: int, endpoint: VoterEndpoint, request: Request) -> int:
        """Send a request; returns its id."""
        self._last_request_id += 1
        self.effects.requests.append(Outgoing(self._last_request_id, to, endpoint, request))
        return self._last_request_id

    def send_fetch(self, to: int, endpoint: VoterEndpoint, *, max_wait_ms: int) -> int:
        """Ask a node for what follows the end of the log; returns the request's id."""
        fetch = requests.fetch(self.config, self.log, self.epoch, max_wait_ms, self.high_watermark.offset)
        return self.send(to, endpoint, fetch)

    def vote_reply(self, error: ErrorCode, *, granted: bool) -> VoteReply:
        """The answer to a vote; one that is granted names no leader."""
        leader_id, endpoint = (None, None) if granted else self.role.leader_to_name
        return VoteReply(error=error, leader_id=leader_id, epoch=self.epoch, leader_endpoint=endpoint, granted=granted)

    def epoch_reply(self, error: ErrorCode) -> EpochReply:
        """The answer to BeginQuorumEpoch or EndQuorumEpoch."""
        leader_id, endpoint = self.role.leader_to_name
        return EpochReply(error=error, leader_id=leader_id, epoch=self.epoch, leader_endpoint=endpoint)

    def refuse_fetch(self, token: int, error: ErrorCode) -> None:
        """Answer a fetch with an error and the leader."""
        leader_id, endpoint = self.role.leader_to_name
        reply = FetchReply(error=error, leader_id=leader_id, epoch=self.epoch, leader_endpoint=endpoint)
        self.effects.fetch_replies.append((token, reply))

    def refused_snapshot(self, error: ErrorCode) -> SnapshotReply:
        """The answer to FetchSnapshot with an error and the leader."""
        leader_id, endpoint = self.role.leader_to_name
        return SnapshotReply(error=error, leader_id=leader_id, epoch=self.epoch, leader_endpoint=endpoint)

    def answer_voter_change(self, token: int, error: ErrorCode, message: str | None = None) -> None:
        """Answer a request for a change of the voters."""
        leader_id, endpoint = self.role.leader_to_name
        reply = ChangeReply(
            error=error, leader_id=leader_id, epoch=self.epoch, leader_endpoint=endpoint, message=message
        )
        self.effects.change_replies.append((token, reply))

    # ---- changes of role ---------------------------------------------------------------------------------------------

    def maybe_transition(self, epoch: int, leader_id: int | None, endpoint: VoterEndpoint | None, now_ms: int) -> None:
        """Take note of an epoch that a message named, and of its leader where it is known.

        The leader need not be among the voters that this node knows, but its endpoint must be known.
        """
        endpoint = None if leader_id is None else self._leader_endpoint(leader_id, endpoint)
        if epoch > self.epoch:
            if leader_id is None or endpoint is None:
                self.transition_to_unattached(epoch, now_ms)
            else:
                self.transition_to_follower(epoch, leader_id, endpoint, now_ms)
        elif epoch == self.epoch and leader_id is not None and endpoint is not None:
            invariant(self.role.leader_id in (None, leader_id), "at most one leader an epoch")
            self.role.on_leader_discovered(leader_id, endpoint, now_ms)

    def transition_to_unattached(
        self, epoch: int, now_ms: int, *, voted: ReplicaKey | None = None, deadline_ms: int | None = None
    ) -> Unattached:
        """Follow no leader in `epoch`, perhaps after a vote; what is known of the epoch is kept.

        A node that may stand for election does so at `deadline_ms`; others look for the leader.
        """
        same_epoch = epoch == self.epoch
        former = self.role.voted if same_epoch else None
        next_fetch_ms = None
        if not self.may_stand:
            deadline_ms, next_fetch_ms = None, now_ms + self.timing.retry_backoff_ms
        elif deadline_ms is None:
            wait_ms = self.timeouts.election_timeout_ms() if voted else self.timeouts.first_election_ms()
            deadline_ms = now_ms + wait_ms
        role = Unattached(
            quorum=self,
            epoch=epoch,
            leader_id=self.role.leader_id if same_epoch else None,
            voted=voted or former,
            deadline_ms=deadline_ms,
            next_fetch_ms=next_fetch_ms,
        )
        self._enter(role, now_ms)
        return role

    def transition_to_prospective(self, now_ms: int) -> None:
        """Ask for pre-votes in this epoch."""
        role = Prospective(
            quorum=self,
            epoch=self.epoch,
            leader_id=self.role.leader_id,
            voted=self.role.voted,
            election=self._new_election(),
            deadline_ms=now_ms + self.timeouts.election_timeout_ms(),
        )
        self._enter(role, now_ms)

    def transition_to_candidate(self, now_ms: int) -> None:
        """Stand for election in the next epoch. After the highest one there is none: the round is lost."""
        if self.epoch >= EPOCH_MAX:
            self.transition_to_unattached(self.epoch, now_ms)
            return
        role = Candidate(
            quorum=self,
            epoch=self.epoch + 1,
            voted=self.own_key,
            election=self._new_election(),
            deadline_ms=now_ms + self.timeouts.election_timeout_ms(),
        )
        self._enter(role, now_ms)

    def _new_election(self) -> EpochElection:
        return EpochElection(self.voters.ids, self.own_key.id if self.is_voter else None)

    def transition_to_leader(self, granting: Sequence[int], now_ms: int) -> None:
        """Lead this epoch, elected by the voters `granting`."""
        invariant(self.log.last_epoch < self.epoch, "a new leader's epoch is higher than any in its log")
        role = Leader(
            quorum=self,
            epoch=self.epoch,
            leader_id=self.own_key.id,
            voted=self.role.voted,
            granting=granting,
            elected_ms=now_ms,
            epoch_start_offset=self.log.end_offset,
            check_quorum_timeout_ms=self.timing.fetch_timeout_ms * 3 // 2,
            replicas=ProgressTracker(self.own_key, self.voters),
        )
        self._enter(role, now_ms)

    def transition_to_follower(self, epoch: int, leader_id: int, endpoint: VoterEndpoint, now_ms: int) -> None:
        """Follow the leader of `epoch`, which listens at `endpoint`."""
        role = Follower(
            quorum=self,
            epoch=epoch,
            leader_id=leader_id,
            leader_endpoint=endpoint,
            voted=self.role.voted if epoch == self.epoch else None,
            deadline_ms=now_ms + self.fetch_timeout_ms(leader_id),
            next_fetch_ms=now_ms,
            next_change_ms=now_ms + self.timing.fetch_timeout_ms // 2,
        )
        self._enter(role, now_ms)

    def transition_to_resigned(self, preferred_successors: Sequence[ReplicaKey], now_ms: int) -> None:
        """Give up the leadership of this epoch."""
        role = Resigned(
            quorum=self,
            epoch=self.epoch,
            leader_id=self.role.leader_id,
            voted=self.role.voted,
            deadline_ms=now_ms + self.timeouts.election_timeout_ms(),
            preferred_successors=preferred_successors,
        )
        self._enter(role, now_ms)

    def _enter(self, role: Role, now_ms: int) -> None:
        """The only place where the role changes."""
        before = self.role
        invariant(is_legal(before.kind, role.kind), f"{before.kind.value} may become {role.kind.value}")
        invariant(role.epoch >= before.epoch, "the epoch never goes back")
        sometimes(
            (before.kind, role.kind) == (RoleKind.LEADER, RoleKind.FOLLOWER), "a leading controller became a follower"
        )
        sometimes(
            (before.kind, role.kind) == (RoleKind.CANDIDATE, RoleKind.FOLLOWER), "a candidate learned of another leader"
        )
        sometimes(
            (before.kind, role.kind) == (RoleKind.PROSPECTIVE, RoleKind.FOLLOWER),
            "a node that asked for pre-votes went back to its leader",
        )
        sometimes(role.epoch > before.epoch + 1, "a node's quorum epoch jumped over another")
        sometimes(
            role.kind is RoleKind.PROSPECTIVE and before.leader_id is None and before.voted not in (None, self.own_key),
            "a node whose vote had brought no leader asked for pre-votes itself",
        )
        self.role = role
        self._persist()
        before.on_left()
        role.on_entered(now_ms)

    def _persist(self) -> None:
        """Have the driver make the epoch, its leader and the vote durable before anything else leaves the node."""
        state = ElectionState(self.role.epoch, self.role.leader_id, self.role.voted)
        invariant(0 <= state.epoch <= EPOCH_MAX, "only epochs that can be sent are written")
        if state != self._persisted:
            self._persisted = state
            self.effects.election_state = state
