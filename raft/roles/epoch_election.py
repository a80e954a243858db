"""The count of the votes in one round of an election: when it is won, and when it is lost (Kafka's EpochElection)."""

from __future__ import annotations

from collections.abc import Sequence

from ..quorum.majority import majority_size


class EpochElection:
    """The requests of the round, the voters' answers so far, and when to ask a voter again that no request reached."""

    __slots__ = ("answers", "request_ids", "resend_at_ms", "voter_count")

    def __init__(self, voters: Sequence[int], own_id: int | None) -> None:
        """`own_id` is None for a candidate that is not among the voters and so has no vote."""
        self.voter_count = len(voters)
        self.answers: dict[int, bool] = {} if own_id is None else {own_id: True}
        self.resend_at_ms: dict[int, int] = {}
        self.request_ids: list[int] = []

    def record(self, voter: int, granted: bool) -> None:
        """Take a voter's answer; it replaces an earlier one, as a refused pre-vote may be granted later."""
        self.answers[voter] = granted
        self.resend_at_ms.pop(voter, None)

    @property
    def granting(self) -> list[int]:
        """The voters that granted their vote, by ascending id."""
        return sorted(voter for voter, granted in self.answers.items() if granted)

    @property
    def is_won(self) -> bool:
        """Whether a majority of the voters granted its vote."""
        return len(self.granting) >= majority_size(self.voter_count)

    @property
    def is_lost(self) -> bool:
        """Whether the voters that did not refuse are no majority any more."""
        refused = len(self.answers) - len(self.granting)
        return self.voter_count - refused < majority_size(self.voter_count)

    def take_due(self, now_ms: int) -> list[int]:
        """Remove and return the voters that are to be asked again now, by ascending id."""
        due = sorted(voter for voter, at_ms in self.resend_at_ms.items() if at_ms <= now_ms)
        for voter in due:
            del self.resend_at_ms[voter]
        return due
