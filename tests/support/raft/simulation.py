"""A quorum of pure state machines in virtual time, by seed: drops, delays, cuts, crashes; checked after every event."""

from __future__ import annotations

import heapq
import random
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from support.raft.memory_log import Entry, MemoryLog

from raftwerk.raft.messages.messages import (
    BeginQuorumEpoch,
    ChangeReply,
    EndQuorumEpoch,
    Fetch,
    FetchSnapshot,
    Outgoing,
    ProbeReply,
    ProbeVoter,
    Vote,
    VoterChange,
    VoteReply,
)
from raftwerk.raft.quorum.config import RaftConfig, RaftTiming
from raftwerk.raft.quorum.effects import Effects, FailureKind
from raftwerk.raft.quorum.majority import majority_size
from raftwerk.raft.quorum.quorum import Quorum
from raftwerk.raft.types import ElectionState, ReplicaKey, RoleKind
from raftwerk.raft.voters.voter_set import VersionRange, VoterEndpoint
from raftwerk.wire.types import SnapshotId


@dataclass
class Node:
    """One node: its disk, and while it runs its quorum."""

    id: int
    log: MemoryLog
    state: ElectionState = field(default_factory=ElectionState)
    """What is on disk."""
    quorum: Quorum | None = None
    incarnation: int = 0
    timer_ms: int | None = None
    is_flushing: bool = False
    high_watermark: int = 0
    last_token: int = 0
    fetches: dict[int, tuple[Node, int, Outgoing]] = field(default_factory=dict)
    changes: dict[int, Callable[[ChangeReply], None]] = field(default_factory=dict)
    sees_leader_of: int = 0


class Sim:
    """`run` simulates faults; `heal_and_settle` demands agreement after them."""

    def __init__(
        self,
        seed: int,
        voters: int,
        observers: int = 0,
        *,
        timing: RaftTiming | None = None,
        snapshots: bool = False,
    ) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 1_000
        self.timing = timing or RaftTiming(fetch_timeout_ms=700, election_timeout_ms=400, request_timeout_ms=600)
        self.voters = list(range(1, voters + 1))
        self.nodes = {i: Node(i, MemoryLog(self.on_append)) for i in range(1, voters + observers + 1)}
        self.faulty = True
        self.cut: dict[tuple[int, int], None] = {}
        self.drop_rate = self.rng.choice([0.0, 0.02, 0.2])
        self.flush_ms_max = self.rng.choice([1, 5, 40])
        self.fetch_records_max = self.rng.choice([1, 8, 100])
        self.crash_in_event_rate = self.rng.choice([0.0, 0.002])
        self.snapshot_rng = random.Random(seed)
        """A generator of its own, so that snapshots do not change the other random choices."""
        self.snapshots_kept = self.snapshot_rng.choice([1, 1, 2]) if snapshots else 0
        """How many snapshots a node keeps; with 0 it makes none."""
        self.late_rng = random.Random(seed)
        """A generator of its own, like that of snapshots."""
        self.late_rate = self.late_rng.choice([0.0, 0.0, 0.1, 0.6])
        """How many messages take up to seconds, and come after the round that they belong to, or after its time-out."""
        self.late_nodes = dict.fromkeys(self.late_rng.sample(sorted(self.nodes), self.late_rng.choice([0, 0, 1])))
        """All messages of these nodes may be late."""
        if timing is None and (self.late_rate or self.late_nodes):
            # An answer may come when its sender has stood again.
            election_ms = self.late_rng.choice([400, 40])
            self.timing = replace(
                self.timing,
                request_timeout_ms=2_500,
                election_timeout_ms=election_ms,
                election_backoff_max_ms=election_ms,
            )
        self.late_ms_max = self.late_rng.choice([800, 3_000])
        self.batch_rng = random.Random(seed)
        """A generator of its own, too."""
        self.batch_records_max = self.batch_rng.choice([1, 1, 6])
        self.late_votes = 0
        """Votes that came when their candidate stood in a later epoch, or did not stand any more."""
        self.awaited: dict[tuple[int, int, int], None] = {}
        """By sender, incarnation and id: the requests whose sender has had no reply, and no failure."""
        self.installs = 0
        self.events = 0
        self.elections = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._queued = 0
        self._written = 0
        # What holds for the whole quorum.
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[ReplicaKey, int], int] = {}
        self.known_entries: dict[tuple[int, int], tuple[bytes, int]] = {}
        self.committed: list[Entry] = []
        self.committed_in: list[int] = []

    # ---- events ----

    def at(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._queued += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._queued, action))

    def step(self) -> None:
        self.now_ms, _, action = heapq.heappop(self._queue)
        self.events += 1
        action()

    def run(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self._queue and self._queue[0][0] <= end_ms:
            self.step()
        self.now_ms = end_ms

    def start_all(self) -> None:
        for node in self.nodes.values():
            self.at(self.rng.randint(0, 200), partial(self.start, node))

    def start(self, node: Node) -> None:
        if node.quorum is not None:
            return
        config = self.config_of(node)
        node.incarnation += 1
        node.timer_ms = None
        node.is_flushing = False
        node.high_watermark = 0 if node.log.latest_snapshot is None else node.log.latest_snapshot.end_offset
        node.fetches = {}
        node.changes = {}
        node.quorum = Quorum(config, node.log, node.state, self.rng)
        self.event(node, lambda quorum: quorum.start(self.now_ms))

    def config_of(self, node: Node) -> RaftConfig:
        return RaftConfig(
            node_id=node.id,
            cluster_id="sim",
            voters={i: VoterEndpoint(f"n{i}", 9093) for i in self.voters},
            timing=self.timing,
            fetch_max_bytes=self.fetch_records_max,
            snapshot_fetch_max_bytes=self.fetch_records_max,
        )

    def crash(self, node: Node) -> None:
        if node.quorum is None:
            return
        node.quorum = None
        node.incarnation += 1
        node.log.crash(self.rng)
        for sender, incarnation, sent in node.fetches.values():
            self.fail(sender, incarnation, sent, FailureKind.LOST)

    def event(self, node: Node, act: Callable[[Quorum], Any], answer: Callable[[Any], None] | None = None) -> None:
        """Run an event of a node, carry out its effects in order, and check. `answer` sends what the event returned."""
        if node.quorum is None:
            return
        quorum, incarnation = node.quorum, node.incarnation
        result = act(quorum)
        if self.crashes_now():
            self.crash(node)
            return
        effects = quorum.take_effects()
        self.carry_out(node, effects)
        if answer is not None and node.incarnation == incarnation:
            if isinstance(result, VoteReply) and result.granted:
                assert node.state.epoch >= result.epoch, "a vote is durable before its reply"
            answer(result)
        self.check(node)

    def carry_out(self, node: Node, effects: Effects) -> None:
        quorum = node.quorum
        assert quorum is not None
        if effects.election_state is not None:
            assert effects.election_state.epoch >= node.state.epoch, "the persisted epoch never goes back"
            node.state = effects.election_state
        if self.crashes_now():
            self.crash(node)
            return
        for outgoing in effects.requests:
            self.transmit(node, outgoing)
        for token, reply in effects.fetch_replies:
            sender, incarnation, sent = node.fetches.pop(token)
            self.reply(node, sender, incarnation, sent, reply)
        for token, change_reply in effects.change_replies:
            node.changes.pop(token)(change_reply)
        if not node.is_flushing and node.log.durable_offset < node.log.end_offset:
            node.is_flushing = True
            begun, incarnation = node.log.begin_flush(), node.incarnation
            self.at(self.rng.randint(1, self.flush_ms_max), lambda: self.flushed(node, incarnation, begun))
        deadline_ms = quorum.next_deadline_ms()
        if deadline_ms is not None and (node.timer_ms is None or deadline_ms < node.timer_ms):
            node.timer_ms = deadline_ms
            incarnation = node.incarnation
            self.at(max(0, deadline_ms - self.now_ms), lambda: self.timer(node, incarnation, deadline_ms))

    def crashes_now(self) -> bool:
        return self.faulty and self.crash_in_event_rate > 0 and self.rng.random() < self.crash_in_event_rate

    def timer(self, node: Node, incarnation: int, deadline_ms: int) -> None:
        if node.incarnation == incarnation and node.timer_ms == deadline_ms:
            node.timer_ms = None
            self.event(node, lambda quorum: quorum.on_timer(self.now_ms))

    def flushed(self, node: Node, incarnation: int, begun: tuple[int, int]) -> None:
        if node.incarnation == incarnation and node.quorum is not None:
            node.is_flushing = False
            node.log.end_flush(begun)
            self.event(node, lambda quorum: quorum.on_flushed(self.now_ms))

    # ---- network ----

    def is_lost(self, source: Node, target: Node) -> bool:
        return (source.id, target.id) in self.cut or (self.faulty and self.rng.random() < self.drop_rate)

    def transmit(self, node: Node, outgoing: Outgoing) -> None:
        target, incarnation = self.nodes[int(outgoing.endpoint.host[1:])], node.incarnation
        self.awaited[node.id, incarnation, outgoing.id] = None
        if self.is_lost(node, target):
            self.fail(node, incarnation, outgoing, FailureKind.TIMEOUT, self.timing.request_timeout_ms)
        elif target.quorum is None:
            self.fail(node, incarnation, outgoing, FailureKind.REFUSED)
        else:
            if isinstance(outgoing.request, FetchSnapshot):
                self.installs += outgoing.request.position == 0
            target_incarnation = target.incarnation
            self.fail(node, incarnation, outgoing, FailureKind.TIMEOUT, self.timing.request_timeout_ms)
            self.at(
                self.latency_ms(node, target),
                lambda: self.receive(node, incarnation, target, target_incarnation, outgoing),
            )

    def latency_ms(self, source: Node, target: Node) -> int:
        latency_ms = self.rng.randint(0, 10)
        if not self.faulty or not (self.late_rate or self.late_nodes):
            return latency_ms
        rate = 0.8 if source.id in self.late_nodes or target.id in self.late_nodes else self.late_rate
        return self.late_rng.randint(10, self.late_ms_max) if self.late_rng.random() < rate else latency_ms

    def receive(self, sender: Node, incarnation: int, target: Node, target_incarnation: int, sent: Outgoing) -> None:
        if target.quorum is None or target.incarnation != target_incarnation:
            self.fail(sender, incarnation, sent, FailureKind.LOST)
            return
        request = sent.request

        def send_back(reply: Any) -> None:
            if isinstance(request, Vote) and reply.granted and not request.pre_vote:
                key = request.voter, request.epoch
                assert self.votes.setdefault(key, request.candidate.id) == request.candidate.id, "one vote an epoch"
            self.reply(target, sender, incarnation, sent, reply)

        if isinstance(request, Fetch):
            target.last_token += 1
            token = target.last_token
            target.fetches[token] = sender, incarnation, sent
            self.event(target, lambda quorum: quorum.on_fetch(token, request, self.now_ms))
        elif isinstance(request, FetchSnapshot):
            self.event(target, lambda quorum: quorum.on_fetch_snapshot(request, self.now_ms), send_back)
        elif isinstance(request, Vote):
            self.event(target, lambda quorum: quorum.on_vote(request, self.now_ms), send_back)
        elif isinstance(request, BeginQuorumEpoch):
            self.event(target, lambda quorum: quorum.on_begin_quorum_epoch(request, self.now_ms), send_back)
        elif isinstance(request, EndQuorumEpoch):
            self.event(target, lambda quorum: quorum.on_end_quorum_epoch(request, self.now_ms), send_back)
        elif isinstance(request, VoterChange):
            self.ask(target, request, send_back)
        elif isinstance(request, ProbeVoter):
            send_back(ProbeReply(versions=VersionRange()))

    def ask(self, target: Node, request: VoterChange, answer: Callable[[ChangeReply], None]) -> None:
        target.last_token += 1
        token = target.last_token
        target.changes[token] = answer
        self.event(target, lambda quorum: quorum.on_voter_change(token, request, self.now_ms))

    def reply(self, source: Node, sender: Node, incarnation: int, sent: Outgoing, reply: Any) -> None:
        if self.is_lost(source, sender):
            self.fail(sender, incarnation, sent, FailureKind.TIMEOUT, self.timing.request_timeout_ms)
            return

        def arrive() -> None:
            if self.is_awaited(sender, incarnation, sent):
                self.note_late_vote(sender, sent)
                self.event(sender, lambda quorum: quorum.on_reply(sent, reply, self.now_ms))

        self.at(self.latency_ms(source, sender), arrive)

    def is_awaited(self, sender: Node, incarnation: int, sent: Outgoing) -> bool:
        """Whether this is the first that the sender learns of its request; a reply after the time-out is not read."""
        key = sender.id, incarnation, sent.id
        was_awaited = key in self.awaited
        self.awaited.pop(key, None)
        return was_awaited and sender.incarnation == incarnation

    def note_late_vote(self, sender: Node, sent: Outgoing) -> None:
        if isinstance(sent.request, Vote) and sender.quorum is not None:
            role = sender.quorum.state.role
            stands = role.kind in (RoleKind.PROSPECTIVE, RoleKind.CANDIDATE)
            self.late_votes += not stands or role.epoch != sent.request.epoch

    def fail(self, sender: Node, incarnation: int, sent: Outgoing, kind: FailureKind, after_ms: int = 1) -> None:
        def arrive() -> None:
            if self.is_awaited(sender, incarnation, sent):
                self.event(sender, lambda quorum: quorum.on_failure(sent, kind, self.now_ms))

        self.at(after_ms, arrive)

    # ---- faults and load ----

    def schedule_load(self, until_ms: int) -> None:
        if self.now_ms >= until_ms:
            return
        self.write()
        if self.snapshot_rng.random() < 0.1:
            self.snapshot(self.snapshot_rng.choice(list(self.nodes.values())))
        self.at(self.rng.randint(5, 60), lambda: self.schedule_load(until_ms))

    def write(self) -> None:
        for node in self.nodes.values():
            if node.quorum is not None and node.quorum.state.is_leader:
                first = self._written + 1
                self._written += self.batch_rng.randint(1, self.batch_records_max)
                batch = [f"record {number}".encode() for number in range(first, self._written + 1)]

                def append(quorum: Quorum, batch: list[bytes] = batch) -> None:
                    quorum.append(batch, quorum.state.epoch)
                    quorum.complete_delayed_fetches(self.now_ms)

                self.event(node, append)

    def snapshot(self, node: Node) -> None:
        """A node makes a snapshot of all that it knows to be committed."""
        end_offset, latest = node.high_watermark, node.log.latest_snapshot
        if node.quorum is None or not self.snapshots_kept or end_offset <= (latest.end_offset if latest else 0):
            return
        node.log.take_snapshot(snapshot_id(node.log.entries, end_offset), kept=self.snapshots_kept)

    def schedule_faults(self, until_ms: int) -> None:
        if self.now_ms >= until_ms:
            return
        self.fault()
        self.at(self.rng.randint(20, 500), lambda: self.schedule_faults(until_ms))

    def fault(self) -> None:
        rng, node = self.rng, self.rng.choice(list(self.nodes.values()))
        choice = rng.random()
        if choice < 0.25:
            leaders = [n for n in self.nodes.values() if n.quorum is not None and n.quorum.state.is_leader]
            self.crash(rng.choice(leaders) if leaders and rng.random() < 0.5 else node)
        elif choice < 0.6:
            down = [n for n in self.nodes.values() if n.quorum is None]
            if down:
                self.start(rng.choice(down))
        elif choice < 0.7:
            side = [i for i in self.nodes if rng.random() < 0.5]
            self.cut = {(a, b): None for a in self.nodes for b in self.nodes if (a in side) != (b in side)}
        elif choice < 0.8:
            self.cut[(node.id, rng.choice(list(self.nodes)))] = None
        elif choice < 0.95:
            self.cut = {}
        elif node.quorum is not None:
            self.event(node, lambda quorum: quorum.resign(self.now_ms))

    def heal_and_settle(self, within_ms: int = 8_000) -> None:
        """Liveness: after healing, all nodes follow one leader and have the same committed log within the bound."""
        self.faulty = False
        self.cut = {}
        for node in self.nodes.values():
            self.start(node)
        end_ms = self.now_ms + within_ms
        while self.now_ms < end_ms:
            self.run(50)
            if self.is_settled():
                return
        raise AssertionError(f"not settled: {self.describe()}")

    def is_settled(self) -> bool:
        quorums = [node.quorum for node in self.nodes.values() if node.quorum is not None]
        leaders = {(q.state.leader_and_epoch.leader_id, q.state.epoch) for q in quorums}
        ends = {(q.state.log.end_offset, q.state.high_watermark.offset) for q in quorums}
        return len(leaders) == 1 and None not in leaders.pop() and len(ends) == 1 and len(set(ends.pop())) == 1

    def describe(self) -> str:
        return "; ".join(
            f"{node.id}: {'down' if node.quorum is None else node.quorum.state.role} end {node.log.end_offset}"
            f" hw {node.high_watermark} voters {node.log.voters.last}"
            for node in self.nodes.values()
        )

    # ---- checks ----

    def on_append(self, entry: Entry, previous_epoch: int) -> None:
        """Log matching, by induction: an offset and epoch name one record with one predecessor."""
        truth = self.known_entries.setdefault((entry.offset, entry.epoch), (entry.payload, previous_epoch))
        assert truth == (entry.payload, previous_epoch), "logs match"

    def check(self, node: Node) -> None:
        quorum = node.quorum
        if quorum is None:
            return
        role = quorum.state.role
        assert quorum.state.epoch == node.state.epoch, "the epoch in use is durable"
        if role.kind is RoleKind.LEADER:
            assert self.leaders.setdefault(role.epoch, node.id) == node.id, "one leader an epoch"
            if node.sees_leader_of != role.epoch:
                node.sees_leader_of = role.epoch
                self.elections += 1
                assert quorum.state.may_stand, "only a voter is elected"
                granting = [key for key in quorum.state.voters.keys if self.has_voted(key, node.id, role.epoch)]
                assert len(granting) >= majority_size(len(quorum.state.voters.keys)), "a majority of votes elects"
                # A node may win an older epoch late, and lack what a later epoch has committed by then.
                due = bisect_left(self.committed_in, role.epoch)
                assert node.log.entries[:due] == self.committed[:due], "a leader holds what former epochs committed"
        if node.log.installed is not None:
            end_offset = node.log.installed.end_offset
            node.log.installed = None
            assert node.log.entries == self.committed[:end_offset], "a snapshot holds what is committed below its end"
        high_watermark = quorum.state.high_watermark.offset or 0
        assert high_watermark >= node.high_watermark, "the high watermark never goes back"
        assert high_watermark <= node.log.end_offset, "the high watermark is within the log"
        for offset in range(node.high_watermark, high_watermark):
            entry = node.log.entries[offset]
            if offset < len(self.committed):
                assert self.committed[offset] == entry, "a committed record never changes"
            else:
                self.commit(entry, quorum)
        node.high_watermark = high_watermark

    def has_voted(self, voter: ReplicaKey, candidate: int, epoch: int) -> bool:
        return voter.id == candidate or self.votes.get((voter, epoch)) == candidate

    def commit(self, entry: Entry, quorum: Quorum) -> None:
        voters = quorum.state.voters.keys
        holders = [key for key in voters if self.disk_of(key)[entry.offset : entry.offset + 1] == [entry]]
        assert len(holders) >= majority_size(len(voters)), "a committed record is on the disks of a majority"
        self.committed.append(entry)
        self.committed_in.append(max(quorum.state.epoch, self.committed_in[-1] if self.committed_in else 0))

    def disk_of(self, voter: ReplicaKey) -> list[Entry]:
        """The entries on that voter's disk."""
        return self.nodes[voter.id].log.durable


def snapshot_id(entries: list[Entry], end_offset: int) -> SnapshotId:
    """The id of the snapshot of all entries below `end_offset`."""
    return SnapshotId(end_offset, entries[end_offset - 1].epoch)


def simulate(seed: int, voters: int, observers: int, duration_ms: int = 6_000, *, snapshots: bool = False) -> Sim:
    """A seeded history of faults, then healing."""
    sim = Sim(seed, voters, observers, snapshots=snapshots)
    sim.start_all()
    end_ms = sim.now_ms + duration_ms
    sim.at(300, lambda: sim.schedule_load(end_ms))
    sim.at(300, lambda: sim.schedule_faults(end_ms))
    sim.run(duration_ms)
    sim.heal_and_settle()
    return sim
