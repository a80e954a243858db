"""A cluster of replicas of one partition, without network and loop: everything moves by explicit steps of a seed.

Each node runs the real code from the append to the fetcher's state, on a log on a simulated disk. A small
controller stands in for the real one: it elects from the ISR, fences crashed brokers, and checks the epochs of
AlterPartition. Metadata, fetches, their answers, and the answers of the controller travel as slowly as the seed wants,
or are lost. After every step the invariants of a partition are checked against all that was ever committed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from support.isr.fetch_caller import Caller
from support.isr.replicas import TOPIC_ID, TP, WALL_MS, FakeBrokers, Reg, batch

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.isr.fetching.dirty_partitions import DirtyPartitionTracker
from raftwerk.isr.fetching.fetch_requests import FetchRequests
from raftwerk.isr.fetching.leader_fetch_sessions import FetchSessionCache
from raftwerk.isr.fetching.partition_reader import PartitionReader
from raftwerk.isr.follower.fetcher_state import FetcherState
from raftwerk.isr.hosted_partitions import HostedPartitions
from raftwerk.isr.leader.alter_partition_manager import OnResult
from raftwerk.isr.leader.appends import Appends
from raftwerk.isr.leader.deferred_appends import DeferredAppends
from raftwerk.isr.leader.expected_first_fetches import ExpectedFetches
from raftwerk.isr.leader.isr_proposals import IsrProposals
from raftwerk.isr.leader.leader_state import AlterPartitionResult, LeaderConfig
from raftwerk.isr.partition import Partition
from raftwerk.isr.ports import NO_OBSERVER, AlterPartitionItem, ReplicaManagerConfig
from raftwerk.isr.purgatory.delayed_operations import DelayedOperations
from raftwerk.isr.replica import Replica
from raftwerk.isr.results import FetchParams
from raftwerk.isr.storage_errors import StorageErrors
from raftwerk.isr.throttling.throttles import Throttles
from raftwerk.log.config import LogConfig
from raftwerk.log.errors import NoSpaceError
from raftwerk.log.partition_log import PartitionLog
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.fetch import FetchRequest, FetchResponse
from raftwerk.wire.produce import ProducePartitionResponse
from raftwerk.wire.records import iter_headers, iter_records

LAG_MS = 400
NODES = (1, 2, 3)


class NoTimers:
    """Time-outs are not what is looked at here."""

    def add(self, delay_ms: int, callback: Callable[[], None]) -> Any:
        return self

    def cancel(self) -> bool:
        return True


@dataclass
class Metadata:
    """One committed state: the partition and the live brokers' epochs."""

    registration: Reg
    epochs: dict[int, int]


class Controller:
    """The decisions of the real one, reduced to a partition: every change is one more entry of `history`."""

    def __init__(self) -> None:
        self.epochs = {node: 10 + node for node in NODES}
        self.next_epoch = 100
        self.history = [Metadata(Reg(NODES, NODES, 1, 0, 0), dict(self.epochs))]

    @property
    def now(self) -> Reg:
        return self.history[-1].registration

    def _commit(self, registration: Reg) -> None:
        self.history.append(Metadata(registration, dict(self.epochs)))

    def _change(self, isr: tuple[int, ...], leader: int) -> None:
        now = self.now
        bump = leader != now.leader
        self._commit(Reg(NODES, isr, leader, now.leader_epoch + bump, now.partition_epoch + 1))

    def fence(self, node: int) -> None:
        """The broker is gone: out of the ISR unless it is the last member, and its leadership passes on."""
        self.epochs.pop(node, None)
        isr = tuple(member for member in self.now.isr if member != node) or self.now.isr
        leader = self.now.leader
        if leader == node or leader not in isr:
            leader = next((member for member in isr if member in self.epochs), -1)
        self._change(isr, leader)

    def register(self, node: int) -> int:
        """A new incarnation of a broker; the former one is fenced."""
        if node in self.epochs:
            self.fence(node)
        self.next_epoch += 1
        self.epochs[node] = self.next_epoch
        now = self.now
        if now.leader == -1 and node in now.isr:
            self._change(now.isr, node)
        else:
            self._commit(now)
        return self.next_epoch

    def move_leader(self, rng: random.Random) -> None:
        live = [member for member in self.now.isr if member in self.epochs]
        if live:
            self._change(self.now.isr, rng.choice(live))

    def alter_partition(self, sender: int, item: AlterPartitionItem) -> AlterPartitionResult:
        now, proposal = self.now, item.proposal
        if proposal.leader_epoch != now.leader_epoch:
            return AlterPartitionResult(ErrorCode.FENCED_LEADER_EPOCH)
        if sender != now.leader:
            return AlterPartitionResult(ErrorCode.INVALID_REQUEST)
        if proposal.partition_epoch != now.partition_epoch:
            return AlterPartitionResult(ErrorCode.INVALID_UPDATE_VERSION)
        for member, epoch in proposal.new_isr:
            if member not in self.epochs or epoch not in (-1, self.epochs[member]):
                return AlterPartitionResult(ErrorCode.INELIGIBLE_REPLICA)
        self._change(tuple(member for member, _ in proposal.new_isr), now.leader)
        now = self.now
        return AlterPartitionResult(0, now.leader, now.leader_epoch, now.isr, now.partition_epoch)


class Node:
    """One broker's replica; `boot` begins a new incarnation on what the disk still has."""

    def __init__(self, node_id: int, model: Model) -> None:
        self.node_id = node_id
        self.model = model
        self.disk = SimDisk(random.Random(model.rng.random()))
        self.disk.makedirs("/data")
        self.disk.fsync_dir("/")
        self.checkpoint = 0
        self.up = False

    def boot(self, broker_epoch: int, seen: int) -> None:
        self.up = True
        self.broker_epoch = broker_epoch
        self.seen = seen
        runtime = Runtime(self.disk, self.model, random.Random(0))
        self.log = PartitionLog.open(runtime, "/data/t-0", LogConfig())
        hosted = HostedPartitions(self.node_id, lambda: self.broker_epoch)
        hosted.image = self.model  # type: ignore[assignment]
        self.brokers = FakeBrokers()

        def now() -> int:
            return self.model.now_ms

        tracker = DirtyPartitionTracker()
        self.operations = operations = DelayedOperations(hosted, NoTimers(), tracker, lambda: 0)
        errors = self.errors = StorageErrors(hosted, operations, lambda *_: None, lambda *_: None)
        self.hosted = hosted
        self.proposals = IsrProposals(hosted, operations, self.submit, now)
        deferred = DeferredAppends(runtime.threads)
        self.appends = Appends(hosted, operations, errors, NO_OBSERVER, lambda: (now(), WALL_MS), deferred)
        config = ReplicaManagerConfig(self.node_id, replica_fetch_backoff_min_ms=1, replica_fetch_backoff_max_ms=4)
        throttles = Throttles(config)
        expected = ExpectedFetches(operations.purgatory)
        self.fetches = FetchRequests(
            FetchSessionCache(0, random.Random(0), tracker),
            PartitionReader(hosted, expected, self.proposals, errors, None),
            expected,
            operations,
            throttles.leader,
            NO_OBSERVER,
            now,
        )
        others = [node for node in NODES if node != self.node_id]
        self.fetchers = {node: FetcherState(config, self, throttles.follower) for node in others}
        self.fetching_from = -1
        leader_config = LeaderConfig(self.node_id, self.model.min_isr, LAG_MS)
        high_watermark = min(self.checkpoint, self.log.log_end_offset)
        self.replica = Replica(
            TOPIC_ID, Partition(TP, leader_config, self.brokers, high_watermark), self.log, operations.on_high_watermark
        )
        hosted.replicas[TP] = self.replica
        self.leads_in, self.led_up_to = -1, 0
        self.read_at: tuple[Any, ...] = ()
        self.read: list[tuple[int, bytes]] = []
        self.to_send: list[tuple[AlterPartitionItem, OnResult]] = []
        self.in_flight: tuple[AlterPartitionItem, OnResult] | None = None
        self.apply(seen)

    # -- what the product asks of its surroundings

    def submit(self, item: AlterPartitionItem, on_result: OnResult) -> None:
        self.to_send = [(item, on_result)]

    def on_records_fetched(self, replica: Replica, size_bytes: int) -> None: ...

    def on_replica_failed(self, replica: Replica, error: Exception) -> None:
        raise AssertionError(f"a replica failed: {error}") from error

    def on_no_space(self, replica: Replica, error: NoSpaceError) -> None:
        raise AssertionError(f"a disk is full: {error}") from error

    # -- metadata

    def apply(self, seen: int) -> None:
        """Jump to the metadata at index `seen`, over everything in between."""
        self.seen = seen
        metadata = self.model.controller.history[seen]
        self.brokers.epochs = {**metadata.epochs, self.node_id: self.broker_epoch}
        registration = metadata.registration
        if not self.replica.partition.is_news(registration):
            return
        if registration.leader == self.node_id:
            self._stop_fetching()
            self.replica.make_leader(registration, self.model.now_ms)
        elif self.replica.make_follower(registration):
            self.operations.on_role_lost(self.replica)
            self._stop_fetching()
            if registration.leader >= 0:
                self.fetching_from = registration.leader
                self.fetchers[registration.leader].add(self.replica)

    def _stop_fetching(self) -> None:
        if self.fetching_from >= 0:
            self.fetchers[self.fetching_from].remove((TOPIC_ID, 0))
        self.fetching_from = -1


@dataclass
class Message:
    """A message under way; `incarnations` are those of sender and receiver when it was sent."""

    kind: str
    sender: int
    receiver: int
    incarnations: tuple[int, int]
    body: Any


class Model:
    """The whole cluster. `step` does one thing; every thing is drawn from `rng`."""

    def __init__(self, seed: int, min_isr: int = 2) -> None:
        self.rng = random.Random(seed)
        self.min_isr = min_isr
        self.now_ms = 0
        self.controller = Controller()
        self.topics_by_name: dict[str, Any] = {}
        self.topics_by_id = {TOPIC_ID: SimpleNamespace(name=TP.topic, partitions={TP.partition: None})}
        self.nodes = {node: Node(node, self) for node in NODES}
        self.incarnation = dict.fromkeys(NODES, 0)
        for node_id, node in self.nodes.items():
            node.boot(self.controller.epochs[node_id], 0)
        self.messages: list[Message] = []
        self.produced = 0
        self.acked: dict[bytes, int] = {}
        self.committed: list[tuple[int, bytes]] = []
        self.faults = True
        self.trace: list[str] = []

    def wall_ms(self) -> int:
        return WALL_MS

    # -- steps

    def step(self) -> None:
        self.now_ms += self.rng.choice((0, 1, 5, 30))
        steps: list[tuple[int, Callable[[], None]]] = [
            (12 if self.faults else 0, self.produce),
            (30, self.send_fetch),
            (40, self.deliver),
            (6, self.learn_metadata),
            (6, self.send_proposal),
            (2, self.shrink),
            (2, self.save_checkpoints),
        ]
        if self.faults:
            steps += [(2, self.lose), (1, self.crash), (2, self.restart), (3, self.move_leader), (1, self.fence_silent)]
        weights = [weight for weight, _ in steps]
        act = self.rng.choices([action for _, action in steps], weights)[0]
        act()
        self.check()

    def _up(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.up]

    def _any_up(self) -> Node | None:
        up = self._up()
        return self.rng.choice(up) if up else None

    def produce(self) -> None:
        leaders = [node for node in self._up() if node.replica.is_leader]
        if not leaders:
            return
        node = self.rng.choice(leaders)
        self.produced += 1
        value = b"%d" % self.produced
        self.note(f"produce {self.produced} at {node.node_id}")
        acks = self.rng.choice((-1, -1, 1))
        node.appends.append(acks, 1000, [(TP, batch(value))], lambda results: self._answered(acks, value, results))

    def _answered(self, acks: int, value: bytes, results: list[ProducePartitionResponse]) -> None:
        if results[0].error_code == 0 and acks == -1:
            self.acked[value] = results[0].base_offset
            self.note(f"acked {value.decode()} at offset {results[0].base_offset}")

    def send_fetch(self) -> None:
        node = self._any_up()
        if node is None or node.fetching_from < 0:
            return
        pair = (node.node_id, node.fetching_from)
        if any(
            pair in ((m.sender, m.receiver), (m.receiver, m.sender)) and m.kind != "alter-partition"
            for m in self.messages
        ):
            return
        request = node.fetchers[node.fetching_from].next_request(node.broker_epoch, self.now_ms)
        if request is not None:
            self._send("fetch", node.node_id, node.fetching_from, request)

    def _send(self, kind: str, sender: int, receiver: int, body: Any) -> None:
        self.messages.append(
            Message(kind, sender, receiver, (self.incarnation[sender], self.incarnation[receiver]), body)
        )

    def deliver(self) -> None:
        if not self.messages:
            return
        message = self.messages.pop(self.rng.randrange(len(self.messages)))
        current = (self.incarnation[message.sender], self.incarnation[message.receiver]) == message.incarnations
        sender, receiver = self.nodes[message.sender], self.nodes[message.receiver]
        if message.kind == "alter-partition":
            self._deliver_proposal(message, receiver)
        elif not current or not receiver.up or not sender.up:
            self._lost(message)
        elif message.kind == "fetch":
            self._serve(message, receiver)
        else:
            receiver.fetchers[message.sender].on_response(message.body, self.now_ms)
            receiver.replica.committed_bytes()

    def _serve(self, message: Message, leader: Node) -> None:
        request: FetchRequest = message.body
        params = FetchParams(request.replica_id, request.replica_epoch, 0, 1, self.rng.choice((1, 10_000)))
        follower = message.sender

        def done(response: FetchResponse) -> None:
            self._send("records", leader.node_id, follower, FetchResponse(0, 0, response.topics))

        Caller().fetch(leader.fetches, params, request, done)

    def _lost(self, message: Message) -> None:
        """The sender of a fetch sees its connection go."""
        fetching, source = message.sender, message.receiver
        if message.kind == "records":
            fetching, source = source, fetching
        if self.nodes[fetching].up:
            self.nodes[fetching].fetchers[source].session.on_failure()

    def lose(self) -> None:
        if self.messages:
            message = self.messages.pop(self.rng.randrange(len(self.messages)))
            self.note(f"lost {message.kind} {message.sender}->{message.receiver}")
            if message.kind == "alter-partition":
                self._proposal_answered(message, AlterPartitionResult(ErrorCode.NETWORK_EXCEPTION))
            else:
                self._lost(message)

    # -- AlterPartition

    def send_proposal(self) -> None:
        node = self._any_up()
        if node is not None and node.to_send and node.in_flight is None:
            node.in_flight = node.to_send.pop()
            self._send("alter-partition", node.node_id, node.node_id, node.in_flight)

    def _deliver_proposal(self, message: Message, node: Node) -> None:
        item, _ = message.body
        result = self.controller.alter_partition(node.node_id, item)
        members = [member for member, _ in item.proposal.new_isr]
        self.note(f"{node.node_id} wants ISR {members}: error {result.error_code}")
        if self.faults and self.rng.random() < 0.2:
            result = AlterPartitionResult(ErrorCode.NETWORK_EXCEPTION)
        self._proposal_answered(message, result)

    def _proposal_answered(self, message: Message, result: AlterPartitionResult) -> None:
        node = self.nodes[message.sender]
        if not node.up or self.incarnation[node.node_id] != message.incarnations[0]:
            return
        node.in_flight = None
        item, on_result = message.body
        if on_result(item, result) and not node.to_send:
            node.to_send = [message.body]

    def shrink(self) -> None:
        node = self._any_up()
        if node is not None and node.replica.partition.leader is not None:
            proposal = node.replica.partition.leader.propose_shrink(node.replica.log_end_offset, self.now_ms)
            if proposal is not None:
                node.proposals.submit(node.replica, proposal)

    # -- metadata and incarnations

    def learn_metadata(self) -> None:
        node = self._any_up()
        last = len(self.controller.history) - 1
        if node is not None and node.seen < last:
            node.apply(self.rng.randint(node.seen + 1, last))

    def save_checkpoints(self) -> None:
        node = self._any_up()
        if node is not None:
            node.checkpoint = node.replica.high_watermark

    def crash(self) -> None:
        node = self._any_up()
        if node is None:
            return
        node.up = False
        self.incarnation[node.node_id] += 1
        others = [m for m in self.controller.now.isr if m != node.node_id and self.nodes[m].up]
        power_loss = self.rng.random() < 0.5 and bool(others) and others[0] in self.controller.epochs
        self.note(f"crash {node.node_id} power_loss={power_loss}")
        node.disk.crash(power_loss=power_loss)
        if power_loss or self.rng.random() < 0.7:
            self.controller.fence(node.node_id)

    def restart(self) -> None:
        down = [node for node in self.nodes.values() if not node.up]
        if down:
            node = self.rng.choice(down)
            epoch = self.controller.register(node.node_id)
            self.note(f"restart {node.node_id} broker epoch {epoch}")
            node.boot(epoch, len(self.controller.history) - 1)

    def move_leader(self) -> None:
        self.controller.move_leader(self.rng)
        self.note(f"leader moves: {self.controller.now}")

    def fence_silent(self) -> None:
        """A live broker is taken for dead; it may not know for a long time."""
        node = self._any_up()
        if node is not None and node.node_id in self.controller.epochs and len(self.controller.now.isr) > 1:
            self.controller.fence(node.node_id)
            self.controller.epochs[node.node_id] = node.broker_epoch
            if self.controller.now.leader == -1 and node.node_id in self.controller.now.isr:
                self.controller._change(self.controller.now.isr, node.node_id)
            else:
                self.controller._commit(self.controller.now)
            self.note(f"fenced and back: {node.node_id}: {self.controller.now}")

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now_ms} {text}")

    # -- invariants

    def records_of(self, node: Node) -> list[tuple[int, bytes]]:
        """(leader epoch, value) of every record; the log is read from the disk, batch by batch.

        Read again only when the end or the epochs changed: within an epoch one leader gives each offset once.
        """
        key = (node.log.log_end_offset, tuple(node.log.epoch_cache.entries))
        if node.read_at != key:
            node.read_at, node.read = key, self._read(node)
        return node.read

    def _read(self, node: Node) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        offset = node.log.log_start_offset
        while data := node.log.read(offset, 1 << 20, end_offset=node.log.log_end_offset):
            for position, header in iter_headers(data):
                view = memoryview(data)[position : position + header.size_bytes]
                found += [(header.partition_leader_epoch, bytes(r.value or b"")) for r in iter_records(view)]
                offset = header.next_offset
        return found

    def check(self) -> None:
        logs: dict[int, list[tuple[int, bytes]]] = {}
        for node in self._up():
            logs[node.node_id] = self.records_of(node)
            high_watermark = node.replica.high_watermark
            leader = node.replica.partition.leader
            if leader is not None and node.leads_in == leader.leader_epoch and high_watermark > node.led_up_to:
                assert len(leader.isr_state.isr) >= self.min_isr, "it moves only with enough in sync"
            node.leads_in, node.led_up_to = (leader.leader_epoch if leader else -1), high_watermark
            assert high_watermark <= len(logs[node.node_id]), "a high watermark is within the log"
            below = logs[node.node_id][:high_watermark]
            shared = min(len(below), len(self.committed))
            assert below[:shared] == self.committed[:shared], f"what was committed changed on {node.node_id}"
            if len(below) > len(self.committed):
                assert node.replica.is_leader, "only a leader commits"
                self.committed = below
        for member in self.controller.now.isr:
            if self.nodes[member].up:
                have = logs[member][: len(self.committed)]
                assert have == self.committed, f"ISR member {member} lacks committed records"
        for value, offset in self.acked.items():
            assert offset < len(self.committed) and self.committed[offset][1] == value, f"acked {value!r} not committed"

    # -- healing

    def heal(self) -> None:
        """No more faults: every node comes back, and in bounded time all agree on everything."""
        self.faults = False
        for node in self.nodes.values():
            if not node.up:
                node.boot(self.controller.register(node.node_id), len(self.controller.history) - 1)
        for node in self.nodes.values():
            if node.node_id not in self.controller.epochs:
                self.controller.epochs[node.node_id] = node.broker_epoch
                self.controller._commit(self.controller.now)
        for _ in range(4000):
            self.step()
            if self.healed():
                return
        raise AssertionError(f"not healed: {self.controller.now} {self.describe()}")

    def healed(self) -> bool:
        logs = [self.records_of(node) for node in self.nodes.values()]
        return (
            set(self.controller.now.isr) == set(NODES)
            and all(log == logs[0] for log in logs)
            and all(node.seen == len(self.controller.history) - 1 for node in self.nodes.values())
            and all(node.replica.high_watermark == len(logs[0]) for node in self.nodes.values())
        )

    def describe(self) -> str:
        return ", ".join(
            f"{n.node_id}: hw {n.replica.high_watermark} leo {n.replica.log_end_offset} leader {n.replica.is_leader}"
            for n in self._up()
        )


def run_seed(seed: int, steps: int = 150, **options: Any) -> Model:
    """A history with faults, then healing. On a failure the last steps are in the message."""
    model = Model(seed, **options)
    try:
        for _ in range(steps):
            model.step()
        model.heal()
    except (AssertionError, ProtocolError) as error:
        raise AssertionError(f"seed {seed}: {error}\n" + "\n".join(model.trace[-60:])) from error
    return model
