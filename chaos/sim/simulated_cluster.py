"""A cluster of whole nodes in the simulator: `cluster.node.node.Node`, unmodified, on simulated hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any
from uuid import UUID

from ...broker.groups.group_config import OFFSETS_TOPIC
from ...cluster.node.errors import NodeFailedError
from ...cluster.node.formatting import FirstVoters, FormatError, format_node, formatted_directory_id
from ...cluster.node.node import Node
from ...cluster.settings.node_config import NodeConfig
from ...controller.metadata.features import SUPPORTED_FEATURES, VersionRanges
from ...controller.metadata.metadata_image import RECORD_VERSION_FEATURE, TRANSACTION_VERSION_FEATURE, MetadataImage
from ...controller.metadata.metadata_loader import MetadataLoader
from ...log.manager.log_manager import LogManager
from ...log.state.checkpoints import encode_uuid
from ...raft.driver.raft_driver import RaftDriver, metadata_log_dir
from ...raft.replication.partition_raft_log import PartitionRaftLog
from ...runtime.ports import Runtime
from .cluster_config import ClusterConfig
from .faults.coordinator_loads import load_while_markers_are_sent
from .faults.target_cluster import LOG_DIR
from .invariants.answers.answered_requests import watch_answers
from .invariants.answers.controller_answers import ControllerAnswers
from .invariants.answers.replica_answers import ReplicaAnswers
from .invariants.answers.silent_brokers import SilentBrokers
from .invariants.answers.vote_answers import VoteAnswers
from .invariants.derived.compacted_logs import CompactedLogs
from .invariants.derived.metadata_changes import MetadataChangeChecker
from .invariants.derived.metadata_images import ImageChecker
from .invariants.derived.noted_gaps import NotedGapsChecker
from .invariants.derived.placed_replicas import PlacementChecker
from .invariants.derived.producer_ids import ProducerIdChecker
from .invariants.derived.recovered_logs import RecoveryChecker
from .invariants.derived.recovery_points import RecoveryPointChecker
from .invariants.derived.roles_in_force import check_coordinators, check_roles
from .invariants.derived.settings_in_force import check_minimum, check_settings
from .invariants.derived.snapshot_images import SnapshotChecker
from .invariants.groups.group_checker import GroupChecker
from .invariants.invariant_broken import InvariantBroken
from .invariants.partition_invariants import PartitionChecker, PartitionKey
from .invariants.quorum_invariants import QuorumChecker, log_of
from .invariants.settings.topic_settings_checker import TopicSettingsChecker
from .invariants.steps.lone_decisions import LoneDecisionChecker
from .invariants.steps.partition_steps import PartitionStepChecker
from .invariants.steps.quorum_steps import QuorumStepChecker
from .invariants.steps.replica_steps import ReplicaStepChecker
from .invariants.transactions.expirations import Expirations
from .invariants.transactions.transaction_checker import TransactionChecker
from .kernel.event_loop import ProcessLoop
from .kernel.run_observer import ProcessChange
from .kernel.transport import Pipe
from .kernel.world import World

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
BROKER_PORT = 9092
CONTROLLER_PORT = 9093
LOGIN_PORT = 9094
_FIRST_CONTROLLER = 101
_LEADERS_OF = {"leader": None, "coordinator": OFFSETS_TOPIC, "transaction-coordinator": "__transaction_state"}
"""Topics by the role of the leader of their first partition; None: any topic of the clients."""
OLD_FEATURES: VersionRanges = {
    name: levels
    for name, levels in SUPPORTED_FEATURES.items()
    if name not in (RECORD_VERSION_FEATURE, TRANSACTION_VERSION_FEATURE)
}
_MANY_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "500", "metadata.max.retention.bytes": "0"}
"""With these settings a controller that joins starts from a snapshot, which holds the voters."""


class SimulatedCluster:
    """Brokers n1 to nN, which are also controllers unless there are c101, c102 ... A `TargetCluster`.

    The invariants of the quorum and of partitions are checked after every event.
    """

    def __init__(self, world: World, config: ClusterConfig) -> None:
        self.world = world
        self.config = config
        self.brokers = list(range(1, config.nodes + 1))
        apart = list(range(_FIRST_CONTROLLER, _FIRST_CONTROLLER + config.controllers))
        self.voters = apart or self.brokers
        self.ids = self.brokers + apart
        self.client_names = config.client_names
        self.extra_log_dirs = config.extra_log_dirs
        self.names = [_host_name(node_id) for node_id in self.ids]
        self.nodes: dict[int, Node] = {}
        self.ready: dict[int, None] = {}
        self._first_voters = self.voters[: config.first_voters]
        is_dynamic = bool(self._first_voters)
        self._images, self._producer_ids = ImageChecker(), ProducerIdChecker()
        self.quorum = QuorumChecker(self.voters, world.trace.note, lambda: world.now_s, is_dynamic=is_dynamic)
        self._controller_answers = ControllerAnswers(self.quorum, self._images.since)
        self._vote_answers, self.lone_decisions = VoteAnswers(), LoneDecisionChecker()
        settings = NodeConfig.from_properties(self.properties(self.brokers[0]))
        self._silent_brokers = SilentBrokers(lambda: world.now_s, settings["broker.session.timeout.ms"] / 1000)
        self._min_isr: int = settings["min.insync.replicas"]
        self.transactions = TransactionChecker(
            lambda: world.now_s,
            is_verified=settings["transaction.partition.verification.enable"],
            expirations=Expirations(settings["transactional.id.expiration.ms"], settings["producer.id.expiration.ms"]),
        )
        self.partitions = PartitionChecker(world.trace.note, self._min_isr, self.transactions)
        self._snapshots, self._changes = SnapshotChecker(self._images), MetadataChangeChecker(self._images)
        self._recovery_points, self._compacted = RecoveryPointChecker(), CompactedLogs()
        self._recovered_logs, self._noted_gaps = RecoveryChecker(), NotedGapsChecker()
        self.groups = self._group_checker()
        may_send_later = int(config.properties.get("fetch.sendfile.min.bytes", "-1")) >= 0
        self.replica_steps = ReplicaStepChecker(self.partitions.has_bit_rot)
        self._replica_answers = ReplicaAnswers(
            self.partitions, self.replica_steps, self.nodes, lambda: world.now_s, may_send_later=may_send_later
        )
        self.topic_settings = TopicSettingsChecker(lambda: world.now_s)
        partition_steps = PartitionStepChecker(self.replica_steps.on_partition_change, self._min_isr)
        also = () if config.may_choose_replicas else (PlacementChecker(self._images).on_committed,)
        self.quorum_steps = QuorumStepChecker(partition_steps.on_committed, self._images.on_committed, *also)
        self._watched: dict[int, None] = {}
        self._metadata_watchers: list[Callable[[int, MetadataLoader], None]] = []
        self._with_new_disk: dict[int, None] = {}
        self._died_with_disk: dict[int, int] = {}
        """Brokers that died with their disk, with their broker epochs, until the controller knows it."""
        self.features: dict[int, VersionRanges] = dict.fromkeys(self.ids, OLD_FEATURES) if config.is_old else {}
        """The features of each node's software from its next start on; without an entry: all of them."""
        self.running_features: dict[int, VersionRanges] = {}
        """The features of each node's software since its last start."""
        self._node_of = {name: node_id for node_id, name in zip(self.ids, self.names, strict=True)}
        world.scheduler.after_event = self._after_event
        world.network.on_connection = self._on_connection
        for name in self.names:
            world.add_host(name)

    def _group_checker(self) -> GroupChecker:
        config = NodeConfig.from_properties(self.properties(self.brokers[0]))
        retention_ms = config["offsets.retention.minutes"] * 60_000
        return GroupChecker(self.partitions, self.nodes.values, retention_ms, lambda: self.world.now_s)

    def _on_connection(self, there: Pipe, back: Pipe) -> None:
        if there.source not in self._node_of and there.receiver.local[1] == BROKER_PORT:
            of_clients, groups = self._replica_answers.of_clients(self._node_of[there.target]), self.groups.answers
            watch_answers(there, back, of_clients, when_sent=(groups.requests(),))
        elif there.receiver.local[1] == BROKER_PORT:
            read, sent = self._replica_answers.of_brokers(self._node_of[there.target])
            watch_answers(there, back, read, when_sent=sent)
        elif there.receiver.local[1] == CONTROLLER_PORT:
            node_id = self._node_of[there.target]
            decided = self._controller_answers.requests(lambda: self._metadata_log(node_id))
            votes = self._vote_answers.requests(lambda: self._quorum_of(node_id))
            watch_answers(there, back, (decided, votes, self._silent_brokers.requests(node_id)))

    def _quorum_of(self, node_id: int) -> RaftDriver | None:
        node = self.nodes.get(node_id)
        return None if node is None else node.raft

    def _metadata_log(self, node_id: int) -> PartitionRaftLog | None:
        quorum = self._quorum_of(node_id)
        return None if quorum is None else log_of(quorum)

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(f"{_host_name(node_id)}:{BROKER_PORT}" for node_id in self.brokers)

    def watch_metadata(self, after_event: Callable[[int, MetadataLoader], None]) -> None:
        """Call `after_event(node_id, loader)` after every event of a running node."""
        self._metadata_watchers.append(after_event)

    def start_all(self) -> None:
        """Start every node."""
        for name in self.names:
            self.restart(name)

    def properties(self, node_id: int) -> dict[str, str]:
        """The server.properties of a node."""
        name = _host_name(node_id)
        broker, controller = f"PLAINTEXT://{name}:{BROKER_PORT}", f"CONTROLLER://{name}:{CONTROLLER_PORT}"
        if self.config.has_logins:
            broker += f",LOGIN://{name}:{LOGIN_PORT}"
        roles = {"broker": broker if node_id in self.brokers else "", "controller": controller}
        if node_id not in self.voters:
            roles["controller"] = ""
        return self._quorum_properties(roles["controller"] != "") | {
            "node.id": str(node_id),
            "process.roles": ",".join(role for role, listener in roles.items() if listener),
            "listeners": ",".join(listener for listener in roles.values() if listener),
            "controller.listener.names": "CONTROLLER",
            "metadata.log.spare.bytes": "0",
            "log.dirs": ",".join((LOG_DIR, *self.extra_log_dirs)),
            "default.replication.factor": str(min(3, len(self.brokers))),
            "min.insync.replicas": str(min(3, len(self.brokers)) // 2 + 1),
            "offsets.topic.num.partitions": "2",
            "offsets.topic.replication.factor": str(min(3, len(self.brokers))),
            "transaction.state.log.num.partitions": "2",
            "transaction.state.log.replication.factor": str(min(3, len(self.brokers))),
            "transaction.state.log.min.isr": str(min(2, len(self.brokers))),
            "broker.rack": self.config.racks[node_id - 1] if self.config.racks and node_id in self.brokers else "",
            **self.config.properties,
        }

    def _quorum_properties(self, is_controller: bool) -> dict[str, str]:
        at = {each: f"{_host_name(each)}:{CONTROLLER_PORT}" for each in self.voters}
        if not self._first_voters:
            return {"controller.quorum.voters": ",".join(f"{each}@{server}" for each, server in at.items())}
        properties = {"controller.quorum.bootstrap.servers": ",".join(at.values()), **_MANY_SNAPSHOTS}
        return properties | ({"controller.quorum.auto.join.enable": "true"} if is_controller else {})

    def _formatting(self, node_id: int) -> FirstVoters:
        """How an empty disk is formatted; a controller whose disk was replaced joins as a new one."""
        if not self._first_voters or node_id not in self.voters:
            return FirstVoters()
        if node_id not in self._first_voters or node_id in self._with_new_disk:
            return FirstVoters(none=True)
        rows = [
            f"{each}@{_host_name(each)}:{CONTROLLER_PORT}:{encode_uuid(UUID(int=each))}" for each in self._first_voters
        ]
        return FirstVoters(initial=",".join(rows))

    @property
    def controllers(self) -> dict[int, tuple[str, int]]:
        """The addresses of the controllers."""
        return {each: (_host_name(each), CONTROLLER_PORT) for each in self.voters}

    def why_not_all_vote(self) -> str | None:
        """A controller whose directory is no voter, as the leader knows; None if all are."""
        leader = self.nodes.get(self.quorum.leader or 0)
        if leader is None or leader.raft is None:
            return "no controller leads"
        voters = leader.raft.voters
        for node_id in self.voters:
            node = self.nodes.get(node_id)
            if node is None or node.raft is None or not voters.is_voter(node.raft.config.own_key):
                return f"{_host_name(node_id)} is not among the voters {voters}"
        return None

    def snapshot_end(self, node_id: int) -> int | None:
        """The end offset of a running node's latest metadata snapshot."""
        node = self.nodes.get(node_id)
        return None if node is None or node.raft is None else node.raft.snapshot_end_offset

    @staticmethod
    def name_of(node_id: int) -> str:
        """The host of a node."""
        return _host_name(node_id)

    # -- TargetCluster

    def resolve(self, target: str) -> str | None:
        """The host with a role, or the host of this name; None if there is none.

        `controller` is the active controller. `leader`, `coordinator` and `transaction-coordinator` lead the first
        partition of a clients' topic, of `__consumer_offsets` and of `__transaction_state`.
        """
        if target == "controller":
            return None if self.quorum.leader is None else _host_name(self.quorum.leader)
        if target in _LEADERS_OF:
            leader = self._first_leader(_LEADERS_OF[target])
            return None if leader is None else _host_name(leader)
        return target if target in self._node_of else None

    def crash(self, name: str, *, power_loss: bool) -> None:
        """See `TargetCluster`."""
        node_id = self._node_of[name]
        self._before_crash(node_id, power_loss=power_loss)
        self.quorum.forget(node_id)
        self._controller_answers.forget()
        self._vote_answers.forget()
        self._silent_brokers.forget(node_id)
        self.quorum_steps.forget(node_id)
        for checker in (self.replica_steps, self.partitions):
            checker.forget(node_id, power_loss=power_loss)
        self.groups.forget(node_id)
        self._replica_answers.forget(node_id)
        for known in (self.nodes, self.ready, self._watched):
            known.pop(node_id, None)
        self.world.hosts[name].crash(power_loss=power_loss)

    def _before_crash(self, node_id: int, *, power_loss: bool) -> None:
        """Look at what is on the disk of a node whose process is about to end."""
        self._noted_gaps.forget(node_id)
        node, disk = self.nodes.get(node_id), self.world.hosts[_host_name(node_id)].disk
        if node is None or node.log_manager is None or self.partitions.has_bit_rot(node_id):
            self._recovered_logs.forget(node_id)
        else:
            self._recovered_logs.before_crash(node_id, node.log_manager, disk, power_loss=power_loss)

    def restart(self, name: str) -> None:
        """See `TargetCluster`."""
        if self.world.hosts[name].disk.failed_dirs:  # perhaps since the process ended
            self.replica_steps.on_disk_replaced(self._node_of[name])
        self.world.hosts[name].start(self._program(self._node_of[name]))

    def stop(self, name: str) -> None:
        """SIGTERM: the node hands its leaderships over and ends by itself."""
        node_id = self._node_of[name]
        node, process = self.nodes.get(node_id), self.world.hosts[name].process
        if node is None or process is None:
            return
        self.world.note_process(name, ProcessChange.STOPPING)

        async def stop() -> None:
            await node.stop()
            self.world.note_process(name, ProcessChange.STOPPED)
            process.call_soon(lambda: self.crash(name, power_loss=False))

        process.call_soon(lambda: process.create_task(stop()))

    def load_coordinators_again(self, name: str, duration_s: float) -> None:
        """See `TargetCluster`."""
        node, process = self.nodes.get(self._node_of[name]), self.world.hosts[name].process
        coordinator = None if node is None or node.broker is None else node.broker.transactions
        if coordinator is not None and process is not None:
            process.call_soon(lambda: process.create_task(load_while_markers_are_sent(coordinator, duration_s)))

    def in_sync(self) -> bool:
        """See `TargetCluster`."""
        image = self._image()
        return (
            image is not None
            and self.why_not_healthy({}) is None
            and self.partitions.one_can_be_spared(image)
            and self.quorum.in_sync()
        )

    def survives_power_loss(self) -> bool:
        """Whether each committed record is in two running replicas, so that one of them may lose its page cache."""
        image = self._image()
        topics = () if image is None else image.topics_by_id.values()
        return self.in_sync() and all(len(each.isr) > 1 for topic in topics for each in topic.partitions.values())

    def has_unnoticed_disk_loss(self) -> bool:
        """See `TargetCluster`."""
        image = self._image()
        if image is None:
            return bool(self._died_with_disk)
        for node_id, epoch in list(self._died_with_disk.items()):
            broker = image.brokers.get(node_id)
            if broker is None or broker.fenced or broker.epoch > epoch:
                del self._died_with_disk[node_id]
        return bool(self._died_with_disk)

    def on_disk_replaced(self, name: str) -> None:
        """See `TargetCluster`."""
        self._died_with_disk[self._node_of[name]] = self._broker_epoch(self._node_of[name])
        self._with_new_disk[self._node_of[name]] = None
        self._recovered_logs.forget(self._node_of[name])
        for checker in (self.quorum, self.quorum_steps, self.replica_steps, self.partitions):
            checker.on_disk_replaced(self._node_of[name])

    def on_bit_rot(self, name: str) -> None:
        """See `TargetCluster`."""
        self.partitions.on_bit_rot(self._node_of[name])

    def is_mended(self, name: str) -> bool:
        """See `TargetCluster`. A mended segment is there before its name is on the device."""
        node_id, disk = self._node_of[name], self.world.hosts[name].disk
        if not self.partitions.is_mended(node_id):
            return False
        manager = self.nodes[node_id].replica_manager
        if disk.has_lied or manager is None or not self._recovery_points.what_is_wrong(node_id, manager, disk):
            return True
        self.partitions.on_bit_rot(node_id)
        return False

    def jump_clocks(self, by_s: float) -> None:
        """Set the wall clocks of all nodes forward."""
        for name in self.names:
            self.world.hosts[name].clock.jump(round(by_s * 1000))

    # -- state

    def is_healthy(self) -> bool:
        """Whether all nodes are ready, every partition has a leader and a full ISR, and every replica has caught up."""
        return self.why_not_healthy() is None

    def healthy_again(self) -> tuple[Callable[[], bool], Callable[[], str | None]]:
        """`is_healthy` and `why_not_healthy` for a cluster under load: up to what is committed at this call."""
        ends = self.partitions.ends()
        return lambda: self.why_not_healthy(ends) is None, lambda: self.why_not_healthy(ends)

    def why_not_healthy(self, ends: Mapping[PartitionKey, int] | None = None) -> str | None:
        """Why the cluster is not healthy; replicas must have all committed records, or only those below `ends`."""
        for node_id in self.ids:
            if node_id not in self.ready:
                return f"{_host_name(node_id)} is not ready"
        image = self._image()
        if image is None:
            return "no controller"
        failing = [each for each in self.brokers if self.world.hosts[_host_name(each)].disk.failed_dirs]
        return self.partitions.describe_lag(image, self.partitions.ends() if ends is None else ends, failing)

    def _image(self) -> MetadataImage | None:
        """The metadata image of the active controller."""
        controller = self.nodes.get(self.quorum.leader or 0)
        return None if controller is None or controller.loader is None else controller.loader.image

    def _broker_epoch(self, node_id: int) -> int:
        """The latest broker epoch that a running node knows."""
        images = [node.loader.image for node in self.nodes.values() if node.loader is not None]
        return max((image.brokers[node_id].epoch for image in images if node_id in image.brokers), default=-1)

    def topic_views(self, topic: str) -> list[tuple[UUID, int] | None]:
        """The id and the number of partitions of a topic, as each running broker knows them."""
        views: list[tuple[UUID, int] | None] = []
        for node_id in self.brokers:
            node = self.nodes.get(node_id)
            if node is not None and node.loader is not None:
                found = node.loader.image.topics_by_name.get(topic)
                views.append(None if found is None else (found.topic_id, len(found.partitions)))
        return views

    def why_reassigning(self) -> str | None:
        """A partition that is being reassigned, as the controller knows; None if there is none."""
        image = self._image()
        if image is None:
            return "no controller"
        for topic in image.topics_by_id.values():
            for index, registration in topic.partitions.items():
                if registration.adding_replicas or registration.removing_replicas:
                    return f"{topic.name}-{index}: {registration}"
        return None

    def _first_leader(self, name: str | None) -> int | None:
        """The leader of the first partition of a topic; None stands for any topic of the clients."""
        image = self._image()
        if image is None:
            return None
        for topic in image.topics_by_id.values():
            if topic.name == name or (name is None and not topic.name.startswith("__")):
                leader = topic.partitions[0].leader
                return leader if leader >= 0 else None
        return None

    # -- processes

    def _program(self, node_id: int) -> Callable[[Runtime], Coroutine[Any, Any, None]]:
        async def main(runtime: Runtime) -> None:
            config = NodeConfig.from_properties(self.properties(node_id))
            self.running_features[node_id] = self.features.get(node_id, SUPPORTED_FEATURES)
            node = Node(config, runtime, self.running_features[node_id])
            refused_before = self._failed_operations(node_id)
            try:
                format_node(
                    config,
                    runtime,
                    CLUSTER_ID,
                    ignore_formatted=True,
                    first_voters=self._formatting(node_id) if not _is_formatted(config, runtime) else FirstVoters(),
                )
                self.nodes[node_id] = node
                await node.start()
                ready = asyncio.get_running_loop().create_task(node.ready(), name=f"{node_id} ready")
                ready.add_done_callback(lambda done: self._on_ready(node_id, done))
                await node.wait_failed()
            except (NodeFailedError, FormatError, OSError) as error:
                if self._failed_operations(node_id) == refused_before:
                    raise InvariantBroken("a node ends by itself only when its disk fails", str(error)) from error
                self.world.note_process(_host_name(node_id), ProcessChange.ENDED, f"ended: {error}")
                await node.stop()
                self._end(node_id)

        return main

    def _failed_operations(self, node_id: int) -> int:
        return self.world.hosts[_host_name(node_id)].disk.failed_operations

    def _end(self, node_id: int) -> None:
        """The process's main coroutine has ended: end the process."""
        host = self.world.hosts[_host_name(node_id)]
        process = host.process

        def end() -> None:
            if host.process is process:
                self.crash(host.name, power_loss=False)

        if process is not None:
            process.call_soon(end)

    def _on_ready(self, node_id: int, done: asyncio.Task[None]) -> None:
        if not done.cancelled() and done.exception() is None:
            self.world.note_process(_host_name(node_id), ProcessChange.READY)
            self.ready[node_id] = None
            self._recovered_logs.forget(node_id)

    def _after_event(self, process: ProcessLoop) -> None:
        node_id = self._node_of.get(process.name)
        if node_id is None:
            return
        if node_id not in self._watched:
            self._watch(node_id)
        self.quorum.after_event(node_id)
        self._vote_answers.check()
        self._silent_brokers.after_event(node_id, self.nodes[node_id].controller if node_id in self.nodes else None)
        self.quorum_steps.after_event(node_id)
        self._controller_answers.check()
        self.lone_decisions.check()
        changed = self.replica_steps.after_event(node_id)
        self.partitions.after_event(node_id, changed)
        self._replica_answers.after_event(node_id, changed)
        if node_id in self._watched:
            self._check_derived(node_id, self.nodes[node_id])
            self._check_topic_settings(node_id, self.nodes[node_id])
            self.groups.after_event(node_id, self.nodes[node_id])
        node = self.nodes.get(node_id)
        if node is not None and node.log_manager is not None:
            self._check_logs(node_id, node.log_manager)

    def _check_derived(self, node_id: int, node: Node) -> None:
        """Check what a node has made of the metadata."""
        disk = self.world.hosts[_host_name(node_id)].disk
        if node.loader is not None:
            if node.raft is not None and not node.raft.failure.done():
                self._snapshots.after_event(node_id, node.loader, node.raft, disk)
            has_changed = self._images.after_event(node_id, node.loader)
            if has_changed:
                self._changes.after_metadata(node_id)
            if has_changed and node.replica_manager is not None:
                check_minimum(node_id, node.replica_manager, node.loader.image, self._min_isr)
                if node.broker is not None:
                    check_coordinators(node_id, node.broker, node.loader.image)
                if node.log_manager is not None:
                    for replica in self._compacted.after_metadata(node_id, node.replica_manager, node.log_manager):
                        self.transactions.check_cleaned(node_id, replica)
                if not (disk.has_lied or self.partitions.has_bit_rot(node_id)):
                    self._recovery_points.after_metadata(node_id, node.replica_manager, disk)
            for after_event in self._metadata_watchers:
                after_event(node_id, node.loader)
        if node.broker is not None:
            self._producer_ids.after_event(node_id, node.broker.producer_ids)
            if node.broker.transactions is not None:
                self.transactions.after_coordinator(node_id, node.broker.transactions, self.partitions.leader_logs)

    def _check_topic_settings(self, node_id: int, node: Node) -> None:
        manager, loader = node.replica_manager, node.loader
        if self.topic_settings.topics and manager is not None and loader is not None:
            wall_ms = self.world.hosts[_host_name(node_id)].clock.wall_ms
            self.topic_settings.after_event(node_id, manager, loader.image, wall_ms)

    def _check_logs(self, node_id: int, logs: LogManager) -> None:
        """Check what a node has done with the files of its logs."""
        disk = self.world.hosts[_host_name(node_id)].disk
        self._recovered_logs.after_event(node_id, logs)
        if not (disk.has_lied or self.partitions.has_bit_rot(node_id)):
            self._noted_gaps.after_event(node_id, logs, disk)

    def check_metadata_in_force(self) -> None:
        """Brokers go by the metadata that they know, in the end. Raises `InvariantBroken`."""
        brokers = [
            (node_id, node.replica_manager, node.loader.image)
            for node_id, node in self.nodes.items()
            if node.replica_manager is not None and node.loader is not None
        ]
        check_roles(brokers)
        check_settings(brokers)
        self.groups.check_all()
        for node_id, manager, _ in brokers:
            self.transactions.check_in_the_end(node_id, self.partitions.leader_logs(node_id))
            for key, replica in manager.partitions.items():
                self.transactions.check_cleaned(node_id, replica)
                committed = self.partitions.committed.get((replica.topic_id, key.partition))
                if committed is not None and committed.records is not None:
                    self.transactions.check_newest(node_id, replica, committed.records)

    def why_transactions_open(self) -> str | None:
        """A transaction that should have ended by now; None if there is none."""
        return self.transactions.why_unsettled(
            [log for each in self.nodes for log in self.partitions.leader_logs(each)]
        )

    def _watch(self, node_id: int) -> None:
        node = self.nodes.get(node_id)
        if node is None or node.raft is None or node.loader is None:
            return
        if node.replica_manager is None and node_id in self.brokers:
            return
        disk = self.world.hosts[_host_name(node_id)].disk
        for checker in (self.quorum, self.quorum_steps):
            checker.watch(node_id, node.raft, disk, metadata_log_dir(LOG_DIR))
        self._changes.watch(node_id, node.loader)
        if node.replica_manager is not None:
            directory, unclean = metadata_log_dir(LOG_DIR), self.partitions.unclean
            read_metadata = lambda end_offset: unclean.read(disk, directory, end_offset)  # noqa: E731
            wall_ms = self.world.hosts[_host_name(node_id)].clock.wall_ms
            self.replica_steps.watch(node_id, node.replica_manager, disk)
            self.partitions.watch(node_id, node.replica_manager, node.loader, wall_ms, read_metadata)
        self._watched[node_id] = None


def _is_formatted(config: NodeConfig, runtime: Runtime) -> bool:
    return formatted_directory_id(config, runtime) is not None


def _host_name(node_id: int) -> str:
    return f"{'n' if node_id < _FIRST_CONTROLLER else 'c'}{node_id}"
