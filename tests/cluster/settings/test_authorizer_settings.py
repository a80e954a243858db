"""The settings of authorization: which authorizer is made, and the sentences about what cannot work."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from raftwerk.cluster.node.policies import PolicyError
from raftwerk.cluster.settings.authorizer_settings import (
    ALLOW_EVERYONE,
    AUTHORIZER,
    STANDARD_AUTHORIZER,
    SUPER_USERS,
    authorizer_warnings,
    make_authorizer,
    super_users,
)
from raftwerk.cluster.settings.node_config import ConfigError, NodeConfig
from raftwerk.security.authorizer.acl_binding import AclOperation, ResourceType
from raftwerk.security.principals import ANONYMOUS, KafkaPrincipal

NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/data",
}
SOURCE = """
class Friendly:
    def configure(self, settings):
        self.friend = settings["friendly.friend"]

    def authorize(self, principal, host, operation, resource_type, name):
        return principal.name == self.friend

    authorize_by_resource_type = lambda self, principal, *rest: self.authorize(principal, *rest, "")
    replace = change = lambda self, *rest: None

class Broken:
    def __init__(self):
        raise RuntimeError("no licence")

    def authorize(self): ...

class Other: ...
"""


@pytest.fixture(autouse=True)
def house_authorizers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "house_authorizers.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "house_authorizers", raising=False)


def with_authorizer(name: str, **properties: str) -> NodeConfig:
    """The configuration with an authorizer, which the checks of all settings refuse in this version."""
    config = NodeConfig.from_properties({**NODE, **{key.replace("_", "."): one for key, one in properties.items()}})
    return replace(config, values={**config.values, AUTHORIZER: name})


def problems(**settings: str) -> str:
    with pytest.raises(ConfigError) as refused:
        NodeConfig.from_properties({**NODE, **{key.replace("_", "."): one for key, one in settings.items()}})
    return str(refused.value)


def allows(config: NodeConfig, principal: KafkaPrincipal) -> bool:
    authorizer = make_authorizer(config)
    assert authorizer is not None
    authorizer.replace([])
    return authorizer.authorize(principal, "10.0.0.1", AclOperation.READ, ResourceType.TOPIC, "t")


def test_the_standard_authorizer_has_the_super_users_of_the_settings() -> None:
    assert make_authorizer(NodeConfig.from_properties(NODE)) is None
    config = with_authorizer(STANDARD_AUTHORIZER, super_users="User:admin; User:CN=n1,O=x ;")
    assert allows(config, KafkaPrincipal("User", "admin"))
    assert allows(config, KafkaPrincipal("User", "CN=n1,O=x"))
    assert not allows(config, ANONYMOUS)
    assert allows(replace(config, values={**config.values, ALLOW_EVERYONE: True}), ANONYMOUS)


def test_a_class_of_the_operator_takes_its_place() -> None:
    config = with_authorizer("house_authorizers:Friendly", friendly_friend="alice")
    assert allows(config, KafkaPrincipal("User", "alice"))
    assert not allows(config, ANONYMOUS)
    with pytest.raises(PolicyError, match="Broken cannot be made: RuntimeError: no licence"):
        make_authorizer(with_authorizer("house_authorizers.Broken"))


def test_sentences_about_what_names_no_authorizer() -> None:
    assert "it kept its ACLs in ZooKeeper" in problems(authorizer_class_name="kafka.security.authorizer.AclAuthorizer")
    assert "module nowhere cannot be imported" in problems(authorizer_class_name="nowhere.Class")
    assert "Other has no method authorize(" in problems(authorizer_class_name="house_authorizers:Other")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("admin", "'admin' is no principal"),
        ("User:", "'User:' is no principal"),
        ("User:a,User:b", "join principals by semicolons"),
        ("User:a, User:b", "join principals by semicolons"),
    ],
)
def test_what_names_no_principals_is_refused(text: str, reason: str) -> None:
    assert reason in problems(super_users=text)


def test_names_with_commas_are_one_principal() -> None:
    assert super_users("User:CN=a,O=b;Group:x") == ["User:CN=a,O=b", "Group:x"]


def test_warnings() -> None:
    (warning,) = NodeConfig.from_properties({**NODE, SUPER_USERS: "User:a"}).warnings
    assert "it has no effect without authorizer.class.name" in warning
    first, second = authorizer_warnings(with_authorizer(STANDARD_AUTHORIZER))
    assert "nodes are User:ANONYMOUS on listener PLAINTEXT" in first
    assert "nodes are User:ANONYMOUS on listener CONTROLLER" in second
    assert not authorizer_warnings(with_authorizer(STANDARD_AUTHORIZER, super_users="User:ANONYMOUS"))
    login = 'x.PlainLoginModule required username="node" password="secret";'
    sasl = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": login,
    }
    config = NodeConfig.from_properties({**NODE, **sasl})
    (warning,) = authorizer_warnings(replace(config, values={**config.values, AUTHORIZER: STANDARD_AUTHORIZER}))
    assert "nodes are User:node on listener PLAINTEXT, who is not among them" in warning
    assert "secret" not in warning
