"""Clients of all libraries that write a record and read it back over a secured listener."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AsyncTokenProvider
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider
from support.e2e.command import raftwerk
from support.e2e.franz_go import franz_go

_PACKAGE = "org.apache.kafka.common.security"
_MODULES = {
    "PLAIN": f"{_PACKAGE}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_PACKAGE}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_PACKAGE}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule",
}


Exchange: TypeAlias = "Callable[[Login, str, str], str]"
"""Writes a value to a topic, which is created, and returns what is read there."""


@dataclass(frozen=True)
class Login:
    """How a client comes in: by TLS, with its certificate if `identity` is set, by SASL if `mechanism` is set."""

    bootstrap: str
    ca: Path
    identity: Path | None = None
    mechanism: str | None = None
    user: str = ""
    password: str = ""
    token: Callable[[], str] = str
    """Makes a token for OAUTHBEARER."""
    token_url: str = ""

    @property
    def protocol(self) -> str:
        """`security.protocol`."""
        return "SSL" if self.mechanism is None else "SASL_SSL"

    def librdkafka(self) -> dict[str, Any]:
        """The settings of librdkafka."""
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.protocol,
            "ssl.ca.location": str(self.ca),
        }
        if self.identity is not None:
            settings |= {"ssl.certificate.location": str(self.identity), "ssl.key.location": str(self.identity)}
        if self.mechanism == "OAUTHBEARER":
            settings |= {
                "sasl.mechanism": self.mechanism,
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": self.user,
                "sasl.oauthbearer.client.secret": self.password,
                "sasl.oauthbearer.token.endpoint.url": self.token_url,
                "https.ca.location": str(self.ca),
            }
        elif self.mechanism is not None:
            settings |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.user,
                "sasl.password": self.password,
            }
        return settings

    def java(self) -> dict[str, str]:
        """The settings of Java clients, of Kafka's tools and of the commands here."""
        settings = {
            "security.protocol": self.protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
        }
        if self.identity is not None:
            settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.identity)}
        if self.mechanism == "OAUTHBEARER":
            settings |= {
                "sasl.login.callback.handler.class": f"{_PACKAGE}.oauthbearer.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url": self.token_url,
            }
        if self.mechanism is not None:
            settings |= {"sasl.mechanism": self.mechanism, "sasl.jaas.config": self._jaas()}
        return settings

    def properties_file(self, path: Path) -> str:
        """Write the settings of Java clients to the file; returns its path."""
        path.write_text("".join(f"{name}={value}\n" for name, value in self.java().items()))
        return str(path)

    def _jaas(self) -> str:
        if self.mechanism == "OAUTHBEARER":
            options = f'clientId="{self.user}" clientSecret="{self.password}" '
            options += f'ssl.truststore.type="PEM" ssl.truststore.location="{self.ca}"'
        else:
            options = f'username="{self.user}" password="{self.password}"'
        return f"{_MODULES[self.mechanism or '']} required {options};"

    def plain_python(self) -> dict[str, Any]:
        """What kafka-python and aiokafka have in common, but TLS and tokens."""
        settings: dict[str, Any] = {"bootstrap_servers": self.bootstrap, "security_protocol": self.protocol}
        if self.mechanism is not None:
            settings["sasl_mechanism"] = self.mechanism
        if self.mechanism not in (None, "OAUTHBEARER"):
            settings |= {"sasl_plain_username": self.user, "sasl_plain_password": self.password}
        return settings


def confluent_kafka(login: Login, topic: str, value: str) -> str:
    producer = Producer(login.librdkafka() | {"acks": "all"})
    producer.produce(topic, value)
    assert producer.flush(30) == 0
    consumer = Consumer(login.librdkafka() | {"group.id": f"g-{topic}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(30)
    assert message is not None
    assert message.error() is None
    consumer.close()
    return (message.value() or b"").decode()


def kafka_python(login: Login, topic: str, value: str) -> str:
    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return login.token()

    settings = login.plain_python() | {"ssl_cafile": str(login.ca)}
    if login.identity is not None:
        settings |= {"ssl_certfile": str(login.identity), "ssl_keyfile": str(login.identity)}
    if login.mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = Tokens()
    producer = KafkaProducer(acks="all", **settings)
    producer.send(topic, value.encode()).get(30)
    producer.close()
    consumer = KafkaConsumer(
        topic, group_id=f"g-{topic}", auto_offset_reset="earliest", consumer_timeout_ms=30_000, **settings
    )
    read = next(consumer).value.decode()
    consumer.close()
    return str(read)


def aiokafka(login: Login, topic: str, value: str) -> str:
    class Tokens(AsyncTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return login.token()

    async def exchange() -> str:
        identity = None if login.identity is None else str(login.identity)
        context = create_ssl_context(cafile=str(login.ca), certfile=identity, keyfile=identity)
        settings = login.plain_python() | {"ssl_context": context}
        if login.mechanism == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = Tokens()
        async with AIOKafkaProducer(acks="all", **settings) as producer:
            await producer.send_and_wait(topic, value.encode())
        async with AIOKafkaConsumer(topic, group_id=f"g-{topic}", auto_offset_reset="earliest", **settings) as consumer:
            return str((await consumer.getone()).value.decode())

    return asyncio.run(asyncio.wait_for(exchange(), 60))


def kcat(login: Login, topic: str, value: str, program: str) -> str:
    settings = login.librdkafka()
    at = [program, "-b", settings.pop("bootstrap.servers"), "-t", topic]
    for name, setting in settings.items():
        at += ["-X", f"{name}={setting}"]
    subprocess.run([*at, "-P"], input=f"{value}\n", text=True, check=True, timeout=60)
    return subprocess.run([*at, "-C", "-e"], capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def of_go(login: Login, topic: str, value: str) -> str:
    password = login.token() if login.mechanism == "OAUTHBEARER" else login.password
    at = [franz_go(), "-bootstrap", login.bootstrap, "-topic", topic, "-value", value, "-ca", str(login.ca)]
    at += ["-identity", str(login.identity or ""), "-mechanism", login.mechanism or ""]
    ran = subprocess.run(
        [*at, "-user", login.user, "-password", password], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def commands(login: Login, topic: str, value: str, properties: Path) -> str:
    at = ("-b", login.bootstrap, "--command-config", login.properties_file(properties))
    created = raftwerk("topics", "create", topic, *at)
    assert created.returncode == 0, created.stderr
    written = raftwerk("produce", topic, *at, text=f"{value}\n")
    assert written.returncode == 0, written.stderr
    read = raftwerk("consume", topic, "-e", *at)
    assert read.returncode == 0, read.stderr
    return read.stdout.strip()
