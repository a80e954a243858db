"""The count of one round of votes or pre-votes."""

from __future__ import annotations

from collections.abc import Sequence

from ..quorum.majority import majority_size


class Ballot:
    """Who said what so far, and when to ask a silent voter again (`resend_at`, milliseconds by voter)."""

    __slots__ = ("answers", "resend_at", "voter_count")

    def __init__(self, voters: Sequence[int], own_id: int | None) -> None:
        """`own_id` is None for a candidate that is not among the voters and so has no vote."""
        self.voter_count = len(voters)
        self.answers: dict[int, bool] = {} if own_id is None else {own_id: True}
        self.resend_at: dict[int, int] = {}

    def record(self, voter: int, granted: bool) -> None:
        """A voter's answer; a later one replaces an earlier one (a pre-vote may be refused now and granted later)."""
        self.answers[voter] = granted
        self.resend_at.pop(voter, None)

    @property
    def granting(self) -> list[int]:
        """Voters that said yes, ascending."""
        return sorted(voter for voter, granted in self.answers.items() if granted)

    @property
    def is_won(self) -> bool:
        return len(self.granting) >= majority_size(self.voter_count)

    @property
    def is_lost(self) -> bool:
        """So many refused that the others are no majority."""
        refused = len(self.answers) - len(self.granting)
        return self.voter_count - refused < majority_size(self.voter_count)

    def due(self, now_ms: int) -> list[int]:
        """Voters to ask again now, ascending; each is handed out once."""
        due = sorted(voter for voter, at_ms in self.resend_at.items() if at_ms <= now_ms)
        for voter in due:
            del self.resend_at[voter]
        return due
