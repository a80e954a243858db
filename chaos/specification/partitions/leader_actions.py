"""What a leader does in its epoch: WriteRecordToLeader, ReceiveFetchRequest, proposals of ISRs, the high watermark."""

from __future__ import annotations

from dataclasses import replace

from ..step_search import Action, Proposal, violated
from .partition_history import PartitionHistory
from .replica_state import ReplicaState
from .role_actions import Proposals


class LeaderActions:
    """Changes of a replica that leads."""

    def __init__(self, history: PartitionHistory) -> None:
        self._history = history

    @property
    def actions(self) -> list[Action[ReplicaState]]:
        """All of them."""
        return [self.write, self.receive_fetch, self.propose_isr, self.drop_proposal, self.advance_high_watermark]

    def write(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """WriteRecordToLeader: append records of the leader's own epoch."""
        if not now.is_leader or after.log is now.log or not after.log.has(now.log):
            return
        foreign = sorted({entry.epoch for entry in after.log.since(now.log)} - {now.leader_epoch})
        failed = violated(
            (not foreign, f"the leader of epoch {now.leader_epoch} appended batches of the epochs {foreign}")
        )
        yield Proposal("WriteRecordToLeader", replace(now, log=after.log, end_offset=after.end_offset), failed)

    def receive_fetch(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """ReceiveFetchRequest: a follower in the leader's epoch has the leader's log up to its fetch offset.

        A follower whose log ends where a leader's begins may have had other records: it deletes them all. That offset
        may be within a batch, if records were deleted up to there, and the present leader may not know of that.
        """
        if not now.is_leader or after.fetch_offsets == now.fetch_offsets:
            return
        for follower, offset in sorted(after.fetch_offsets - now.fetch_offsets):
            entry = after.log.up_to(offset)
            is_start = offset <= max(self._history.log_start_offset, after.log_start_offset)
            is_end = entry.end_offset == offset or is_start
            has_had = self._history.has_had(follower, now.leader_epoch, entry)
            failed = violated(
                (is_end and offset <= after.end_offset, f"no batch of its log ends at {offset}"),
                (
                    not is_end or is_start or has_had,
                    f"{follower} did not have the leader's log up to {offset} as a follower in epoch "
                    f"{now.leader_epoch}",
                ),
            )
            others = {one for one in now.fetch_offsets if one[0] != follower}
            yield Proposal(
                "ReceiveFetchRequest", replace(now, fetch_offsets=frozenset(others | {(follower, offset)})), failed
            )

    def propose_isr(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """SendAlterPartitionRequest: FencedLeaderExpandIsr and FencedLeaderShrinkIsr of KIP-320 are its conditions.

        Who joins has reached the high watermark and the start of the leader's epoch; who leaves is behind the leader.
        """
        pending = after.pending_isr
        if not now.is_leader or pending is None or now.pending_isr is not None:
            return
        reached = max(now.high_watermark, now.epoch_start_offset)
        ends = {node: now.fetch_offset_of(node) for node in pending ^ now.isr}
        failed = violated(
            (now.node in pending, f"the leader {now.node} is to leave the ISR"),
            (pending != now.isr, "the ISR is the same"),
            *(
                (
                    ends[node] >= reached,
                    f"{node} has fetched up to {ends[node]}; the high watermark is {now.high_watermark}, and epoch "
                    f"{now.leader_epoch} starts at {now.epoch_start_offset}",
                )
                for node in sorted(pending - now.isr)
            ),
            *(
                (ends[node] != now.end_offset, f"{node} has all of the leader's log up to {now.end_offset}")
                for node in sorted(now.isr - pending)
            ),
        )
        yield Proposal("SendAlterPartitionRequest", replace(now, pending_isr=pending), failed)

    def drop_proposal(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """ReceiveAlterPartitionResponse with an error: the ISR stays what the controller has committed."""
        if now.is_leader and now.pending_isr is not None and after.pending_isr != now.pending_isr:
            yield Proposal("ReceiveAlterPartitionResponse", replace(now, pending_isr=None))

    def advance_high_watermark(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """FencedLeaderIncHighWatermark: to where the log of each member of the maximal ISR ends, or further."""
        offset = after.high_watermark
        if not now.is_leader or offset <= now.high_watermark:
            return
        ends = {node: now.fetch_offset_of(node) for node in sorted(now.maximal_isr - {now.node})}
        behind = {node: end for node, end in ends.items() if end < offset}
        failed = violated(
            (offset <= now.end_offset, f"the leader's log ends at {now.end_offset}, before {offset}"),
            (not behind, f"of the maximal ISR {sorted(now.maximal_isr)} have fetched less than {offset}: {behind}"),
            (
                offset == now.end_offset or any(offset == end for _, end in now.fetch_offsets),
                f"no replica's log ends at {offset}",
            ),
            (
                len(now.isr) >= after.min_isr,
                f"{after.min_isr} are to be in sync (KIP-966), the ISR is {sorted(now.isr)}",
            ),
        )
        yield Proposal("FencedLeaderIncHighWatermark", replace(now, high_watermark=offset), failed)
