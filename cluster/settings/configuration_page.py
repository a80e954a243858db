"""docs/configuration.md, written from the tables that the code itself goes by."""

from __future__ import annotations

from collections.abc import Iterable

from ...controller.configs.broker_configs import DYNAMIC_BROKER_CONFIGS
from ...controller.configs.client_metrics import CLIENT_METRICS_CONFIGS
from ...controller.configs.group_configs import GROUP_CONFIGS
from ...controller.configs.topic_config_table import TOPIC_CONFIGS
from .layer_settings import shown
from .setting_table import KEYS, REQUIRED

_INTRODUCTION = """\
# Configuration

Written by `raftwerk settings --markdown`; do not edit. Names, defaults and ranges are Apache Kafka's.

A topic's value is the first of: its own (`raftwerk configs set --topic`), what was set at run time for the broker
(`--broker`), what was set at run time for all brokers (`--all-brokers`), server.properties, the default.
"""


def configuration_page() -> str:
    """The page as Markdown."""
    return "\n".join(
        (
            _INTRODUCTION,
            "## Topics",
            "",
            "Every value can be set when the topic is made and while it is used; it holds at once.",
            "",
            *_table(
                ("Name", "Type", "Default", "Valid values", "Setting of the broker", "Meaning"),
                (
                    (row.name, row.type.name.lower(), row.default, row.valid_values, row.broker_setting, row.doc)
                    for row in TOPIC_CONFIGS.values()
                ),
            ),
            "",
            "## Brokers, while they run",
            "",
            "Set for one broker or for all.",
            "",
            *_table(
                ("Name", "Type", "Default", "Valid values", "Meaning"),
                (
                    (row.name, row.type.name.lower(), row.default, row.valid_values, row.doc)
                    for row in DYNAMIC_BROKER_CONFIGS.values()
                ),
            ),
            "",
            "## Groups",
            "",
            "Set for one group (`raftwerk configs set --group`), within `group.consumer.min.*` and"
            " `group.consumer.max.*`.",
            "",
            *_table(
                ("Name", "Type", "Default", "Setting of the broker", "Meaning"),
                (
                    (row.name, row.type.name.lower(), row.default, row.broker_setting, row.doc)
                    for row in GROUP_CONFIGS.values()
                ),
            ),
            "",
            "## Metrics of clients",
            "",
            "Subscriptions by name; kept, while no client is asked for metrics.",
            "",
            *_table(
                ("Name", "Type", "Default", "Meaning"),
                ((row.name, row.type.name.lower(), row.default, row.doc) for row in CLIENT_METRICS_CONFIGS.values()),
            ),
            "",
            "## server.properties",
            "",
            "Read once, when the node starts. The settings behind topics' values, above, may stand there too. What else"
            " Kafka has is accepted, and the node says that it has no effect.",
            "",
            *_table(
                ("Name", "Type", "Default", "Meaning"),
                (
                    (key.name, key.kind, "required" if key.default is REQUIRED else shown(key.default) or "", key.doc)
                    for key in KEYS.values()
                ),
            ),
            "",
        )
    )


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *((f"`{row[0]}`", *row[1:]) for row in rows)]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
