"""docs/configuration.md says what the tables say."""

from __future__ import annotations

from pathlib import Path

from raftwerk.cluster.settings.configuration_page import configuration_page
from raftwerk.controller.configs.broker_configs import BROKER_CONFIGS
from raftwerk.controller.configs.client_metrics import CLIENT_METRICS_CONFIGS
from raftwerk.controller.configs.group_configs import GROUP_CONFIGS
from raftwerk.log.topic_configs import TOPIC_CONFIGS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "configuration.md"
TABLES = (TOPIC_CONFIGS, BROKER_CONFIGS, GROUP_CONFIGS, CLIENT_METRICS_CONFIGS)


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == configuration_page(), (
        "write it anew: raftwerk settings --markdown > docs/configuration.md"
    )


def test_every_row_is_documented_and_its_default_valid() -> None:
    for table in TABLES:
        for name, key in table.items():
            assert name == key.name
            assert key.doc.endswith("."), key.name
            assert key.default is None or key.default_value is not None
            assert not (key.is_required and key.default), key.name
    for key in TOPIC_CONFIGS.values():
        assert key.is_served or key.doc.endswith("no effect here."), key.name


def test_every_configuration_of_the_broker_behind_another_is_in_the_table() -> None:
    for key in (*TOPIC_CONFIGS.values(), *GROUP_CONFIGS.values()):
        for synonym in key.synonyms:
            behind = BROKER_CONFIGS[synonym.name]
            assert synonym.unit_ms > 1 or (behind.type, str(behind.valid)) == (key.type, str(key.valid))


def test_every_setting_that_is_served_is_read() -> None:
    """Else it belongs to those without effect (`is_served`), of which a node that is given one warns."""
    tables = {"broker_configs.py", "configs_without_effect.py"}
    layers = ("broker", "cluster", "controller", "isr", "log", "raft", "runtime")
    files = [file for layer in layers for file in (ROOT / layer).rglob("*.py") if file.name not in tables]
    code = "".join(file.read_text() for file in files)
    of_topics = {synonym.name for key in TOPIC_CONFIGS.values() for synonym in key.synonyms}
    served = [name for name, key in BROKER_CONFIGS.items() if key.is_served and name not in of_topics]
    assert [name for name in served if f'"{name}"' not in code] == []
