"""Loads the operator's policies for topics and configurations, by the names of their classes."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from ...controller.policies import Policies

CREATE_TOPIC = "create.topic.policy.class.name"
ALTER_CONFIG = "alter.config.policy.class.name"


class PolicyError(Exception):
    """A policy cannot be loaded; the message says why."""


def load_policies(values: Mapping[str, Any], properties: Mapping[str, str]) -> Policies:
    """The policies that the settings name. Raises `PolicyError`."""
    return Policies(_made(values[CREATE_TOPIC], properties), _made(values[ALTER_CONFIG], properties))


def policy_class(name: str) -> type:
    """The class of a policy: `package.module:Class` or `package.module.Class`. Raises `PolicyError`."""
    return loaded_class(name, "validate(request)")


def loaded_class(name: str, method: str) -> type:
    """The class of that name, which must have the method. `method` is as a person writes it. Raises `PolicyError`."""
    module_name, _, class_name = name.partition(":") if ":" in name else name.rpartition(".")
    if not module_name or not class_name:
        raise PolicyError("it is not package.module:Class")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise PolicyError(f"module {module_name} cannot be imported: {type(error).__name__}: {error}") from error
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        raise PolicyError(f"module {module_name} has no class {class_name}")
    if not callable(getattr(found, method.partition("(")[0], None)):
        raise PolicyError(f"{class_name} has no method {method}")
    return found


def _made(name: str, properties: Mapping[str, str]) -> Any:
    if not name:
        return None
    return made(policy_class(name), properties)


def made(found: type, properties: Mapping[str, str]) -> Any:
    """An object of the class. Its method `configure`, if there is one, gets the settings. Raises `PolicyError`."""
    try:
        one = found()
        if callable(getattr(one, "configure", None)):
            one.configure(dict(properties))
    except Exception as error:
        raise PolicyError(f"{found.__name__} cannot be made: {type(error).__name__}: {error}") from error
    return one
