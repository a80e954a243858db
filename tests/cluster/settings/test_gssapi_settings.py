"""Settings of SASL/GSSAPI that cannot work are refused in a sentence that names the way out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from raftwerk.cluster.settings.client_properties import ClientPropertiesError, load_properties
from raftwerk.cluster.settings.current_config import CurrentConfig
from raftwerk.cluster.settings.listener_security import listener_security, login_to_brokers
from raftwerk.cluster.settings.node_config import ConfigError, NodeConfig
from raftwerk.runtime.blocking import kerberos
from raftwerk.runtime.loop import real_runtime

MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
JAAS = "listener.name.sasl.gssapi.sasl.jaas.config"
NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "SASL://localhost:9092,CONTROLLER://localhost:9093",
    "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "SASL",
    "log.dirs": "/data",
}


def refusal(options: str | None, **settings: str) -> str:
    """Why a listener with these options of its login module cannot be made."""
    properties = NODE | {key.replace("_", "."): value for key, value in settings.items()}
    if options is not None:
        properties[JAAS] = f"{MODULE} {options};"
    config = NodeConfig.from_properties(properties)
    with pytest.raises(ConfigError) as refused:
        listener_security(CurrentConfig(config), config.listeners[0], real_runtime(), lambda *_: None, lambda *_: None)
    return str(refused.value)


def test_what_the_login_module_lacks() -> None:
    assert f"{JAAS} is not set: GSSAPI needs it; set it, for example: {MODULE} useKeyTab=true" in refusal(None)
    assert refusal(None).endswith("choose another mechanism by sasl.enabled.mechanisms and sasl.mechanism.*.protocol")
    assert 'a key table, and it has none; add useKeyTab=true keyTab="' in refusal('principal="kafka/localhost@X"')
    assert 'it does not say as which principal; add principal="kafka/host@REALM", or "*"' in refusal("useKeyTab=true")


def test_a_key_table_that_is_not_there(tmp_path: Path) -> None:
    pytest.importorskip("gssapi")
    told = refusal(f'useKeyTab=true keyTab="{tmp_path}/none" principal="kafka/localhost@X"')
    assert f"{tmp_path}/none, kafka/localhost@X: " in told
    assert told.endswith("correct keyTab and principal; klist -k shows whose keys a table has")


def test_a_rule_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gssapi")
    monkeypatch.setattr("raftwerk.cluster.settings.sasl.gssapi.check_acceptor", lambda *_: None)
    options = 'useKeyTab=true keyTab="/x" principal="kafka/localhost@X"'
    told = refusal(options, sasl_kerberos_principal_to_local_rules="DEFAULT,RULE:[1:$1")
    assert (
        "sasl.kerberos.principal.to.local.rules=DEFAULT,RULE:[1:$1: 'RULE:[1:$1' is no rule; write DEFAULT or" in told
    )


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ImportError):
        kerberos.load_library()
    told = refusal('useKeyTab=true keyTab="/x" principal="kafka/localhost@X"')
    assert "a library for GSSAPI is missing" in told
    assert "pip install 'raftwerk[kerberos]', which needs a C compiler" in told


def test_a_node_that_cannot_log_in_itself(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_bytes(b"")
    own = NODE | {JAAS: f'{MODULE} useKeyTab=true keyTab="{keys}" principal="kafka/localhost@X";'}
    with pytest.raises(ConfigError, match=r"sasl.kerberos.service.name is not set: GSSAPI needs it; set it, usually"):
        login_to_brokers(CurrentConfig(NodeConfig.from_properties(own)), real_runtime())
    own |= {"sasl.kerberos.service.name": "kafka", JAAS: own[JAAS].replace(";", ' serviceName="other";')}
    with pytest.raises(ConfigError, match=r"serviceName=other, and sasl.kerberos.service.name is kafka; remove one"):
        login_to_brokers(CurrentConfig(NodeConfig.from_properties(own)), real_runtime())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("useKeyTab=true", 'useKeyTab=true needs a file and a name; add keyTab="/path" principal="name@REALM" to it'),
        ('useTicketCache=true ticketCache="/none"', "cannot read /none: no such file"),
    ],
)
def test_commands(tmp_path: Path, options: str, told: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f"sasl.jaas.config={MODULE} {options};\n"
    )
    with pytest.raises(ClientPropertiesError) as refused:
        load_properties(str(file), real_runtime())
    assert told.removesuffix(" to it") in str(refused.value)
