"""Records a run for a replay: an observer that turns what happens into steps.

After each event of a node its state is read (`observation.py`) and compared with what was read before. What differs is
the changes of a step; a difference that concerns several things, such as a role and a log, is several steps. The
committed metadata is that of the node which knows the most of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from ....cluster.node.node import Node
from ..kernel.event_loop import ProcessLoop
from ..kernel.run_observer import ProcessChange
from ..kernel.transport import Pipe
from ..simulated_cluster import SimulatedCluster
from . import observation
from .history import Failure, FaultSpan, History, Message, RunFacts, State, Step, StepKind, Value
from .message_recorder import MessageRecorder
from .step_text import link_text, sorted_changes

PARTITIONS_MAX = 24
"""How many partitions are recorded: those that the cluster has first."""
_TEXT_MAX = 300
_PROCESS_STATE = {
    ProcessChange.START: "starting",
    ProcessChange.RESTART: "starting",
    ProcessChange.READY: "up",
    ProcessChange.PAUSED: "paused",
    ProcessChange.STOPPING: "stopping",
    ProcessChange.STOPPED: "down",
    ProcessChange.ENDED: "down",
    ProcessChange.KILLED: "down",
    ProcessChange.POWER_LOSS: "down",
}
_NEMESIS = "nemesis"


class RunRecorder:
    """Records the run of a simulated cluster. A `RunObserver`."""

    def __init__(self, cluster: SimulatedCluster, acked: Callable[[], int]) -> None:
        """`acked` counts the records that clients know to be committed."""
        self.steps: list[Step] = []
        self.partitions: list[str] = []
        self.acks_us: list[int] = []
        self._cluster = cluster
        self._acked = acked
        self._node_ids = dict(zip(cluster.names, cluster.ids, strict=True))
        self._state: State = {f"{name}.process": "down" for name in cluster.names}
        self._start = dict(self._state)
        self._paused: dict[str, Value] = {}
        """The state of each paused process before its pause."""
        self._partitions_left_out: dict[str, None] = {}
        self._faults: list[FaultSpan] = []
        self._image_offset = -1
        self._topic_names: dict[UUID, str] = {}
        metadata_port = cluster.world.network.config.metadata_port
        self._messages = MessageRecorder(self._now_us, metadata_port, cluster.names, self._topic_name, self)

    def history(self, facts: RunFacts) -> History:
        """All that was recorded."""
        cluster, end_us = self._cluster, self._now_us()
        left_out = []
        if self._partitions_left_out:
            count = len(self._partitions_left_out)
            left_out.append(f"{count} partitions beside the first {PARTITIONS_MAX} are not shown.")
        return History(
            facts=facts,
            from_us=0,
            to_us=end_us,
            brokers=[cluster.name_of(node_id) for node_id in cluster.brokers],
            controllers=[cluster.name_of(node_id) for node_id in cluster.voters],
            clients=self._clients(),
            partitions=self.partitions,
            start=self._start,
            steps=self.steps,
            messages=self._messages.messages,
            faults=self._faults,
            acks_us=self.acks_us,
            left_out=left_out,
        )

    def on_failure(self, failure: Failure) -> None:
        """An invariant was broken or the run failed in another way, and has ended."""
        where, verb = ("invariant", "broken: ") if failure.is_invariant else ("test", "")
        detail = f": {failure.detail}" if failure.detail else ""
        self._add(StepKind.FAILURE, where, f"{verb}{failure.name}{detail}")

    # -- RunObserver

    def on_process(self, host: str, change: ProcessChange, text: str) -> None:
        """See `RunObserver`."""
        key = f"{host}.process"
        changes: State = {}
        if change is ProcessChange.RESUMED:
            changes[key] = self._paused.pop(host, "up")
        else:
            if change is ProcessChange.PAUSED:
                self._paused[host] = self._state.get(key)
            changes[key] = _PROCESS_STATE[change]
            if changes[key] == "starting" and host not in self._node_ids:
                changes[key] = "up"  # clients serve nobody, so they are never said to be ready
        if changes[key] == "down":
            self._paused.pop(host, None)
            if host in self._node_ids:
                changes |= observation.without_process(host, self.partitions)
        self._add(StepKind.PROCESS, host, text, self._news(changes))

    def on_fault(self, what: str, hosts: Sequence[str], duration_s: float) -> None:
        """See `RunObserver`."""
        at_us = self._now_us()
        self._faults.append(FaultSpan(at_us, at_us + round(duration_s * 1e6), what, tuple(hosts)))
        lasting = f" for {duration_s:.3f} s" if duration_s else ""
        self._add(StepKind.FAULT, _NEMESIS, f"{what}: {', '.join(hosts)}{lasting}")

    def on_heal(self) -> None:
        """See `RunObserver`."""
        at_us = self._now_us()
        self._faults = [
            FaultSpan(one.from_us, min(one.to_us, at_us), one.what, one.hosts) if one.from_us <= at_us else one
            for one in self._faults
        ]
        self._add(StepKind.FAULT, _NEMESIS, "all faults end")

    def on_link(self, source: str, target: str, state: str) -> None:
        """See `RunObserver`."""
        news = self._news({f"{source}>{target}": state or None})
        if not news:
            return
        last = self.steps[-1] if self.steps else None
        if last is not None and last.kind is StepKind.LINK and last.at_us == self._now_us():
            self.steps.pop()  # links that change at one time are one step
            news = {**last.changes, **news}
        self._add(StepKind.LINK, _NEMESIS, link_text(news), news)

    def on_sent(self, pipe: Pipe, data: bytes) -> None:
        """See `RunObserver`."""
        self._messages.on_sent(pipe, data)

    def on_delivered(self, pipe: Pipe, size_bytes: int) -> None:
        """See `RunObserver`."""
        self._messages.on_delivered(pipe, size_bytes)

    def on_log_line(self, where: str, text: str) -> None:
        """See `RunObserver`."""
        self._add(StepKind.LOG_LINE, where, text)

    def after_event(self, process: ProcessLoop) -> None:
        """See `RunObserver`."""
        if process.name in self._node_ids:
            self._observe(process.name)
        else:
            self.acks_us.extend([self._now_us()] * (self._acked() - len(self.acks_us)))

    # -- MessageListener

    def on_request_sent(self, message: Message, text: str) -> None:
        """See `MessageListener`."""
        self._add(StepKind.REQUEST, message.source, f"{message.api} to {message.target}: {text}")

    def on_response_arrived(self, message: Message, text: str) -> None:
        """See `MessageListener`."""
        self._add(StepKind.REQUEST, message.source, f"{message.api} response to {message.target}: {text}")

    # -- inside

    def _clients(self) -> list[str]:
        """The hosts that are no nodes: the cluster's clients, and all others that sent or started something."""
        senders = (one.source for one in self._messages.messages)
        started = (key.removesuffix(".process") for key in self._state if key.endswith(".process"))
        known = dict.fromkeys((*self._cluster.client_names, *senders, *started))
        return [host for host in known if host not in self._node_ids]

    def _now_us(self) -> int:
        return round(self._cluster.world.now_s * 1e6)

    def _topic_name(self, topic_id: UUID) -> str:
        return self._topic_names.get(topic_id, "?")

    def _observe(self, name: str) -> None:
        node = self._cluster.nodes.get(self._node_ids[name])
        if node is None or node.raft is None:
            return
        found = observation.observe_quorum(name, node.raft)
        found |= observation.observe_controller(name, node)
        found |= self._observe_metadata(node)
        if node.replica_manager is not None:
            for replica in node.replica_manager.partitions.values():
                key = f"{observation.partition_name(replica)}.replicas"
                replicas = found[key] if key in found else self._state.get(key)
                if isinstance(replicas, tuple) and self._node_ids[name] in replicas:
                    found |= observation.observe_replica(name, replica)
        news = self._news(found)
        for kind, where, text, changes in sorted_changes(news, self._state, self._node_ids):
            self._add(kind, where, text, changes)

    def _is_recorded(self, partition: str) -> bool:
        if partition in self.partitions:
            return True
        if len(self.partitions) < PARTITIONS_MAX:
            self.partitions.append(partition)
            return True
        self._partitions_left_out[partition] = None
        return False

    def _observe_metadata(self, node: Node) -> State:
        """What the node's image says, if it knows more than any image before."""
        image = None if node.loader is None else node.loader.image
        if image is None or image.offset <= self._image_offset:
            return {}
        self._image_offset = image.offset
        self._topic_names |= {topic.topic_id: topic.name for topic in image.topics_by_id.values()}
        for partition in observation.partitions_of(image):
            self._is_recorded(partition)
        found = observation.observe_image(image, self.partitions)
        for broker_id, broker in image.brokers.items():
            found[f"{self._cluster.name_of(broker_id)}.fenced"] = broker.fenced
        for partition in self.partitions:
            replicas = found[f"{partition}.replicas"]
            for name, node_id in self._node_ids.items():
                if not isinstance(replicas, tuple) or node_id not in replicas:
                    found |= observation.without_replica(name, partition)
        return found

    def _news(self, found: Mapping[str, Value]) -> State:
        return {key: value for key, value in found.items() if self._state.get(key) != value}

    def _add(self, kind: StepKind, where: str, text: str, changes: Mapping[str, Value] | None = None) -> None:
        changes = {} if changes is None else changes
        self.steps.append(Step(self._now_us(), kind, where, text[:_TEXT_MAX], changes))
        self._state.update(changes)
