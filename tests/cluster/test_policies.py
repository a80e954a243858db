"""Policies are loaded by name, created and configured; errors are one sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from raftwerk.cluster.node.policies import PolicyError, load_policies
from raftwerk.cluster.settings.node_config import ConfigError, NodeConfig
from raftwerk.controller.policies import NewTopicRequest, PolicyViolation

SOURCE = """
from raftwerk.controller.policies import PolicyViolation

class Small:
    def configure(self, settings):
        self.most = int(settings["num.partitions"])

    def validate(self, request):
        if request.partitions and request.partitions > self.most:
            raise PolicyViolation(f"{request.topic}: no more than {self.most} partitions")

class Broken:
    def __init__(self):
        raise RuntimeError("no licence")

    def validate(self, request): ...

class NoPolicy: ...
"""
NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/data",
    "num.partitions": "4",
}
KEY = "create.topic.policy.class.name"


@pytest.fixture(autouse=True)
def house_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "house_rules.py").write_text(SOURCE)
    (tmp_path / "house_typo.py").write_text("import nowhere_at_all")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "house_rules", raising=False)


@pytest.mark.parametrize("name", ["house_rules:Small", "house_rules.Small"])
def test_a_policy_is_created_and_configured(name: str) -> None:
    config = NodeConfig.from_properties({**NODE, KEY: name})
    policy = load_policies(config.values, config.properties).create_topic
    assert policy is not None
    policy.validate(NewTopicRequest("t", 4, 1, None, {}))
    with pytest.raises(PolicyViolation, match="no more than 4"):
        policy.validate(NewTopicRequest("t", 5, 1, None, {}))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Small", "it is not package.module:Class"),
        ("house_rules:", "it is not package.module:Class"),
        ("org.example.Policy", "module org.example cannot be imported: ModuleNotFoundError"),
        ("house_typo:Small", "No module named 'nowhere_at_all'"),
        ("house_rules:Smal", "module house_rules has no class Smal"),
        ("house_rules:NoPolicy", r"NoPolicy has no method validate\(request\)"),
    ],
)
@pytest.mark.parametrize("key", [KEY, "alter.config.policy.class.name"])
def test_a_wrong_name_is_reported(key: str, name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        NodeConfig.from_properties({**NODE, key: name})


def test_a_broker_needs_no_policy() -> None:
    broker = {**NODE, "process.roles": "broker", "listeners": "PLAINTEXT://localhost:9092"}
    assert NodeConfig.from_properties({**broker, "node.id": "2", KEY: "nowhere:Policy"})[KEY] == "nowhere:Policy"


def test_a_policy_that_cannot_be_created_is_reported() -> None:
    config = NodeConfig.from_properties({**NODE, KEY: "house_rules:Broken"})
    with pytest.raises(PolicyError, match="Broken cannot be made: RuntimeError: no licence"):
        load_policies(config.values, config.properties)
