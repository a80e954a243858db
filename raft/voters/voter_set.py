"""Who votes: sets of voters, and which set and `kraft.version` hold at which offset of the log (KIP-853).

With `kraft.version` 0 the voters are those of the configuration, known by id alone. From version 1 on they are what the
newest VotersRecord says, and a voter is an id together with the id of its metadata directory: a node that lost its disk
comes back as a stranger. A set counts from the moment its record is appended, committed or not; when the record is
truncated, the set before it counts again. Two sets in a row differ by one voter at most, so that any majority of one
shares a member with any majority of the other (Ongaro's dissertation, 4.1).
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
    """Where a controller listener is reached."""

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
        """Where the listener of that name is, or else its first one."""
        for listener in (*(one for one in self.listeners if one.name == listener_name), *self.listeners):
            return VoterEndpoint(listener.host, listener.port)
        return None


@dataclass(frozen=True, slots=True)
class VoterSet:
    """Immutable; `voters` are in ascending order of their ids, which are unique."""

    voters: tuple[Voter, ...] = ()

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> VoterSet:
        """The set of these; later ones replace earlier ones of the same id."""
        by_id = {voter.key.id: voter for voter in voters}
        return cls(tuple(by_id[voter_id] for voter_id in sorted(by_id)))

    @classmethod
    def static(cls, endpoints: Mapping[int, VoterEndpoint], listener_name: str) -> VoterSet:
        """The voters of `controller.quorum.voters`, whose directories nobody wrote down."""
        return cls.of(
            Voter(ReplicaKey(voter), (VoterListener(listener_name, *endpoint),))
            for voter, endpoint in endpoints.items()
        )

    @property
    def ids(self) -> list[int]:
        """Ascending."""
        return [voter.key.id for voter in self.voters]

    @property
    def keys(self) -> list[ReplicaKey]:
        """By ascending id."""
        return [voter.key for voter in self.voters]

    def get(self, voter_id: int) -> Voter | None:
        """The voter with this id, whatever its directory."""
        return next((voter for voter in self.voters if voter.key.id == voter_id), None)

    def is_voter(self, replica: ReplicaKey) -> bool:
        """Whether `replica` is one of the voters: by id where their directories are not known, else by both."""
        voter = self.get(replica.id)
        return voter is not None and voter.key.directory_id in (NO_DIRECTORY, replica.directory_id)

    def having(self, voter: Voter) -> VoterSet:
        """This set with `voter` added, or in the place of the one with its id."""
        return VoterSet.of((*self.voters, voter))

    def lacking(self, voter_id: int) -> VoterSet:
        """This set without the voter of that id."""
        return VoterSet(tuple(voter for voter in self.voters if voter.key.id != voter_id))

    def __str__(self) -> str:
        return ",".join(str(voter_id) for voter_id in self.ids)


NO_VOTERS = VoterSet()


class LeaderChange(NamedTuple):
    """The control record with which an epoch begins."""

    leader_id: int
    voters: tuple[ReplicaKey, ...]
    granting: tuple[ReplicaKey, ...]


class KRaftVersion(NamedTuple):
    """The control record that finalizes `kraft.version`."""

    level: int


ControlRecord = LeaderChange | KRaftVersion | VoterSet

BOOTSTRAP_OFFSET = -1
"""Where the records of the snapshot that formatting wrote stand: before the log's first offset."""


class VoterHistory:
    """The voter sets and versions of a log, by the offsets of their records; the log keeps it as it changes.

    Empty where the log has no such record: then the configuration's voters count, and version 0.
    """

    def __init__(self) -> None:
        self._sets: list[tuple[int, VoterSet]] = []
        self._versions: list[tuple[int, int]] = []

    @property
    def last(self) -> VoterSet | None:
        """The set that counts now; None: that of the configuration."""
        return self._sets[-1][1] if self._sets else None

    @property
    def last_offset(self) -> int:
        """The offset of the record of `last`; `BOOTSTRAP_OFFSET` when it is not in the log."""
        return self._sets[-1][0] if self._sets else BOOTSTRAP_OFFSET

    @property
    def before_last(self) -> VoterSet | None:
        """The set that would count again if the record of `last` were truncated; None: that of the configuration."""
        return self._sets[-2][1] if len(self._sets) > 1 else None

    @property
    def version(self) -> int:
        """The `kraft.version` that counts now, committed or not."""
        return self._versions[-1][1] if self._versions else STATIC_VERSION

    def voters_at(self, end_offset: int) -> VoterSet | None:
        """The set by all records below `end_offset`."""
        at = bisect_left(self._sets, end_offset, key=lambda entry: entry[0])
        return self._sets[at - 1][1] if at else None

    def version_at(self, end_offset: int) -> int:
        """The version by all records below `end_offset`."""
        at = bisect_left(self._versions, end_offset, key=lambda entry: entry[0])
        return self._versions[at - 1][1] if at else STATIC_VERSION

    def add(self, offset: int, record: ControlRecord) -> None:
        """A record was appended at `offset`, after all others."""
        if isinstance(record, VoterSet):
            self._sets.append((offset, record))
        elif isinstance(record, KRaftVersion):
            self._versions.append((offset, record.level))

    def truncate_to(self, end_offset: int) -> None:
        """The log has no records at and above `end_offset` any more."""
        self._sets = [entry for entry in self._sets if entry[0] < end_offset]
        self._versions = [entry for entry in self._versions if entry[0] < end_offset]

    def start_from(self, end_offset: int, records: Iterable[ControlRecord]) -> None:
        """The log is empty and starts at `end_offset` with a snapshot that holds `records`."""
        self._sets, self._versions = [], []
        for record in records:
            self.add(end_offset - 1, record)

    def snapshot_records(self, end_offset: int) -> list[ControlRecord]:
        """What a snapshot of all below `end_offset` has to hold."""
        version, voters = self.version_at(end_offset), self.voters_at(end_offset)
        records: list[ControlRecord] = [KRaftVersion(version)] if version else []
        return records if voters is None else [*records, voters]
