"""A cluster of real processes in the hands of a test."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import tempfile
import uuid
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from ..client.admin_client import AdminClient, NewTopic
from ..client.cluster_client import ClusterClient, ClusterView
from ..client.quorum_client import QuorumClient
from ..local.layout import ClusterPlan, ClusterShape, plan_cluster
from ..local.supervisor import LocalNodeError, Supervisor

START_TIMEOUT_S = 60.0
_START_ATTEMPTS = 3

T = TypeVar("T")


class TestCluster:
    """A running cluster on free ports. Nodes have ids 1 to N; waits raise after their limit in seconds.

    Usable without pytest too: `with TestCluster.start(nodes=3) as cluster: ...`.
    """

    __test__ = False

    def __init__(self, supervisor: Supervisor, *, throw_away: bool) -> None:
        self._supervisor = supervisor
        self._throw_away = throw_away

    @classmethod
    def start(
        cls,
        nodes: int = 1,
        *,
        settings: Mapping[str, str] | None = None,
        directory: str | None = None,
        separate: bool = False,
    ) -> TestCluster:
        """Start `nodes` brokers, each a controller too unless `separate`; returns when all serve.

        `settings` are server.properties of every node. Without a `directory` data is in a temporary one, which goes
        with the cluster. `NodeFailed` with the log's last line when a node does not come up.
        """
        where = directory or tempfile.mkdtemp(prefix="raftwerk-test-")
        reason: LocalNodeError | None = None
        for _ in range(_START_ATTEMPTS):  # another process may take a port between its choice and its use
            shape = ClusterShape(nodes, port=0, separate=separate, overrides=dict(settings or {}))
            supervisor = Supervisor(plan_cluster(where, shape), cuttable=True)
            try:
                supervisor.start(START_TIMEOUT_S)
                return cls(supervisor, throw_away=directory is None)
            except LocalNodeError as error:
                reason = error
                if "in use" not in str(error):
                    break
        if directory is None:
            shutil.rmtree(where, ignore_errors=True)
        raise reason or LocalNodeError("the cluster was not started")

    def __enter__(self) -> TestCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ---- where it is

    @property
    def plan(self) -> ClusterPlan:
        """Ports, directories and settings of every node."""
        return self._supervisor.plan

    @property
    def bootstrap_servers(self) -> str:
        """For any client's `bootstrap.servers`."""
        return self.plan.bootstrap

    @property
    def node_ids(self) -> list[int]:
        """Every node, alive or not."""
        return [node.node_id for node in self.plan.nodes]

    def log_of(self, node_id: int) -> str:
        """What a node has logged."""
        with open(self.plan.node(node_id).log_file, encoding="utf-8", errors="replace") as file:
            return file.read()

    # ---- topics

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replicas: int = -1,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """Make a topic and wait for its leaders; without a name it gets one that nobody else has. Returns the name."""
        chosen = name or unique_topic()
        self._ask(lambda client: AdminClient(client).create_topic(NewTopic(chosen, partitions, replicas, config)))
        return chosen

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        self._ask(lambda client: AdminClient(client).delete_topic(name))

    def describe(self) -> ClusterView:
        """Brokers, topics, partitions with leader and ISR, as any client sees them."""
        view: ClusterView = self._ask(lambda client: client.metadata())
        return view

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The node id of a partition's leader; -1 when there is none."""
        return self.describe().topic(topic).partitions[partition].leader

    def controller(self) -> int | None:
        """The node id of the active controller."""
        found: int | None = self._ask(lambda client: QuorumClient(client).leader_id())
        return found

    # ---- failure

    def kill(self, node_id: int) -> None:
        """SIGKILL: as a crash. Returns when the process is gone."""
        self._supervisor.kill(node_id, signal.SIGKILL)

    def stop_node(self, node_id: int) -> None:
        """SIGTERM: the node hands its leaderships over, then ends."""
        child = self._supervisor.children[node_id]
        self._supervisor.kill(node_id, signal.SIGTERM)
        child.process.wait(START_TIMEOUT_S)

    def pause(self, node_id: int) -> None:
        """SIGSTOP: the process is there and does nothing, as a machine that swaps or a long pause of a collector."""
        self._supervisor.kill(node_id, signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        """End a pause."""
        self._supervisor.kill(node_id, signal.SIGCONT)

    def partition(self, *sides: int | Iterable[int]) -> None:
        """Cut the network between sides: `partition(1)` node 1 from all others, `partition([1, 2], [3])` two from one.

        Nodes that no side names are together. Nothing passes between sides, and nothing refuses: it is as if cables
        were pulled. Clients reach every node as before. The next `partition` replaces this one, `heal` ends it; a
        node that is started again comes back without its cuts.
        """
        named = [frozenset([side] if isinstance(side, int) else side) for side in sides]
        rest = frozenset(self.node_ids).difference(*named)
        for side in (*named, rest):
            for node_id in sorted(side):
                if self.is_alive(node_id):
                    self._supervisor.cut(node_id, [other for other in self.node_ids if other not in side])

    def start_node(self, node_id: int) -> None:
        """Start a node that was killed or stopped; returns when it serves."""
        self._supervisor.restart_node(node_id, START_TIMEOUT_S)

    def restart(self, node_id: int) -> None:
        """Stop cleanly and start again."""
        self.stop_node(node_id)
        self.start_node(node_id)

    def is_alive(self, node_id: int) -> bool:
        """Whether the process is there, paused or not."""
        return self._supervisor.children[node_id].alive

    def heal(self) -> None:
        """End every pause and partition, start every dead node, return when all serve."""
        for node_id, child in list(self._supervisor.children.items()):
            if child.alive:
                self.resume(node_id)
                self._supervisor.cut(node_id, [])
            else:
                self.start_node(node_id)

    def stop(self) -> None:
        """Stop everything; a temporary directory goes too."""
        for node_id, child in self._supervisor.children.items():
            if child.alive:
                self.resume(node_id)
        self._supervisor.stop()
        if self._throw_away:
            shutil.rmtree(self.plan.directory, ignore_errors=True)

    def _ask(self, question: Any) -> Any:
        async def run() -> Any:
            async with ClusterClient(self.bootstrap_servers) as client:
                return await question(client)

        return _run_apart(run())


def unique_topic(hint: str = "topic") -> str:
    """A topic's name made from `hint` that no other test, worker or run has."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", hint).strip("-.")[:80] or "topic"
    return f"{readable}-{uuid.uuid4().hex[:8]}"


def _run_apart(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run it to its end, also when the caller is inside a running loop, as a test under pytest-asyncio is."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, coroutine).result()
