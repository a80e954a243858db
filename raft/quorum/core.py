"""What every part of the quorum's state machine stands on: the role and its changes, sending, refusing, answering."""

from __future__ import annotations

import random

from ...runtime.invariants import invariant
from ...wire.errors import ErrorCode
from ..messages import requests
from ..messages.messages import EpochReply, Fetch, FetchReply, Outgoing, Request, VoteReply
from ..replication.raft_log import RaftLog
from ..roles import Follower, Leader, Role, Unattached
from ..roles.role_transitions import is_legal
from ..types import ElectionState, LeaderAndEpoch, ReplicaKey
from ..voters.voter_set import Voter, VoterEndpoint, VoterSet
from .config import RaftConfig
from .effects import Effects
from .election_timeouts import ElectionTimeouts


class QuorumCore:
    """The state of one node's part in the quorum."""

    def __init__(self, config: RaftConfig, log: RaftLog, state: ElectionState, rng: random.Random) -> None:
        self.config = config
        self.log = log
        snapshot = log.latest_snapshot
        self.high_watermark: int | None = None if snapshot is None else snapshot.end_offset
        self.is_high_watermark_current = False
        """Whether the leader told it, or this node leads and has committed, since the start: it was out of date."""
        self.role: Role
        self._static_voters = config.static_voters
        self._timing = config.timing
        self._pacing = ElectionTimeouts(config, rng, lambda: self.voters.ids)
        self._own_key = config.own_key
        self._effects = Effects()
        self._persisted = state
        self._last_request_id = 0
        self._next_contact = rng.randrange(max(1, len(self._contacts())))
        if log.last_epoch > state.epoch:
            state = ElectionState(epoch=log.last_epoch)
        self.role = Unattached(state.epoch, state.leader_id, state.voted, None)
        self._persist()

    # ---- what others may know -------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def voters(self) -> VoterSet:
        """The voters that count now: by the log, committed or not, or else by the configuration."""
        return self.log.voters.last or self._static_voters

    @property
    def is_voter(self) -> bool:
        """Whether this node, with its directory, is one of them."""
        return self.voters.is_voter(self._own_key)

    @property
    def may_stand(self) -> bool:
        """Whether this node stands for election: as a voter, or as long as its removal may not be committed.

        The others may need a leader with the log that it has: if it was removed by a record that only itself has, and
        a majority of the set before needs its vote, nobody else can be elected. It wins by the votes of the voters
        that remain, among which it does not count (Ongaro's dissertation, 4.2.2).
        """
        if self.is_voter:
            return True
        history = self.log.voters
        former = history.before_last or self._static_voters
        return history.last_offset >= (self.high_watermark or 0) and former.is_voter(self._own_key)

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The leader while it is followed or is this node; a leader given up is not named any more."""
        role = self.role
        return LeaderAndEpoch(role.leader_id if isinstance(role, Follower | Leader) else None, role.epoch)

    @property
    def leader_endpoint(self) -> VoterEndpoint | None:
        """Where the leader that `leader_and_epoch` names is reached."""
        role = self.role
        if isinstance(role, Follower):
            return role.leader_endpoint
        return self.config.own_endpoint if isinstance(role, Leader) else None

    def take_effects(self) -> Effects:
        """The effects of all events since the last call."""
        effects, self._effects = self._effects, Effects()
        return effects

    def next_deadline_ms(self) -> int | None:
        """When `on_timer` is due; None when nothing is waited for."""
        return self.role.next_deadline_ms()

    # ---- the others -----------------------------------------------------------------------------------------------

    def _endpoint_of(self, voter: Voter) -> VoterEndpoint | None:
        return voter.endpoint(self.config.listener_name)

    def _peers(self) -> list[tuple[Voter, VoterEndpoint]]:
        """The voters beside this node and where they are, by ascending id."""
        found = [(voter, self._endpoint_of(voter)) for voter in self.voters.voters if voter.key.id != self._own_key.id]
        return [(voter, endpoint) for voter, endpoint in found if endpoint is not None]

    def _contacts(self) -> list[tuple[int, VoterEndpoint]]:
        """Whom to ask for the leader: the voters, then bootstrap servers that are none of them."""
        contacts = [(voter.key.id, endpoint) for voter, endpoint in self._peers()]
        known = [endpoint for _, endpoint in contacts]
        for index, endpoint in enumerate(self.config.bootstrap):
            if endpoint not in known and endpoint != self.config.own_endpoint:
                contacts.append((-2 - index, endpoint))
        return contacts

    def _send(self, to: int, endpoint: VoterEndpoint, request: Request) -> int:
        self._last_request_id += 1
        self._effects.requests.append(Outgoing(self._last_request_id, to, endpoint, request))
        return self._last_request_id

    # ---- changes of role ------------------------------------------------------------------------------------------

    def _enter(self, role: Role) -> None:
        """The only place where the role changes."""
        before = self.role
        invariant(is_legal(before.kind, role.kind), f"{before.kind.value} may become {role.kind.value}")
        invariant(role.epoch >= before.epoch, "the epoch never goes back")
        self.role = role
        self._persist()
        if isinstance(before, Leader):
            self._leave_leadership(before)

    def _leave_leadership(self, before: Leader) -> None:
        """Answer what waits for a leader that leads no more."""
        for parked in before.parked:
            self._effects.fetch_replies.append((parked.token, self._fetch_reply(self._check_fetch(parked.request))))

    def _persist(self) -> None:
        state = ElectionState(self.role.epoch, self.role.leader_id, self.role.voted)
        if state != self._persisted:
            self._persisted = state
            self._effects.election_state = state

    def _become_unattached(
        self, epoch: int, now_ms: int, *, voted: ReplicaKey | None = None, deadline_ms: int | None = None
    ) -> None:
        """Follow nobody. In the same epoch, the vote given and the leader known go on to bind."""
        same_epoch = epoch == self.epoch
        leader_id = self.role.leader_id if same_epoch else None
        former = self.role.voted if same_epoch else None
        if not self.may_stand:
            next_fetch_ms = now_ms + self._timing.retry_backoff_ms
            self._enter(Unattached(epoch, leader_id, voted or former, None, next_fetch_ms=next_fetch_ms))
            return
        if deadline_ms is None:
            wait_ms = self._pacing.election_timeout_ms() if voted else self._pacing.first_election_ms()
            deadline_ms = now_ms + wait_ms
        self._enter(Unattached(epoch, leader_id, voted or former, deadline_ms))

    # ---- checks and replies ---------------------------------------------------------------------------------------

    def _check_receiver(self, cluster_id: str | None, receiver: ReplicaKey, epoch: int) -> ErrorCode:
        """What is wrong with a request that only voters exchange."""
        error = requests.receiver_error(self.config, cluster_id, receiver)
        return ErrorCode.FENCED_LEADER_EPOCH if error is ErrorCode.NONE and epoch < self.epoch else error

    def _check_fetch(self, fetch: Fetch) -> ErrorCode:
        error = self._check_epoch(fetch.cluster_id, fetch.epoch)
        return ErrorCode.INVALID_REQUEST if error is ErrorCode.NONE and fetch.fetch_offset < 0 else error

    def _check_epoch(self, cluster_id: str | None, epoch: int) -> ErrorCode:
        error = requests.cluster_error(self.config, cluster_id)
        if error is not ErrorCode.NONE:
            return error
        if epoch != self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH if epoch < self.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if isinstance(self.role, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _leader_to_name(self) -> tuple[int | None, VoterEndpoint | None]:
        """The leader to tell others of: not one that is suspected, or followers would keep each other in its tow."""
        role = self.role
        if isinstance(role, Follower) and role.suspected:
            return None, None
        return self.leader_and_epoch.leader_id, self.leader_endpoint

    def _vote_reply(self, error: ErrorCode, *, granted: bool) -> VoteReply:
        leader_id, endpoint = (None, None) if granted else self._leader_to_name()
        return VoteReply(error=error, leader_id=leader_id, epoch=self.epoch, leader_endpoint=endpoint, granted=granted)

    def _epoch_reply(self, error: ErrorCode) -> EpochReply:
        leader_id, endpoint = self._leader_to_name()
        return EpochReply(error=error, leader_id=leader_id, epoch=self.epoch, leader_endpoint=endpoint)

    def _fetch_reply(self, error: ErrorCode) -> FetchReply:
        leader_id, endpoint = self._leader_to_name()
        return FetchReply(error=error, leader_id=leader_id, epoch=self.epoch, leader_endpoint=endpoint)
