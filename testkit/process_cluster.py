"""A cluster of real processes for a test, with methods that make nodes fail."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from typing import Any, TypeVar

from ..cluster.client.access.current_login import CURRENT_LOGIN
from ..cluster.client.admin_client import TOPIC, AdminClient, NewTopic
from ..cluster.client.client_errors import ClientError, RefusedError, no_such_partition
from ..cluster.client.cluster_client import ClusterClient, ClusterView
from ..cluster.client.quorum_client import followed_leader
from ..cluster.command_line.cluster_address import options_of
from ..cluster.local.client_files import ADMIN, ADMIN_PROPERTIES, APP, JAVA_FILE, SECURITY_DIR, librdkafka_settings
from ..cluster.local.layout import ClusterPlan, ClusterShape, controller_endpoints, plan_cluster
from ..cluster.local.overrides import check_overrides, warnings_of
from ..cluster.local.running_up import TEST_PID, AnotherUpError, running_up, staying_with
from ..cluster.local.secured import is_secured, login_of_admin, password_in
from ..cluster.local.supervisor import Child, LocalNodeError, Supervisor, has_running_nodes
from ..cluster.settings.setting_names import way_out_of_names
from ..wire.errors import ErrorCode
from .cluster_operations import wait_until_known, with_number_of_nodes

START_TIMEOUT_S = 60.0
_START_ATTEMPTS = 3
_LOOK_AGAIN_S = 0.01
_PREFIX = "raftwerk-test-"

T = TypeVar("T")


class TestCluster:
    """A running cluster on free ports, with nodes 1 to N. Every wait has a limit, and raises when it is over.

    It works without pytest too: `with TestCluster.start(nodes=3) as cluster: ...`.
    """

    __test__ = False

    def __init__(self, supervisor: Supervisor, *, throw_away: bool, claim: ExitStack | None = None) -> None:
        """With `throw_away` the directory is removed at the end; `claim` is closed afterwards."""
        self._claim = claim or ExitStack()
        self._supervisor = supervisor
        self._throw_away = throw_away
        self._is_removed = False
        self._sides: list[frozenset[int]] = []
        """The nodes that reach each other, while the network is cut."""
        self._paused: dict[int, list[int] | None] = {}
        """Processes that are paused, and what a partition cuts each of them off from when it is resumed."""
        self._was_paused: set[int] = set()
        """The nodes that may not know yet what was decided while they were paused."""

    @classmethod
    def start(
        cls,
        nodes: int = 1,
        *,
        settings: Mapping[str, object] | None = None,
        directory: str | None = None,
        separate: bool = False,
        secure: bool = False,
    ) -> TestCluster:
        """Start `nodes` brokers, each a controller too unless `separate`; returns when all serve.

        `settings` are server.properties of every node; values may be numbers and booleans. Without a `directory` the
        data is in a temporary one, which is removed with the cluster. With `secure` all links are SASL_SSL, and access
        control lists count, as with `raftwerk up --secure`. Raises `LocalNodeError` with the last line of its
        log when a node does not start, and where a cluster runs in `directory`; `ConfigError` for settings that do not
        exist or cannot have their value; `ValueError` for an impossible number of nodes.
        """
        __tracebackhide__ = True
        if not isinstance(nodes, int):
            raise ValueError(f"nodes={nodes!r}: the number of nodes is an int, for example 3")
        overrides = {"fault.injection.enable": "true"} | _texts(settings or {})
        claim = ExitStack()
        if directory is None:
            _remove_abandoned()
        where = directory or tempfile.mkdtemp(prefix=_PREFIX)
        try:
            if directory is None:
                claim.enter_context(staying_with(where, TEST_PID))
            elif (up_pid := running_up(where)) is not None:
                raise LocalNodeError(f"{AnotherUpError(where, up_pid)}: raftwerk down{options_of(where)} ends it")
            shape = ClusterShape(nodes, port=0, separate=separate, overrides=overrides, secure=secure)
            supervisor = _started(where, shape)
        except BaseException:
            if directory is None:
                shutil.rmtree(where, ignore_errors=True)
            claim.close()
            raise
        cluster = cls(supervisor, throw_away=directory is None, claim=claim)
        try:
            cluster._wait_until_brokers_agree()
        except BaseException:
            cluster.stop()
            raise
        return cluster

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
        """`bootstrap.servers` for any client."""
        return self.plan.bootstrap

    def bootstrap_of(self, *node_ids: int) -> str:
        """`bootstrap.servers` with the brokers among these nodes alone, such as those that are left in a partition.

        Raises `LocalNodeError` for an id that no node has, and `ValueError` for no id.
        """
        __tracebackhide__ = True
        if not node_ids:
            raise ValueError("name the nodes, such as bootstrap_of(2, 3); bootstrap_servers has all brokers")
        nodes = [self._child(node_id).plan for node_id in node_ids]
        return ",".join(node.addresses[0] for node in nodes if node.port is not None)

    def client_config(self, user: str = APP) -> dict[str, str]:
        """The settings of a client of librdkafka: the addresses, and how it logs in where the cluster is secured.

        `user` is `app`, who may do everything with topics, groups and transactional ids, or `admin`, a super user.
        """
        plan = self.plan
        if not is_secured(plan.nodes[0]):
            return {"bootstrap.servers": plan.bootstrap}
        return librdkafka_settings(plan.directory, plan.bootstrap, user, password_in(self.client_properties(user)))

    def client_properties(self, user: str = APP) -> str:
        """The file by which Java's clients and commands log in to a secured cluster as that user.

        Raises `LocalNodeError` where the cluster is not secured, and for another user.
        """
        __tracebackhide__ = True
        files = {APP: os.path.join(SECURITY_DIR, JAVA_FILE), ADMIN: ADMIN_PROPERTIES}
        if user not in files:
            raise LocalNodeError(f"there is no file for the user {user!r}, only for {' and '.join(files)}")
        if not is_secured(self.plan.nodes[0]):
            raise LocalNodeError("the cluster is not secured: start it with secure=True")
        return os.path.join(self.plan.directory, files[user])

    @property
    def node_ids(self) -> list[int]:
        """The ids of all nodes, running or not."""
        return [node.node_id for node in self.plan.nodes]

    def log_of(self, node_id: int) -> str:
        """The log of a node."""
        with open(self._child(node_id).plan.log_file, encoding="utf-8", errors="replace") as file:
            return file.read()

    # ---- topics

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replicas: int = -1,
        config: Mapping[str, object] | None = None,
    ) -> str:
        """Create a topic; returns its name when all brokers show it with its leaders. Without a `name` it is unique.

        Brokers are left out that are paused or dead, or that `partition` has cut off from most of the controllers.
        Raises `RefusedError` for a topic that is there already, and for what the cluster cannot do; `ValueError` for
        a number that is none.
        """
        __tracebackhide__ = True
        for word, number in (("partitions", partitions), ("replicas", replicas)):
            if not isinstance(number, int):
                raise ValueError(f"{word}={number!r}: the number of {word} is an int, for example 3")
        chosen = unique_topic() if name is None else name
        topic = NewTopic(chosen, partitions, replicas, _texts(config or {}))
        try:
            self._ask(lambda client: self._create(client, topic))
        except RefusedError as error:
            if error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                raise error.with_way_out("create_topic() without a name makes a unique one") from None
            way_out = way_out_of_names(TOPIC, config or ()) if error.code == ErrorCode.INVALID_CONFIG else None
            if way_out is not None:
                raise error.with_way_out(way_out) from None
            raise with_number_of_nodes(error, replicas, len(self.plan.brokers)) from None
        return chosen

    async def _create(self, client: ClusterClient, topic: NewTopic) -> None:
        await AdminClient(client).create_topic(topic)
        side = self._side_of_majority()
        nodes = [child.plan for node_id, child in self._supervisor.children.items() if self._hears_of(node_id, side)]
        await wait_until_known(topic.name, [plan.addresses[0] for plan in nodes if plan.port is not None])

    def _hears_of(self, node_id: int, side: frozenset[int]) -> bool:
        child = self._child(node_id)
        return node_id in side and child.alive and child.pid not in self._paused

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises `RefusedError` when there is none of this name."""
        __tracebackhide__ = True
        self._ask(lambda client: AdminClient(client).delete_topic(name))

    def describe(self) -> ClusterView:
        """The brokers, topics, and partitions with leader and ISR, as a client sees them.

        In a network partition the nodes are asked that reach the majority of the controllers; those that were paused
        are asked last.
        """
        view: ClusterView = self._ask(lambda client: client.metadata())
        return view

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The node id of a partition's leader; -1 when none leads. Raises `ClientError` for an unknown partition.

        A node that has died leads nothing, even if the brokers do not know yet, or never hear without a controller.
        """
        __tracebackhide__ = True
        partitions = self.describe().topic(topic).partitions
        if not 0 <= partition < len(partitions):
            raise no_such_partition(topic, partition, len(partitions))
        leader = partitions[partition].leader
        return leader if leader >= 0 and self.is_alive(leader) else -1

    def controller(self) -> int | None:
        """The node id of the active controller; None while there is none.

        A node that has been cut off from the majority for a second or two is none, even while it does not know that.
        The answer takes a few seconds at most.
        """
        found: int | None = self._ask(lambda _: followed_leader(controller_endpoints(self.plan)))
        return found

    # ---- failure

    def kill(self, node_id: int) -> None:
        """Crash a node with SIGKILL; returns when its process is gone."""
        __tracebackhide__ = True
        self._signal(node_id, signal.SIGKILL)
        self._paused.pop(self._child(node_id).pid, None)

    def stop_node(self, node_id: int) -> None:
        """Stop a node with SIGTERM: it hands its leaderships over, then ends. Returns when its process is gone.

        A pause ends before.
        """
        __tracebackhide__ = True
        self._signal(node_id, signal.SIGTERM)
        self._end_pause(node_id)
        try:
            self._child(node_id).process.wait(START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            told = f"node {node_id} has not stopped in {START_TIMEOUT_S:g} s"
            raise LocalNodeError(f"{told}; log_of({node_id}) has its log, kill({node_id}) ends it") from None

    def pause(self, node_id: int) -> None:
        """Pause a node with SIGSTOP: its process exists but does nothing, as in a long garbage collection."""
        __tracebackhide__ = True
        self._signal(node_id, signal.SIGSTOP)
        self._paused.setdefault(self._child(node_id).pid)

    def resume(self, node_id: int) -> None:
        """End a pause. A node that `partition` has cut off meanwhile cuts its own connections then."""
        __tracebackhide__ = True
        self._signal(node_id, signal.SIGCONT)
        others = self._paused.pop(self._child(node_id).pid, None)
        self._was_paused.add(node_id)
        if others is not None:
            self._supervisor.cut(node_id, others)

    def _end_pause(self, node_id: int) -> None:
        """Let a node go on, if it is paused, without what a partition has kept for its resumption."""
        self._supervisor.kill(node_id, signal.SIGCONT)
        self._paused.pop(self._child(node_id).pid, None)

    def partition(self, *sides: int | Iterable[int]) -> None:
        """Cut the network between sides: `partition(1)` cuts off node 1, `partition([1, 2], [3])` node 3.

        Nodes that are in no side form one side together. Nothing passes between sides, and no connection is refused, as
        if cables were pulled. Clients reach every node as before. The next `partition` replaces this one, `heal` ends
        it. A paused node is left alone, and cuts its own connections when it is resumed. A node that is started again
        comes back without its cuts. Raises ValueError for no side, an empty one, or a node in two.
        """
        __tracebackhide__ = True
        named = [frozenset(side if isinstance(side, Iterable) else [side]) for side in sides]
        for node_id in frozenset().union(*named):
            self._child(node_id)
        if not named or not all(named):
            raise ValueError("name the nodes of each side, such as partition(1) or partition([1, 2], [3])")
        if sum(map(len, named)) > len(frozenset().union(*named)):
            raise ValueError("a node is in two sides")
        rest = frozenset(self.node_ids).difference(*named)
        self._sides = [*named, rest]
        for side in self._sides:
            others = [other for other in self.node_ids if other not in side]
            for node_id in sorted(side):
                child = self._child(node_id)
                if child.pid in self._paused:
                    self._paused[child.pid] = others
                elif child.alive:
                    self._supervisor.cut(node_id, others)

    def start_node(self, *node_ids: int) -> None:
        """Start nodes that were killed or stopped; returns when they serve.

        Nodes serve when a majority of the controllers runs, so start as many in one call. Raises `LocalNodeError` for
        one that runs, where these are too few for a majority, which would be waited for in vain, and with the last
        line of its log for one that does not start.
        """
        __tracebackhide__ = True
        for node_id in node_ids:
            if self._child(node_id).alive:
                raise LocalNodeError(f"node {node_id} runs already; restart({node_id}) stops it and starts it again")
        self._check_majority(node_ids)
        for node_id in node_ids:
            self._supervisor.start_node(node_id)
        self._supervisor.wait_ready(list(node_ids), START_TIMEOUT_S)

    def _check_majority(self, started: Sequence[int]) -> None:
        """Raise `LocalNodeError` where no majority of the controllers would run with these nodes."""
        voters = [plan.node_id for plan in self.plan.nodes if plan.controller_port is not None]
        down = [node_id for node_id in voters if node_id not in started and not self._child(node_id).alive]
        if len(down) * 2 < len(voters):
            return
        every = ", ".join(map(str, [*started, *down]))
        who = "controller" if len(down) == 1 else "controllers"
        raise LocalNodeError(
            f"without {who} {', '.join(map(str, down))} there is no majority, and no node serves: start_node({every}) "
            "starts all"
        )

    def restart(self, node_id: int) -> None:
        """Stop cleanly and start again."""
        __tracebackhide__ = True
        self.stop_node(node_id)
        self.start_node(node_id)

    def is_alive(self, node_id: int) -> bool:
        """Whether the process of a node runs, paused or not."""
        return self._child(node_id).alive

    def heal(self) -> None:
        """End every pause and partition, start every dead node, return when all serve and know the same leaders."""
        children = self._supervisor.children
        for node_id in [node_id for node_id, child in children.items() if child.alive]:
            self._end_pause(node_id)
            self._supervisor.cut(node_id, [])
        self._sides = []
        dead = [node_id for node_id, child in children.items() if not child.alive]
        if dead:
            self.start_node(*dead)
        self._wait_until_brokers_agree()
        self._was_paused.clear()

    def stop(self) -> None:
        """Stop all nodes, and remove a temporary directory."""
        for node_id, child in self._supervisor.children.items():
            if child.alive:
                self._end_pause(node_id)
        self._supervisor.stop()
        if self._throw_away:  # while it is claimed, so that what a killed process leaves of it is known as its own
            shutil.rmtree(self.plan.directory, ignore_errors=True)
            self._is_removed = True
        self._claim.close()

    def _child(self, node_id: int) -> Child:
        """The process of a node. Raises `LocalNodeError` for an id that no node has."""
        __tracebackhide__ = True
        if self._is_removed:
            raise LocalNodeError("the cluster was stopped, and its temporary directory removed")
        child = self._supervisor.children.get(node_id)
        if child is None:
            ids = ", ".join(str(one) for one in self.node_ids)
            raise LocalNodeError(f"there is no node {node_id!r}; the ids of the nodes are {ids}")
        return child

    def _signal(self, node_id: int, sent: signal.Signals) -> None:
        """Send a signal. Raises `LocalNodeError` for a node that does not run: a fault without effect tests nothing."""
        __tracebackhide__ = True
        if not self._child(node_id).alive:
            raise LocalNodeError(f"node {node_id} does not run; start_node({node_id}) starts it")
        self._supervisor.kill(node_id, sent)

    def _wait_until_brokers_agree(self) -> None:
        """Return when each broker's metadata has all brokers and the same leaders: one learns them after another."""
        brokers = {node.node_id for node in self.plan.brokers}

        async def agree() -> None:
            CURRENT_LOGIN.set(login_of_admin(self.plan))
            async with asyncio.timeout(START_TIMEOUT_S), AsyncExitStack() as stack:
                clients = [
                    await stack.enter_async_context(ClusterClient(self.bootstrap_of(node_id)))
                    for node_id in sorted(brokers)
                ]
                while True:
                    views = await asyncio.gather(*(client.metadata() for client in clients))
                    first = views[0]
                    is_same = all((one.brokers, one.topics) == (first.brokers, first.topics) for one in views)
                    if is_same and {one.node_id for one in first.brokers} == brokers:
                        return
                    await asyncio.sleep(_LOOK_AGAIN_S)

        if len(brokers) > 1:
            try:
                _run_apart(agree())
            except (ClientError, TimeoutError) as error:
                raise LocalNodeError(f"not every broker knows all others: {error or 'time is over'}") from None

    def _bootstrap_of_majority(self) -> str:
        """The brokers that reach a majority of the controllers; all brokers where no side of a partition does.

        The others know of nothing that was decided since the cut, such as new leaders. Those that are or were paused
        come last: they may know as little.
        """

        def lateness(node_id: int) -> int:
            return 2 if self._child(node_id).pid in self._paused else int(node_id in self._was_paused)

        return self.bootstrap_of(*sorted(sorted(self._side_of_majority()), key=lateness))

    def _side_of_majority(self) -> frozenset[int]:
        """The nodes of the side with a broker and a majority of the controllers; all nodes where there is none."""
        controllers, every = controller_endpoints(self.plan).keys(), frozenset(self.node_ids)
        for side in self._sides:
            if side and self.bootstrap_of(*side) and 2 * len(controllers & side) > len(controllers):
                return side
        return every

    def _ask(self, question: Any) -> Any:
        __tracebackhide__ = True

        async def run() -> Any:
            CURRENT_LOGIN.set(login_of_admin(self.plan))
            async with ClusterClient(self._bootstrap_of_majority()) as client:
                return await question(client)

        try:
            return _run_apart(run())
        except ClientError as error:
            raise error.with_traceback(None) from None  # the frames of the client say nothing about the test


def _started(directory: str, shape: ClusterShape) -> Supervisor:
    is_new = not _names_in(directory)
    for attempt in itertools.count(1):
        plan = plan_cluster(directory, shape)
        if shape.overrides:
            check_overrides(plan, shape.overrides, secure=shape.secure)
            warnings_of(plan)
        supervisor = Supervisor(plan)
        try:
            supervisor.start(START_TIMEOUT_S)
            break
        except LocalNodeError as error:  # another process may take a port after it was chosen
            if "in use" not in str(error) or attempt == _START_ATTEMPTS:
                raise
            if is_new:  # controllers that were formatted would keep their ports
                _empty(directory)
        except BaseException:
            supervisor.stop()
            raise
    return supervisor


def _names_in(directory: str) -> list[str]:
    """What is in a directory, but for the file by which this process claims it."""
    return [name for name in os.listdir(directory) if name != TEST_PID] if os.path.isdir(directory) else []


def _empty(directory: str) -> None:
    for name in _names_in(directory):
        path = os.path.join(directory, name)
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.remove(path)


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    """Settings as texts: True is `true`, 3 is `3`."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}


def _remove_abandoned() -> None:
    """Remove temporary directories of processes that were killed: nobody claims them, and no node runs there."""
    base = tempfile.gettempdir()
    for name in os.listdir(base):
        directory = os.path.join(base, name)
        if not name.startswith(_PREFIX):
            continue
        with suppress(OSError):
            # An empty file is of a process that is about to lock it, and must be neither removed nor locked here.
            has_claim = os.path.getsize(os.path.join(directory, TEST_PID)) > 0
            if has_claim and running_up(directory, TEST_PID) is None and not has_running_nodes(directory):
                shutil.rmtree(directory, ignore_errors=True)


def unique_topic(hint: str = "topic") -> str:
    """A unique topic name that begins with `hint`."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", hint).strip("-.")[:80] or "topic"
    return f"{readable}-{uuid.uuid4().hex[:8]}"


def _run_apart(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run it to its end, also when the caller is in a running loop, as a test under pytest-asyncio is."""
    if not _is_in_loop():
        return asyncio.run(coroutine)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, coroutine).result()


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
