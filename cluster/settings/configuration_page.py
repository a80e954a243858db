"""docs/configuration.md and `raftwerk settings`, written from the tables by which values are checked."""

from __future__ import annotations

from collections.abc import Iterable

from ...controller.configs.broker_configs import BROKER_CONFIGS
from ...controller.configs.client_metrics import CLIENT_METRICS_CONFIGS
from ...controller.configs.group_configs import GROUP_CONFIGS
from ...log.topic_configs import TOPIC_CONFIGS
from ...wire.config_def import ConfigKey

_INTRODUCTION = """\
# Configuration

Written by `raftwerk settings --markdown`; do not edit. Names, defaults and ranges are Apache Kafka's.

A topic's value is the first of: its own (`raftwerk configs set --topic`), the value set at run time for the broker
(`--broker`), the value set at run time for all brokers (`--all-brokers`), server.properties, the default.
"""
_HEAD = ("Name", "Type", "Default", "Valid values")


def configuration_page() -> str:
    """The page as Markdown."""
    return "\n".join(
        (
            _INTRODUCTION,
            "## Topics",
            "",
            "Every value can be set when the topic is created and at any time after that; it holds at once.",
            "",
            *_table(
                (*_HEAD, "Configuration of the broker", "Meaning"),
                ((*_cells(key), key.broker_name, key.doc) for key in TOPIC_CONFIGS.values()),
            ),
            "",
            "## Brokers",
            "",
            "What server.properties may hold. The node reads the file when it starts. Values with the update mode"
            " cluster-wide can also be set while brokers run, for one broker or for all; those with per-broker, for one"
            " broker. Some are kept and described and have no effect, as their row says. The node accepts all other"
            " configurations of Apache Kafka too, and says at its start that they have no effect.",
            "",
            *_table(
                (*_HEAD, "Update mode", "Meaning"),
                ((*_cells(key), key.update_mode.value, key.doc) for key in _by_name(BROKER_CONFIGS.values())),
            ),
            "",
            "## Groups",
            "",
            "Set for one group (`raftwerk configs set --group`), within `group.consumer.min.*` and"
            " `group.consumer.max.*`.",
            "",
            *_table(
                (*_HEAD, "Configuration of the broker", "Meaning"),
                ((*_cells(key), key.broker_name, key.doc) for key in GROUP_CONFIGS.values()),
            ),
            "",
            "## Metrics of clients",
            "",
            "Subscriptions by name. They are kept, but no client pushes metrics.",
            "",
            *_table((*_HEAD, "Meaning"), ((*_cells(key), key.doc) for key in CLIENT_METRICS_CONFIGS.values())),
            "",
        )
    )


def describe_broker_configs(text: str = "") -> str:
    """The table of those of the broker's configurations that have `text` in their name, as plain text."""
    return "\n".join(
        f"{key.name}  ({key.type.name.lower()}, {_default(key)})\n    {key.doc}"
        for key in _by_name(BROKER_CONFIGS.values())
        if text in key.name
    )


def _default(key: ConfigKey) -> str:
    return "required" if key.is_required else f"default {key.default or 'none'}"


def _by_name(keys: Iterable[ConfigKey]) -> list[ConfigKey]:
    return sorted(keys, key=lambda key: key.name)


def _cells(key: ConfigKey) -> tuple[str, ...]:
    default = "required" if key.is_required else key.default or ""
    return key.name, key.type.name.lower(), default, str(key.valid)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *((f"`{row[0]}`", *row[1:]) for row in rows)]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
