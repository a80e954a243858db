"""The plan of a local cluster: ids, ports, directories and the server.properties of each node.

Nodes 1..N are brokers on consecutive ports from the base port; controller i listens on base + 1000 + i, or controllers
have consecutive ports of their own. Node i has its data in `D/node-i`, its settings in `D/s<i>.properties`, its process
id in `D/n<i>.pid`, its log in `D/n<i>.log`.

A new cluster has dynamic voters (KIP-853). The file `D/initial-controllers` names the first voters until all nodes have
started once. A node that loses its disk must not be formatted as the voter that it was, so the list counts only until
the quorum has begun. The controllers keep their ports when the brokers' ports change, since the voters' record holds
their addresses. Nodes that are added later join the quorum by themselves. A cluster that was made with static voters
keeps them until `kraft.version` is raised.

Controllers listen on a loopback address, whatever the brokers listen on: all nodes are on this machine.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..settings.network_addresses import is_loopback
from ..settings.properties import format_properties
from .free_ports import WRONG_HOST, why_not_free
from .secured import LISTENER, is_secured, new_password, password_of_nodes, properties_in, secured_properties

CONTROLLER_PORT_SHIFT = 1000
METRICS_PORT_SHIFT = 500
LEAVING = ".leaving"
PLAINTEXT = "PLAINTEXT"
"""The listener for clients and brokers of a cluster that is not secured."""
NODES_MAX = 100
"""The most brokers that a local cluster may have."""
FIRST_SEPARATE_CONTROLLER = 101
META_FILE = "meta.properties"
INITIAL_CONTROLLERS = "initial-controllers"
_QUORUM_STATE = os.path.join("__cluster_metadata-0", "quorum-state")
STATIC_VOTERS_KEY = "controller.quorum.voters"
_BOOTSTRAP_KEY = "controller.quorum.bootstrap.servers"
AUTO_JOIN_KEY = "controller.quorum.auto.join.enable"
RACK_KEY = "broker.rack"
_MAX_CONTROLLERS = 3


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node of a local cluster. `port` is its broker's port, None if it is only a controller."""

    node_id: int
    port: int | None
    controller_port: int | None
    directory: str
    properties: Mapping[str, str] = field(repr=False)

    @property
    def roles(self) -> str:
        """`process.roles`."""
        return self.properties["process.roles"]

    @property
    def addresses(self) -> list[str]:
        """`host:port` of each listener."""
        return [entry.partition("://")[2] for entry in self.properties["listeners"].split(",")]

    @property
    def controller_address(self) -> str | None:
        """`host:port` of the controller's listener; None if the node is only a broker."""
        entries = (entry.partition("://") for entry in self.properties["listeners"].split(","))
        return next((at for name, _, at in entries if name == "CONTROLLER"), None)

    @property
    def metrics_address(self) -> str | None:
        """`host:port` of its metrics and health; None if they are not served."""
        port = self.properties.get("metrics.port")
        return None if not port else f"{_url_host(self.properties.get('metrics.host', ''))}:{port}"

    @property
    def data_dir(self) -> str:
        """The log directory."""
        return os.path.join(self.directory, f"node-{self.node_id}")

    @property
    def properties_file(self) -> str:
        """The path of its server.properties."""
        return os.path.join(self.directory, f"s{self.node_id}.properties")

    @property
    def leaving_file(self) -> str:
        """What its server.properties is called from the moment when it is stopped for good until its data are gone."""
        return f"{self.properties_file}{LEAVING}"

    @property
    def pid_file(self) -> str:
        """The path of the file with its process id."""
        return os.path.join(self.directory, f"n{self.node_id}.pid")

    @property
    def progress_file(self) -> str:
        """The path of the file that says what it does in a start or a stop that takes long."""
        return os.path.join(self.directory, f"n{self.node_id}.progress")

    @property
    def log_file(self) -> str:
        """The path of what it logs."""
        return os.path.join(self.directory, f"n{self.node_id}.log")


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """All nodes of a local cluster."""

    cluster_id: str
    directory: str
    nodes: tuple[NodePlan, ...]
    first_voters: str | None = None
    """`--initial-controllers` for nodes that are not formatted yet; None when the cluster has its voters."""

    @property
    def initial_controllers_file(self) -> str:
        """The path of the file with `first_voters`."""
        return os.path.join(self.directory, INITIAL_CONTROLLERS)

    @property
    def brokers(self) -> tuple[NodePlan, ...]:
        """The nodes that are brokers."""
        return tuple(node for node in self.nodes if node.port is not None)

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` for clients."""
        return ",".join(f"{_host(node)}:{node.port}" for node in self.brokers)

    def node(self, node_id: int) -> NodePlan:
        """The plan of a node; KeyError when there is none."""
        for node in self.nodes:
            if node.node_id == node_id:
                return node
        raise KeyError(node_id)


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """The size and the settings of a local cluster. With `port` 0 free ports are chosen."""

    brokers: int = 3
    host: str = "127.0.0.1"
    port: int = 9092
    separate: bool = False
    overrides: Mapping[str, str] = field(default_factory=dict)
    metrics_port: int | None = None
    """The first node's port for metrics and health; the other nodes have the next ports.

    0: the first broker's port plus 500. None: not served.
    """
    controller_port: int | None = None
    """The first controller's port; the others have the next ports. None: the broker's port plus 1001."""
    secure: bool = False
    """Whether all links are SASL_SSL, and ACLs count; see `secured`."""
    racks: tuple[str, ...] = ()
    """`broker.rack` of the brokers, in turn; none if empty."""

    def __post_init__(self) -> None:
        if not 1 <= self.brokers <= NODES_MAX:
            raise ValueError(f"a local cluster has 1 to {NODES_MAX} nodes, not {self.brokers}")
        if not all(self.racks):
            raise ValueError(f"the racks {','.join(self.racks)} have one without a name")
        if self.controller_port is not None and self.controller_port + self.controllers > 65536:
            raise ValueError(f"controller port {self.controller_port} is too high for {self.controllers} controllers")
        if self.controller_port is None and self.port and self.first_controller_port(self.port) > 65536 - self.brokers:
            raise ValueError(
                f"port {self.port} is too high: controllers listen on the port plus 1000 plus their number, unless "
                "a port of their own is chosen"
            )

    def first_controller_port(self, port: int) -> int:
        """The first controller's port, where the first broker's is `port`."""
        return port + CONTROLLER_PORT_SHIFT + 1 if self.controller_port is None else self.controller_port

    def first_metrics_port(self, port: int) -> int | None:
        """The first node's port for metrics, where the first broker's is `port`; None where there is none."""
        return port + METRICS_PORT_SHIFT if self.metrics_port == 0 else self.metrics_port

    @property
    def controller_host(self) -> str:
        """The loopback address that controllers listen on, since their requests can harm the cluster."""
        if is_loopback(self.host):
            return self.host
        return "::1" if ":" in self.host else "127.0.0.1"

    @property
    def controllers(self) -> int:
        """The number of controllers."""
        return min(_MAX_CONTROLLERS, self.brokers) if self.separate else self.brokers

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return self.brokers + (self.controllers if self.separate else 0)


def plan_cluster(
    directory: str, shape: ClusterShape, *, may_shrink: bool = False, is_dynamic: bool = False
) -> ClusterPlan:
    """Plan a cluster under `directory`. A cluster that is there already keeps its cluster id and its voters.

    With `is_dynamic` its voters are no longer those that its settings list, since `kraft.version` was raised. Raises
    ValueError when nodes would be left out, unless it `may_shrink`.
    """
    directory = os.path.abspath(directory)
    former = _former(directory)
    port = shape.port or find_free_base_port(shape)
    first_metrics_port = shape.first_metrics_port(port)
    broker_ports = {1 + i: port + i for i in range(shape.brokers)}
    first_id, first_port = FIRST_SEPARATE_CONTROLLER if shape.separate else 1, shape.first_controller_port(port)
    controllers = {
        first_id + i: f"{_url_host(shape.controller_host)}:{first_port + i}" for i in range(shape.controllers)
    }
    node_ids = list(dict.fromkeys((*broker_ports, *controllers)))
    data_dirs = {node_id: os.path.join(directory, f"node-{node_id}") for node_id in node_ids}
    cluster_id = existing_cluster_id(data_dirs.values())
    is_static = STATIC_VOTERS_KEY in shape.overrides
    if cluster_id is not None:
        is_static |= former is None or (lists_static_voters(former) and not is_dynamic)
        if former is not None and not may_shrink:
            _check_nobody_is_left_out(former, node_ids, controllers, shape.brokers)
        if former is not None and not is_static:
            controllers |= _voting(former, controllers, keep_ports=shape.controller_port is None)
    nodes = []
    was_secured = former is not None and is_secured(former.nodes[0])
    password = password_of_nodes(former.nodes[0]) if former is not None and was_secured else new_password()
    for index, node_id in enumerate(node_ids):
        properties = _properties(node_id, broker_ports.get(node_id), controllers, shape, is_static=is_static)
        properties["log.dirs"] = data_dirs[node_id]
        if node_id in broker_ports and shape.racks:
            properties[RACK_KEY] = shape.racks[index % len(shape.racks)]
        if first_metrics_port is not None:
            properties |= {"metrics.host": shape.host, "metrics.port": str(first_metrics_port + index)}
        if shape.secure:
            properties |= secured_properties(directory, node_id, password)
        at = controllers[node_id].rpartition(":")[2] if node_id in controllers else None
        controller_port = None if at is None else int(at)
        properties |= shape.overrides
        nodes.append(NodePlan(node_id, broker_ports.get(node_id), controller_port, directory, properties))
    if is_static:
        first_voters = None
    elif cluster_id is None:
        first_voters = ",".join(f"{node_id}@{at}:{new_cluster_id()}" for node_id, at in controllers.items())
    else:
        first_voters = former.first_voters if former is not None else None
    return ClusterPlan(cluster_id or new_cluster_id(), directory, tuple(nodes), first_voters)


def lists_static_voters(plan: ClusterPlan) -> bool:
    """Whether its nodes are set to static voters."""
    return STATIC_VOTERS_KEY in plan.nodes[0].properties


def has_cluster(directory: str) -> bool:
    """Whether a cluster was started there before."""
    return _former(directory) is not None


def _former(directory: str) -> ClusterPlan | None:
    try:
        return load_plan(directory)
    except FileNotFoundError:
        return None


def _voting(former: ClusterPlan, planned: Mapping[int, str], *, keep_ports: bool) -> dict[int, str]:
    """The addresses of those of an existing cluster's controllers that are in the new plan.

    ValueError when, without `keep_ports`, they are not at the same addresses there.
    """
    there = {one: at for one, at in controllers_of(former).items() if one in planned}
    moved = {node_id: at for node_id, at in there.items() if at != planned.get(node_id)}
    if moved and not keep_ports:
        raise ValueError(
            f"the cluster in {former.directory} has controllers at {', '.join(moved.values())}, and they keep their "
            "ports, which the quorum's voters record holds"
        )
    return there


def _check_nobody_is_left_out(
    former: ClusterPlan, node_ids: Sequence[int], controllers: Mapping[int, str], brokers: int
) -> None:
    """Raise ValueError unless all nodes are in the new plan, and all controllers among its `controllers`."""
    voters = [one for one in controllers_of(former) if one not in controllers]
    missing = voters or [node.node_id for node in former.nodes if node.node_id not in node_ids]
    if not missing:
        return
    kind = "controllers" if voters else "nodes"
    there = list(controllers_of(former)) if voters else [node.node_id for node in former.nodes]
    lost = "it might not have a majority" if voters else "it might lack replicas"
    raise ValueError(
        f"{former.directory} holds a cluster with the {kind} {', '.join(map(str, there))}, and without "
        f"{', '.join(map(str, missing))} {lost}: start it with as many nodes as before, and of the same kind; then "
        f"raftwerk shrink -n {brokers} moves what the last nodes hold, and takes them out"
    )


def quorum_weakness(plan: ClusterPlan) -> str:
    """What to say of a quorum of two voters, which is weaker than that of one; otherwise empty."""
    if len(controllers_of(plan)) != 2:
        return ""
    return "the quorum has two voters and needs both; with three it survives the loss of one"


def controllers_of(plan: ClusterPlan) -> dict[int, str]:
    """The address of each controller."""
    return {node.node_id: node.controller_address for node in plan.nodes if node.controller_address is not None}


def broker_endpoints(plan: ClusterPlan) -> dict[int, tuple[str, int]]:
    """The host and port of each broker, for connections."""
    return {node.node_id: (_host(node).strip("[]"), node.port or 0) for node in plan.brokers}


def controller_endpoints(plan: ClusterPlan) -> dict[int, tuple[str, int]]:
    """The host and port of each controller, for connections."""
    pairs = {node_id: at.rpartition(":") for node_id, at in controllers_of(plan).items()}
    return {node_id: (host.strip("[]"), int(port)) for node_id, (host, _, port) in pairs.items()}


def shape_of(plan: ClusterPlan) -> ClusterShape:
    """The shape from which an existing cluster was planned, with the settings that it was given."""
    first = plan.brokers[0]
    controllers = controllers_of(plan)
    metrics_port = first.properties.get("metrics.port")
    shape = ClusterShape(
        len(plan.brokers),
        _host(first).strip("[]"),
        first.port or 0,
        separate=len(plan.brokers) < len(plan.nodes),
        metrics_port=int(metrics_port) if metrics_port else None,
        secure=is_secured(first),
        racks=_in_turn([broker.properties.get(RACK_KEY, "") for broker in plan.brokers]),
    )
    usual = _properties(first.node_id, first.port, controllers, shape, is_static=False)
    if shape.secure:
        usual |= secured_properties(plan.directory, first.node_id, password_of_nodes(first))
    planned = ("log.dirs", "metrics.host", "metrics.port", STATIC_VOTERS_KEY, _BOOTSTRAP_KEY, AUTO_JOIN_KEY, RACK_KEY)
    overrides = {
        name: value for name, value in first.properties.items() if name not in planned and value != usual.get(name)
    }
    return replace(shape, overrides=overrides)


def _in_turn(racks: Sequence[str]) -> tuple[str, ...]:
    """The fewest names that give all these when they are taken in turn; none if the brokers have no racks."""
    count = next(
        size for size in range(1, len(racks) + 1) if all(racks[i] == racks[i % size] for i in range(len(racks)))
    )
    return tuple(racks[:count]) if any(racks) else ()


def write_properties(plan: ClusterPlan) -> None:
    """Write every node's server.properties. What an interrupted `raftwerk shrink` left of one is removed before."""
    os.makedirs(plan.directory, exist_ok=True)
    for node in plan.nodes:
        if os.path.exists(node.leaving_file):
            remove_remains(node)
        write_node_properties(node)
    if plan.first_voters is not None:
        with open(plan.initial_controllers_file, "w", encoding="ascii") as file:
            file.write(plan.first_voters)


def remove_remains(node: NodePlan) -> None:
    """Delete the data of a node that was taken out of the cluster."""
    shutil.rmtree(node.data_dir, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        os.remove(node.leaving_file)


def write_node_properties(node: NodePlan) -> None:
    """Write the server.properties of one node."""
    with open(node.properties_file, "w", encoding="utf-8", opener=_for_owner_only) as file:
        os.fchmod(file.fileno(), 0o600)  # it may have been there, with more rights
        file.write(format_properties(node.properties))


def _for_owner_only(path: str, flags: int) -> int:
    """Open a file that only its owner may read: settings may hold passwords."""
    return os.open(path, flags, 0o600)


def load_plan(directory: str) -> ClusterPlan:
    """The plan of the cluster under `directory`, read from its files.

    Raises FileNotFoundError when there is none, and ValueError when files of the same names are something else.
    """
    directory = os.path.abspath(directory)
    nodes = list(_nodes_in(directory, ".properties"))
    cluster_id = existing_cluster_id(node.data_dir for node in nodes)
    if cluster_id is None:
        damaged = [one for one in (os.path.join(node.data_dir, META_FILE) for node in nodes) if os.path.exists(one)]
        if damaged:
            raise ValueError(f"{damaged[0]} has no cluster.id: restore it, or remove {directory}")
        raise FileNotFoundError(directory)
    plan = ClusterPlan(cluster_id, directory, tuple(nodes))
    try:
        with open(plan.initial_controllers_file, encoding="ascii") as file:
            return replace(plan, first_voters=file.read())
    except FileNotFoundError:
        return plan


def nodes_left_behind(directory: str) -> list[NodePlan]:
    """The nodes that were being taken out of the cluster under `directory` when that was interrupted."""
    return list(_nodes_in(directory, f".properties{LEAVING}"))


def _nodes_in(directory: str, ending: str) -> Iterator[NodePlan]:
    """The nodes whose settings are in files of these names, in the order of their ids."""
    names = [
        name.removesuffix(ending)[1:] for name in os.listdir(directory) if name[:1] == "s" and name.endswith(ending)
    ]
    for node_id in sorted(int(name) for name in names if name.isdigit()):
        path = os.path.join(directory, f"s{node_id}{ending}")
        properties = properties_in(path)
        try:
            ports = {
                name: int(at.rpartition(":")[2])
                for name, _, at in (entry.partition("://") for entry in properties["listeners"].split(","))
            }
        except (KeyError, ValueError):
            raise ValueError(f"{path} is not the file of a node: take another directory") from None
        port = ports.get(PLAINTEXT, ports.get(LISTENER))
        yield NodePlan(node_id, port, ports.get("CONTROLLER"), directory, properties)


def may_be_first_voter(plan: ClusterPlan, node: NodePlan) -> bool:
    """Whether a node that is not formatted may be formatted as one of the first voters.

    It may not after the quorum has begun: either its disk is lost since, or the first `raftwerk up` was interrupted
    before it was formatted. In the first case it would vote with an empty log, without what it has acknowledged.
    """
    first = [one.partition("@")[0] for one in (plan.first_voters or "").split(",")]
    return str(node.node_id) in first and not any(_has_voted(one) for one in plan.nodes)


def _has_voted(node: NodePlan) -> bool:
    """Whether the controller of a node has seen an election. A file that cannot be read counts as yes."""
    home = node.properties.get("metadata.log.dir") or node.data_dir
    try:
        with open(os.path.join(home, _QUORUM_STATE), encoding="utf-8") as file:
            return int(json.load(file)["leaderEpoch"]) > 0
    except FileNotFoundError:
        return False
    except (OSError, ValueError, KeyError, TypeError):
        return True


def existing_cluster_id(data_dirs: Iterable[str]) -> str | None:
    """The cluster id in the first formatted directory; None when none is formatted."""
    for directory in data_dirs:
        try:
            found = properties_in(os.path.join(directory, META_FILE)).get("cluster.id")
        except OSError:
            continue
        if found:
            return found
    return None


def new_cluster_id() -> str:
    """A new random id in Kafka's form: 22 characters of URL-safe base64 that do not start with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def find_free_base_port(shape: ClusterShape) -> int:
    """A base port from which all ports are free now that the shape does not choose itself. Raises OSError if none is.

    `check_ports` says what is wrong with those that it chooses, and with its host.
    """
    chosen = _chosen_ports(shape)
    for _ in range(200):
        base = random.randrange(20000, 30000)
        wanted = [(shape.host, base + i) for i in range(shape.brokers)]
        if shape.controller_port is None:
            first = shape.first_controller_port(base)
            wanted += [(shape.controller_host, first + i) for i in range(shape.controllers)]
        if shape.metrics_port == 0:
            wanted += [(shape.host, base + METRICS_PORT_SHIFT + i) for i in range(shape.nodes)]
        reasons = {why_not_free(host, port) for host, port in wanted}
        is_host_wrong = not reasons.isdisjoint(WRONG_HOST)
        if chosen.isdisjoint(port for _, port in wanted) and (reasons == {None} or is_host_wrong):
            return base
    raise OSError("no free ports between 20000 and 32000: --port names the ports of the brokers")


def _chosen_ports(shape: ClusterShape) -> set[int]:
    """The ports that are chosen apart from that of the first broker."""
    chosen: set[int] = set()
    if shape.controller_port is not None:
        chosen.update(range(shape.controller_port, shape.controller_port + shape.controllers))
    if shape.metrics_port:
        chosen.update(range(shape.metrics_port, shape.metrics_port + shape.nodes))
    return chosen


def _properties(
    node_id: int, port: int | None, controllers: Mapping[int, str], shape: ClusterShape, *, is_static: bool
) -> dict[str, str]:
    host, controller_at = _url_host(shape.host), controllers.get(node_id)
    listener = LISTENER if shape.secure else PLAINTEXT
    addresses = {listener: None if port is None else f"{host}:{port}", "CONTROLLER": controller_at}
    roles = {"broker": port, "controller": controller_at}
    replicas = min(3, shape.brokers)
    properties = {
        "process.roles": ",".join(role for role, at in roles.items() if at is not None),
        "node.id": str(node_id),
        **_quorum_properties(controllers, is_static=is_static, may_vote=controller_at is not None),
        "listeners": ",".join(f"{name}://{at}" for name, at in addresses.items() if at is not None),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": "",
    }
    if port is not None:
        properties["advertised.listeners"] = f"{listener}://{host}:{port}"
    return properties | {
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": "2" if replicas > 1 else "1",
        "group.initial.rebalance.delay.ms": "0",
    }


def _quorum_properties(controllers: Mapping[int, str], *, is_static: bool, may_vote: bool) -> dict[str, str]:
    if is_static:
        return {STATIC_VOTERS_KEY: ",".join(f"{node_id}@{at}" for node_id, at in controllers.items())}
    servers = {_BOOTSTRAP_KEY: ",".join(controllers.values())}
    return {**servers, AUTO_JOIN_KEY: "true"} if may_vote else servers


def _host(node: NodePlan) -> str:
    advertised = node.properties["advertised.listeners"].partition("://")[2]
    return advertised.rpartition(":")[0]


def _url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
