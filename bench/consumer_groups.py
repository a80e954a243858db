"""`python -m raftwerk.bench groups`: many groups, and groups of many members, of both protocols, on one node.

The members are connections of one client process that encodes the protocol itself, so that the coordinator is measured.
Beside the time on the clock, which includes the client, is the processor time of the node. A heartbeat that is answered
with an error counts as an error.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from ..cluster.client.admin_client import AdminClient, NewTopic
from ..cluster.client.cluster_client import ClusterClient
from ..cluster.local.layout import ClusterShape, plan_cluster
from ..cluster.local.processes import cpu_seconds, memory_bytes
from ..cluster.local.supervisor import Supervisor
from ..wire.api_keys import ApiKey
from ..wire.client import Connection, connect
from ..wire.codec import Struct
from ..wire.errors import ErrorCode

TOPIC, SMALL = "bench", "small"
_TIMEOUT_S = 300.0
_SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x05bench\xff\xff\xff\xff\x00\x00\x00\x00"
_RETRIED = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


class Bench:
    """One node, and the errors so far."""

    def __init__(self, supervisor: Supervisor, partitions: int) -> None:
        self.supervisor = supervisor
        self.partitions = partitions
        self.port = supervisor.plan.brokers[0].port or 0
        self.topic_ids: dict[str, UUID | None] = {}
        self.errors = 0

    async def prepare(self) -> None:
        """Create the topics and `__consumer_offsets`."""
        async with ClusterClient(f"127.0.0.1:{self.port}") as client:
            for name, partitions in ((TOPIC, self.partitions), (SMALL, 10)):
                await AdminClient(client).create_topic(NewTopic(name, partitions, 1))
                self.topic_ids[name] = (await client.metadata([name])).topic(name).topic_id
            await client.request(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["first"]})

    async def member(self) -> Connection:
        """A connection of a member."""
        return await connect("127.0.0.1", self.port, client_id="m", timeout_s=30.0)

    async def timed(self, name: str, work: Callable[[], Awaitable[Any]]) -> None:
        """Do the work, and print its time, processor time and memory."""
        pid = self.supervisor.children[1].pid
        cpu, began = cpu_seconds(pid) or 0.0, time.monotonic()
        await work()
        clock, used = time.monotonic() - began, (cpu_seconds(pid) or 0.0) - cpu
        memory = (memory_bytes(pid) or 0) / 1e6
        print(f"{name:58} {clock:8.2f} s   node: {used:6.2f} s cpu, {memory:6.1f} MB", flush=True)


class Classic:
    """A member of the classic protocol. It joins again when a rebalance begins."""

    def __init__(self, bench: Bench, group: str, connection: Connection) -> None:
        self.bench, self.group, self.connection = bench, group, connection
        self.member_id = ""
        self.generation = -1

    async def ask(self, key: ApiKey, version: int, fields: dict[str, Any]) -> Struct:
        """Send a request until the coordinator is ready; the answer."""
        while True:
            answer = await self.connection.request(
                key, version, {"group_id": self.group, "member_id": self.member_id, **fields}, timeout_s=_TIMEOUT_S
            )
            if answer.error_code not in _RETRIED:
                return answer
            await asyncio.sleep(0.05)

    async def join(self) -> None:
        """Join, and return when the member is in a generation and has its assignment."""
        while True:
            joined = await self.ask(
                ApiKey.JOIN_GROUP,
                9,
                {
                    "session_timeout": 45_000,
                    "rebalance_timeout": 120_000,
                    "protocol_type": "consumer",
                    "protocols": [{"name": "range", "metadata": _SUBSCRIPTION}],
                },
            )
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
                continue
            if joined.error_code:
                self.bench.errors += joined.error_code != ErrorCode.REBALANCE_IN_PROGRESS
                continue
            self.generation = joined.generation_id
            parts = [{"member_id": one.member_id, "assignment": bytes(16)} for one in joined.members]
            synced = await self.ask(
                ApiKey.SYNC_GROUP,
                5,
                {
                    "generation_id": self.generation,
                    "protocol_type": "consumer",
                    "protocol_name": "range",
                    "assignments": parts,
                },
            )
            if not synced.error_code:
                return

    async def until_called(self) -> None:
        """Heartbeat until a rebalance begins, then join."""
        while True:
            code = (await self.ask(ApiKey.HEARTBEAT, 4, {"generation_id": self.generation})).error_code
            if code == ErrorCode.REBALANCE_IN_PROGRESS:
                return await self.join()
            self.bench.errors += bool(code)
            await asyncio.sleep(1.0)

    async def leave(self) -> None:
        """Leave the group."""
        await self.ask(ApiKey.LEAVE_GROUP, 5, {"members": [{"member_id": self.member_id}]})


class Consumer:
    """A member of the consumer protocol (KIP-848)."""

    def __init__(self, bench: Bench, group: str, connection: Connection, name: str, topic: str = TOPIC) -> None:
        self.bench, self.group, self.connection, self.name, self.topic = bench, group, connection, name, topic
        self.epoch = 0
        self.owned: list[int] = []

    async def beat(self, epoch: int | None = None) -> None:
        """Send one heartbeat."""
        owned = [{"topic_id": self.bench.topic_ids[self.topic], "partitions": self.owned}] if self.owned else []
        fields = {
            "group_id": self.group,
            "member_id": self.name,
            "member_epoch": self.epoch if epoch is None else epoch,
            "rebalance_timeout": 120_000,
            "subscribed_topic_names": [self.topic],
            "topic_partitions": owned,
        }
        answer = await self.connection.request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, fields, timeout_s=_TIMEOUT_S)
        if answer.error_code:
            self.bench.errors += answer.error_code not in _RETRIED
            return
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = [part for row in answer.assignment.topic_partitions for part in row.partitions]

    async def join(self) -> None:
        """Heartbeat until the member has joined."""
        while self.epoch == 0:
            await self.beat()

    async def settle(self, members: list[Consumer], partitions: int) -> None:
        """Heartbeat every second until all members are in one epoch and own all partitions."""
        while True:
            await self.beat()
            read = sum(len(one.owned) for one in members)
            if read == partitions and len({one.epoch for one in members}) == 1:
                return
            await asyncio.sleep(1.0)


async def one_group(bench: Bench, size: int) -> None:
    """One group of many members in each protocol: all join, one leaves, the others rebalance."""
    connections = [await bench.member() for _ in range(size)]
    classic = [Classic(bench, "one-classic", connection) for connection in connections]
    await bench.timed(f"classic: {size} members join", lambda: _all(one.join() for one in classic))

    async def leaves() -> None:
        await classic[0].leave()
        await _all(one.until_called() for one in classic[1:])

    await bench.timed("classic: one leaves, the rest join again", leaves)
    await _all(one.leave() for one in classic[1:])
    group = [Consumer(bench, "one-consumer", connection, f"m{at}") for at, connection in enumerate(connections)]
    await bench.timed(f"consumer: {size} members join", lambda: _all(one.join() for one in group))
    await bench.timed("consumer: all read what they shall", lambda: _settle(bench, group))
    rest = group[1:]

    async def goes() -> None:
        await group[0].beat(-1)
        await _settle(bench, rest)

    await bench.timed("consumer: one leaves, the rest share its part", goes)
    await _all(one.beat(-1) for one in rest)
    for connection in connections:
        connection.close()


async def many_groups(bench: Bench, count: int) -> None:
    """Many groups of one member in each protocol: they are created, heartbeat, and commit."""
    connections = [await bench.member() for _ in range(count)]
    classic = [Classic(bench, f"classic-{at}", connection) for at, connection in enumerate(connections)]
    await bench.timed(f"{count} classic groups of one member", lambda: _all(one.join() for one in classic))
    others = [Consumer(bench, f"consumer-{at}", connection, "m", SMALL) for at, connection in enumerate(connections)]
    await bench.timed(f"{count} consumer groups of one member", lambda: _all(one.join() for one in others))

    async def beats() -> None:
        await _all(one.ask(ApiKey.HEARTBEAT, 4, {"generation_id": one.generation}) for one in classic)
        await _all(one.beat() for one in others)

    await bench.timed(f"a heartbeat of each of {2 * count}", beats)
    await bench.timed(f"a commit of each of {count}", lambda: _all(_commit(bench, one) for one in classic))
    for connection in connections:
        connection.close()


async def _commit(bench: Bench, member: Classic) -> None:
    rows = [{"partition_index": part, "committed_offset": 1, "committed_metadata": ""} for part in range(10)]
    fields = {
        "group_id": member.group,
        "generation_id_or_member_epoch": member.generation,
        "member_id": member.member_id,
        "topics": [{"name": TOPIC, "partitions": rows}],
    }
    answer = await member.connection.request(ApiKey.OFFSET_COMMIT, 9, fields, timeout_s=_TIMEOUT_S)
    bench.errors += any(row.error_code for row in answer.topics[0].partitions)


async def _all(works: Any) -> None:
    await asyncio.gather(*works)


async def _settle(bench: Bench, members: list[Consumer]) -> None:
    await _all(one.settle(members, bench.partitions) for one in members)


async def _measure(bench: Bench, size: int, groups: int) -> None:
    await bench.prepare()
    await bench.timed("nothing", lambda: asyncio.sleep(1.0))
    await one_group(bench, size)
    await many_groups(bench, groups)


def main(arguments: list[str]) -> int:
    """Run the command line; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m raftwerk.bench groups", description=__doc__)
    parser.add_argument("--members", type=int, default=1000, help="members of the one group (default 1000)")
    parser.add_argument("--groups", type=int, default=1000, help="groups of one member (default 1000)")
    options = parser.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    directory = tempfile.mkdtemp(prefix="raftwerk-groups-")
    shape = ClusterShape(brokers=1, port=0, overrides={"group.initial.rebalance.delay.ms": "3000"})
    supervisor = Supervisor(plan_cluster(str(Path(directory) / "cluster"), shape))
    supervisor.start(60.0)
    bench = Bench(supervisor, 2 * options.members)
    try:
        asyncio.run(_measure(bench, options.members, options.groups))
    finally:
        supervisor.stop()
        shutil.rmtree(directory)
    print(f"{bench.errors} errors")
    return int(bench.errors > 0)
