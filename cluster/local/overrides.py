"""Settings that all nodes of a local cluster are given, and which of them cannot be the same for all nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..settings.node_config import ConfigError, Problem, load_config
from .layout import ClusterPlan, plan_cluster, shape_of
from .secured import lacks_certificate

_DIRECTORY = "the data of node i is in DIR/node-i: -d DIR chooses the directory"
_LISTENERS = "--host, --port and --controller-port choose where nodes listen"
_OF_EACH_NODE = {
    "broker.rack": "--racks names the racks of the brokers, one name or several",
    "node.id": "the nodes have the ids 1, 2, and so on",
    "broker.id": "the nodes have the ids 1, 2, and so on",
    "process.roles": "--separate runs the controllers in processes of their own",
    "log.dirs": _DIRECTORY,
    "log.dir": _DIRECTORY,
}
_OF_ONE_NODE = {
    "listeners": _LISTENERS,
    "controller.listener.names": _LISTENERS,
    "advertised.listeners": "--host chooses the address that they advertise",
    "metadata.log.dir": _DIRECTORY,
}
"""What the only node of a cluster may be given."""


_OF_SECURED_CLUSTERS = (
    "listener.security.protocol.map",
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
    "sasl.mechanism.inter.broker.protocol",
    "sasl.mechanism.controller.protocol",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.truststore.type",
    "ssl.truststore.location",
)
"""What `--secure` chooses, with certificates and passwords of its own."""


def check_overrides(plan: ClusterPlan, overrides: Mapping[str, str], *, secure: bool = False) -> None:
    """Raise `ConfigError` for settings that each node has its own value of, or that a `secure` cluster has."""
    own = [name for name in _OF_SECURED_CLUSTERS if name in overrides] if secure else []
    if own:
        way_out = "leave out --secure, for a cluster that its own settings secure, or those settings"
        others = f", and of {', '.join(own[1:])}" if own[1:] else ""
        raise ConfigError([Problem(own[0], overrides[own[0]], f"--secure has its own value of it{others}", way_out)])
    ways_out = _OF_EACH_NODE if len(plan.nodes) == 1 else _OF_EACH_NODE | _OF_ONE_NODE
    problems = [
        Problem(name, value, "each node of a local cluster has a value of its own", f"leave it out: {ways_out[name]}")
        for name, value in overrides.items()
        if name in ways_out
    ]
    if problems:
        raise ConfigError(problems)


def warnings_of(plan: ClusterPlan) -> list[str]:
    """What nodes would warn of. Raises `ConfigError` for settings that they do not know or would refuse at their start.

    Key stores are read, but for those of a secured cluster that are made when it starts.
    """
    from ...runtime.loop import real_runtime  # these imports take time
    from ..settings.listener_checks import refused_security
    from ..settings.listener_security import KEY_STORES

    warnings: dict[str, None] = {}
    for node in {node.roles: node for node in plan.nodes}.values():
        config = load_config(None, overrides=[f"{name}={value}" for name, value in node.properties.items()])
        warnings |= dict.fromkeys(config.warnings)
        refused = refused_security(config, real_runtime())
        if lacks_certificate(node):
            refused = [one for one in refused if not one.key.endswith(KEY_STORES)]
        if refused:
            raise ConfigError(refused)
    return list(warnings)


def without_overrides(plan: ClusterPlan, kept: Mapping[str, str]) -> ClusterPlan:
    """The same cluster, which has been started, with no other settings given than those that are `kept`."""
    return plan_cluster(plan.directory, replace(shape_of(plan), overrides=kept))
