"""The sets of voters, and which set and `kraft.version` hold at which offset of the log (KIP-853).

With `kraft.version` 0 the voters are those of the configuration (`controller.quorum.voters`), known by id alone. From
version 1 on the newest VotersRecord names them, and a voter is an id together with the id of its metadata directory: a
node that comes back with an empty disk is another replica. A voter set counts from the time its record is appended,
committed or not. When the record is truncated, the set before it counts again. Two successive sets differ by one voter
at most, so that any majority of one shares a voter with any majority of the other (Ongaro's dissertation, 4.1).

Votes do not depend on what the voter knows of the set, since its log may be behind: a controller votes for every
candidate with an up-to-date log. A vote is asked of an id and a directory, so a node that lost its disk cannot vote a
second time as the same replica. A controller has all that it fetched on disk before it fetches again, as it may be made
a voter at any time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..types import NO_DIRECTORY, ReplicaKey

STATIC_VERSION = 0
DYNAMIC_VERSION = 1
"""Levels of the feature `kraft.version`; this node knows both."""


class VoterEndpoint(NamedTuple):
    """The host and the port of a controller listener."""

    host: str
    port: int


class VoterListener(NamedTuple):
    """A controller listener of a voter, by name."""

    name: str
    host: str
    port: int


class VersionRange(NamedTuple):
    """The lowest and highest `kraft.version` that a voter supports."""

    lowest: int = STATIC_VERSION
    highest: int = DYNAMIC_VERSION


class Voter(NamedTuple):
    """A voter as its record describes it."""

    key: ReplicaKey
    listeners: tuple[VoterListener, ...]
    versions: VersionRange = VersionRange()

    def endpoint(self, listener_name: str) -> VoterEndpoint | None:
        """The endpoint of the listener of that name, or else of the first one."""
        for listener in (*(one for one in self.listeners if one.name == listener_name), *self.listeners):
            return VoterEndpoint(listener.host, listener.port)
        return None


@dataclass(frozen=True, slots=True)
class VoterSet:
    """A set of voters, by ascending id; the ids are unique."""

    voters: tuple[Voter, ...] = ()

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> VoterSet:
        """The set of `voters`; a later one replaces an earlier one with the same id."""
        by_id = {voter.key.id: voter for voter in voters}
        return cls(tuple(by_id[voter_id] for voter_id in sorted(by_id)))

    @classmethod
    def static(cls, endpoints: Mapping[int, VoterEndpoint], listener_name: str) -> VoterSet:
        """The voters of `controller.quorum.voters`, whose directories are unknown."""
        return cls.of(
            Voter(ReplicaKey(voter), (VoterListener(listener_name, *endpoint),))
            for voter, endpoint in endpoints.items()
        )

    @property
    def ids(self) -> list[int]:
        """The ids of the voters, ascending."""
        return [voter.key.id for voter in self.voters]

    @property
    def keys(self) -> list[ReplicaKey]:
        """The keys of the voters, by ascending id."""
        return [voter.key for voter in self.voters]

    def get(self, voter_id: int) -> Voter | None:
        """The voter with this id, whatever its directory."""
        return next((voter for voter in self.voters if voter.key.id == voter_id), None)

    def is_voter(self, replica: ReplicaKey) -> bool:
        """Whether `replica` is one of the voters, by id and, where the voter's is known, by directory."""
        voter = self.get(replica.id)
        return voter is not None and voter.key.directory_id in (NO_DIRECTORY, replica.directory_id)

    def with_voter(self, voter: Voter) -> VoterSet:
        """This set with `voter`, which replaces the one with its id."""
        return VoterSet.of((*self.voters, voter))

    def without_voter(self, voter_id: int) -> VoterSet:
        """This set without the voter of that id."""
        return VoterSet(tuple(voter for voter in self.voters if voter.key.id != voter_id))

    def __str__(self) -> str:
        return ",".join(str(voter_id) for voter_id in self.ids)


NO_VOTERS = VoterSet()


class LeaderChange(NamedTuple):
    """The control record that begins an epoch."""

    leader_id: int
    voters: tuple[ReplicaKey, ...]
    granting: tuple[ReplicaKey, ...]


class KRaftVersion(NamedTuple):
    """The control record that finalizes `kraft.version`."""

    level: int


ControlRecord = LeaderChange | KRaftVersion | VoterSet

BOOTSTRAP_OFFSET = -1
"""The offset of records from the snapshot that formatting wrote: before the log's first offset."""


class VoterHistory:
    """The voter sets and versions of a log, by the offsets of their records.

    The log updates it with every change. Without such records the configuration's voters count, and version 0.
    """

    def __init__(self) -> None:
        self._sets: list[tuple[int, VoterSet]] = []
        self._versions: list[tuple[int, int]] = []

    @property
    def last(self) -> VoterSet | None:
        """The set that counts now; None for that of the configuration."""
        return self._sets[-1][1] if self._sets else None

    @property
    def last_offset(self) -> int:
        """The offset of the record of `last`; `BOOTSTRAP_OFFSET` when it is not in the log."""
        return self._sets[-1][0] if self._sets else BOOTSTRAP_OFFSET

    @property
    def last_change(self) -> tuple[int, VoterSet | None]:
        """The offset of the record that added or removed the last voter, and the set before (None: configured).

        Records after it that only correct endpoints may be uncommitted as it is: a new leader writes its own without
        waiting for a commit. A voter is added or removed only when all records of voters before are committed.
        """
        at = len(self._sets) - 1
        while at > 0 and self._sets[at - 1][1].keys == self._sets[at][1].keys:
            at -= 1
        offset = self._sets[at][0] if self._sets else BOOTSTRAP_OFFSET
        return offset, self._sets[at - 1][1] if at > 0 else None

    @property
    def version(self) -> int:
        """The `kraft.version` that counts now, committed or not."""
        return self._versions[-1][1] if self._versions else STATIC_VERSION

    def voters_at(self, end_offset: int) -> VoterSet | None:
        """The set by the records below `end_offset`; None for that of the configuration."""
        at = bisect_left(self._sets, end_offset, key=lambda entry: entry[0])
        return self._sets[at - 1][1] if at else None

    def version_at(self, end_offset: int) -> int:
        """The version by the records below `end_offset`."""
        at = bisect_left(self._versions, end_offset, key=lambda entry: entry[0])
        return self._versions[at - 1][1] if at else STATIC_VERSION

    def add(self, offset: int, record: ControlRecord) -> None:
        """A record was appended at `offset`, after all others."""
        if isinstance(record, VoterSet):
            self._sets.append((offset, record))
        elif isinstance(record, KRaftVersion):
            self._versions.append((offset, record.level))

    def truncate_to(self, end_offset: int) -> None:
        """Drop what records at and above `end_offset` said, which were truncated."""
        self._sets = [entry for entry in self._sets if entry[0] < end_offset]
        self._versions = [entry for entry in self._versions if entry[0] < end_offset]

    def start_from(self, end_offset: int, records: Iterable[ControlRecord]) -> None:
        """Begin with the `records` of a snapshot that ends at `end_offset`, where the empty log starts."""
        self._sets, self._versions = [], []
        for record in records:
            self.add(end_offset - 1, record)

    def snapshot_records(self, end_offset: int) -> list[ControlRecord]:
        """The control records for a snapshot that ends at `end_offset`."""
        version, voters = self.version_at(end_offset), self.voters_at(end_offset)
        records: list[ControlRecord] = [KRaftVersion(version)] if version else []
        return records if voters is None else [*records, voters]
