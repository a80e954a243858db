"""What the settings of a node and of a client say of tokens, and of logins that expire."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from support.security.identity_provider import IdentityProvider

from raftwerk.broker.network.listener_security import ListenerSecurity
from raftwerk.cluster.settings.client_properties import ClientPropertiesError, librdkafka_login, login_of
from raftwerk.cluster.settings.current_config import CurrentConfig
from raftwerk.cluster.settings.listener_checks import security_problems
from raftwerk.cluster.settings.listener_security import listener_security, login_to_brokers
from raftwerk.cluster.settings.node_config import ConfigError, NodeConfig, load_config
from raftwerk.runtime.clock import SystemClock
from raftwerk.runtime.files.real_disk import RealDisk
from raftwerk.runtime.ports import Runtime
from raftwerk.security.delegation_token import no_tokens

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
UNSECURED = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
RUNTIME = Runtime(RealDisk(), SystemClock(), random.Random(1))
OF_MECHANISM = "listener.name.sasl_plaintext.oauthbearer."
OTHER = "org.apache.kafka.common.security.oauthbearer.internals.Other"
HANDLER = f"{OF_MECHANISM}sasl.server.callback.handler.class"


def config(**more: str) -> NodeConfig:
    lines = {
        "process.roles": "broker",
        "node.id": "1",
        "controller.quorum.voters": "9@localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "SASL_PLAINTEXT://localhost:9092",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    }
    return load_config("".join(f"{name}={value}\n" for name, value in (lines | more).items()))


def security(found: NodeConfig) -> ListenerSecurity:
    made = listener_security(CurrentConfig(found), found.listeners[0], RUNTIME, lambda mechanism, user: None, no_tokens)
    assert made is not None
    return made


def refused(found: NodeConfig) -> str:
    with pytest.raises(ConfigError) as error:
        security(found)
    return str(error.value)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_bytes(IdentityProvider().key_set())
    return path


def test_without_keys_a_listener_is_refused_and_the_way_out_named() -> None:
    told = refused(config())
    assert told.startswith("sasl.oauthbearer.jwks.endpoint.url is not set: OAUTHBEARER needs it; set it to")
    assert UNSECURED in told


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("ftp://h/keys", "it is neither http://host... nor https://host..."),
        ("file:/nowhere/keys", "cannot read /nowhere/keys: no such file or directory"),
        ("https://u:secret@h/", "it has a user name or password"),
    ],
)
def test_urls_of_keys_that_are_refused(url: str, told: str) -> None:
    assert told in refused(config(**{"sasl.oauthbearer.jwks.endpoint.url": url}))


def test_a_file_without_keys_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": []}))
    assert "it has no public key" in refused(
        config(**{f"{OF_MECHANISM}sasl.oauthbearer.jwks.endpoint.url": f"file:{path}"})
    )


def test_another_handler_is_refused(keys: Path) -> None:
    found = config(**{"sasl.oauthbearer.jwks.endpoint.url": f"file:{keys}", HANDLER: OTHER})
    told = refused(found)
    assert f"{HANDLER}={OTHER}: this class is not served; remove it, or set" in told
    assert [str(one) for one in security_problems(found, RUNTIME)[0] if one.key == HANDLER] == [told]


def test_unsecured_tokens_only_if_the_handler_is_set() -> None:
    jaas = f'{MODULE} unsecuredLoginStringClaim_sub="node";'
    made = security(config(**{HANDLER: UNSECURED, f"{OF_MECHANISM}sasl.jaas.config": jaas}))
    assert made.background == ()
    wrong = f'{MODULE} unsecuredValidatorAllowableClockSkewMs="x";'
    assert "an option of sasl.jaas.config is wrong" in refused(
        config(**{HANDLER: UNSECURED, f"{OF_MECHANISM}sasl.jaas.config": wrong})
    )


def test_the_token_of_a_nodes_own_login() -> None:
    jaas = f"{OF_MECHANISM}sasl.jaas.config"
    for more, told in (
        ({jaas: f"{MODULE};"}, "sasl.oauthbearer.token.endpoint.url is not set: OAUTHBEARER needs a token"),
        ({}, 'clientId="..." clientSecret="..."'),
        (
            {jaas: f"{MODULE};", "sasl.oauthbearer.token.endpoint.url": "http://h/"},
            "sasl.oauthbearer.client.credentials.client.id is not set: the token endpoint asks for it",
        ),
    ):
        with pytest.raises(ConfigError) as error:
            login_to_brokers(CurrentConfig(config(**more)), RUNTIME)
        assert told in str(error.value)
    listener = {f"{OF_MECHANISM}sasl.oauthbearer.token.endpoint.url": "http://h/"}
    found = config(**{jaas: f'{MODULE} clientId="a" clientSecret="b";'}, **listener)
    made = login_to_brokers(CurrentConfig(found), RUNTIME)
    assert made is not None and made.prepare is not None


def test_each_mechanism_has_its_own_time_after_which_a_login_expires(keys: Path) -> None:
    plain = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="wonder";'
    found = config(
        **{
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": f"file:{keys}",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain,
            "connections.max.reauth.ms": "1",
            "listener.name.sasl_plaintext.connections.max.reauth.ms": "2",
            "listener.name.sasl_plaintext.scram-sha-512.connections.max.reauth.ms": "3",
            "listener.name.sasl_plaintext.oauthbearer.connections.max.reauth.ms": "0",
        }
    )
    assert found.warnings == ()
    made = security(found)
    assert made.max_reauth_ms == {"PLAIN": 2, "SCRAM-SHA-512": 3, "OAUTHBEARER": 0}
    session = made.new_session()
    assert session is not None
    session.handshake("PLAIN")
    assert session.evaluate(b"\0alice\0wonder").session_lifetime_ms == 2


CLIENT = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": f"{MODULE};",
    "sasl.oauthbearer.token.endpoint.url": "https://h/token",
    "sasl.oauthbearer.client.credentials.client.id": "me",
    "sasl.oauthbearer.client.credentials.client.secret": "hush",
    "sasl.oauthbearer.scope": "kafka",
}


def test_a_client_of_librdkafka_gets_its_token_at_the_same_place() -> None:
    assert librdkafka_login(CLIENT, RUNTIME) == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://h/token",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "hush",
        "sasl.oauthbearer.scope": "kafka",
    }
    with pytest.raises(ClientPropertiesError, match="librdkafka takes tokens of a token endpoint only"):
        librdkafka_login(CLIENT | {"sasl.oauthbearer.token.endpoint.url": "file:/token"}, RUNTIME)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"sasl.oauthbearer.token.endpoint.url": "h/token"}, "it is neither http://host... nor https://host..."),
        ({"sasl.oauthbearer.client.credentials.client.secret": ""}, "client.secret is not set"),
        ({"sasl.jaas.config": f'{MODULE} ssl.truststore.location="/nowhere";'}, "cannot read /nowhere"),
    ],
)
def test_what_is_wrong_in_a_clients_properties_is_said_without_secrets(change: dict[str, str], told: str) -> None:
    with pytest.raises(ClientPropertiesError) as error:
        login_of(CLIENT | change, RUNTIME)
    assert told in str(error.value)
    assert "hush" not in str(error.value)
