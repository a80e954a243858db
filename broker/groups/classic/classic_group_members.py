"""The members of a classic group, and what follows from them alone: leader, common protocol, who has joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ....wire.errors import ErrorCode
from ..member_session_expiry import MemberSession
from ..records.offset_and_classic_records import GroupMetadataValue, MemberValue
from .consumer_protocol import CONSUMER_PROTOCOL_TYPE, subscribed_topics

Protocols = tuple[tuple[str, bytes], ...]


class ClassicGroupState(StrEnum):
    """Named as Kafka's admin APIs name them.

        EMPTY -> PREPARING_REBALANCE -> COMPLETING_REBALANCE -> STABLE -> PREPARING_REBALANCE ...

    PREPARING_REBALANCE: the group waits for JoinGroup of its members. COMPLETING_REBALANCE: it waits for SyncGroup of
    the leader, with the assignment.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True)
class ClassicGroupMember:
    """One member. A token stands for a request that waits:

    JoinGroup for the other members, SyncGroup for the leader.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join_token: Any = None
    sync_token: Any = None
    is_new: bool = False
    """The member does not know its id yet, so it cannot send heartbeats."""
    session: MemberSession = field(default_factory=MemberSession)

    @property
    def is_awaiting(self) -> bool:
        """Whether a JoinGroup or SyncGroup of the member waits for its response."""
        return self.join_token is not None or self.sync_token is not None

    def metadata(self, protocol: str | None) -> bytes:
        """What the member sent for that protocol in its JoinGroup."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: Sequence[str]) -> str:
        """The member's first choice among the candidates."""
        return next(name for name, _ in self.protocols if name in candidates)


@dataclass(slots=True)
class ClassicGroupMembers:
    """The members of a group by id, in the order of their joining."""

    members: dict[str, ClassicGroupMember] = field(default_factory=dict)
    static_ids: dict[str, str] = field(default_factory=dict)
    """Member id by instance id (KIP-345)."""
    pending: dict[str, None] = field(default_factory=dict)
    """Ids given to new members that have not joined with them yet (KIP-394)."""
    unsynced: dict[str, None] = field(default_factory=dict)
    """Members of this generation that have not asked for their assignment yet."""
    leader: str | None = None
    supporters: dict[str, int] = field(default_factory=dict)
    """How many members support each protocol."""

    def __len__(self) -> int:
        return len(self.members)

    @property
    def joining(self) -> list[ClassicGroupMember]:
        """Members whose JoinGroup waits."""
        return [member for member in self.members.values() if member.join_token is not None]

    @property
    def have_all_joined(self) -> bool:
        """Whether the JoinGroup of every member waits, and no new member is expected."""
        return not self.pending and len(self.joining) == len(self.members)

    def add(self, member: ClassicGroupMember) -> None:
        """Add the member. The first one becomes the leader."""
        self.members[member.member_id] = member
        self.pending.pop(member.member_id, None)
        self._count(member, 1)
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: ClassicGroupMember) -> None:
        """Remove the member. If it was the leader, the next member becomes the leader."""
        del self.members[member.member_id]
        self.unsynced.pop(member.member_id, None)
        self._count(member, -1)
        if member.instance_id is not None:
            self.static_ids.pop(member.instance_id, None)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, member: ClassicGroupMember, member_id: str) -> None:
        """Give a static member that came back its new id; it keeps its position."""
        old_id = member.member_id
        self.members = {member_id if known == old_id else known: one for known, one in self.members.items()}
        member.member_id = member_id
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member_id
        if self.unsynced.pop(old_id, "") is None:
            self.unsynced[member_id] = None
        if self.leader == old_id:
            self.leader = member_id

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined, else take the first member that has. False when no member has joined."""
        leader = self.members.get(self.leader or "")
        if leader is None or leader.join_token is None:
            joined = self.joining
            if not joined:
                return False
            self.leader = joined[0].member_id
        return True

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE if the member is known and holds the instance, else why it is refused."""
        if instance_id is not None:
            known = self.static_ids.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def set_protocols(self, member: ClassicGroupMember, protocols: Protocols) -> None:
        """Replace the protocols that the member supports."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def _count(self, member: ClassicGroupMember, change: int) -> None:
        for name in dict(member.protocols):
            self.supporters[name] = self.supporters.get(name, 0) + change

    def candidates(self) -> list[str]:
        """Protocols that every member supports, as the first member orders them."""
        first = next(iter(self.members.values()), None)
        if first is None:
            return []
        return [name for name in dict(first.protocols) if self.supporters[name] == len(self.members)]

    def supports(self, protocols: Protocols) -> bool:
        """Whether a member with these protocols shares one with all others."""
        candidates = self.candidates()
        return not self.members or any(name in candidates for name, _ in protocols)

    def elect_protocol(self) -> str:
        """The candidate with the most votes; each member votes for its first choice.

        A tie goes to the first candidate.
        """
        candidates = self.candidates()
        votes = dict.fromkeys(candidates, 0)
        for member in self.members.values():
            votes[member.vote(candidates)] += 1
        return max(candidates, key=lambda name: votes[name])

    def rebalance_timeout_ms(self) -> int:
        """The longest that any member asks for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)


def topics_of(members: ClassicGroupMembers, protocol_type: str | None, protocol: str | None) -> tuple[str, ...] | None:
    """The topics that the members subscribe to; None where the coordinator cannot read that."""
    if protocol_type != CONSUMER_PROTOCOL_TYPE or (protocol is None and members.members):
        return None
    topics: dict[str, None] = {}
    for member in members.members.values():
        subscribed = subscribed_topics(member.metadata(protocol))
        if subscribed is None:
            return None
        topics |= dict.fromkeys(subscribed)
    return tuple(topics)


def membership_from(value: GroupMetadataValue) -> ClassicGroupMembers:
    """The members of a group that is read from the log."""
    result = ClassicGroupMembers()
    for row in value.members:
        protocols = ((value.protocol, row.subscription),) if value.protocol is not None else ()
        member = ClassicGroupMember(
            member_id=row.member_id,
            instance_id=row.instance_id,
            client_id=row.client_id,
            client_host=row.client_host,
            rebalance_timeout_ms=row.rebalance_timeout_ms,
            session_timeout_ms=row.session_timeout_ms,
            protocols=protocols,
            assignment=row.assignment,
        )
        result.add(member)
    if value.leader is not None and value.leader in result.members:
        result.leader = value.leader
    return result


def member_values(
    members: ClassicGroupMembers, protocol: str | None, assignments: dict[str, bytes]
) -> tuple[MemberValue, ...]:
    """The members as they are written to the log, with these assignments."""
    return tuple(
        MemberValue(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            member.metadata(protocol),
            assignments.get(member.member_id, b""),
        )
        for member in members.members.values()
    )
