"""The change of one partition from a state to the next: its leader, ISR, ELR and replicas.

Kafka's counterpart is `PartitionChangeBuilder`. Election: the present leader stays while it can. Else the first of the
replicas, in their order, that is acceptable and in the ISR becomes leader. With an empty ISR it is the first acceptable
one in the ELR, then the last known leader, and any acceptable replica only where the operator allows it. The latter two
elections are unclean: the ISR becomes the new leader alone, which must report that it has recovered before the ISR may
grow (KIP-704).

Eligible leader replicas are explained in `eligible_leader_replicas.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ...runtime.invariants import sometimes
from ..metadata.metadata_image import MetadataImage, PartitionRegistration
from ..metadata.metadata_records import NO_LEADER, RECOVERING, PartitionChangeRecord
from ..settings import ControllerSettings
from .eligible_leader_replicas import elr_beside, is_isr_large_enough, last_known_elr_after

Acceptable: TypeAlias = Callable[[int], bool]
"""Whether a broker may lead the partition and be in its ISR."""


class Election(Enum):
    """Which replicas an election may choose."""

    PREFERRED = "preferred"
    """The first replica when it can lead, even while the present leader can."""
    ONLINE = "online"
    """A replica of the ISR or ELR, when there is no valid leader."""
    UNCLEAN = "unclean"
    """As ONLINE, and any acceptable replica rather than none."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The ISR that a partition shall have, and the rules of its election."""

    isr: tuple[int, ...]
    acceptable: Acceptable
    min_insync_replicas: int
    elr_enabled: bool
    election: Election = Election.ONLINE
    unclean_shutdown: int | None = None
    """A broker that restarted without proof of a clean stop: its log may have lost its tail."""
    leader_recovery_state: int | None = None
    is_lost: bool = False
    """The replica of `unclean_shutdown` is lost for good: the ISR may become empty without it."""


class PartitionRules:
    """The rules of elections by topic, each looked up once: a broker may have thousands of partitions.

    In a decision in parts the image changes between two parts; then all rules are looked up again.
    """

    def __init__(self, image: MetadataImage, settings: ControllerSettings) -> None:
        self._image = image
        self._settings = settings
        self._image_offset = image.offset
        self._elr_enabled = image.elr_enabled
        self._by_topic: dict[str, tuple[int, Election]] = {}

    def goal(
        self, topic: str, isr: tuple[int, ...], acceptable: Acceptable, unclean_shutdown: int | None = None
    ) -> Goal:
        """The goal to reach `isr` by the topic's `min.insync.replicas` and `unclean.leader.election.enable`."""
        if self._image.offset != self._image_offset:
            self._image_offset = self._image.offset
            self._elr_enabled = self._image.elr_enabled
            self._by_topic.clear()
        min_isr, election = self._of(topic)
        return Goal(isr, acceptable, min_isr, self._elr_enabled, election, unclean_shutdown)

    def _of(self, topic: str) -> tuple[int, Election]:
        rules = self._by_topic.get(topic)
        if rules is None:
            unclean = self._settings.unclean_election_enabled(self._image, topic)
            min_isr = self._settings.min_insync_replicas(self._image, topic)
            rules = self._by_topic[topic] = (min_isr, Election.UNCLEAN if unclean else Election.ONLINE)
        return rules


class _Outcome(NamedTuple):
    leader: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    unclean: bool = False


class ReplicaSets(NamedTuple):
    """The replicas of a partition, and those that a reassignment adds or removes (see `reassignment.py`)."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def decide_partition_change(
    topic_id: UUID,
    index: int,
    partition: PartitionRegistration,
    goal: Goal,
    reassigned: ReplicaSets | None = None,
) -> PartitionChangeRecord | None:
    """The record that takes `partition` to `goal`, or None when nothing changes.

    `reassigned` gives the partition other replicas. When the new ISR completes a reassignment, the same record does.
    """
    isr = goal.isr
    if not isr and not goal.elr_enabled and not goal.is_lost:
        sometimes(partition.isr, "the last member of an ISR stayed in it though it could not lead")
        isr = partition.isr  # without an ELR, only the last member tells which replica may lead again
    sets, isr = complete(_sets_of(partition) if reassigned is None else reassigned, isr, goal.min_insync_replicas)
    target = partition._replace(replicas=sets.replicas, adding_replicas=sets.adding, removing_replicas=sets.removing)
    isr = tuple(replica for replica in isr if replica in target.replicas)
    elr = elr_beside(target, isr, goal.unclean_shutdown) if goal.elr_enabled else ()
    outcome = _elect(target, isr, elr, goal)
    sets, outcome = _complete_by_election(sets, outcome, goal)
    target = target._replace(replicas=sets.replicas)
    if is_isr_large_enough(outcome.isr, target.replicas, goal.min_insync_replicas):
        sometimes(partition.elr, "an ISR was large enough again, and its ELR was emptied")
        outcome = outcome._replace(elr=())
    change = _difference(topic_id, index, partition, outcome, goal)
    return change if sets == _sets_of(partition) else _with_sets(topic_id, index, partition, change, sets)


def complete(sets: ReplicaSets, isr: tuple[int, ...], min_insync_replicas: int) -> tuple[ReplicaSets, tuple[int, ...]]:
    """The replicas and the ISR after the reassignment, if all added replicas are in `isr`; else both unchanged.

    Kafka completes a reassignment as soon as one replica stays in the ISR. This waits until the ISR without the removed
    replicas is large enough for acks=all.
    """
    staying = tuple(replica for replica in isr if replica not in sets.removing)
    replicas = tuple(replica for replica in sets.replicas if replica not in sets.removing)
    enough = len(staying) == len(isr) or len(staying) >= min(min_insync_replicas, len(replicas))
    sometimes(not enough, "a reassignment waited for enough replicas in sync without those to be removed")
    if not (sets.adding or sets.removing) or not staying or not enough:
        return sets, isr
    if any(added not in staying for added in sets.adding):
        return sets, isr
    return ReplicaSets(replicas, (), ()), staying


def _complete_by_election(sets: ReplicaSets, outcome: _Outcome, goal: Goal) -> tuple[ReplicaSets, _Outcome]:
    """A leader elected from outside the ISR makes a new ISR, which may complete a reassignment."""
    done, isr = complete(sets, outcome.isr, goal.min_insync_replicas)
    if done == sets or outcome.leader not in isr:
        return sets, outcome
    sometimes(True, "an election completed a reassignment")
    return done, outcome._replace(isr=isr, elr=tuple(replica for replica in outcome.elr if replica in done.replicas))


def _sets_of(partition: PartitionRegistration) -> ReplicaSets:
    return ReplicaSets(partition.replicas, partition.adding_replicas, partition.removing_replicas)


def _with_sets(
    topic_id: UUID,
    index: int,
    partition: PartitionRegistration,
    change: PartitionChangeRecord | None,
    sets: ReplicaSets,
) -> PartitionChangeRecord:
    """The change with the new replicas. When a replica is removed, the leader epoch grows, so that it cannot fetch."""
    change = change or PartitionChangeRecord(topic_id, index)
    is_smaller = any(replica not in sets.replicas for replica in partition.replicas)
    return replace(
        change,
        leader=partition.leader if is_smaller and change.leader is None else change.leader,
        replicas=None if sets.replicas == partition.replicas else sets.replicas,
        adding_replicas=None if sets.adding == partition.adding_replicas else sets.adding,
        removing_replicas=None if sets.removing == partition.removing_replicas else sets.removing,
    )


def _elect(partition: PartitionRegistration, isr: tuple[int, ...], elr: tuple[int, ...], goal: Goal) -> _Outcome:
    def first(eligible: tuple[int, ...]) -> int | None:
        return next((r for r in partition.replicas if r in eligible and goal.acceptable(r)), None)

    preferred = partition.replicas[0]
    if goal.election is Election.PREFERRED and preferred in isr and goal.acceptable(preferred):
        return _Outcome(preferred, isr, elr)
    if partition.leader in isr and goal.acceptable(partition.leader):
        return _Outcome(partition.leader, isr, elr)
    leader = first(isr)
    if leader is not None:
        return _Outcome(leader, isr, elr)
    leader = None if isr else first(elr)
    if leader is not None:
        sometimes(True, "a leader was elected from the ELR")
        return _Outcome(leader, (leader,), tuple(replica for replica in elr if replica != leader))
    leader = _last_resort(partition, isr, elr, goal)
    if leader is not None:
        sometimes(goal.election is Election.UNCLEAN, "a leader was elected uncleanly")
        sometimes(goal.election is not Election.UNCLEAN, "the last known leader was elected")
        return _Outcome(leader, (leader,), (), unclean=True)
    sometimes(partition.leader != NO_LEADER, "a partition lost its leader, and no replica could take over")
    return _Outcome(NO_LEADER, isr, elr)


def _last_resort(
    partition: PartitionRegistration, isr: tuple[int, ...], elr: tuple[int, ...], goal: Goal
) -> int | None:
    if goal.elr_enabled and not isr and not elr and len(partition.last_known_elr) == 1:
        last_known = partition.last_known_elr[0]
        if last_known in partition.replicas and goal.acceptable(last_known):
            return last_known
    if goal.election is not Election.UNCLEAN:
        return None
    return next((replica for replica in partition.replicas if goal.acceptable(replica)), None)


def _difference(
    topic_id: UUID, index: int, partition: PartitionRegistration, outcome: _Outcome, goal: Goal
) -> PartitionChangeRecord | None:
    last_known_elr = last_known_elr_after(partition, outcome.isr, outcome.leader) if goal.elr_enabled else ()
    recovery = RECOVERING if outcome.unclean else goal.leader_recovery_state
    isr = None if outcome.isr == partition.isr else outcome.isr
    elr = None if outcome.elr == partition.elr else outcome.elr
    leader = None if outcome.leader == partition.leader else outcome.leader
    last_known = None if last_known_elr == partition.last_known_elr else last_known_elr
    recovery = None if recovery == partition.leader_recovery_state else recovery
    if isr is None and elr is None and leader is None and last_known is None and recovery is None:
        return None
    return PartitionChangeRecord(topic_id, index, isr, leader, elr, last_known, recovery)
