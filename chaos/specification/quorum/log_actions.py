"""The actions on the log: ClientRequest, the answers to fetches, commits, snapshots, changes of the voters, restarts.

The names are those of the specification; snapshots (KIP-630) and restarts after a loss of power, which may lose what
was not synced, are not in it.
"""

from __future__ import annotations

from dataclasses import replace

from ....raft.quorum.majority import majority_size
from ....raft.types import RoleKind
from ..log_entry import is_valid_position, truncated
from ..step_search import Action, Proposal, violated
from .election_actions import Proposals
from .quorum_history import QuorumHistory
from .replica_state import MetadataLog, ReplicaState

SUCCEEDED = "HandleSuccessFetchResponse"
DIVERGED = "HandleDivergingFetchResponse"


class LogActions:
    """Changes of the log and of the high watermark of one replica."""

    def __init__(self, history: QuorumHistory) -> None:
        self._history = history

    @property
    def actions(self) -> list[Action[ReplicaState]]:
        """All of them."""
        return [
            self.client_request,
            self.append_fetched,
            self.truncate,
            self.install_snapshot,
            self.delete_old_snapshots,
            self.commit,
            self.learn_high_watermark,
        ]

    # ---- the log -----------------------------------------------------------------------------------------------------

    def client_request(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """ClientRequest, and AcceptJoinRequest and HandleRemoveRequest for sets of voters (KIP-853)."""
        if after.log is now.log or not after.log.has(now.log) or now.role is not RoleKind.LEADER:
            return
        entries = after.log.since(now.log)
        foreign = [entry.epoch for entry in entries if entry.epoch != now.epoch]
        before, changes = now.log, list[str]()
        for entry in entries:
            if entry.content is not None:
                changes += _voters_violated(now, before, entry)
            before = entry
        failed = violated(
            (not foreign, f"the leader of epoch {now.epoch} appended entries of the epochs {foreign}"),
            *((False, change) for change in changes),
        )
        yield Proposal("ClientRequest", replace(now, log=after.log), failed)

    def append_fetched(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """HandleSuccessFetchResponse: append what the leader of the epoch has."""
        if after.log is now.log or not after.log.has(now.log) or now.role is RoleKind.LEADER:
            return
        leaders = self._history.of(now.epoch).leaders_log
        failed = violated(
            (now.role is RoleKind.FOLLOWER, f"the node is {now.role.value}, not a follower"),
            (
                leaders is not None and leaders.has(after.log),
                f"{after.log} is no part of the leader's in epoch {now.epoch}, {leaders}",
            ),
        )
        yield Proposal(SUCCEEDED, replace(now, log=after.log), failed)

    def truncate(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """HandleDivergingFetchResponse: cut the log where the leader's epochs say."""
        leaders = self._history.of(now.epoch).leaders_log
        if after.log.has(now.log):
            return
        if leaders is None:
            shorter = replace(now, log=now.log.common_prefix(after.log))
            yield Proposal(DIVERGED, shorter, (f"epoch {now.epoch} has no leader",))
            return
        kept = truncated(now.log, leaders)
        failed = violated(
            (now.role is RoleKind.FOLLOWER, f"the node is {now.role.value}, not a follower"),
            (not is_valid_position(leaders, now.log), f"its log is a prefix of the leader's in epoch {now.epoch}"),
            (kept.end_offset >= now.high_watermark, f"{now.high_watermark} is committed, {kept.end_offset} is kept"),
        )
        yield Proposal(DIVERGED, replace(now, log=kept), failed)

    # ---- snapshots ---------------------------------------------------------------------------------------------------

    def install_snapshot(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """InstallSnapshot (KIP-630): a snapshot of the leader takes the place of the log."""
        start = after.log_start
        if start is now.log_start or not after.log.has(start):
            return
        leader = self._history.of(now.epoch)
        failed = violated(
            (now.role is RoleKind.FOLLOWER, f"the node is {now.role.value}, not a follower"),
            (
                start.end_offset >= now.high_watermark,
                f"the snapshot ends below {now.high_watermark}, which is committed",
            ),
            (
                leader.leaders_log is not None and leader.leaders_log.has(start),
                f"the snapshot does not end in the leader's log of epoch {now.epoch}",
            ),
            (self._history.committed.has(start), f"the snapshot ends at {start.end_offset}, which is not committed"),
        )
        installed = replace(now, log=start, log_start=start, high_watermark=max(now.high_watermark, start.end_offset))
        yield Proposal("InstallSnapshot (KIP-630)", installed, failed)

    def delete_old_snapshots(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """DeleteSnapshot (KIP-630): the log begins at the end of a later snapshot of its own."""
        start = after.log_start
        if start is now.log_start or not now.log.has(start):
            return
        failed = violated(
            (start.end_offset > now.log_start.end_offset, "the log begins earlier than before"),
            (self._history.committed.has(start), f"the snapshot ends at {start.end_offset}, which is not committed"),
        )
        yield Proposal("DeleteSnapshot (KIP-630)", replace(now, log_start=start), failed)

    # ---- the high watermark ------------------------------------------------------------------------------------------

    def commit(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """AcceptFetchRequestFromVoter: the leader's high watermark advances to what a majority has durably."""
        offset = after.high_watermark
        if offset <= now.high_watermark or now.role is not RoleKind.LEADER:
            return
        entry = now.log.at(offset)
        voters = now.voters.keys
        history, epoch = self._history, now.epoch
        holding = [] if entry is None else [one.id for one in voters if history.is_durable(one, entry, epoch)]
        failed = violated(
            (entry is not None, f"no batch of its log ends at {offset}"),
            (entry is None or entry.epoch == epoch, f"the record before {offset} is of an epoch before {epoch}"),
            (
                len(holding) >= majority_size(len(voters)),
                f"of the voters {now.voters} only {holding} have the log up to {offset} on their disks",
            ),
        )
        yield Proposal("AcceptFetchRequestFromVoter", replace(now, high_watermark=offset), failed)

    def learn_high_watermark(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """HandleSuccessFetchResponse: take the leader's high watermark, as far as the own log reaches."""
        offset = after.high_watermark
        if offset <= now.high_watermark or now.role is RoleKind.LEADER:
            return
        known = self._history.of(now.epoch).high_watermark
        failed = violated(
            (now.role is RoleKind.FOLLOWER, f"the node is {now.role.value}, not a follower"),
            (offset <= now.log.end_offset, f"its log ends at {now.log.end_offset}, before {offset}"),
            (offset <= known, f"the leader of epoch {now.epoch} has committed up to {known}, not to {offset}"),
        )
        yield Proposal(SUCCEEDED, replace(now, high_watermark=offset), failed)


def _voters_violated(now: ReplicaState, before: MetadataLog, entry: MetadataLog) -> tuple[str, ...]:
    """One voter is added or removed at a time, and only after commits of the last change and of this epoch."""
    voters, end_offset = now.voters_and_end(before)
    others = entry.content or voters
    if voters.ids == others.ids and all(old.matches(new) for old, new in zip(voters.keys, others.keys, strict=True)):
        return ()
    committed = before.up_to(now.high_watermark)
    return violated(
        (len({*voters.keys} ^ {*others.keys}) == 1, f"the voters {voters} became {others} in one change"),
        (end_offset <= now.high_watermark, f"the change to {voters} is not committed yet"),
        (committed.epoch == now.epoch, f"no record of epoch {now.epoch} is committed yet"),
    )
