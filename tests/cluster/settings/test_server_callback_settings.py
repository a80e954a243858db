"""`sasl.server.callback.handler.class`: which Python classes are made, and which names mean what there is anyway."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from raftwerk.broker.network.listener_security import ListenerSecurity
from raftwerk.cluster.settings.current_config import CurrentConfig
from raftwerk.cluster.settings.listener_security import listener_security
from raftwerk.cluster.settings.node_config import ConfigError, NodeConfig
from raftwerk.runtime.loop import real_runtime
from raftwerk.security.delegation_token import no_tokens
from raftwerk.security.principal_builder import PrincipalContext
from raftwerk.security.principals import KafkaPrincipal
from raftwerk.wire.errors import ErrorCode

SOURCE = """
class Users:
    def configure(self, settings):
        self.password = settings["house.password"]

    async def authenticate(self, user, password):
        return password == self.password

class Broken:
    def __init__(self):
        raise RuntimeError("no licence")

    authenticate = credential = None

class Other: ...

class Teams:
    def build(self, context):
        return f"Team:{context.principal.name}"
"""
KAFKA = "org.apache.kafka.common.security."
PLAIN_USERS = f'{KAFKA}plain.PlainLoginModule required user_alice="own";'


@pytest.fixture(autouse=True)
def house_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "house_users.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "house_users", raising=False)


def config(mechanism: str, handler: str, **more: str) -> NodeConfig:
    prefix = f"listener.name.clients.{mechanism.lower()}."
    return NodeConfig.from_properties(
        {
            "process.roles": "broker",
            "node.id": "1",
            "controller.quorum.voters": "9@localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "listeners": "CLIENTS://localhost:9092",
            "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "CLIENTS",
            "sasl.enabled.mechanisms": mechanism,
            f"{prefix}sasl.server.callback.handler.class": handler,
            "house.password": "tea",
        }
        | {f"{prefix}{key.replace('_', '.')}": value for key, value in more.items()}
    )


def security(found: NodeConfig) -> ListenerSecurity:
    made = listener_security(CurrentConfig(found), found.listeners[0], real_runtime(), lambda *_: None, no_tokens)
    assert made is not None
    return made


@pytest.mark.parametrize("name", ["house_users:Users", "house_users.Users"])
def test_a_python_class_needs_no_login_module(name: str) -> None:
    found = config("PLAIN", name)
    assert found.warnings == ()  # its own settings may have any name

    async def run() -> None:
        session = security(found).new_session()
        assert session is not None
        assert session.handshake("PLAIN") is ErrorCode.NONE
        assert (await session.evaluate_soon(b"\0bob\0tea")).error is ErrorCode.NONE

    asyncio.run(run())


def test_kafka_s_own_classes_mean_what_there_is() -> None:
    own = security(config("PLAIN", f"{KAFKA}plain.internals.PlainServerCallbackHandler", sasl_jaas_config=PLAIN_USERS))
    session = own.new_session()
    assert session is not None
    assert session.handshake("PLAIN") is ErrorCode.NONE
    assert session.evaluate(b"\0alice\0own").error is ErrorCode.NONE
    assert security(config("SCRAM-SHA-512", f"{KAFKA}scram.internals.ScramServerCallbackHandler")).mechanisms


@pytest.mark.parametrize(
    ("mechanism", "name", "told"),
    [
        ("PLAIN", "house_users:Other", "Other has no method authenticate(user, password); name a class that this"),
        ("PLAIN", "house_users:None", "module house_users has no class None"),
        ("PLAIN", "house_users:Broken", "Broken has no method authenticate"),
        ("PLAIN", "com.example.Ldap", "module com.example cannot be imported: ModuleNotFoundError"),
        ("SCRAM-SHA-256", "house_users:Users", "Users has no method credential(user)"),
        ("OAUTHBEARER", "house_users:Users", "Users has no method validate(token)"),
        ("GSSAPI", "house_users:Users", "GSSAPI asks no class; remove it"),
        ("OAUTHBEARER", f"{KAFKA}oauthbearer.internals.Other", "this class is not served; remove it, or set org."),
    ],
)
def test_classes_that_are_refused(mechanism: str, name: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        security(config(mechanism, name))
    assert f".{mechanism.lower()}.sasl.server.callback.handler.class={name}: {told}" in str(refused.value)


def with_builder(**settings: str) -> NodeConfig:
    kafka = f"{KAFKA}plain.internals.PlainServerCallbackHandler"
    found = config("PLAIN", kafka, sasl_jaas_config=PLAIN_USERS)
    return NodeConfig.from_properties(
        {**found.properties, **{key.replace("_", "."): one for key, one in settings.items()}}
    )


def test_a_class_that_makes_principals() -> None:
    context = PrincipalContext(KafkaPrincipal("User", "alice"), "CLIENTS", "10.0.0.1", None, "PLAIN")
    with_class = with_builder(
        principal_builder_class=f"{KAFKA}Other",
        **{"listener.name.clients.principal.builder.class": "house_users:Teams"},
    )
    build = security(with_class).build_principal
    assert build is not None
    assert build(context) == KafkaPrincipal("Team", "alice")
    assert security(with_builder()).build_principal is None
    own = f"{KAFKA}authenticator.DefaultKafkaPrincipalBuilder"
    assert security(with_builder(principal_builder_class=own)).build_principal is None
    with pytest.raises(
        ConfigError, match=r"principal.builder.class=house_users:Other: Other has no method build\(context\)"
    ):
        security(with_builder(principal_builder_class="house_users:Other"))
