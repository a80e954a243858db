"""The simulation of pure quorums with voters that come and go: added, removed, wiped and added again (KIP-853)."""

from __future__ import annotations

import random
from uuid import UUID

from support.raft.memory_log import Entry, MemoryLog
from support.raft.simulation import Node, Sim

from raftwerk.raft.messages.messages import AddVoter, ChangeReply, RemoveVoter, VoterChange
from raftwerk.raft.quorum.config import RaftConfig
from raftwerk.raft.quorum.majority import majority_size
from raftwerk.raft.types import ElectionState, ReplicaKey
from raftwerk.raft.voters.voter_set import KRaftVersion, Voter, VoterEndpoint, VoterListener, VoterSet
from raftwerk.wire.errors import ErrorCode


def voter_of(node_id: int, directory: int) -> Voter:
    listeners = (VoterListener("CONTROLLER", f"n{node_id}", 9093),)
    return Voter(ReplicaKey(node_id, UUID(int=directory)), listeners)


class VotersSim(Sim):
    """`voters` are formatted with each other; the others start empty.

    The entries of lost disks are remembered: they count as having been on a voter's disk.
    """

    def __init__(self, seed: int, voters: int, others: int, *, snapshots: bool = False) -> None:
        super().__init__(seed, voters, others, snapshots=snapshots)
        self.directories = {i: i for i in self.nodes}
        self.asked_ms: dict[ReplicaKey, int] = {}
        self.lost: dict[ReplicaKey, list[Entry]] = {}
        self.change_rng = random.Random(seed)
        self.auto_join = self.change_rng.random() < 0.3
        self.changes_done = 0
        self.wiped = 0
        self.next_directory = 100
        formatted = VoterSet.of(voter_of(i, i) for i in self.voters)
        for node in self.nodes.values():
            node.log = self.log_of(node, (KRaftVersion(1), formatted) if node.id in self.voters else ())

    def log_of(self, node: Node, formatted: tuple[KRaftVersion | VoterSet, ...]) -> MemoryLog:
        return MemoryLog(lambda entry, previous_epoch: self.on_node_append(node, entry, previous_epoch), formatted)

    def config_of(self, node: Node) -> RaftConfig:
        voter = voter_of(node.id, self.directories[node.id])
        return RaftConfig(
            node_id=node.id,
            cluster_id="sim",
            bootstrap=tuple(VoterEndpoint(f"n{i}", 9093) for i in self.nodes),
            directory_id=voter.key.directory_id,
            listeners=voter.listeners,
            auto_join=self.auto_join,
            timing=self.timing,
            fetch_max_bytes=self.fetch_records_max,
            snapshot_fetch_max_bytes=self.fetch_records_max,
        )

    def disk_of(self, voter: ReplicaKey) -> list[Entry]:
        if voter in self.lost:
            return self.lost[voter]
        return self.nodes[voter.id].log.durable

    # ---- changes ----

    def schedule_changes(self, until_ms: int) -> None:
        if self.now_ms >= until_ms:
            return
        self.change()
        self.at(self.change_rng.randint(20, 250), lambda: self.schedule_changes(until_ms))

    def change(self) -> None:
        rng = self.change_rng
        if rng.random() < 0.15:
            self.wipe(rng.choice(list(self.nodes.values())))
        leaders = [n for n in self.nodes.values() if n.quorum is not None and n.quorum.state.is_leader]
        if not leaders:
            return
        leader = rng.choice(leaders)
        assert leader.quorum is not None
        voters, node = leader.quorum.state.voters, rng.choice(list(self.nodes.values()))
        present = voters.get(node.id)
        request: VoterChange
        if present is None:
            voter = voter_of(node.id, self.directories[node.id])
            request = AddVoter(cluster_id="sim", voter=voter, timeout_ms=500)
            self.asked_ms[voter.key] = self.now_ms
        else:
            rest = voters.without_voter(node.id)
            if not self.can_decide(rest, present.key):
                return
            request = RemoveVoter(cluster_id="sim", voter=present.key)
        self.ask(leader, request, self.on_change_reply)

    def can_decide(self, voters: VoterSet, without: ReplicaKey) -> bool:
        """Whether a majority of `voters`, not counting `without`, still has its disks."""
        left = [voter for voter in voters.keys if voter not in self.lost and voter != without]
        return len(left) >= majority_size(len(voters.keys))

    def on_change_reply(self, reply: ChangeReply) -> None:
        self.changes_done += reply.error is ErrorCode.NONE

    def wipe(self, node: Node) -> None:
        """Give a node an empty disk, unless a set of voters that may still count would lose its majority for good."""
        key = voter_of(node.id, self.directories[node.id]).key
        may_be_added = self.auto_join or self.asked_ms.get(key, 0) > self.now_ms - 3_000
        sets = [node.log.voters.last for node in self.nodes.values()]
        if may_be_added and not all(voters is None or voters.is_voter(key) for voters in sets):
            return
        for other in self.nodes.values():
            for entries in (other.log.durable, other.log.entries):
                found = [entry.control for entry in entries if isinstance(entry.control, VoterSet)]
                found += [record for record in other.log.formatted if isinstance(record, VoterSet)]
                if not all(self.can_decide(voters, key) for voters in found[-3:]):
                    return
        self.crash(node)
        self.lost[key] = node.log.durable
        self.wiped += 1
        self.next_directory += 1
        self.directories[node.id] = self.next_directory
        node.log = self.log_of(node, ())
        node.state = ElectionState()
        node.high_watermark = 0
        node.sees_leader_of = 0

    # ---- checks ----

    def check(self, node: Node) -> None:
        super().check(node)
        assert node.log.voters.last_offset < node.log.end_offset, (
            "the voters that count are those of a record of the log"
        )

    def on_node_append(self, node: Node, entry: Entry, previous_epoch: int) -> None:
        self.on_append(entry, previous_epoch)
        leader = node.quorum.state.role.as_leader() if node.quorum is not None else None
        if not isinstance(entry.control, VoterSet) or leader is None or leader.epoch != entry.epoch:
            return
        history = node.log.voters
        before, after = history.last, entry.control
        if before is None or before.keys == after.keys:
            return
        keys, others = before.keys, after.keys
        differing = [key for key in keys if key not in others] + [key for key in others if key not in keys]
        assert len(differing) == 1, "a change adds or removes one voter"
        assert history.last_offset < len(self.committed), "one uncommitted change at a time"
        own = [committed for committed in self.committed if committed.epoch == leader.epoch]
        assert own, "a leader commits a record of its epoch before it changes the voters"


def simulate(seed: int, duration_ms: int = 6_000) -> VotersSim:
    """A seeded history of faults and changes of the voters, then healing."""
    voters, others = [(3, 2), (1, 3), (5, 1), (3, 1)][seed % 4]
    sim = VotersSim(seed, voters, others, snapshots=seed % 2 == 0)
    sim.start_all()
    end_ms = sim.now_ms + duration_ms
    sim.at(300, lambda: sim.schedule_load(end_ms))
    sim.at(300, lambda: sim.schedule_faults(end_ms))
    sim.at(500, lambda: sim.schedule_changes(end_ms))
    sim.run(duration_ms)
    sim.heal_and_settle(within_ms=12_000)
    return sim
