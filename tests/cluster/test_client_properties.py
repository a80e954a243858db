"""Files of client properties (--command-config): lines that do nothing are told, impossible values are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from raftwerk.cli.main import cli
from raftwerk.cluster.settings.client_configs import CLIENT_CONFIGS, suspicious_lines
from raftwerk.cluster.settings.client_properties import (
    ClientPropertiesError,
    librdkafka_login,
    load_properties,
    login_of,
)
from raftwerk.runtime.loop import real_runtime

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="wonder";'
LOGIN = f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={JAAS}\n"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "security.protocl=SSL",
            "security.protocl is not a setting of Kafka's clients and has no effect; did you mean security.protocol?",
        ),
        (
            "sasl_mechanism=PLAIN",
            "sasl_mechanism is not a setting of Kafka's clients and has no effect; did you mean sasl.mechanism?",
        ),
        ("colour=red", "colour is not a setting of Kafka's clients and has no effect"),
        (
            "ssl.ca.location=ca.pem",
            "ssl.ca.location is a setting of librdkafka and has no effect here: write ssl.truststore.location, and "
            "ssl.truststore.type=PEM",
        ),
        ("ssl.provider=BC", "ssl.provider has no effect on the commands of Raftwerk"),
    ],
)
def test_lines_that_do_nothing_are_told(tmp_path: Path, line: str, told: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"{LOGIN}{line}\n")
    found = load_properties(str(file), real_runtime())
    assert found.warnings == [f"{file}: {told}"]
    assert found.login is not None


def test_what_other_clients_need_is_not_told(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"{LOGIN}acks=all\ngroup.id=readers\nrequest.timeout.ms=5000\nbootstrap.servers=here:9092\n")
    assert load_properties(str(file), real_runtime()).warnings == []


def test_a_token_logs_in_for_our_commands_and_not_for_librdkafka() -> None:
    module = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="id" password="aG1hYw=="'
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}
    for option, is_token in ((' tokenauth="True"', True), (' tokenauth="false"', False), ("", False)):
        given = properties | {"sasl.jaas.config": f"{module}{option};"}
        login = login_of(given, real_runtime())
        assert login is not None
        assert login.new_exchange is not None
        assert login.new_exchange("here").first().endswith(b",tokenauth=true") is is_token
        if is_token:
            with pytest.raises(ClientPropertiesError, match="librdkafka cannot log in by a delegation token"):
                librdkafka_login(given, real_runtime())
        else:
            assert librdkafka_login(given, real_runtime())["sasl.username"] == "id"


def test_a_login_without_a_protocol_is_told() -> None:
    (told,) = suspicious_lines({"sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS})
    assert told == (
        "security.protocol is not set, so it is PLAINTEXT, and sasl.mechanism, sasl.jaas.config have no effect"
    )


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("security.protocol=TLS", "security.protocol=TLS: it must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("ssl.enabled.protocols=TLSv9", "ssl.enabled.protocols=TLSv9: it must be one of TLSv1.2, TLSv1.3"),
        ("request.timeout.ms=soon", "request.timeout.ms=soon: it is no whole number"),
        ("enable.auto.commit=yes", "enable.auto.commit=yes: it is neither true nor false"),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI",
            "sasl.kerberos.service.name is not set: GSSAPI needs it; set it",
        ),
        ("security.protocol=SASL_SSL\nsasl.mechanism=DIGEST-MD5", "DIGEST-MD5 is not served; choose among PLAIN"),
        ("security.protocol=SASL_SSL", "client.properties: sasl.mechanism is not set, and its default GSSAPI needs"),
        (
            "security.protocol=SASL_SSL\nsasl.mechansim=PLAIN",
            "client.properties: sasl.mechansim is not a setting of Kafka's clients and has no effect; did you mean "
            "sasl.mechanism?; sasl.mechanism is not set",
        ),
        (f"{LOGIN}sasl.jaas.config=alice wonder", "sasl.jaas.config: a login module is: class, required"),
        ("security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=/none", "cannot read /none: no such"),
    ],
)
def test_impossible_values_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, told: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("client.properties").write_text(f"{line}\n")
    with pytest.raises(ClientPropertiesError) as refused:
        load_properties("client.properties", real_runtime())
    assert told in str(refused.value)
    assert "wonder" not in str(refused.value)
    result = CliRunner().invoke(cli, ["topics", "list", "-b", "127.0.0.1:1", "--command-config", "client.properties"])
    assert result.exit_code == 2


def test_values_may_end_in_blanks_as_in_java(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(LOGIN.replace("\n", "  \n").replace("SASL_P", "sasl_P"))
    assert load_properties(str(file), real_runtime()).login is not None


def test_the_settings_that_are_read_are_known() -> None:
    for name in ("security.protocol", "sasl.mechanism", "sasl.jaas.config", "ssl.truststore.location"):
        assert name in CLIENT_CONFIGS
    assert "sasl.enabled.mechanisms" not in CLIENT_CONFIGS
    assert "ssl.client.auth" not in CLIENT_CONFIGS
