"""How the directories of a node are formatted: what to say where they are not."""

from __future__ import annotations

from .node_config import NodeConfig


def format_advice(config: NodeConfig) -> str:
    """The command that formats the directories of a node with this configuration, and what is to be known of it."""
    the_id = "with the cluster's id (raftwerk format --new-id prints one for a new cluster)"
    if config.file is None:
        return f"start it with raftwerk node --format CLUSTER_ID, {the_id}"
    command = f"raftwerk format -t CLUSTER_ID -c {config.file}"
    if config.is_controller and not config.has_static_voters:
        command += " --standalone"
        the_id += "; --standalone makes it the only voter, and raftwerk format --help names the other choices"
    return f"run {command}, {the_id}"
