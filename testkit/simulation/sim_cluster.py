"""What a simulated test has in its hands: the cluster, its faults, and the application's processes."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from ...broker.coordinators.partition_for import partition_for
from ...broker.groups.group_config import OFFSETS_TOPIC
from ...chaos.sim.kernel.event_loop import ProcessLoop
from ...chaos.sim.kernel.world import World
from ...chaos.sim.simulated_cluster import SimulatedCluster
from ...cluster.client.client_errors import NoLeaderAnswersError, RefusedError, UnreachableError
from ...cluster.client.cluster_client import ClusterClient
from ..cluster_operations import ClusterOperations
from .sim_application import SimApplication
from .simulated_targets import SimulatedTargets

T = TypeVar("T")
_POLL_S = 0.05
_HEAL_LIMIT_S = 120.0
_NODES_DOWN_LIMIT_S = 60.0
_ROLE_LIMIT_S = 60.0


class SimCluster(ClusterOperations):
    """A simulated cluster of whole nodes, with ids 1 to N, and a client of its own that no fault touches."""

    def __init__(
        self,
        nodes: SimulatedCluster,
        harness: ProcessLoop,
        make_application: Callable[[str, Callable[[], Awaitable[object]]], SimApplication],
        targets: SimulatedTargets,
        heal: Callable[[], None],
    ) -> None:
        self._nodes = nodes
        self._world: World = nodes.world
        self._harness = harness
        self._make_application = make_application
        self._targets = targets
        self._heal = heal
        self._names = itertools.count(1)
        self._cut_off: dict[str, None] = {}
        """The nodes that the test has cut off, also from programs that it starts later."""

    # ---- where it is

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` for the application: hosts of the simulation."""
        return self._nodes.bootstrap

    @property
    def node_ids(self) -> list[int]:
        """The ids of all nodes, running or not."""
        return list(self._nodes.ids)

    @property
    def now_s(self) -> float:
        """Virtual seconds since the run began."""
        return self._world.now_s

    # ---- the application

    def start(self, program: Callable[..., Awaitable[object]], *args: object, name: str = "") -> SimApplication:
        """Run `program(*args)` in a process of its own, which faults of the kinds `...-application` hit.

        The test fails when it ends with an error, unless the test asks for that with `ended()`. Raises `TypeError` for
        what is no function or does not take these arguments, and `ValueError` for a name that is taken.
        """
        _check_call(program, args)
        host = name or f"{getattr(program, '__name__', 'application')}-{next(self._names)}"
        application = self._make_application(host, lambda: program(*args))
        for node in self._cut_off:
            self._cut_link(node, host)
        application.start()
        return application

    async def until(
        self, condition: Callable[[], bool | Awaitable[bool]], timeout_s: float = 60.0, what: str = "the condition"
    ) -> None:
        """Wait until the condition, a function or a coroutine function, holds.

        Raises `AssertionError` when it does not within so many virtual seconds; it names programs that have died.
        """
        if not callable(condition):
            raise TypeError(f"until() takes a function that says whether the condition holds, and not {condition!r}")
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while True:
            holds = condition()
            if await holds if inspect.isawaitable(holds) else holds:
                return
            if loop.time() >= deadline_s:
                told = f"{what} did not hold within {timeout_s:g} virtual seconds"
                raise AssertionError("; ".join([told, *self._targets.deaths()]))
            await asyncio.sleep(_POLL_S)

    # ---- failure

    async def controller(self) -> int | None:
        """The node of the active controller; None while there is none."""
        return self._nodes.quorum.leader

    async def kill(self, what: int | str, topic: str = "", partition: int = 0) -> int:
        """Kill a node with SIGKILL: `kill(2)`, `kill("leader", "orders", 0)`, `kill("controller")`; returns its id.

        `kill("coordinator", "shipping")` kills the coordinator of that group. The node stays down until `restart` or
        `heal`. A leader, coordinator or controller is waited for while none is there, up to 60 virtual seconds. Raises
        `ValueError` where there is no such node.
        """
        node_id = await self._find(what, topic, partition)
        self._nodes.crash(self._nodes.name_of(node_id), power_loss=False)
        return node_id

    async def restart(self, node_id: int) -> None:
        """Start a node that is down."""
        if not self._world.hosts[self._name(node_id)].running:
            self._nodes.restart(self._name(node_id))

    async def pause(self, what: int | str, topic: str = "", partition: int = 0) -> int:
        """Pause a node as SIGSTOP does, until `resume` or `heal`; named as for `kill`."""
        node_id = await self._find(what, topic, partition)
        self._world.hosts[self._name(node_id)].pause()
        return node_id

    async def resume(self, node_id: int) -> None:
        """Let a paused node go on."""
        self._world.hosts[self._name(node_id)].resume()

    async def cut(self, what: int | str, topic: str = "", partition: int = 0) -> int:
        """Cut a node off from all other nodes and from the application, until `heal`; named as for `kill`."""
        node_id = await self._find(what, topic, partition)
        here = self._name(node_id)
        self._world.trace.note(here, "CUT OFF")
        for name in self._world.hosts:
            if name not in (here, self._harness.name):
                self._cut_link(here, name)
        self._cut_off[here] = None
        return node_id

    async def heal(self) -> None:
        """End every fault, drawn or made: start what is down, and wait until all replicas are in sync.

        They have then what was committed at the call; the application may go on writing.
        """
        self._cut_off.clear()
        self._heal()
        deadline_s = self.now_s + _HEAL_LIMIT_S
        is_whole, why_not = self._nodes.healthy_again()
        while not is_whole():
            if self.now_s > deadline_s:
                raise AssertionError(f"the cluster is not whole again: {why_not()}")
            await asyncio.sleep(_POLL_S)
            self._targets.restart_all()  # a node that was stopping has ended

    # ---- inside

    def _cut_link(self, node: str, host: str) -> None:
        self._world.network.cut(node, host)
        self._world.network.cut(host, node)

    def _name(self, node_id: int) -> str:
        if node_id not in self._nodes.ids:
            raise ValueError(f"there is no node {node_id}, only {', '.join(map(str, self._nodes.ids))}")
        return self._nodes.name_of(node_id)

    async def _find(self, what: int | str, topic: str, partition: int) -> int:
        if isinstance(what, int) and not isinstance(what, bool):
            self._name(what)
            return what
        if what == "leader" and not topic:
            raise ValueError("the leader of which topic? For example kill('leader', 'orders', 0)")
        if what not in ("leader", "coordinator", "controller"):
            raise ValueError(f"{what!r} is none of leader, coordinator, controller, or the id of a node")
        deadline_s = self.now_s + _ROLE_LIMIT_S
        while (found := await self._in_role(str(what), topic, partition)) is None:
            if self.now_s > deadline_s:
                raise ValueError(f"there is no {what}, for {_ROLE_LIMIT_S:g} virtual seconds")
            await asyncio.sleep(_POLL_S)
        return found

    async def _in_role(self, role: str, topic: str, partition: int) -> int | None:
        """The running node that has the role now; None during an election, and while the brokers name a dead one."""
        if role == "controller":
            found = await self.controller()
        elif role == "leader":
            found = await self.leader_of(topic, partition)
        else:
            found = await self._coordinator_of(group=topic)
        is_there = found is not None and found >= 0 and self._world.hosts[self._name(found)].running
        return found if is_there else None

    async def _coordinator_of(self, group: str) -> int:
        try:
            partitions = (
                (await self._ask(lambda client: client.metadata([OFFSETS_TOPIC]))).topic(OFFSETS_TOPIC).partitions
            )
        except RefusedError:
            raise ValueError("there is no coordinator yet: no group has joined or committed") from None
        return partitions[partition_for(group, len(partitions)) if group else 0].leader

    def _wall_ms(self) -> int:
        return self._world.hosts[self._harness.name].clock.wall_ms()

    async def _ask(self, ask: Callable[[ClusterClient], Coroutine[Any, Any, T]]) -> T:
        """Ask from the harness's process, which no fault touches."""
        here = asyncio.get_running_loop()
        answer: asyncio.Future[T] = here.create_future()

        async def run() -> T:
            deadline_s = self.now_s + _NODES_DOWN_LIMIT_S
            while True:
                try:
                    async with ClusterClient(self.bootstrap, timeout_s=10.0) as client:
                        return await ask(client)
                except (UnreachableError, NoLeaderAnswersError):  # drawn faults may hit all nodes or replicas at once
                    if self.now_s > deadline_s:
                        raise
                await asyncio.sleep(_POLL_S)

        def done(task: asyncio.Task[T]) -> None:
            error = task.exception()  # asked for here, since who waited for the answer may have gone
            here.call_soon(_transfer, task, error, answer)

        self._harness.call_soon(lambda: self._harness.create_task(run()).add_done_callback(done))
        return await answer


def _check_call(program: object, args: tuple[object, ...]) -> None:
    """Raise `TypeError` where `program(*args)` could not be called."""
    if inspect.iscoroutine(program):
        program.close()  # else Python would warn that nobody has awaited it
        name = program.__name__
        raise TypeError(f"start() takes the function and its arguments: start({name}, ...), and not start({name}(...))")
    if not callable(program):
        raise TypeError(f"start() takes a coroutine function and its arguments, and not {program!r}")
    try:
        signature = inspect.signature(program)
    except ValueError:  # of something in C, which does not tell
        return
    try:
        signature.bind(*args)
    except TypeError as error:
        call = ", ".join([getattr(program, "__name__", repr(program)), *map(repr, args)])
        raise TypeError(f"start({call}): {error}") from None


def _transfer(task: asyncio.Task[T], error: BaseException | None, answer: asyncio.Future[T]) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(task.result())
    else:
        answer.set_exception(error)
