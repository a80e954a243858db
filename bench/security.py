"""`python -m raftwerk.bench security`: secured listeners of Raftwerk and of Apache Kafka, by one client in one run.

Each system runs on three nodes with three replicas and the same server.properties, one system after the other: a
listener without security for the brokers, one with TLS 1.3, and one with TLS 1.3 and SCRAM-SHA-256. The certificates
are the same, and connections are made without resuming sessions. The client takes a large part of the two cores'
time in each row, so that the ratios are closer to one than those of the nodes alone. Apache Kafka is measured if its
jars are there.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from ..security.client_login import ClientLogin
from ..security.sasl.scram import ScramClientExchange
from ..wire.client import connect
from .common.client_workloads import Figure, consume, create_topic, produce, produce_single
from .common.side_by_side import REPLICAS, run
from .common.systems import CLUSTER_ID, ApacheKafka, System, node_settings

_HOST = "localhost"
_TLS_OFFSET, _SCRAM_OFFSET = 200, 400
_RECORD_BYTES = 1024
_MECHANISM, _USER, _PASSWORD = "SCRAM-SHA-256", "bench", "bench-secret"
_LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_CONNECTING = 4
"""So many connections are made at the same time."""
_TIMEOUT_S = 30.0


def _make_certificates(system: System) -> None:
    command = [sys.executable, "-m", "raftwerk", "certificates", str(system.directory / "certificates"), _HOST]
    subprocess.run(command, check=True, capture_output=True)


def _settings(system: System, node: int) -> str:
    """The text of server.properties, for both systems."""
    certificates, broker = system.directory / "certificates", system.base_port + node - 1
    usual = node_settings(system, node)
    secured = f"TLS://{_HOST}:{broker + _TLS_OFFSET},SCRAM://{_HOST}:{broker + _SCRAM_OFFSET}"
    settings = {
        **usual,
        "listeners": f"{usual['listeners']},{secured}",
        "advertised.listeners": f"{usual['advertised.listeners']},{secured}",
        "listener.security.protocol.map": f"{usual['listener.security.protocol.map']},TLS:SSL,SCRAM:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.enabled.protocols": "TLSv1.3",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificates / f"{_HOST}.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates / "ca.crt",
        "sasl.enabled.mechanisms": _MECHANISM,
        f"listener.name.scram.{_MECHANISM.lower()}.sasl.jaas.config": f"{_LOGIN_MODULE} required;",
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


class SecuredRaftwerk(System):
    """Nodes that run from server.properties."""

    def prepare(self) -> None:
        """Make certificates and settings."""
        _make_certificates(self)
        for node in range(1, self.nodes + 1):
            (self.directory / f"s{node}.properties").write_text(_settings(self, node))

    def launch(self) -> list[subprocess.Popen[bytes]]:
        """Start the processes."""
        processes = []
        for node in range(1, self.nodes + 1):
            command = [sys.executable, "-m", "raftwerk", "node", str(self.directory / f"s{node}.properties")]
            with (self.directory / f"n{node}.log").open("wb") as log:
                processes.append(subprocess.Popen([*command, "--format", CLUSTER_ID], stdout=log, stderr=log))
        return processes


class SecuredKafka(ApacheKafka):
    """Apache Kafka with the same settings."""

    def prepare(self) -> None:
        """Make certificates and settings, and format the log directories."""
        _make_certificates(self)
        super().prepare()

    def render(self, node: int) -> str:
        """The text of server.properties."""
        return _settings(self, node)


def _authority(system: System) -> str:
    return str(system.directory / "certificates" / "ca.crt")


def _tls(system: System) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=_authority(system))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def _ports(system: System, offset: int) -> list[int]:
    return [system.base_port + offset + i for i in range(system.nodes)]


def _add_user(system: System) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion(_USER, info, _PASSWORD.encode())
    admin = AdminClient({"bootstrap.servers": system.bootstrap})
    for done in admin.alter_user_scram_credentials([change]).values():
        done.result(_TIMEOUT_S)


def handshakes(system: System, seconds: float) -> Figure:
    """New connections with TLS 1.3 a second, made by some threads; the node has sent what ends the handshake."""
    context = _tls(system)
    ports = _ports(system, _TLS_OFFSET)
    until = time.perf_counter() + seconds

    def run_one(first: int) -> tuple[int, int]:
        made = failed = 0
        while time.perf_counter() < until:
            try:
                with (
                    socket.create_connection((_HOST, ports[(first + made) % len(ports)]), _TIMEOUT_S) as plain,
                    context.wrap_socket(plain, server_hostname=_HOST),
                ):
                    made += 1
            except OSError:
                failed += 1
        return made, failed

    with ThreadPoolExecutor(_CONNECTING) as pool:
        counts = list(pool.map(run_one, range(_CONNECTING)))
    return Figure("TLS 1.3 handshakes", sum(made for made, _ in counts) / seconds, "/s", sum(bad for _, bad in counts))


async def _log_in(system: System, seconds: float) -> Figure:
    exchange = partial(ScramClientExchange, _MECHANISM, _USER, _PASSWORD)
    login = ClientLogin(_tls(system), lambda _: exchange(secrets.token_hex(16)))
    ports = _ports(system, _SCRAM_OFFSET)
    until = time.perf_counter() + seconds
    made = failed = 0

    async def run_one(first: int) -> None:
        nonlocal made, failed
        at = first
        while time.perf_counter() < until:
            at += 1
            try:
                connection = await connect(_HOST, ports[at % len(ports)], timeout_s=_TIMEOUT_S, login=login)
            except OSError:
                failed += 1
                continue
            connection.close()
            made += 1

    await asyncio.gather(*(run_one(first) for first in range(_CONNECTING)))
    return Figure(f"{_MECHANISM} logins by TLS 1.3", made / seconds, "/s", failed)


def connection_figures(system: System, seconds: float) -> Iterator[Figure]:
    """New connections a second, with TLS alone and with a login; each is done for a while before, unmeasured."""
    handshakes(system, seconds / 2)
    yield handshakes(system, seconds)
    _add_user(system)
    asyncio.run(_log_in(system, seconds / 2))
    yield asyncio.run(_log_in(system, seconds))


def measure(system: System, seconds: float) -> Iterator[Figure]:
    """All rows of a running system."""
    login = {"security.protocol": "SSL", "ssl.ca.location": _authority(system)}
    secured = ",".join(f"{_HOST}:{port}" for port in _ports(system, _TLS_OFFSET))
    topic = partial(create_topic, system.bootstrap, replication_factor=REPLICAS)
    small, large = int(4_000 * seconds), int(40_000 * seconds)
    produce(secured, topic("warm"), large // 4, _RECORD_BYTES, -1, **login)
    yield _named("without security", produce(system.bootstrap, topic("plain"), large, _RECORD_BYTES, -1))
    yield _named("TLS 1.3", produce(secured, topic("tls"), large, _RECORD_BYTES, -1, **login))
    yield _named("without security", consume(system.bootstrap, "plain", large, _RECORD_BYTES))
    yield _named("TLS 1.3", consume(secured, "tls", large, _RECORD_BYTES, **login))
    yield _named("without security", produce_single(system.bootstrap, topic("plain-single"), small, -1))
    yield _named("TLS 1.3", produce_single(secured, topic("tls-single"), small, -1, **login))
    yield from connection_figures(system, seconds)


def _named(listener: str, figure: Figure) -> Figure:
    return Figure(f"{figure.name}, {listener}", figure.value, figure.unit, figure.bad, figure.bigger_is_better)


def main(arguments: list[str]) -> int:
    """Run the command line; the exit code is 1 if a figure has errors."""
    return run(arguments, "security", __doc__, measure, ours=SecuredRaftwerk, theirs=SecuredKafka)
