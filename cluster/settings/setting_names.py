"""Names of settings that are not known, and the known name that was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...controller.configs.broker_configs import BROKER_CONFIGS
from ...controller.configs.group_configs import GROUP_CONFIGS
from ...controller.configs.security_configs import LISTENER_CONFIGS
from ...controller.metadata.metadata_image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from ...log.topic_configs import TOPIC_CONFIGS
from .unserved_configs import is_unserved

_TABLES = {TOPIC_RESOURCE: TOPIC_CONFIGS, GROUP_RESOURCE: GROUP_CONFIGS, BROKER_RESOURCE: BROKER_CONFIGS}
_LISTENER_PREFIX = re.compile(r"(?P<word>\w+)\.name\.(?P<name>[^.]+)\.")
_POLICY_SETTINGS = ("create.topic.policy.class.name", "alter.config.policy.class.name")


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


def near_names(resource_type: int, names: Iterable[str]) -> list[str]:
    """The names that were probably meant by those that no resource of this type has, such as a topic."""
    known = _TABLES.get(resource_type, {})
    found = (nearest_name(name, known) for name in names if name not in known)
    return [name for name in found if name is not None]


def misspelt_names(given: Iterable[str], all_names: Iterable[str]) -> list[str]:
    """The names among `given` that are probably mistakes.

    A policy's own settings may have any name, so where a policy is set only names that are like a known one count.
    """
    has_policy = any(name in _POLICY_SETTINGS for name in all_names)
    return [name for name in given if is_unknown(name) and (not has_policy or nearest_name(name) is not None)]
