"""Names of settings that are not known, and the known name that was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ...broker.loggers import LEVELS
from ...controller.configs.broker_configs import BROKER_CONFIGS, DYNAMIC_BROKER_CONFIGS
from ...controller.configs.client_metrics import CLIENT_METRICS_CONFIGS
from ...controller.configs.group_configs import GROUP_CONFIGS
from ...controller.configs.security_configs import LISTENER_CONFIGS
from ...controller.metadata.metadata_image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from ...controller.security.client_quotas import CLIENT_QUOTAS, IP, IP_QUOTAS
from ...log.topic_configs import TOPIC_CONFIGS
from ...runtime.loggers import LOGGERS
from .unserved_configs import is_unserved

_TABLES: Mapping[int, Iterable[str]] = {
    TOPIC_RESOURCE: TOPIC_CONFIGS,
    GROUP_RESOURCE: GROUP_CONFIGS,
    BROKER_RESOURCE: DYNAMIC_BROKER_CONFIGS,
    BROKER_LOGGER_RESOURCE: LOGGERS,
    CLIENT_METRICS_RESOURCE: CLIENT_METRICS_CONFIGS,
}
_LISTS = {
    TOPIC_RESOURCE: "raftwerk configs show --topic NAME --all lists the settings of a topic",
    GROUP_RESOURCE: "raftwerk configs show --group ID --all lists the settings of a group",
    BROKER_RESOURCE: "raftwerk configs show --broker ID --all lists the settings of a broker",
    BROKER_LOGGER_RESOURCE: "raftwerk configs show --loggers ID --all lists the loggers of a broker",
    CLIENT_METRICS_RESOURCE: f"the settings are {', '.join(CLIENT_METRICS_CONFIGS)}",
}
_LISTENER_PREFIX = re.compile(r"(?P<word>\w+)\.name\.(?P<name>[^.]+)\.")
_POLICY_SETTINGS = (
    "create.topic.policy.class.name",
    "alter.config.policy.class.name",
    ".sasl.server.callback.handler.class",
    "principal.builder.class",
)


def is_unknown(name: str) -> bool:
    """Whether neither this node nor Apache Kafka has a setting of this name."""
    return name not in BROKER_CONFIGS and not is_unserved(name)


def nearest_name(name: str, known: Iterable[str] = BROKER_CONFIGS) -> str | None:
    """The known name that is most like this one; None when none is."""
    import difflib

    near = difflib.get_close_matches(name, list(known), 1, 0.85)
    if near or known is not BROKER_CONFIGS:
        return near[0] if near else None
    prefix = _LISTENER_PREFIX.match(name)
    if prefix is None or not difflib.get_close_matches(prefix["word"], ["listener"], 1, 0.8):
        return None
    own = difflib.get_close_matches(name[prefix.end() :], list(LISTENER_CONFIGS), 1, 0.85)
    return f"listener.name.{prefix['name']}.{own[0]}" if own else None


def way_out_of_names(resource_type: int, names: Iterable[str]) -> str | None:
    """What to do about the names that resources of this type, such as topics, do not have; None if the usual one fits.

    Where all names are known, a value was refused. The usual way out names the lists of topics and nodes.

    A topic's name for a broker's setting is known, and the reverse, and which settings only a restart changes.
    """
    known = _TABLES.get(resource_type, {})
    wrong = [name for name in names if name not in known]
    if not wrong and resource_type == BROKER_LOGGER_RESOURCE:
        return f"the levels are {', '.join(LEVELS)}"
    if not wrong:
        return None if resource_type in (TOPIC_RESOURCE, BROKER_RESOURCE) else _LISTS.get(resource_type)
    meant = [name for name in (_meant(resource_type, name) for name in wrong) if name is not None]
    if meant:
        return f"did you mean {' and '.join(meant)}?"
    fixed = [name for name in wrong if resource_type == BROKER_RESOURCE and name in BROKER_CONFIGS]
    in_ms = [f"{name.rpartition('.')[0]}.ms" for name in fixed]
    if fixed and all(one in known for one in in_ms):
        return f"set {' and '.join(in_ms)}, which a running cluster takes"
    if fixed:
        return f"set {' and '.join(fixed)} in the nodes' settings files, which they read when they start"
    return _LISTS.get(resource_type)


def _meant(resource_type: int, name: str) -> str | None:
    """The setting of such resources that is probably meant by a name that none of them has."""
    if resource_type == BROKER_RESOURCE and name in BROKER_CONFIGS:
        return None
    for topic_name, key in TOPIC_CONFIGS.items():
        of_brokers = [synonym.name for synonym in key.synonyms]
        if resource_type == TOPIC_RESOURCE and name in of_brokers:
            return topic_name
        if resource_type == BROKER_RESOURCE and name == topic_name and of_brokers:
            return next((one for one in of_brokers if one in DYNAMIC_BROKER_CONFIGS), None)
    known = _TABLES[resource_type]
    longer = [one for one in known if one.endswith(f".{name}")]
    return nearest_name(name, known) or (" or ".join(longer) or None)


def way_out_of_quotas(entity: Iterable[str], names: Iterable[str]) -> str | None:
    """What to do about the names of quotas that an entity of these types, such as `user`, does not have.

    None without such names.
    """
    is_address = IP in entity
    known, others = (IP_QUOTAS, CLIENT_QUOTAS) if is_address else (CLIENT_QUOTAS, IP_QUOTAS)
    wrong = [name for name in names if name not in known]
    if not wrong:
        return None
    of_others = [name for name in wrong if (nearest_name(name, others) or name) in others]
    if of_others:
        whose = "users and client ids (--user, --client-id)" if is_address else "addresses (--ip)"
        return f"{' and '.join(of_others)} is for {whose}"
    near = [name for name in (nearest_name(name, known) for name in wrong) if name is not None]
    return f"did you mean {' and '.join(near)}?" if near else f"the quotas are {', '.join(known)}"


def misspelt_names(given: Iterable[str], all_names: Iterable[str]) -> list[str]:
    """The names among `given` that are probably mistakes.

    The own settings of a policy, or of another Python class, may have any name, so where one is set only names that are
    like a known one count.
    """
    has_policy = any(name.endswith(_POLICY_SETTINGS) for name in all_names)
    return [name for name in given if is_unknown(name) and (not has_policy or nearest_name(name) is not None)]
