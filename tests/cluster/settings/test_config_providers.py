"""Values of settings that stand in files, directories and the environment (KIP-297), and that nobody gets to see."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from raftwerk.broker.apis.admin.describe_configs import _Level, _Query, _row
from raftwerk.cluster.settings.client_properties import ClientPropertiesError, load_properties
from raftwerk.cluster.settings.config_providers.resolve import ConfigProviderError, resolve
from raftwerk.cluster.settings.node_config import ConfigError, NodeConfig, load_config
from raftwerk.controller.configs.broker_configs import BROKER_CONFIGS
from raftwerk.runtime.clock import SystemClock
from raftwerk.runtime.files.real_disk import RealDisk
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.config_def import HIDDEN, ConfigSource, SecretText, shown

PACKAGE = "org.apache.kafka.common.config.provider."
PROVIDERS = {
    "config.providers": "file, dir,env",
    "config.providers.file.class": f"{PACKAGE}FileConfigProvider",
    "config.providers.dir.class": f"{PACKAGE}DirectoryConfigProvider",
    "config.providers.env.class": f"{PACKAGE}EnvVarConfigProvider",
}
NODE = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.quorum.voters": "9@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://localhost:9092",
}


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    (tmp_path / "all.properties").write_text("password = hush-hush\nlog.dir=/data/hush\nother=x\n")
    (tmp_path / "key").write_text("dir-hush\n")
    return tmp_path


def resolved(secrets: Path, text: str, **more: str) -> str:
    return resolve(PROVIDERS | more | {"k": text}, RealDisk().read_bytes, {"SECRET": "env-hush"})["k"]


def test_each_provider(secrets: Path) -> None:
    assert resolved(secrets, f"a ${{file:{secrets}/all.properties:password}} b") == "a hush-hush b"
    assert resolved(secrets, f"${{dir:{secrets}:key}}") == "dir-hush\n"
    assert resolved(secrets, "${env:SECRET}/${env:SECRET}") == "env-hush/env-hush"
    assert resolved(secrets, "${other:SECRET} $env $1 ${x}") == "${other:SECRET} $env $1 ${x}"
    found = resolve(PROVIDERS | {"k": "v"}, RealDisk().read_bytes, {})
    assert found == {"config.providers": "file, dir,env", "k": "v"}


def test_values_of_providers_are_shown_to_nobody(secrets: Path) -> None:
    found = resolved(secrets, "before ${env:SECRET}")
    assert isinstance(found, SecretText)
    assert (shown("rack", found), repr(found)) == (HIDDEN, HIDDEN)
    assert not isinstance(resolved(secrets, "plain"), SecretText)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("${file:/nowhere:key}", "cannot read /nowhere: no such file or directory"),
        ("${file:HERE/all.properties:none}", "all.properties has no line none="),
        ("${dir:HERE:none}", "none: no such file or directory"),
        ("${dir:HERE:../key}", "../key is not the name of a file"),
        ("${env:NONE}", "the environment has no variable NONE"),
        ("${env:path:SECRET}", "a variable of the environment has no path"),
    ],
)
def test_a_variable_without_a_value_is_an_error(secrets: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigProviderError) as error:
        resolved(secrets, text.replace("HERE", str(secrets)))
    assert str(error.value).startswith("k: ${") and told in str(error.value)


def test_what_providers_may_read(secrets: Path) -> None:
    allowed = {"config.providers.file.param.allowed.paths": f"/other,{secrets}/sub/.."}
    text = f"${{file:{secrets}/all.properties:other}}"
    assert resolved(secrets, text, **allowed) == "x"
    for path in (f"/other/..{secrets}/all.properties", f"{secrets}x/all.properties", "/etc/passwd"):
        if path.startswith("/other"):
            assert resolved(secrets, f"${{file:{path}:other}}", **allowed) == "x"
            continue
        with pytest.raises(ConfigProviderError, match=r"is not below one of allowed\.paths"):
            resolved(secrets, f"${{file:{path}:other}}", **allowed)
    pattern = {"config.providers.env.param.allowlist.pattern": "KAFKA_.*"}
    with pytest.raises(ConfigProviderError, match=r"does not match allowlist\.pattern"):
        resolved(secrets, "${env:SECRET}", **pattern)


def test_providers_that_are_not_served() -> None:
    for class_name, told in ((None, "it is not set"), ("com.example.Vault", "com.example.Vault is not served")):
        own = {"config.providers": "a"} | ({} if class_name is None else {"config.providers.a.class": class_name})
        with pytest.raises(ConfigProviderError, match=told):
            resolve(own, RealDisk().read_bytes, {})


def loaded(lines: dict[str, str]) -> NodeConfig:
    return load_config("".join(f"{key}={value}\n" for key, value in lines.items()))


def test_server_properties(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "env-hush")
    own = {"log.dirs": f"${{file:{secrets}/all.properties:log.dir}}", "broker.rack": "${env:SECRET}"}
    config = loaded(NODE | PROVIDERS | own)
    assert config.log_dirs == ("/data/hush",)
    assert config["broker.rack"] == "env-hush"
    assert config.warnings == ()
    assert isinstance(config.properties["broker.rack"], SecretText)
    overridden = load_config(
        "".join(f"{key}={value}\n" for key, value in NODE.items()),
        overrides=[f"{key}={value}" for key, value in (PROVIDERS | own).items()],
    )
    assert overridden["broker.rack"] == "env-hush"


@pytest.mark.parametrize("key", ["node.id", "listeners", "advertised.listeners", "controller.quorum.voters", "nodeid"])
def test_no_error_and_no_warning_has_the_secret(secrets: Path, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "env-hush,hush-two")
    try:
        told = " ".join(loaded(NODE | PROVIDERS | {key: "${env:SECRET}"}).warnings)
    except ConfigError as error:
        told = str(error)
    assert HIDDEN in told
    assert "hush" not in told


def test_brokers_describe_no_value_of_a_provider() -> None:
    query = _Query(frozenset(), True, False)
    row = BROKER_CONFIGS["broker.rack"]
    levels = [_Level("broker.rack", SecretText("hush"), ConfigSource.STATIC_BROKER)]
    told = _row(row, levels, query)
    assert (told["value"], told["is_sensitive"], told["synonyms"][0]["value"]) == (None, True, None)


def test_a_variable_without_a_value_refuses_the_settings() -> None:
    with pytest.raises(ConfigError) as error:
        loaded(NODE | PROVIDERS | {"ssl.keystore.password": "${env:NOWHERE}"})
    assert str(error.value) == (
        "ssl.keystore.password=[hidden]: ${env:NOWHERE} has no value: the environment has no variable NOWHERE; "
        "correct it"
    )


def test_client_properties(secrets: Path, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    lines = PROVIDERS | {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{module} required username="a" password="${{file:{secrets}/all.properties:password}}";',
    }
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    runtime = Runtime(RealDisk(), SystemClock(), random.Random(1))
    found = load_properties(str(path), runtime)
    assert found.login is not None and found.login.new_exchange is not None
    assert found.login.new_exchange("here").first() == b"\0a\0hush-hush"
    assert found.warnings == []
    path.write_text(path.read_text() + f"retries=${{dir:{secrets}:key}}\n")
    with pytest.raises(ClientPropertiesError) as error:
        load_properties(str(path), runtime)
    assert "retries=[hidden]" in str(error.value) and "hush" not in str(error.value).replace(str(path), "")
