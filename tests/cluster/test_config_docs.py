"""docs/configuration.md says what the tables say."""

from __future__ import annotations

from pathlib import Path

from raftwerk.cluster.settings.configuration_page import configuration_page
from raftwerk.controller.configs.broker_configs import DYNAMIC_BROKER_CONFIGS
from raftwerk.controller.configs.topic_config_table import TOPIC_CONFIGS
from raftwerk.controller.configs.topic_configs import parse_value

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == configuration_page(), (
        "write it anew: raftwerk settings --markdown > docs/configuration.md"
    )


def test_every_row_is_documented_and_its_default_valid() -> None:
    for row in (*TOPIC_CONFIGS.values(), *DYNAMIC_BROKER_CONFIGS.values()):
        assert row.doc.endswith("."), row.name
        parse_value(row, row.default)
