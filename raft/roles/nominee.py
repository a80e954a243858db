"""What a prospective node and a candidate have in common: one round of votes (Kafka's NomineeState)."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from ...runtime.invariants import sometimes
from ..messages import requests
from ..messages.messages import Outgoing, VoteReply
from .epoch_election import EpochElection
from .role import Role


class Nominee(Role):
    """Asks the voters for their votes. The round is lost when too many refuse, or at `deadline_ms`."""

    is_pre_vote: ClassVar[bool]
    deadline_ms: int
    election: EpochElection

    @abstractmethod
    def on_won(self, now_ms: int) -> None:
        """A majority granted its vote."""

    def on_entered(self, now_ms: int) -> None:
        """Ask all voters, unless this node's own vote is enough."""
        if self.election.is_won:
            self.on_won(now_ms)
        else:
            self._ask([voter.key.id for voter, _ in self.quorum.other_voters()])

    def next_deadline_ms(self) -> int | None:
        """When the round is lost, or a voter is to be asked again."""
        return min([self.deadline_ms, *self.election.resend_at_ms.values()])

    def on_timer(self, now_ms: int) -> None:
        """Give the round up, or ask the voters again that a request did not reach."""
        if self.deadline_ms <= now_ms:
            sometimes(self.is_pre_vote, "a node got no majority of pre-votes in time")
            sometimes(not self.is_pre_vote, "a candidate got no majority of votes in time")
            self._lose(now_ms)
        else:
            self._ask(self.election.take_due(now_ms))

    def on_vote_reply(self, sent: Outgoing, reply: VoteReply, now_ms: int) -> None:
        """Count a voter's answer to a request of this round."""
        if not self._is_of_this_round(sent):
            sometimes(True, "a voter answered a former round of an election late")
            return
        self.election.record(sent.to, reply.granted)
        if self.election.is_won:
            self.on_won(now_ms)
        elif self.election.is_lost:
            sometimes(self.is_pre_vote, "too many voters refused a pre-vote")
            sometimes(not self.is_pre_vote, "too many voters refused a candidate")
            self._lose(now_ms)

    def on_vote_failure(self, sent: Outgoing, now_ms: int) -> None:
        """Ask the voter again in a while."""
        if self._is_of_this_round(sent):
            self.election.resend_at_ms[sent.to] = now_ms + self.quorum.timing.retry_backoff_ms

    def _is_of_this_round(self, sent: Outgoing) -> bool:
        """Several rounds of pre-votes may be of one epoch."""
        return sent.id in self.election.request_ids

    def _ask(self, voters: list[int]) -> None:
        quorum = self.quorum
        for voter, endpoint in quorum.other_voters():
            if voter.key.id in voters:
                vote = requests.vote(quorum.config, quorum.log, voter.key, self.epoch, pre_vote=self.is_pre_vote)
                self.election.request_ids.append(quorum.send(voter.key.id, endpoint, vote))

    def _lose(self, now_ms: int) -> None:
        quorum = self.quorum
        quorum.timeouts.on_round_failed()
        unattached = quorum.transition_to_unattached(self.epoch, now_ms)
        if quorum.config.bootstrap:
            unattached.find_leader(now_ms)
