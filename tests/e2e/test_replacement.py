"""Three nodes, controllers included, are replaced by three others with empty disks, one by one, under load."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftwerk.cluster.admin import ClusterClient
from raftwerk.cluster.layout import ClusterShape, find_free_base_port, new_cluster_id
from raftwerk.cluster.moving import Move, reassign, unregister_broker, wait_for_moves
from raftwerk.cluster.quorum_admin import QuorumClient

from . import helpers

GAP_LIMIT_S = 2.0
OLD, NEW = (1, 2, 3), (4, 5, 6)
TIMEOUT_S = 60.0
RAFTWERK = [sys.executable, "-P", "-m", "raftwerk"]


class Nodes:
    """Combined nodes with dynamic voters; their ports are of one block."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.base_port = find_free_base_port(ClusterShape(brokers=6))
        self.cluster_id = new_cluster_id()
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def broker(self, node_id: int) -> str:
        return f"127.0.0.1:{self.base_port + node_id - 1}"

    def controller(self, node_id: int) -> str:
        return f"127.0.0.1:{self.base_port + 1000 + node_id}"

    def bootstrap(self, ids: tuple[int, ...]) -> str:
        return ",".join(self.broker(node_id) for node_id in ids)

    def properties(self, node_id: int) -> Path:
        return self.directory / f"s{node_id}.properties"

    def format(self, node_id: int, *how: str) -> None:
        lines = {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "controller.quorum.bootstrap.servers": ",".join(self.controller(each) for each in (*OLD, *NEW)),
            "listeners": f"PLAINTEXT://{self.broker(node_id)},CONTROLLER://{self.controller(node_id)}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.directory / f"node-{node_id}"),
            "default.replication.factor": "3",
        }
        self.properties(node_id).write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        run("format", "-t", self.cluster_id, "-c", str(self.properties(node_id)), *how)

    def start(self, node_id: int) -> int:
        """The pipe that tells when the node is ready."""
        read_end, write_end = os.pipe()
        with open(self.directory / f"n{node_id}.log", "ab") as log:
            self.processes[node_id] = subprocess.Popen(
                [*RAFTWERK, "node", str(self.properties(node_id)), "--ready-fd", str(write_end)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(write_end,),
            )
        os.close(write_end)
        return read_end

    def wait_ready(self, node_id: int, pipe: int) -> None:
        ready, _, _ = select.select([pipe], [], [], TIMEOUT_S)
        text = os.read(pipe, 100) if ready else b""
        os.close(pipe)
        assert text == b"ready\n", (self.directory / f"n{node_id}.log").read_text()

    def stop(self, node_id: int) -> None:
        """As an operator does: SIGTERM, and wait."""
        process = self.processes.pop(node_id)
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0

    def kill_all(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


def run(*arguments: str) -> str:
    done = subprocess.run([*RAFTWERK, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """1, 2 and 3 run and vote."""
    nodes = Nodes(tmp_path)
    ids = {node_id: run("format", "--new-id").strip() for node_id in OLD}
    first = ",".join(f"{node_id}@{nodes.controller(node_id)}:{ids[node_id]}" for node_id in OLD)
    try:
        for node_id in OLD:
            nodes.format(node_id, "--initial-controllers", first)
        pipes = {node_id: nodes.start(node_id) for node_id in OLD}
        for node_id, pipe in pipes.items():
            nodes.wait_ready(node_id, pipe)
        yield nodes
    finally:
        nodes.kill_all()


async def move_all(bootstrap: str, old: int, new: int) -> None:
    """Every replica on `old` goes to `new`."""
    async with ClusterClient(bootstrap) as client:
        view = await client.metadata()
        moves = [
            Move(topic.name, one.partition, tuple(new if replica == old else replica for replica in one.replicas))
            for topic in view.topics
            for one in topic.partitions
            if old in one.replicas
        ]
        await reassign(client, moves)
        await wait_for_moves(client, moves, TIMEOUT_S)


async def unregister(bootstrap: str, node_id: int) -> None:
    async with ClusterClient(bootstrap) as client:
        await unregister_broker(client, node_id)


async def members(bootstrap: str) -> tuple[list[int], list[int]]:
    """The brokers and the voters."""
    async with ClusterClient(bootstrap) as client:
        brokers = [broker.node_id for broker in (await client.metadata()).brokers]
        quorum = await QuorumClient(client).describe()
    return brokers, sorted(voter.node_id for voter in quorum.voters)


def replace_node(nodes: Nodes, old: int, new: int) -> None:
    """What an operator does, step by step."""
    nodes.format(new, "--no-initial-controllers")
    nodes.wait_ready(new, nodes.start(new))
    bootstrap = nodes.broker(new)
    run("quorum", "add-controller", "-b", bootstrap, "-c", str(nodes.properties(new)))
    asyncio.run(move_all(bootstrap, old, new))
    run("quorum", "remove-controller", str(old), "-b", bootstrap)
    nodes.stop(old)
    asyncio.run(unregister(bootstrap, old))


def test_three_nodes_are_replaced_by_three_others(nodes: Nodes) -> None:
    bootstrap = nodes.bootstrap(OLD)
    helpers.create_topic(bootstrap, "cold", 6, min_insync_replicas="2")
    run("perf", "produce", "cold", "-b", bootstrap, "--records", "30000", "--record-size", "200")
    before = [len(values) for values in helpers.read_all(bootstrap, "cold", 6)]
    helpers.create_topic(bootstrap, "hot", min_insync_replicas="2")
    stream = helpers.Load(bootstrap, "hot", rate=300)
    failures: list[BaseException] = []

    def replace_all() -> None:
        try:
            for old, new in zip(OLD, NEW, strict=True):
                replace_node(nodes, old, new)
        except BaseException as error:
            failures.append(error)

    operator = threading.Thread(target=replace_all)
    stream.run(1)
    operator.start()
    while operator.is_alive():
        stream.run(0.2)
    stream.run(1)
    stream.finish()
    assert not failures, failures
    bootstrap = nodes.bootstrap(NEW)
    assert asyncio.run(members(bootstrap)) == (list(NEW), list(NEW))
    stream.check(bootstrap)
    assert sum(before) >= 30000
    assert [len(values) for values in helpers.read_all(bootstrap, "cold", 6)] == before
    print(f"{len(stream.acked)} acked, longest gap {stream.longest_gap_s():.2f} s")
    assert stream.longest_gap_s() <= GAP_LIMIT_S
