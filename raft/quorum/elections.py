"""Elections: pre-votes, votes, and how a leader makes itself known or steps down (KIP-595, KIP-996)."""

from __future__ import annotations

from ...wire.errors import ErrorCode
from ..messages import requests
from ..messages.messages import BeginQuorumEpoch, EndQuorumEpoch, EpochReply, Request, Vote, VoteReply
from ..roles import Candidate, Follower, Prospective, Unattached
from ..roles.ballot import Ballot
from .leading import Leading


class Elections(Leading):
    """How a node stands for election, and how it votes."""

    # ---- requests of others ---------------------------------------------------------------------------------------

    def on_vote(self, vote: Vote, now_ms: int) -> VoteReply:
        """A vote or pre-vote is asked for. The reply may leave only after the effects' election state is on disk."""
        error = self._check_receiver(vote.cluster_id, vote.voter, vote.epoch)
        if error is not ErrorCode.NONE:
            return self._vote_reply(error, granted=False)
        if vote.epoch > self.epoch:
            self._become_unattached(vote.epoch, now_ms)
        log_is_up_to_date = (vote.last_epoch, vote.last_offset) >= (self.log.last_epoch, self.log.end_offset)
        granted = self.role.can_grant(vote, log_is_up_to_date, now_ms)
        if granted and vote.pre_vote:
            self._let_other_go_ahead(now_ms)
        elif granted and self.role.voted is None:
            self._become_unattached(vote.epoch, now_ms, voted=vote.candidate)
        return self._vote_reply(ErrorCode.NONE, granted=granted)

    def on_begin_quorum_epoch(self, begin: BeginQuorumEpoch, now_ms: int) -> EpochReply:
        """A leader announces itself."""
        error = self._check_receiver(begin.cluster_id, begin.voter, begin.epoch)
        if error is ErrorCode.NONE and begin.epoch == self.epoch and self.role.leader_id not in (None, begin.leader_id):
            error = ErrorCode.INVALID_REQUEST
        if error is ErrorCode.NONE:
            self._observe(begin.epoch, begin.leader_id, begin.leader_endpoint, now_ms)
            if isinstance(self.role, Follower):
                self._trust_leader(self.role, now_ms)
        return self._epoch_reply(error)

    def on_end_quorum_epoch(self, end: EndQuorumEpoch, now_ms: int) -> EpochReply:
        """The leader resigned: its preferred successors stand for election in their order."""
        error = self._check_receiver(end.cluster_id, requests.NOBODY, end.epoch)
        if error is not ErrorCode.NONE:
            return self._epoch_reply(error)
        self._observe(end.epoch, end.leader_id, end.leader_endpoint, now_ms)
        if isinstance(self.role, Follower):
            successors = end.preferred_successors
            places = (place for place, key in enumerate(successors) if key.matches(self._own_key))
            wait_ms = self._pacing.successor_ms(next(places, len(successors)))
            self._become_unattached(end.epoch, now_ms, deadline_ms=now_ms + wait_ms)
        return self._epoch_reply(ErrorCode.NONE)

    # ---- standing for election ------------------------------------------------------------------------------------

    def _become_prospective(self, now_ms: int) -> None:
        role = self.role
        ballot = Ballot(self.voters.ids, self.config.node_id if self.is_voter else None)
        deadline_ms = now_ms + self._pacing.election_timeout_ms()
        self._enter(Prospective(role.epoch, role.leader_id, role.voted, deadline_ms, ballot))
        if ballot.is_won:
            self._become_candidate(now_ms)
            return
        self._send_votes()

    def _become_candidate(self, now_ms: int) -> None:
        ballot = Ballot(self.voters.ids, self.config.node_id if self.is_voter else None)
        deadline_ms = now_ms + self._pacing.election_timeout_ms()
        self._enter(Candidate(self.epoch + 1, self._own_key, deadline_ms, ballot))
        if ballot.is_won:
            self._become_leader(ballot, now_ms)
            return
        self._send_votes()

    def _send_votes(self, only: list[int] | None = None) -> None:
        is_pre_vote = isinstance(self.role, Prospective)
        for voter, endpoint in self._peers():
            if only is None or voter.key.id in only:
                vote = requests.vote(self.config, self.log, voter.key, self.epoch, pre_vote=is_pre_vote)
                self._send(voter.key.id, endpoint, vote)

    def _belongs_to_round(self, request: Request) -> bool:
        is_pre_vote = isinstance(self.role, Prospective)
        return isinstance(request, Vote) and request.epoch == self.epoch and request.pre_vote == is_pre_vote

    def _count_vote(self, role: Prospective | Candidate, voter: int, reply: VoteReply, now_ms: int) -> None:
        role.ballot.record(voter, reply.granted)
        if role.ballot.is_won:
            if isinstance(role, Prospective):
                self._become_candidate(now_ms)
            else:
                self._become_leader(role.ballot, now_ms)
        elif role.ballot.is_lost:
            self._lose_election(now_ms)

    def _lose_election(self, now_ms: int) -> None:
        self._pacing.on_round_failed()
        self._become_unattached(self.epoch, now_ms)
        if self.config.bootstrap and isinstance(self.role, Unattached):
            self.role.next_fetch_ms = now_ms
            self._fetch_from_any_voter(now_ms)

    def _let_other_go_ahead(self, now_ms: int) -> None:
        """Having granted a pre-vote, do not stand for election in the next moment and split the votes."""
        role = self.role
        if isinstance(role, Unattached | Follower) and role.deadline_ms is not None:
            role.deadline_ms = max(role.deadline_ms, now_ms + self._pacing.yield_ms())
