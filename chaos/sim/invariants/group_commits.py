"""The commits of a consumer group as registers: which commits may be in force, for each partition.

Each commit has a number, which stands in its metadata; so a read of the committed offset shows which commit it is.
A commit that was answered takes the place of those that were settled before it was sent. One that was not answered may
take effect at any time, as long as its member owns the partition by the epoch (or generation) with which it was sent.

When a partition has a new owner, no commit of the former one takes effect any more, whenever it arrives: the
coordinator has fenced its epoch before it gave the partition away. The invariants are "a group's commits do not go
back", "who has given up a partition commits nothing any more" and "a partition has one reader".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .invariant_broken import InvariantBroken


@dataclass(slots=True)
class Commit:
    """One commit of one partition. `settled` are the numbers of those whose place it takes."""

    number: int
    offset: int
    owner: object
    member_id: str
    epoch: int
    settled: tuple[int, ...] = ()
    is_answered: bool = False


class PartitionCommits:
    """The commits of one partition. `owner` is who has taken it over last; `answered` the highest answered offset."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.owner: object = None
        self.answered = 0
        nothing = Commit(0, 0, None, "", -1, is_answered=True)
        self._all = [nothing]
        self._possible = {0: nothing}
        self._void: dict[int, None] = {}
        """The commits of former owners, none of which may be in force any more."""

    def new(self, owner: object, member_id: str, epoch: int, offset: int) -> Commit:
        """A new commit, which may be sent from now on."""
        settled = tuple(number for number, one in self._possible.items() if one.is_answered)
        commit = Commit(len(self._all), offset, owner, member_id, epoch, settled)
        self._all.append(commit)
        if self.owner is owner:
            self._possible[commit.number] = commit
        return commit

    def on_accepted(self, commit: Commit, *, was_owner: bool) -> None:
        """The coordinator has answered that it is committed. `was_owner`: its sender owned the partition then."""
        if not was_owner:
            what = f"partition {self.partition}: {commit.member_id} commits {commit.offset}"
            raise InvariantBroken("a partition has one reader", f"{what}, another has taken it over")
        if commit.number not in self._possible:
            return  # it was committed before the partition had its present owner
        for number in commit.settled:
            self._possible.pop(number, None)
        commit.is_answered = True
        self.answered = max(self.answered, commit.offset)

    def on_refused(self, commit: Commit) -> None:
        """The coordinator has answered that it is not committed."""
        self._possible.pop(commit.number, None)

    def possible(self) -> Mapping[int, Commit]:
        """What may be in force now; given to `on_read` by who reads from now on."""
        return dict(self._possible)

    def on_read(self, offset: int, metadata: str, before: Mapping[int, Commit]) -> Commit:
        """The committed offset was read; the commit that is in force. `before`: `possible` when the read began."""
        number = int(metadata or 0)
        found = self._possible.get(number) or before.get(number)
        what = f"partition {self.partition}: {offset} (commit {number})"
        if found is None and number in self._void:
            commit = self._all[number]
            detail = f"{what} of {commit.member_id} in epoch {commit.epoch}"
            raise InvariantBroken("who has given up a partition commits nothing any more", detail)
        if found is None or found.offset != offset:
            detail = f"{what} after {self.answered} was committed; possible {sorted(self._possible)}"
            raise InvariantBroken("a group's commits do not go back", detail)
        return found

    def take_over(self, owner: object, member_id: str, epoch: int, found: Commit) -> None:
        """The partition has a new owner, who begins at the commit `found`."""
        left = {
            number: one
            for number, one in self._possible.items()
            if not one.is_answered and (one.member_id, one.epoch) == (member_id, epoch)
        }
        self._void |= dict.fromkeys(number for number in self._possible if number not in left)
        self._void.pop(found.number, None)
        self._possible = {found.number: found, **left}
        found.is_answered = True
        self.answered = found.offset
        self.owner = owner
