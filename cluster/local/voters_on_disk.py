"""The voters of a local cluster as its files have them: the metadata logs, and the ids of the metadata directories.

A voter is a node id together with the id of its metadata directory (KIP-853). A node that comes back with an empty
directory has another id there, and no vote. Nobody can say so while there is no leader, so the files are compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from ...log.errors import LogDirError
from ...log.manager.meta_properties import read_meta_properties
from ...log.state.checkpoints import encode_uuid
from ...raft.messages.control_records import voter_records
from ...raft.types import METADATA_TOPIC, NO_DIRECTORY
from ...raft.voters.voter_set import DYNAMIC_VERSION, ControlRecord, KRaftVersion, Voter, VoterSet
from ...runtime.files.real_disk import RealDisk
from ...wire.errors import ProtocolError, WireFormatError
from ..command_line.cluster_address import options_of
from .layout import ClusterPlan, NodePlan

_LOG, _SNAPSHOT = ".log", ".checkpoint"
_RECOVERY = "docs/voters.md, under 'A majority has lost its directories'"


@dataclass(frozen=True, slots=True)
class LostDirectory:
    """A voter of which the node no longer has the metadata directory; `present` is the id of the one that it has."""

    voter: Voter
    path: str
    present: UUID | None

    def __str__(self) -> str:
        now = "is not formatted" if self.present is None else f"has the directory id {encode_uuid(self.present)}"
        return f"{self.path} {now}, and the voter {encode_uuid(self.voter.key.directory_id)}"


@dataclass(frozen=True, slots=True)
class LostMajority:
    """So many voters have lost their directories that the others are no majority."""

    voters: VoterSet
    lost: tuple[LostDirectory, ...]
    options: str
    """What a command about single nodes needs behind it to find the cluster."""

    @property
    def what(self) -> str:
        """What has happened, in a sentence."""
        ids = [str(one.voter.key.id) for one in self.lost]
        left = [str(one) for one in self.voters.ids if str(one) not in ids]
        who = f"controllers {', '.join(ids)} are back with other log directories, and are"
        if len(ids) == 1:
            who = f"controller {ids[0]} is back with another log directory, and is"
        voters = f"{'no voter' if len(ids) == 1 else 'no voters'}: {'; '.join(map(str, self.lost))}"
        those = f"of its voters {self.voters} only {', '.join(left)} {'is' if len(left) == 1 else 'are'} left"
        if not left:
            those = f"none of its voters {self.voters} is left"
        return f"the quorum has lost its majority: {those}, since {who} therefore {voters}"

    @property
    def way_out(self) -> str:
        """How the quorum gets a majority again."""
        least = len(self.lost) - (len(self.voters.voters) - 1) // 2
        ids = [str(one.voter.key.id) for one in self.lost]
        which = f"of node {' or '.join(ids)}" if least == 1 else f"of {least} of the nodes {', '.join(ids)}"
        commands = f"raftwerk stop N{self.options}, then raftwerk start N{self.options}"
        back = f"put the former log directory {which} back, from the old disk or a copy ({commands})"
        if len(self.lost) == len(self.voters.voters):
            return back
        return (
            f"{back}; if they are gone for good, those that are left can go on with the metadata that they have: see "
            f"{_RECOVERY}; its --initial-controllers is {initial_controllers(self.voters)}"
        )


def has_dynamic_voters(plan: ClusterPlan) -> bool:
    """Whether `kraft.version` is 1 or higher, by the metadata log of one of its nodes."""
    return any(
        isinstance(one, KRaftVersion) and one.level >= DYNAMIC_VERSION
        for node in plan.nodes
        for _, one in _control_records(node)
    )


def lost_majority(plan: ClusterPlan) -> LostMajority | None:
    """The voters that have lost their directories if the others are no majority; None where they are, or may be."""
    sets = {offset: one for node in plan.nodes for offset, one in _control_records(node) if isinstance(one, VoterSet)}
    if not sets:
        return None
    voters = sets[max(sets)]
    nodes = {node.node_id: node for node in plan.nodes}
    found = [_lost(voter, nodes[voter.key.id]) for voter in voters.voters if voter.key.id in nodes]
    lost = tuple(one for one in found if one is not None)
    return LostMajority(voters, lost, options_of(plan.directory)) if 2 * len(lost) >= len(voters.voters) else None


def lost_majority_told(plan: ClusterPlan) -> str:
    """That the quorum has lost its majority for good, and what to do, in lines below another one; else empty."""
    found = lost_majority(plan)
    return "" if found is None else "".join(f"\n{one[0].upper()}{one[1:]}" for one in (found.what, found.way_out))


def initial_controllers(voters: VoterSet) -> str:
    """The voters as `raftwerk format --initial-controllers` takes them."""
    ends = ((one.key, one.endpoint("CONTROLLER")) for one in voters.voters)
    return ",".join(
        f"{key.id}@{f'[{at.host}]' if ':' in at.host else at.host}:{at.port}:{encode_uuid(key.directory_id)}"
        for key, at in ends
        if at is not None
    )


def _lost(voter: Voter, node: NodePlan) -> LostDirectory | None:
    try:
        found = read_meta_properties(RealDisk(is_read_only=True), node.data_dir)
    except (OSError, LogDirError):
        return None  # the node itself says what is wrong with the file
    if voter.key.directory_id == NO_DIRECTORY or (found is not None and found.directory_id == voter.key.directory_id):
        return None
    return LostDirectory(voter, node.data_dir, None if found is None else found.directory_id)


def _control_records(node: NodePlan) -> Iterator[tuple[int, ControlRecord]]:
    """What the metadata log of a node says of its voters: each record with the offset at which it holds."""
    directory = os.path.join(node.data_dir, f"{METADATA_TOPIC}-0")
    names = os.listdir(directory) if os.path.isdir(directory) else []
    for name in names:
        if not name.endswith((_LOG, _SNAPSHOT)):
            continue
        try:
            with open(os.path.join(directory, name), "rb") as file:
                records = list(voter_records(file.read(), allow_partial_tail=True))
        except (OSError, ProtocolError, WireFormatError):
            continue  # the node itself says what is wrong with the file
        begin = int(name.partition("-")[0]) if name.endswith(_SNAPSHOT) else None
        yield from ((offset if begin is None else begin, one) for offset, one in records)
