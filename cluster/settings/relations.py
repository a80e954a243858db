"""Relations between the settings of a node: what is wrong, or probably a mistake, though each value is valid alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..node.policies import ALTER_CONFIG, CREATE_TOPIC, PolicyError, policy_class
from .authorizer_settings import authorizer_warnings, check_authorizer

if TYPE_CHECKING:
    from .node_config import NodeConfig

QUORUM_FETCH_WAIT_MS = 500


def check_values_together(config: NodeConfig, refuse: Any) -> None:
    """Call `refuse(key, reason, way_out)` for each value that does not go with the others."""
    _check_quorum(config, refuse)
    _check_listeners(config, refuse)
    _check_ports(config, refuse)
    _check_dirs(config, refuse)
    _check_timeouts(config, refuse)
    _check_policies(config, refuse)
    check_authorizer(config, refuse)


def _check_policies(config: NodeConfig, refuse: Any) -> None:
    """Only controllers call policies; a broker need not have their code."""
    for key in (CREATE_TOPIC, ALTER_CONFIG) if config.is_controller else ():
        if config[key]:
            try:
                policy_class(config[key])
            except PolicyError as error:
                refuse(key, str(error), "name a class that this Python can import (PYTHONPATH), or remove the line")


def _check_quorum(config: NodeConfig, refuse: Any) -> None:
    names = config.controller_listener_names
    if not names:
        refuse(
            "controller.listener.names",
            "every node must know by which listener controllers talk",
            "set it, for example to CONTROLLER",
        )
    if config.is_controller and names and not config.controller_listeners:
        refuse(
            "listeners",
            f"a controller must listen on one of controller.listener.names ({','.join(names)})",
            f"add {names[0]}://host:port",
        )
    _check_auto_join(config, refuse)
    if config.voters:
        _check_static_voters(config, refuse)
    elif not config.bootstrap:
        refuse(
            "controller.quorum.voters",
            "the quorum must be known",
            "set it, for example to 1@localhost:9093, or set controller.quorum.bootstrap.servers to localhost:9093",
        )


def _check_auto_join(config: NodeConfig, refuse: Any) -> None:
    key = "controller.quorum.auto.join.enable"
    if config[key] and config.voters:
        refuse(
            key,
            "the voters are those of controller.quorum.voters, and nobody can join them",
            "replace controller.quorum.voters by controller.quorum.bootstrap.servers, or remove the line",
        )
    if config[key] and not config.is_controller:
        refuse(key, "this node is no controller", "add controller to process.roles, or remove the line")


def _check_static_voters(config: NodeConfig, refuse: Any) -> None:
    names = config.controller_listener_names
    voter = next((one for one in config.voters if one.node_id == config.node_id), None)
    if config.is_controller and voter is None:
        refuse(
            "controller.quorum.voters",
            f"node.id={config.node_id} is a controller and not among the voters",
            f"add {config.node_id}@host:port, or take controller out of process.roles",
        )
    if not config.is_controller and voter is not None:
        refuse(
            "controller.quorum.voters",
            f"node.id={config.node_id} is among the voters and has no controller role",
            "add controller to process.roles, or take the node out of the voters",
        )
    first = next((one for one in config.controller_listeners if one.name == names[0]), None) if names else None
    if config.is_controller and voter and first and first.port not in (0, voter.port):
        refuse(
            "controller.quorum.voters",
            f"it names port {voter.port} for this node, whose listener {first.name} has port {first.port}",
            "make both the same",
        )


def _check_listeners(config: NodeConfig, refuse: Any) -> None:
    if config.is_broker and not config.broker_listeners:
        refuse("listeners", "a broker needs a listener for clients", "add for example PLAINTEXT://localhost:9092")
    if not config.is_broker and config.broker_listeners:
        extra = config.broker_listeners[0].name
        refuse(
            "listeners",
            f"{extra} is not in controller.listener.names, and this node is no broker",
            f"remove it, or add {extra} to controller.listener.names",
        )
    named = config.inter_broker_listener_name
    if config.is_broker and named and all(one.name != named for one in config.broker_listeners):
        key = "inter.broker.listener.name" if config["inter.broker.listener.name"] else "security.inter.broker.protocol"
        refuse(key, "no broker listener has this name", "take a name from listeners")
    if config.is_broker:
        _check_advertised(config, refuse)


def _check_ports(config: NodeConfig, refuse: Any) -> None:
    """Refuse two listeners, or a listener and the metrics, that could not both listen on one port."""
    taken = [("listeners", one.host, one.port, f"listener {one.name}") for one in config.listeners]
    taken.append(("metrics.port", config["metrics.host"], config["metrics.port"], "it"))
    for index, (key, host, port, name) in enumerate(taken):
        for _, other_host, other_port, other in taken[:index]:
            is_everywhere = not {host, other_host}.isdisjoint((None, "", "0.0.0.0", "::"))
            if port and port == other_port and (is_everywhere or host == other_host):
                refuse(key, f"{name} has port {port}, as {other} has", "choose another port for one of them")


def _check_advertised(config: NodeConfig, refuse: Any) -> None:
    for one in config.advertised:
        if one.name in config.controller_listener_names:
            continue
        if all(one.name != bound.name for bound in config.listeners):
            refuse(
                "advertised.listeners", f"there is no listener {one.name}", "add it to listeners, or advertise another"
            )
        if one.host in ("", "0.0.0.0", "::"):
            refuse(
                "advertised.listeners",
                f"clients cannot connect to {one.host or 'an empty host'!s}",
                "advertise the host's name or address",
            )
    if not config.advertised:
        for bound in config.broker_listeners:
            if bound.host in ("0.0.0.0", "::"):
                refuse(
                    "listeners",
                    f"{bound} listens everywhere, and clients cannot be told to connect to {bound.host}",
                    f"set advertised.listeners={bound.name}://the-host's-name:{bound.port}",
                )
    inter = config.inter_broker_listener_name
    if config.advertised and all(one.name != inter for one in config.advertised):
        refuse("advertised.listeners", f"other brokers reach this one by {inter}, which is not there", f"add {inter}")


def _check_dirs(config: NodeConfig, refuse: Any) -> None:
    key = "log.dirs" if config["log.dirs"] else "log.dir"
    if config.properties.get("log.dirs", "-").strip() == "":
        refuse("log.dirs", "no directory is named", "name one, or several joined by commas")
    elif any(not directory for directory in config.log_dirs):
        refuse(key, "a directory's name is empty", "name one directory or several, joined by commas")
    if len(config.log_dirs) != len(dict.fromkeys(config.log_dirs)):
        refuse(key, "a directory is named twice", "name each once")


def _check_timeouts(config: NodeConfig, refuse: Any) -> None:
    def below(small: str, large: str, limit: float, reason: str) -> None:
        if config[small] > limit:
            refuse(small, reason, f"lower it to {int(limit)} or less, or raise {large}={config[large]}")

    session = config["broker.session.timeout.ms"]
    below(
        "broker.heartbeat.interval.ms",
        "broker.session.timeout.ms",
        session / 2,
        f"one lost heartbeat would fence the broker: it must be at most half of broker.session.timeout.ms={session}",
    )
    fetch_timeout = config["controller.quorum.fetch.timeout.ms"]
    below(
        "controller.quorum.election.timeout.ms",
        "controller.quorum.fetch.timeout.ms",
        fetch_timeout,
        "an election must end before the followers give up on its winner: at most the fetch timeout "
        f"controller.quorum.fetch.timeout.ms={fetch_timeout}",
    )
    for key in ("controller.quorum.fetch.timeout.ms", "controller.quorum.request.timeout.ms"):
        if config[key] <= QUORUM_FETCH_WAIT_MS:
            reason = f"an idle quorum's fetch waits {QUORUM_FETCH_WAIT_MS} ms, and would be taken for a dead leader"
            refuse(key, reason, f"raise it above {QUORUM_FETCH_WAIT_MS}")
    lag = config["replica.lag.time.max.ms"]
    below(
        "replica.fetch.wait.max.ms",
        "replica.lag.time.max.ms",
        lag / 2,
        f"a follower that waits for records would leave the ISR of a quiet partition: at most half of "
        f"replica.lag.time.max.ms={lag}",
    )
    largest = config["socket.request.max.bytes"]
    below(
        "message.max.bytes",
        "socket.request.max.bytes",
        largest,
        f"such a batch does not fit in a request of socket.request.max.bytes={largest}",
    )
    if 0 < config["queued.max.request.bytes"] < largest:
        reason = f"the largest request, of socket.request.max.bytes={largest}, would never be read"
        refuse("queued.max.request.bytes", reason, f"raise it to {largest} or more, or set it to -1")


def relation_warnings(config: NodeConfig) -> list[str]:
    """Warnings about values that Kafka allows and that are probably a mistake."""
    warnings: list[str] = []
    needed, replicas = config["min.insync.replicas"], config["default.replication.factor"]
    if config.is_broker and needed > replicas:
        warnings.append(
            f"min.insync.replicas={needed}: larger than default.replication.factor={replicas}, so topics made "
            f"with the default have fewer copies of a record than it asks for; set default.replication.factor={needed}"
        )
    if config.is_controller and config.voters and len(config.voters) % 2 == 0:
        warnings.append(
            f"controller.quorum.voters: {len(config.voters)} voters survive no more failures than "
            f"{len(config.voters) - 1}; use an odd number"
        )
    return warnings + authorizer_warnings(config)
