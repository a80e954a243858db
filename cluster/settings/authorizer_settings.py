"""What the settings say of authorization: the authorizer of a node, and its super users."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...security.authorizer.authorizer import Authorizer
from ...security.authorizer.standard_authorizer import StandardAuthorizer
from ...security.jaas import parse_jaas
from ...security.principals import ANONYMOUS, USER, parse_principal
from ..node.policies import PolicyError, loaded_class, made

if TYPE_CHECKING:
    from .node_config import Listener, NodeConfig

AUTHORIZER = "authorizer.class.name"
SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_OF_ZOOKEEPER = ("kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer")


def make_authorizer(config: NodeConfig) -> Authorizer | None:
    """The authorizer that the settings name; None without one. Raises `PolicyError`."""
    name = config[AUTHORIZER]
    if not name:
        return None
    if name == STANDARD_AUTHORIZER:
        users = super_users(config[SUPER_USERS])
        return StandardAuthorizer(users, allow_everyone_if_no_acl_found=config[ALLOW_EVERYONE])
    found = loaded_class(name, "authorize(principal, host, operation, resource_type, name)")
    authorizer: Authorizer = made(found, config.properties)
    return authorizer


def super_users(text: str) -> list[str]:
    """The principals of `super.users`, such as `User:admin;User:CN=node1,O=x`. Raises ValueError."""
    found = [str(parse_principal(one.strip())) for one in text.split(";") if one.strip()]
    for one in found:
        if f",{USER}:" in one.replace(" ", ""):
            raise ValueError(f"{one!r} would be one principal; join principals by semicolons, since names have commas")
    return found


def check_authorizer(config: NodeConfig, refuse: Callable[[str, str, str], None]) -> None:
    """Refuse what names no authorizer, and what names no principals."""
    name = config[AUTHORIZER]
    if name in _OF_ZOOKEEPER:
        refuse(AUTHORIZER, "it kept its ACLs in ZooKeeper", f"name {STANDARD_AUTHORIZER}")
    elif name and name != STANDARD_AUTHORIZER:
        try:
            loaded_class(name, "authorize(principal, host, operation, resource_type, name)")
        except PolicyError as error:
            refuse(AUTHORIZER, str(error), f"name a class that this Python can import, or {STANDARD_AUTHORIZER}")
    try:
        super_users(config[SUPER_USERS])
    except ValueError as error:
        refuse(SUPER_USERS, str(error), "write for example User:admin;User:broker")


def authorizer_warnings(config: NodeConfig) -> list[str]:
    """Warnings about settings of authorization that are probably a mistake."""
    if not config[AUTHORIZER]:
        without = [key for key in (SUPER_USERS, ALLOW_EVERYONE) if key in config.properties]
        return [f"{key}: it has no effect without {AUTHORIZER}={STANDARD_AUTHORIZER}" for key in without]
    if config[AUTHORIZER] != STANDARD_AUTHORIZER or config[ALLOW_EVERYONE]:
        return []
    users = super_users(config[SUPER_USERS])
    between_brokers = [one for one in config.broker_listeners if one.name == config.inter_broker_listener_name]
    warnings = []
    for listener in (*between_brokers, *config.controller_listeners):
        principal = _principal_of_nodes(config, listener)
        if principal is not None and principal not in users:
            warnings.append(
                f"{SUPER_USERS}: nodes are {principal} on listener {listener.name}, who is not among them; without an "
                f"ACL that allows ClusterAction they cannot join: add {principal}"
                + (", or secure the listener, since that is everybody there" if principal == str(ANONYMOUS) else "")
            )
    return warnings


def _principal_of_nodes(config: NodeConfig, listener: Listener) -> str | None:
    """Who this node's peers are on a listener, where the settings tell it; not with TLS alone."""
    if listener.protocol == "PLAINTEXT":
        return str(ANONYMOUS)
    if not listener.protocol.startswith("SASL_"):
        return None
    of_controllers = listener.name in config.controller_listener_names
    mechanism = config[f"sasl.mechanism.{'controller' if of_controllers else 'inter.broker'}.protocol"]
    jaas = config.properties.get(f"listener.name.{listener.name.lower()}.{mechanism.lower()}.sasl.jaas.config")
    try:
        user = parse_jaas(jaas).options.get("username") if jaas is not None else None
    except ValueError:
        return None
    return None if user is None else f"{USER}:{user}"
