"""What the controller may do to a partition by one record: ControllerElectLeader, ControllerShrinkIsr and others.

One record may carry out several actions: when a broker is fenced, another replica is elected and the broker leaves the
ISR. A record raises the leader epoch by one at most. `ControllerUpdateIsr` of the specification raises it with each
change; here a change without a new leader need not raise it, since AlterPartition has the partition epoch (KIP-497).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from ..step_search import Action, Deviation, Proposal, explain, violated
from .partition_state import NO_LEADER, PartitionState

Proposals = Iterator[Proposal[PartitionState]]


def creation_violated(state: PartitionState) -> tuple[str, ...]:
    """What is wrong with a new partition."""
    return violated(
        (state.leader in state.isr or state.leader == NO_LEADER, f"the leader is not in the ISR: {state}"),
        (state.isr <= state.replicas, f"the ISR has others than the replicas: {state}"),
        (not state.elr and not state.is_recovering, f"a new partition has lost nothing: {state}"),
    )


@dataclass(frozen=True, slots=True)
class ControllerActions:
    """The changes by one record, before which the partition is in the state `before`."""

    before: PartitionState
    active: Collection[int]
    """The brokers that may lead: unfenced, and with a working directory."""
    min_isr: int | None = None
    """`min.insync.replicas` of the partition's topic; None if nothing says who has to be eligible (KIP-966)."""
    lossy: Collection[int] = ()
    """The brokers whose replicas may have lost their tails: they began anew, or the directory failed."""

    def explain(self, after: PartitionState) -> list[Proposal[PartitionState]] | Deviation:
        """The actions that lead to the next state, or why there are none."""
        actions: list[Action[PartitionState]] = [
            self.elect_leader,
            self.elect_uncleanly,
            self.expand_isr,
            self.shrink_isr,
            self.remove_leader,
            self.raise_leader_epoch,
            _leave_elr,
            _recover,
            _add_replicas,
            _remove_replicas,
        ]
        return explain(self.before, after, actions)

    def elect_leader(self, now: PartitionState, after: PartitionState) -> Proposals:
        """ControllerElectLeader: a member of the ISR, or an eligible leader replica (KIP-966), which joins the ISR.

        Where the record completes a reassignment, the member may have joined by the same record.
        """
        leader = after.leader
        if leader in (NO_LEADER, now.leader) or self._has_new_epoch(now):
            return
        before = self.before
        has_joined = before.replicas != after.replicas and leader in now.isr
        failed = violated(
            (
                leader in before.isr | before.elr or has_joined,
                f"{leader} is neither in the ISR {sorted(before.isr)} nor in the ELR {sorted(before.elr)}",
            ),
            (leader in self.active, f"broker {leader} is not active, or its directory has failed"),
        )
        isr, elr = now.isr | {leader}, now.elr - {leader}
        elected = replace(now, leader=leader, leader_epoch=now.leader_epoch + 1, isr=isr, elr=elr)
        yield Proposal("ControllerElectLeader", elected, failed)

    def elect_uncleanly(self, now: PartitionState, after: PartitionState) -> Proposals:
        """An unclean election (KIP-704): the last resort; the leader alone is in sync, and has to recover."""
        leader = after.leader
        if leader == NO_LEADER or not after.is_recovering or self._has_new_epoch(now):
            return
        others = sorted((self.before.isr | self.before.elr) & {*self.active} - {leader})
        failed = violated(
            (not others, f"the active brokers {others} have all that is committed"),
            (leader in self.active, f"broker {leader} is not active, or its directory has failed"),
        )
        elected = PartitionState(
            now.replicas, frozenset({leader}), frozenset(), leader, now.leader_epoch + 1, is_recovering=True
        )
        yield Proposal("UncleanElection (KIP-704)", elected, failed)

    def expand_isr(self, now: PartitionState, after: PartitionState) -> Proposals:
        """LeaderExpandIsr: by AlterPartition of the leader, which stays unless that completes a reassignment."""
        stays = after.leader == self.before.leader or after.replicas != self.before.replicas
        for joining in sorted(after.isr - now.isr):
            failed = violated(
                (now.leader != NO_LEADER, "there is no leader"),
                (stays, f"{self.before.leader} leads no more"),
                (joining in now.replicas, f"{joining} is not among the replicas {sorted(now.replicas)}"),
                (joining in self.active, f"broker {joining} is not active, or its directory has failed"),
                (not now.is_recovering, "the leader has not recovered yet"),
            )
            yield Proposal("LeaderExpandIsr", replace(now, isr=now.isr | {joining}, elr=now.elr - {joining}), failed)

    def shrink_isr(self, now: PartitionState, after: PartitionState) -> Proposals:
        """ControllerShrinkIsr and LeaderShrinkIsr; who leaves stays eligible to lead if too few stay (KIP-966)."""
        for leaving in sorted(now.isr - after.isr):
            failed = violated(
                (leaving != now.leader, f"{leaving} leads, and leaves the ISR"),
                (self._is_rightly_eligible(leaving, after), f"the ELR does not follow from {self.min_isr} in sync"),
            )
            elr = now.elr | {leaving} if leaving in after.elr else now.elr
            yield Proposal("ControllerShrinkIsr", replace(now, isr=now.isr - {leaving}, elr=elr), failed)

    def _is_rightly_eligible(self, leaving: int, after: PartitionState) -> bool:
        """Whether one that leaves the ISR is eligible because too few are in sync, or not because enough are."""
        if self.min_isr is None:
            return True
        is_large = len(after.isr) >= min(self.min_isr, len(after.replicas))
        if leaving in after.elr:
            return not is_large
        return is_large or leaving not in after.replicas or leaving in self.lossy

    def remove_leader(self, now: PartitionState, after: PartitionState) -> Proposals:
        """ControllerShrinkIsr of the leader, as far as the leadership is concerned."""
        if after.leader == NO_LEADER != now.leader and not self._has_new_epoch(now):
            yield Proposal("ControllerShrinkIsr", replace(now, leader=NO_LEADER, leader_epoch=now.leader_epoch + 1))

    def raise_leader_epoch(self, now: PartitionState, after: PartitionState) -> Proposals:
        """ControllerUpdateIsr: the same leader in the next epoch."""
        if after.leader == now.leader and not self._has_new_epoch(now):
            yield Proposal("ControllerUpdateIsr", replace(now, leader_epoch=now.leader_epoch + 1))

    def _has_new_epoch(self, now: PartitionState) -> bool:
        """Whether the record has raised the leader epoch already, which it can do once."""
        return now.leader_epoch > self.before.leader_epoch


def _leave_elr(now: PartitionState, after: PartitionState) -> Proposals:
    """LeaveElr (KIP-966): after an unclean stop, or because the ISR is large enough."""
    if not now.elr <= after.elr:
        yield Proposal("LeaveElr (KIP-966)", replace(now, elr=now.elr & after.elr))


def _recover(now: PartitionState, after: PartitionState) -> Proposals:
    """Recover (KIP-704): the leader has reported that it has recovered."""
    if now.is_recovering and not after.is_recovering:
        failed = violated((now.leader != NO_LEADER, "there is no leader"))
        yield Proposal("Recover (KIP-704)", replace(now, is_recovering=False), failed)


def _add_replicas(now: PartitionState, after: PartitionState) -> Proposals:
    """Reassign (KIP-455): replicas are added."""
    if not after.replicas <= now.replicas:
        yield Proposal("Reassign (KIP-455)", replace(now, replicas=now.replicas | after.replicas))


def _remove_replicas(now: PartitionState, after: PartitionState) -> Proposals:
    """Reassign (KIP-455): replicas are removed that are neither in the ISR nor eligible to lead."""
    removed = now.replicas - after.replicas
    if removed:
        kept = sorted(removed & (now.isr | now.elr))
        failed = violated((not kept, f"{kept} are still in the ISR or the ELR"))
        yield Proposal("Reassign (KIP-455)", replace(now, replicas=now.replicas - removed), failed)
