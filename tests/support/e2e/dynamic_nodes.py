"""Combined nodes with dynamic voters, each a process of its own, handled as an operator does."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.cluster.client.quorum_client import QuorumClient, QuorumView
from raftwerk.cluster.local.layout import ClusterShape, find_free_base_port, new_cluster_id

TIMEOUT_S = 60.0
RAFTWERK = [sys.executable, "-P", "-m", "raftwerk"]
IDS = (1, 2, 3, 4, 5, 6)


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

    def form_quorum(self, ids: tuple[int, ...], source: Path | None = None) -> None:
        """Format these with each other and start them."""
        directories = {node_id: run("format", "--new-id").strip() for node_id in ids}
        first = ",".join(f"{node_id}@{self.controller(node_id)}:{directories[node_id]}" for node_id in ids)
        for node_id in ids:
            self.format(node_id, "--initial-controllers", first)
        pipes = {node_id: self.start(node_id, source) for node_id in ids}
        for node_id, pipe in pipes.items():
            self.wait_ready(node_id, pipe)

    def format(self, node_id: int, *how: str, **settings: str) -> None:
        lines = {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "controller.quorum.bootstrap.servers": ",".join(self.controller(each) for each in IDS),
            "listeners": f"PLAINTEXT://{self.broker(node_id)},CONTROLLER://{self.controller(node_id)}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.directory / f"node-{node_id}"),
            "default.replication.factor": "3",
        } | {name.replace("_", "."): value for name, value in settings.items()}
        self.properties(node_id).write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        run("format", "-t", self.cluster_id, "-c", str(self.properties(node_id)), *how)

    def start(self, node_id: int, source: Path | None = None) -> int:
        """The pipe that tells when the node is ready. `source` is where its software is, if it is not today's."""
        read_end, write_end = os.pipe()
        with open(self.directory / f"n{node_id}.log", "ab") as log:
            self.processes[node_id] = subprocess.Popen(
                [*RAFTWERK, "node", str(self.properties(node_id)), "--ready-fd", str(write_end)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(write_end,),
                env=None if source is None else {**os.environ, "PYTHONPATH": str(source)},
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


def view_of(bootstrap: str) -> QuorumView:
    """The quorum as brokers describe it."""

    async def describe() -> QuorumView:
        async with ClusterClient(bootstrap) as client:
            return await QuorumClient(client).describe()

    return asyncio.run(describe())


def wait_for(bootstrap: str, holds: Callable[[QuorumView], bool]) -> QuorumView:
    """The quorum, as soon as something holds of it."""
    deadline = time.monotonic() + TIMEOUT_S
    while not holds(view := view_of(bootstrap)):
        assert time.monotonic() < deadline, view
        time.sleep(0.05)
    return view
