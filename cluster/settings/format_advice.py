"""How the directories of a node are formatted: what to say where they are not."""

from __future__ import annotations

import shlex

from .network_addresses import is_loopback
from .node_config import NodeConfig

_ANY_HOST = ("", "0.0.0.0", "::")


def format_advice(config: NodeConfig) -> str:
    """The command that formats the directories of a node with this configuration, and what is to be known of it."""
    the_id = "with the cluster's id (raftwerk format --new-id prints one for a new cluster)"
    if config.file is None:
        return f"start it with raftwerk node --format CLUSTER_ID, {the_id}"
    command = f"raftwerk format -t CLUSTER_ID -c {config.file}"
    if not config.is_controller or config.has_static_voters:
        return f"run {command}, {the_id}"
    others = _other_controllers(config)
    if others:
        return (
            f"run {command} --no-initial-controllers, {the_id}; controller.quorum.bootstrap.servers names other "
            f"controllers ({', '.join(others)}): if they run, this one joins their quorum, beside which --standalone "
            "would begin a second one; all controllers of a new cluster get the same --initial-controllers instead "
            "(see raftwerk format --help)"
        )
    the_id += "; --standalone makes it the only voter, and raftwerk format --help names the other choices"
    return f"run {command} --standalone, {the_id}"


def format_rest_advice(config: NodeConfig, cluster_id: str, path: str) -> str:
    """What formats this directory, which a node of the cluster has beside some that are formatted."""
    if config.file is None:
        return f"start the node with `raftwerk node --format {cluster_id}`"
    command = f"raftwerk format -t {cluster_id} -c {shlex.quote(config.file)} --ignore-formatted"
    if path == config.metadata_log_dir and config.is_controller and not config.has_static_voters:
        return f"run `{command} --no-initial-controllers` first, and the metadata log comes from the other controllers"
    return f"run `{command}` first"


def other_nodes_advice(cluster_id: str, voters: str) -> str:
    """How to format the other nodes of a cluster whose id is new, with these options about the voters."""
    command = f"raftwerk format -t {cluster_id} -c SERVER.PROPERTIES{voters}"
    return f"This id is new. Format each other node of the same cluster with it, and with its own file: {command}"


def _other_controllers(config: NodeConfig) -> list[str]:
    """Those of `controller.quorum.bootstrap.servers` that are not, or perhaps not, this node itself."""
    own = [(one.host, one.port) for one in (*config.controller_listeners, *config.advertised_controller)]
    ports = [port for host, port in own if host in _ANY_HOST or is_loopback(host)]
    return [
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        for host, port in config.bootstrap
        if (host, port) not in own and not (is_loopback(host) and port in ports)
    ]
