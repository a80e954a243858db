"""Three real nodes whose every login is by Kerberos, and clients with tickets of a real key distribution centre."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from kafka import KafkaConsumer
from support.e2e.clusters import start_cluster
from support.e2e.command import ok, raftwerk
from support.e2e.java_tools import JavaTools
from support.security.kerberos import REALM, KeyDistributionCentre, key_distribution_centre

from raftwerk.cluster.local.supervisor import Supervisor

MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
HOST = "localhost"
NODE = f"kafka/{HOST}"
TOPIC, LINES = "by-ticket", 20
RULES = "RULE:[1:$1@$0](robot-.*@EXAMPLE.COM)s/robot-(.*)@.*/$1/,RULE:[2:$1](kafka),RULE:[1:$1](admin)"


@pytest.fixture(scope="module")
def centre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyDistributionCentre]:
    with key_distribution_centre(tmp_path_factory.mktemp("kdc")) as centre:
        yield centre


@pytest.fixture(scope="module")
def cluster(centre: KeyDistributionCentre, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    keys = centre.key_table(NODE)
    login = f'{MODULE} useKeyTab=true storeKey=true keyTab="{keys}" principal="{NODE}@{REALM}";'
    overrides = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "sasl.mechanism.controller.protocol": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": RULES,
        "listener.name.plaintext.gssapi.sasl.jaas.config": login,
        "listener.name.controller.gssapi.sasl.jaas.config": login,
        "connections.max.reauth.ms": "5000",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:kafka;User:admin",
    }
    supervisor = start_cluster(tmp_path_factory.mktemp("cluster"), 3, host=HOST, overrides=overrides)
    yield supervisor
    supervisor.stop()


def properties(path: Path, options: str) -> str:
    path.write_text(
        f"""security.protocol=SASL_PLAINTEXT
sasl.mechanism=GSSAPI
sasl.kerberos.service.name=kafka
sasl.jaas.config={MODULE} {options};
"""
    )
    return str(path)


def with_keys(path: Path, principal: str, keys: Path) -> str:
    return properties(path, f'useKeyTab=true storeKey=true keyTab="{keys}" principal="{principal}@{REALM}"')


@pytest.fixture(scope="module")
def admin(centre: KeyDistributionCentre, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Client properties of the administrator."""
    return with_keys(tmp_path_factory.mktemp("admin") / "admin.properties", "admin", centre.key_table("admin"))


@pytest.fixture(scope="module")
def filled(cluster: Supervisor, admin: str) -> str:
    at = ("-b", cluster.plan.bootstrap, "--command-config", admin)
    ok("topics", "create", TOPIC, "-p", "3", "-r", "3", *at)
    ok("produce", TOPIC, *at, text="".join(f"{number}\n" for number in range(LINES)))
    return TOPIC


def test_commands_with_a_key_table(cluster: Supervisor, admin: str, filled: str) -> None:
    at = ("-b", cluster.plan.bootstrap, "--command-config", admin)
    read = ok("consume", filled, "-n", str(LINES), "--from-beginning", *at)
    assert sorted(map(int, read.split())) == list(range(LINES))


def test_commands_with_a_ticket(
    cluster: Supervisor, centre: KeyDistributionCentre, admin: str, filled: str, tmp_path: Path
) -> None:
    """Who has a ticket needs no login module, and the default mechanism is GSSAPI, as in Apache Kafka."""
    cache = tmp_path / "tickets"
    centre.get_ticket("admin", centre.directory / "admin.keytab", cache)
    at = ("-b", cluster.plan.bootstrap, "--command-config")
    options = f'useTicketCache=true ticketCache="{cache}"'
    assert filled in ok("topics", "list", *at, properties(tmp_path / "client.properties", options))
    (tmp_path / "short").write_text("security.protocol=SASL_PLAINTEXT\nsasl.kerberos.service.name=kafka\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5CCNAME", f"FILE:{cache}")
        assert filled in ok("topics", "list", *at, str(tmp_path / "short"))


def test_a_rule_makes_the_user_s_name(
    cluster: Supervisor, centre: KeyDistributionCentre, admin: str, filled: str, tmp_path: Path
) -> None:
    robot = with_keys(tmp_path / "robot", "robot-alice", centre.key_table("robot-alice"))
    at = ("-b", cluster.plan.bootstrap, "--command-config")
    assert filled not in ok("topics", "list", *at, robot)
    ok("acls", "allow", "alice", "consume", "--topic", filled, "--group", "any", *at, admin)
    assert filled in ok("topics", "list", *at, robot)


def test_who_is_refused(cluster: Supervisor, centre: KeyDistributionCentre, admin: str, tmp_path: Path) -> None:
    at = ("topics", "list", "-b", cluster.plan.bootstrap, "--command-config")
    nobody = raftwerk(*at, with_keys(tmp_path / "nobody", "nobody", centre.directory / "admin.keytab"))
    assert nobody.returncode == 1
    assert "fails in the login by GSSAPI" in nobody.stderr
    assert "keyTab and principal" in nobody.stderr
    none = raftwerk(*at, with_keys(tmp_path / "none", "admin", tmp_path / "none.keytab"))
    assert none.returncode == 2
    assert f"cannot read {tmp_path}/none.keytab: no such file" in none.stderr
    keys = centre.key_table("frank")
    centre.renew("frank")
    outdated = raftwerk(*at, with_keys(tmp_path / "outdated", "frank", keys))
    assert outdated.returncode == 1
    assert "fails in the login by GSSAPI" in outdated.stderr
    fits_no_rule = with_keys(tmp_path / "host", f"http/{HOST}", centre.key_table(f"http/{HOST}"))
    refused = raftwerk(*at, fits_no_rule)
    assert refused.returncode == 1
    assert "invalid credentials with SASL mechanism GSSAPI; the log of the server says why" in refused.stderr
    told = "".join(Path(node.log_file).read_text() for node in cluster.plan.nodes)
    assert (
        f"the login failed: no rule of sasl.kerberos.principal.to.local.rules ({', '.join(RULES.split(','))})" in told
    )
    assert f"fits 'http/{HOST}@{REALM}'" in told


@pytest.mark.java
def test_java(
    cluster: Supervisor, centre: KeyDistributionCentre, java_command: list[str], filled: str, admin: str
) -> None:
    tools = JavaTools([java_command[0], f"-Djava.security.krb5.conf={centre.config}", *java_command[1:]])
    at = ("--bootstrap-server", cluster.plan.bootstrap, "--command-config", admin)
    try:
        assert filled in tools.run("TopicCommand", *at, "--list")
    finally:
        tools.close()


def test_kafka_python_and_aiokafka(
    cluster: Supervisor, centre: KeyDistributionCentre, filled: str, tmp_path: Path
) -> None:
    """They write the name of the service where the name to act as may stand; it has no effect, as in Apache Kafka."""
    cache = tmp_path / "tickets"
    centre.get_ticket("admin", centre.directory / "admin.keytab", cache)

    async def write() -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.plan.bootstrap, security_protocol="SASL_PLAINTEXT", sasl_mechanism="GSSAPI"
        )
        await producer.start()
        try:
            return int((await producer.send_and_wait("by-aiokafka", b"x")).offset)
        finally:
            await producer.stop()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5CCNAME", f"FILE:{cache}")
        consumer = KafkaConsumer(
            filled,
            bootstrap_servers=cluster.plan.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="GSSAPI",
            sasl_kerberos_service_name="kafka",
            auto_offset_reset="earliest",
            consumer_timeout_ms=20_000,
        )
        seen = sorted(int(next(consumer).value) for _ in range(LINES))
        consumer.close()
        assert seen == list(range(LINES))
        assert asyncio.run(asyncio.wait_for(write(), 60)) == 0


def test_kcat(cluster: Supervisor, centre: KeyDistributionCentre, admin: str, filled: str, kcat: str) -> None:
    """librdkafka of a build with Cyrus SASL, which asks kinit for the ticket."""
    folders = [*os.environ.get("SASL_PATH", "").split(os.pathsep), *map(str, Path("/usr/lib").glob("*/sasl2"))]
    if not any(folder and list(Path(folder).glob("libgssapiv2.so*")) for folder in folders):
        pytest.skip("no GSSAPI for Cyrus SASL (Debian: libsasl2-modules-gssapi-mit): kcat is NOT tested with Kerberos")
    own = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal": f"admin@{REALM}",
        "sasl.kerberos.keytab": str(centre.directory / "admin.keytab"),
    }
    options = [part for name, value in own.items() for part in ("-X", f"{name}={value}")]
    command = [kcat, "-C", "-b", cluster.plan.bootstrap, "-t", filled, "-e", "-q", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(map(int, done.stdout.split())) == list(range(LINES))
