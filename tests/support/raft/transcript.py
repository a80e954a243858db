"""Runs a transcript: commands (`> ...`) to a quorum of pure state machines, and what the nodes then do.

Time moves only by `advance`; messages arrive in the order in which they were sent. The commands:
    quorum 1,2,3 [observers 4,5]   make the nodes, all down; small-fetches: of two records; directories: with ids
    dynamic 1,2,3 [others 4,5]     voters by records, formatted into 1, 2, 3; the others know where those are
        [auto-join]                the others ask to become voters
    ask 1 add 4 / ask 1 remove 2   an operator asks node 1 for a change of the voters
    upgrade 1                      the leader of static voters finalizes kraft.version 1
    move 2 n22                     node 2 listens at another host from its next start on
    wipe 3                         node 3, down, gets an empty disk with a new directory id
    start 1 [2 ...]                start or restart nodes
    crash 1 [2 ...]                they lose what was not flushed
    settle                         deliver messages and finish flushes until all is quiet
    advance 50                     pass milliseconds; timers fire on the way, and all settles
    elect 1                        start all; the first voter is elected, without output
    append 1 a [b ...]             records of one batch to a leader, no delivery yet
    flush 1 / hold-flush 1         finish a flush, or keep the node from flushing till then
    cut 1-2 [...] / heal           requests between two nodes time out, till healed
    resign 1                       graceful resignation
    snapshot 1                     of what it knows to be committed; its log starts there
    state                          one line a node
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from support.raft.memory_log import MemoryLog, voter_text

from raftwerk.raft.messages.messages import (
    AddVoter,
    BeginQuorumEpoch,
    ChangeReply,
    EndQuorumEpoch,
    Fetch,
    FetchReply,
    FetchSnapshot,
    Outgoing,
    ProbeReply,
    ProbeVoter,
    RemoveVoter,
    SnapshotReply,
    UpdateVoter,
    Vote,
    VoterChange,
    VoteReply,
)
from raftwerk.raft.quorum.config import RaftConfig
from raftwerk.raft.quorum.effects import Effects, FailureKind
from raftwerk.raft.quorum.quorum import Quorum
from raftwerk.raft.types import ElectionState, ReplicaKey
from raftwerk.raft.voters.voter_set import (
    ControlRecord,
    KRaftVersion,
    VersionRange,
    Voter,
    VoterEndpoint,
    VoterListener,
    VoterSet,
)
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.types import SnapshotId


def voter_of(node_id: int) -> Voter:
    """A node as formatting knows it."""
    return Voter(ReplicaKey(node_id, UUID(int=node_id)), (VoterListener("CONTROLLER", f"n{node_id}", 9093),))


class SmallestDraws:
    """Stands in for the random generator: every draw is its least value."""

    def randint(self, low: int, high: int) -> int:
        return low

    def randrange(self, stop: int) -> int:
        return 0


class Member:
    def __init__(self, config: RaftConfig, formatted: tuple[ControlRecord, ...] = ()) -> None:
        self.config = config
        self.log = MemoryLog(formatted=formatted)
        self.changes: dict[int, Callable[[ChangeReply], None]] = {}
        self.state = ElectionState()
        self.quorum: Quorum | None = None
        self.holds_flush = False
        self.fetches: dict[int, tuple[Member, Outgoing]] = {}
        self.shown = ""

    @property
    def id(self) -> int:
        return self.config.node_id


class Transcript:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.now_ms = 0
        self.members: dict[int, Member] = {}
        self.queue: deque[Callable[[], None]] = deque()
        self.later: list[tuple[int, int, Callable[[], None]]] = []
        self.cut: dict[tuple[int, int], None] = {}
        self.tokens = 0

    def say(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def do(self, command: str) -> None:
        name, *words = command.split()
        getattr(self, "do_" + name.replace("-", "_"))(*words)

    # ---- commands ----

    def do_quorum(self, voters: str, *rest: str) -> None:
        ids = [int(word) for word in voters.split(",")]
        observers = [int(word) for word in rest[1].split(",")] if rest[:1] == ("observers",) else []
        endpoints = {i: VoterEndpoint(f"n{i}", 9093) for i in ids}
        fetch_max = 2 if "small-fetches" in rest else 8 * 1024 * 1024
        for i in ids + observers:
            config = RaftConfig(
                node_id=i,
                cluster_id="c",
                voters=endpoints,
                fetch_max_bytes=fetch_max,
                snapshot_fetch_max_bytes=fetch_max,
            )
            if "directories" in rest:
                config = replace(config, directory_id=UUID(int=i))
            self.members[i] = Member(config)

    def do_dynamic(self, voters: str, *rest: str) -> None:
        ids = [int(word) for word in voters.split(",")]
        others = [int(word) for word in rest[1].split(",")] if rest[:1] == ("others",) else []
        formatted = VoterSet.of(voter_of(i) for i in ids)
        for i in ids + others:
            config = RaftConfig(
                node_id=i,
                cluster_id="c",
                bootstrap=tuple(VoterEndpoint(f"n{each}", 9093) for each in ids),
                directory_id=UUID(int=i),
                listeners=voter_of(i).listeners,
                auto_join="auto-join" in rest and i in others,
            )
            self.members[i] = Member(config, (KRaftVersion(1), formatted) if i in ids else ())

    def do_ask(self, leader: str, verb: str, node: str) -> None:
        member, other = self.members[int(leader)], self.members[int(node)].config
        change: VoterChange
        if verb == "add":
            change = AddVoter(cluster_id="c", voter=other.own_voter, timeout_ms=1000)
        else:
            quorum = member.quorum
            voter = quorum.state.voters.get(int(node)) if quorum is not None else None
            change = RemoveVoter(cluster_id="c", voter=other.own_key if voter is None else voter.key)
        self.say(f"operator -> {member.id}  {describe(change)}")
        self.tokens += 1
        token = self.tokens
        member.changes[token] = lambda reply: self.say(f"operator <- {member.id}  {describe(reply)}")
        self.event(member, lambda quorum: quorum.on_voter_change(token, change, self.now_ms))

    def do_upgrade(self, leader: str) -> None:
        def upgrade(quorum: Quorum) -> None:
            try:
                quorum.upgrade_kraft_version(quorum.state.epoch, 1, validate_only=False)
            except ProtocolError as error:
                self.say(f"{error.code.name}: {error.message}")
            quorum.complete_delayed_fetches(self.now_ms)

        self.event(self.members[int(leader)], upgrade)

    def do_move(self, node: str, host: str) -> None:
        member = self.members[int(node)]
        member.config = replace(member.config, listeners=(VoterListener("CONTROLLER", host, 9093),))

    def do_wipe(self, node: str) -> None:
        member = self.members[int(node)]
        directory_id = UUID(int=member.config.directory_id.int + 10)
        self.members[int(node)] = Member(replace(member.config, directory_id=directory_id))

    def do_elect(self, leader: str) -> None:
        told, self.lines = self.lines, []
        member = self.members[int(leader)]
        voters = member.log.voters.last or member.config.static_voters
        self.do_start(*(str(i) for i in self.members if i in voters.ids))
        self.do_advance("20")
        self.lines = told
        self.do_state()

    def do_start(self, *ids: str) -> None:
        for member in self._members(ids):
            member.quorum = Quorum(member.config, member.log, member.state, SmallestDraws())  # type: ignore[arg-type]
            member.shown = ""
            self.event(member, lambda quorum: quorum.start(self.now_ms))

    def do_crash(self, *ids: str) -> None:
        for member in self._members(ids):
            member.quorum = None
            member.log.crash()
            for sender, sent in member.fetches.values():
                self._fail_soon(sender, sent, FailureKind.LOST)
            member.fetches = {}
            member.changes = {}

    def do_settle(self) -> None:
        for _ in range(10_000):
            if self.queue:
                self.queue.popleft()()
            elif not self._flush_one():
                return
        raise AssertionError("the nodes never come to rest")

    def do_advance(self, milliseconds: str) -> None:
        end_ms = self.now_ms + int(milliseconds)
        self.do_settle()
        while (due := self._next_time()) is not None and due <= end_ms:
            self.now_ms = max(due, self.now_ms)
            self.say(f"-- {self.now_ms} ms --")
            ready = [entry for entry in self.later if entry[0] <= self.now_ms]
            self.later = [entry for entry in self.later if entry[0] > self.now_ms]
            for _, _, action in ready:
                action()
            for member in self.members.values():
                if member.quorum is not None and self._is_due(member.quorum):
                    self.event(member, lambda quorum: quorum.on_timer(self.now_ms))
            self.do_settle()
        self.now_ms = end_ms

    def do_append(self, leader: str, *records: str) -> None:
        def append(quorum: Quorum) -> None:
            quorum.append([record.encode() for record in records], quorum.state.epoch)
            quorum.complete_delayed_fetches(self.now_ms)

        self.event(self.members[int(leader)], append)

    def do_flush(self, *ids: str) -> None:
        for member in self._members(ids):
            member.holds_flush = False

    def do_hold_flush(self, *ids: str) -> None:
        for member in self._members(ids):
            member.holds_flush = True

    def do_cut(self, *pairs: str) -> None:
        for pair in pairs:
            a, b = (int(word) for word in pair.split("-"))
            self.cut |= {(a, b): None, (b, a): None}

    def do_heal(self) -> None:
        self.cut = {}

    def do_resign(self, leader: str) -> None:
        self.event(self.members[int(leader)], lambda quorum: quorum.resign(self.now_ms))

    def do_snapshot(self, node: str) -> None:
        member = self.members[int(node)]
        assert member.quorum is not None and member.quorum.state.high_watermark.offset is not None
        end_offset = member.quorum.state.high_watermark.offset
        member.log.take_snapshot(SnapshotId(end_offset, member.log.entries[end_offset - 1].epoch), kept=1)
        member.log.start = max(member.log.snapshots)
        self.say(f"{member.id} has a snapshot of all below {end_offset}, and nothing else of it")

    def do_state(self) -> None:
        for member in self.members.values():
            if member.quorum is None:
                self.say(f"{member.id} is down")
                continue
            quorum = member.quorum
            shown = quorum.state.voters.keys if quorum.state.log.voters.last is not None else []
            voters = f", voters {','.join(voter_text(key) for key in shown)}" if shown else ""
            log = " ".join(f"{entry.payload.decode()}@{entry.epoch}" for entry in member.log.entries)
            self.say(f"{self._role(quorum)}, high watermark {quorum.state.high_watermark.offset}{voters}, log [{log}]")

    # ---- time, disks and network ----

    def _members(self, ids: tuple[str, ...]) -> list[Member]:
        return [self.members[int(word)] for word in ids]

    def _next_time(self) -> int | None:
        deadlines = [m.quorum.next_deadline_ms() for m in self.members.values() if m.quorum is not None]
        times = [deadline_ms for deadline_ms in deadlines if deadline_ms is not None]
        return min(times + [at_ms for at_ms, _, _ in self.later], default=None)

    def _is_due(self, quorum: Quorum) -> bool:
        deadline_ms = quorum.next_deadline_ms()
        return deadline_ms is not None and deadline_ms <= self.now_ms

    def _flush_one(self) -> bool:
        for member in self.members.values():
            log = member.log
            if member.quorum is not None and not member.holds_flush and log.durable_offset < log.end_offset:
                log.flush()
                self.say(f"{member.id} flushed to {log.end_offset}")
                self.event(member, lambda quorum: quorum.on_flushed(self.now_ms))
                return True
        return False

    def event(self, member: Member, act: Callable[[Quorum], Any], answer: Callable[[Any], None] | None = None) -> None:
        quorum = member.quorum
        if quorum is None:
            return
        before = quorum.state.high_watermark.offset
        result = act(quorum)
        self._show_role(member, quorum)
        if quorum.state.high_watermark.offset != before:
            self.say(f"{member.id} knows high watermark {quorum.state.high_watermark.offset}")
        self._carry_out(member, quorum.take_effects())
        if answer is not None:
            answer(result)

    def _carry_out(self, member: Member, effects: Effects) -> None:
        if effects.election_state is not None:
            member.state = effects.election_state
            state = member.state
            voted = None if state.voted is None else state.voted.id
            self.say(f"{member.id} writes quorum-state epoch={state.epoch} leader={state.leader_id} voted={voted}")
        for outgoing in effects.requests:
            self._send(member, outgoing)
        for token, reply in effects.fetch_replies:
            sender, sent = member.fetches.pop(token)
            self._answer(member, sender, sent, reply)
        for token, change_reply in effects.change_replies:
            member.changes.pop(token)(change_reply)

    def _at(self, endpoint: VoterEndpoint) -> Member | None:
        for member in self.members.values():
            own = member.config.own_endpoint or VoterEndpoint(f"n{member.id}", 9093)
            if own == endpoint:
                return member
        return None

    def _send(self, sender: Member, sent: Outgoing) -> None:
        target = self._at(sent.endpoint)
        if target is None:
            self.say(f"{sender.id} -> {sent.endpoint.host}  {describe(sent.request)}, and nobody listens")
            self._fail_soon(sender, sent, FailureKind.REFUSED)
            return
        self.say(f"{sender.id} -> {target.id}  {describe(sent.request)}")
        if (sender.id, target.id) in self.cut:
            self._time_out(sender, sent)
        else:
            self.queue.append(lambda: self._arrive(sender, target, sent))

    def _arrive(self, sender: Member, target: Member, sent: Outgoing) -> None:
        if target.quorum is None:
            self._fail_soon(sender, sent, FailureKind.REFUSED)
            return
        request = sent.request
        if isinstance(request, Fetch):
            self.tokens += 1
            token = self.tokens
            target.fetches[token] = sender, sent
            self.event(target, lambda quorum: quorum.on_fetch(token, request, self.now_ms))
            return
        if isinstance(request, VoterChange):
            self.tokens += 1
            token = self.tokens
            target.changes[token] = lambda reply: self._answer(target, sender, sent, reply)
            self.event(target, lambda quorum: quorum.on_voter_change(token, request, self.now_ms))
            return
        if isinstance(request, ProbeVoter):
            self._answer(target, sender, sent, ProbeReply(versions=VersionRange()))
            return
        handlers = {
            Vote: Quorum.on_vote,
            BeginQuorumEpoch: Quorum.on_begin_quorum_epoch,
            EndQuorumEpoch: Quorum.on_end_quorum_epoch,
            FetchSnapshot: Quorum.on_fetch_snapshot,
        }
        handle: Any = handlers[type(request)]
        self.event(
            target,
            lambda quorum: handle(quorum, request, self.now_ms),
            lambda reply: self._answer(target, sender, sent, reply),
        )

    def _answer(self, source: Member, sender: Member, sent: Outgoing, reply: Any) -> None:
        self.say(f"{sender.id} <- {source.id}  {describe(reply)}")
        if (source.id, sender.id) in self.cut:
            self._time_out(sender, sent)
        else:
            quorum = sender.quorum
            self.queue.append(lambda: self._take_reply(sender, quorum, sent, reply))

    def _take_reply(self, sender: Member, quorum: Quorum | None, sent: Outgoing, reply: Any) -> None:
        if sender.quorum is quorum:
            self.event(sender, lambda quorum: quorum.on_reply(sent, reply, self.now_ms))

    def _time_out(self, sender: Member, sent: Outgoing) -> None:
        at_ms = self.now_ms + sender.config.timing.request_timeout_ms
        self.later.append((at_ms, sent.id, self._failure(sender, sent, FailureKind.TIMEOUT)))

    def _fail_soon(self, sender: Member, sent: Outgoing, kind: FailureKind) -> None:
        self.queue.append(self._failure(sender, sent, kind))

    def _failure(self, sender: Member, sent: Outgoing, kind: FailureKind) -> Callable[[], None]:
        incarnation = sender.quorum

        def fail() -> None:
            if incarnation is not None and sender.quorum is incarnation:
                self.say(f"{sender.id} .. {sent.to}  {type(sent.request).__name__} {kind.value}")
                self.event(sender, lambda quorum: quorum.on_failure(sent, kind, self.now_ms))

        return fail

    def _role(self, quorum: Quorum) -> str:
        state = quorum.state
        following = f" of {state.leader_and_epoch.leader_id}" if state.role.kind.value == "follower" else ""
        return f"{state.config.node_id} is {state.role.kind.value}{following} in epoch {state.epoch}"

    def _show_role(self, member: Member, quorum: Quorum) -> None:
        shown = self._role(quorum)
        if shown != member.shown:
            member.shown = shown
            self.say(shown)


def describe(message: Any) -> str:
    """A message in a few words."""
    match message:
        case Vote():
            name = "PreVote" if message.pre_vote else "Vote"
            return f"{name} epoch {message.epoch}, log ends {message.last_offset}@{message.last_epoch}"
        case BeginQuorumEpoch():
            return f"BeginQuorumEpoch {message.epoch}"
        case EndQuorumEpoch():
            return f"EndQuorumEpoch {message.epoch}, successors {[key.id for key in message.preferred_successors]}"
        case Fetch():
            return f"Fetch {message.fetch_offset}@{message.last_epoch} in epoch {message.epoch}"
        case FetchSnapshot():
            end_offset, epoch = message.snapshot_id
            return f"FetchSnapshot {end_offset}@{epoch} from {message.position} in epoch {message.epoch}"
        case AddVoter():
            return f"AddRaftVoter {voter_text(message.voter.key)}"
        case RemoveVoter():
            return f"RemoveRaftVoter {voter_text(message.voter)}"
        case UpdateVoter():
            return f"UpdateRaftVoter {voter_text(message.voter.key)} at {message.voter.listeners[0].host}"
        case ProbeVoter():
            return "ApiVersions"
        case ProbeReply():
            return f"kraft.version {message.versions.lowest} to {message.versions.highest}"
    parts = [] if message.error is ErrorCode.NONE else [message.error.name]
    if isinstance(message, VoteReply):
        parts.append("granted" if message.granted else "refused")
    if isinstance(message, FetchReply):
        if message.diverging is not None:
            parts.append(f"diverging, epoch {message.diverging.epoch} ends {message.diverging.end_offset}")
        entries: Any = message.records
        if entries:
            parts.append("records " + " ".join(f"{e.payload.decode()}@{e.epoch}" for e in entries))
        if message.snapshot_id is not None:
            parts.append(f"fetch snapshot {message.snapshot_id.end_offset}@{message.snapshot_id.epoch}")
        if message.error is ErrorCode.NONE:
            parts.append(f"high watermark {message.high_watermark}")
    if isinstance(message, SnapshotReply) and message.error is ErrorCode.NONE:
        parts.append(f"{len(message.data)} of {message.size_bytes} from {message.position}")
    if isinstance(message, ChangeReply):
        return ", ".join([*parts, message.message or ("" if parts else "done")]).rstrip(", ")
    parts.append(f"epoch {message.epoch}" + ("" if message.leader_id is None else f" led by {message.leader_id}"))
    return ", ".join(parts)


def run_transcript(text: str) -> str:
    """The transcript as it comes out: its commands and comments, with what the nodes do now."""
    transcript = Transcript()
    for line in text.splitlines():
        if line.startswith(("#", ">")) or not line:
            transcript.lines.append(line)
        if line.startswith("> "):
            transcript.do(line[2:])
    return "\n".join(transcript.lines) + "\n"


def transcripts() -> list[Path]:
    return sorted((Path(__file__).parents[2] / "raft" / "transcripts").glob("*.txt"))
