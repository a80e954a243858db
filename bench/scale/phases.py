"""The phases of the scale benchmark: each does one thing to the cluster and records its cost."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from .client import Client, Key, State
from .nodes import Nodes, cpu_s, descriptors, memory_mb, metadata_log, snapshots

TIMEOUT_S = 900.0
_PARTITIONS_A_TOPIC = 10
_GROWN_TO = 1000
_SETTLE_S = 8.0
_IDLE_S = 15.0
_QUIET_S = 1.0


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of one phase; `name` is the same for every number of partitions."""

    name: str
    value: float
    unit: str


@dataclass
class Bench:
    """A running cluster with a client, and the figures so far."""

    nodes: Nodes
    client: Client
    partitions: int
    partitions_a_request: int
    rows: list[Row] = field(default_factory=list)
    _cpu_s: dict[int, float] = field(default_factory=dict)
    """Processor seconds of each process at the last `put_cost` or `begin`."""

    @property
    def ids(self) -> list[int]:
        """The ids of all nodes."""
        return list(self.nodes.ports)

    def others(self, node: int) -> list[int]:
        """The ids of all other nodes."""
        return [each for each in self.ids if each != node]

    def put(self, name: str, value: float, unit: str) -> None:
        """Record and print a figure."""
        self.rows.append(Row(name, value, unit))
        print(f"{self.nodes.name:9}{self.partitions:7,} {name:58} {value:12,.2f} {unit}", flush=True)

    def begin(self) -> None:
        """Begin a phase that does not follow at once on the last `put_cost`."""
        self._cpu_s = cpu_s(self.nodes)
        self.nodes.holds()

    def put_cost(self, phase: str) -> None:
        """Record the processor time of the nodes since the last call, and the holds of their loops."""
        before, self._cpu_s = self._cpu_s, cpu_s(self.nodes)
        took = [after - before.get(process, 0.0) for process, after in self._cpu_s.items()]
        self.put(f"{phase}: processor time of a node, greatest", max(took), "s")
        holds = self.nodes.holds()
        if holds is not None:
            self.put(f"{phase}: longest hold of a loop", holds.longest_ms, "ms")
            self.put(f"{phase}: longest hold of a loop, in processor time", holds.longest_cpu_ms, "ms")

    async def led_by(self, node: int) -> list[Key]:
        """The partitions that a node leads."""
        states = await self.client.states(self.others(node)[0])
        return [key for key, state in states.items() if state.leader == node]

    async def until_in_sync(self, node: int) -> float:
        """Seconds until every partition has a leader and three replicas in sync, as `node` answers."""
        missing = set(await self.client.states(node))
        return await self.client.until(node, _is_whole, missing, TIMEOUT_S)


async def _until(what: Callable[[], Awaitable[bool]], pause_s: float) -> None:
    """Wait until the condition holds. `TimeoutError` after the time limit."""
    began = time.monotonic()
    while not await what():
        if time.monotonic() - began > TIMEOUT_S:
            raise TimeoutError(f"not reached in {TIMEOUT_S:.0f} s")
        await asyncio.sleep(pause_s)


async def _knows(bench: Bench, partitions: int) -> bool:
    return len(await bench.client.states(1)) >= partitions


def _is_whole(state: State) -> bool:
    return state.leader >= 0 and state.in_sync == 3


async def create(bench: Bench) -> None:
    """Create half of the partitions by CreateTopics, ten a topic, and half by CreatePartitions, a thousand a topic."""
    grown = max(1, bench.partitions // 2 // _GROWN_TO)
    many = (bench.partitions - grown * _GROWN_TO) // _PARTITIONS_A_TOPIC
    topics_a_request = max(1, bench.partitions_a_request // _PARTITIONS_A_TOPIC)
    began = time.monotonic()
    slowest = 0.0
    for first in range(0, many, topics_a_request):
        asked = time.monotonic()
        names = [f"many-{i}" for i in range(first, min(many, first + topics_a_request))]
        await bench.client.create_topics(bench.ids, dict.fromkeys(names, _PARTITIONS_A_TOPIC))
        slowest = max(slowest, time.monotonic() - asked)
    if many:
        bench.put("CreateTopics, slowest request", slowest, "s")
    names = [f"grown-{i}" for i in range(grown)]
    await bench.client.create_topics(bench.ids, dict.fromkeys(names, 1))
    slowest = 0.0
    for name in names:
        asked = time.monotonic()
        await bench.client.grow_topics(bench.ids, {name: _GROWN_TO})
        slowest = max(slowest, time.monotonic() - asked)
    bench.put("CreatePartitions, slowest request", slowest, "s")
    bench.put("creation: all requests answered after", time.monotonic() - began, "s")
    expected = many * _PARTITIONS_A_TOPIC + grown * _GROWN_TO
    await _until(lambda: _knows(bench, expected), 0.1)
    await bench.until_in_sync(1)
    bench.put("creation: each partition with a leader and three in sync after", time.monotonic() - began, "s")
    log = metadata_log(bench.nodes)
    bench.put("metadata log after the creation", log.size_bytes / 1024, "KiB")
    bench.put("metadata log, a record", log.size_bytes / max(log.records, 1), "B")
    bench.put("metadata log, largest batch", log.largest_batch_bytes / 1024, "KiB")
    await asyncio.sleep(_QUIET_S)
    bench.put_cost("creation")


async def idle(bench: Bench) -> None:
    """Measure the cost of idle partitions."""
    await asyncio.sleep(_SETTLE_S)
    before = cpu_s(bench.nodes)
    await asyncio.sleep(_IDLE_S)
    shares = [(after - before[process]) / _IDLE_S * 100 for process, after in cpu_s(bench.nodes).items()]
    bench.put("idle: processor of a core a node, greatest", max(shares), "%")
    bench.put("idle: memory a node, greatest", memory_mb(bench.nodes), "MB")
    bench.put("idle: open descriptors a node, greatest", descriptors(bench.nodes), "")


async def describe(bench: Bench) -> None:
    """Measure the second Metadata request for all topics."""
    await bench.client.time_metadata(1)
    seconds, size_bytes = await bench.client.time_metadata(1)
    bench.put("Metadata of everything: answered after", seconds * 1000, "ms")
    bench.put("Metadata of everything: size", size_bytes / 1024, "KiB")


async def snapshot(bench: Bench) -> None:
    """Wait for metadata snapshots. They are written after a time, and only if metadata has changed."""
    end_offset = metadata_log(bench.nodes).records
    bench.begin()

    async def complete() -> bool:
        await bench.client.create_topics(bench.ids, {"touch": 1})
        await bench.client.delete_topics(bench.ids, ["touch"])
        found = snapshots(bench.nodes)
        return all(found.get(node, (0, 0))[0] >= end_offset for node in bench.ids)

    await _until(complete, 0.5)
    await asyncio.sleep(_QUIET_S)
    bench.put("metadata snapshot", max(size for _, size in snapshots(bench.nodes).values()) / 1024, "KiB")
    bench.put_cost("snapshot")


async def kill_broker(bench: Bench) -> None:
    """SIGKILL a broker that is not the active controller."""
    victim = bench.others(await bench.client.controller(bench.ids))[0]
    led, before = await bench.led_by(victim), metadata_log(bench.nodes)
    bench.begin()
    bench.put("kill of a broker: partitions that it led", len(led), "")
    bench.nodes.kill(victim, signal.SIGKILL)
    moved = await bench.client.until_moved(bench.others(victim), victim, led, TIMEOUT_S)
    bench.put("kill of a broker: new leaders named for all after", moved.named_s, "s")
    bench.put("kill of a broker: new leaders serve all after", moved.serving_s, "s")
    await asyncio.sleep(_QUIET_S)
    after = metadata_log(bench.nodes)
    written, records = after.size_bytes - before.size_bytes, after.records - before.records
    bench.put("kill of a broker: metadata written", written / 1024, "KiB")
    bench.put("kill of a broker: metadata written, a record", written / max(1, records), "B")
    bench.put("kill of a broker: largest metadata batch so far", after.largest_batch_bytes / 1024, "KiB")
    bench.put_cost("kill of a broker")
    await _restart(bench, victim, "restart after the kill", len(led))


async def kill_controller(bench: Bench) -> None:
    """SIGKILL the active controller, which also leads a third of the partitions."""
    victim = await bench.client.controller(bench.ids)
    others, led = bench.others(victim), await bench.led_by(victim)
    bench.begin()
    bench.put("kill of the controller: partitions that it led", len(led), "")
    asking = Client({node: bench.nodes.ports[node] for node in others})
    bench.nodes.kill(victim, signal.SIGKILL)
    began = time.monotonic()

    async def elected() -> bool:
        return await asking.controller(others) not in (-1, victim)

    async def changed() -> float:
        await _until(elected, 0.01)
        await asking.create_topics(others, {"after": 1}, replicas=2)
        return time.monotonic() - began

    try:
        # The client that waits for leaders has connections of its own, so that neither waits for the other's answers.
        accepted = asyncio.create_task(changed())
        moved = await bench.client.until_moved(others, victim, led, TIMEOUT_S)
        bench.put("kill of the controller: the next one has made a topic after", await accepted, "s")
        bench.put("kill of the controller: new leaders named for all after", moved.named_s, "s")
        bench.put("kill of the controller: new leaders serve all after", moved.serving_s, "s")
        bench.put_cost("kill of the controller")
        await asking.delete_topics(others, ["after"])
    finally:
        asking.close()
    await _restart(bench, victim, "restart of the controller", len(led))


async def shutdown(bench: Bench) -> None:
    """Shut down a broker cleanly that is not the active controller."""
    victim = bench.others(await bench.client.controller(bench.ids))[0]
    led = await bench.led_by(victim)
    bench.begin()
    bench.put("controlled shutdown: partitions that it led", len(led), "")
    bench.nodes.kill(victim, signal.SIGTERM)
    began = time.monotonic()
    moved = await bench.client.until_moved(bench.others(victim), victim, led, TIMEOUT_S)
    bench.put("controlled shutdown: new leaders serve all after", moved.serving_s, "s")
    await asyncio.to_thread(bench.nodes.wait_gone, victim, TIMEOUT_S)
    bench.put("controlled shutdown: process gone after", time.monotonic() - began, "s")
    bench.put_cost("controlled shutdown")
    await _restart(bench, victim, "restart after it", len(led))


async def _restart(bench: Bench, node: int, phase: str, led: int) -> None:
    began = time.monotonic()
    await asyncio.to_thread(bench.nodes.restart, node, TIMEOUT_S)
    bench.put(f"{phase}: ready after", time.monotonic() - began, "s")
    asked = bench.others(node)[0]
    await bench.until_in_sync(asked)
    bench.put(f"{phase}: everything in sync after", time.monotonic() - began, "s")
    bench.put_cost(phase)
    await _give_back(bench, asked, node, led)


async def _give_back(bench: Bench, asked: int, node: int, led: int) -> None:
    """Wait until the node leads its preferred partitions again; the controller moves some at a time."""

    async def leads_again() -> bool:
        states = await bench.client.states(asked)
        return sum(state.leader == node for state in states.values()) >= 0.9 * led

    await _until(leads_again, 2.0)
    await asyncio.sleep(_QUIET_S)
    bench.put_cost("leaders given back")


PHASES: dict[str, Callable[[Bench], Coroutine[Any, Any, None]]] = {
    "create": create,
    "idle": idle,
    "describe": describe,
    "snapshot": snapshot,
    "kill": kill_broker,
    "controller": kill_controller,
    "shutdown": shutdown,
}
