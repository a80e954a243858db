"""Three real nodes whose every login is by a token of an identity provider, and clients that get tokens there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AsyncTokenProvider
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka.net.sasl.oauth import AbstractTokenProvider
from support.e2e.clusters import start_cluster
from support.e2e.command import raftwerk
from support.e2e.java_tools import JavaTools
from support.security.certificates import Authority
from support.security.identity_provider import AUDIENCE, ISSUER, IdentityProvider

from raftwerk.cluster.local.supervisor import Supervisor

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
TOPIC, COUNT = "by-token", 60
LIFETIME_S = 8
"""How long tokens are valid."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def provider(authority: Authority) -> Iterator[IdentityProvider]:
    with IdentityProvider(lifetime_s=LIFETIME_S).serving(authority.issue("provider", "localhost")) as provider:
        yield provider


@pytest.fixture(scope="module")
def cluster(
    provider: IdentityProvider, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Supervisor]:
    trusted = f'ssl.truststore.type="PEM" ssl.truststore.location="{authority.file}"'
    login = f'{MODULE} clientId="node" clientSecret="secret-of-node" {trusted};'
    overrides = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.mechanism.controller.protocol": "OAUTHBEARER",
        "listener.name.plaintext.oauthbearer.sasl.jaas.config": login,
        "listener.name.controller.oauthbearer.sasl.jaas.config": login,
        "sasl.oauthbearer.jwks.endpoint.url": provider.keys_url,
        "sasl.oauthbearer.token.endpoint.url": provider.token_url,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:node;User:admin",
    }
    supervisor = start_cluster(tmp_path_factory.mktemp("cluster"), 3, overrides=overrides)
    yield supervisor
    supervisor.stop()


def settings(cluster: Supervisor, provider: IdentityProvider, user: str = "admin") -> dict[str, Any]:
    """The settings of librdkafka with a token of the test."""
    return {
        "bootstrap.servers": cluster.plan.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (provider.token(user), time.time() + provider.lifetime_s),
    }


@pytest.fixture(scope="module")
def filled(cluster: Supervisor, provider: IdentityProvider) -> str:
    own = settings(cluster, provider)
    admin = AdminClient(own)
    admin.poll(0)
    admin.create_topics([NewTopic(TOPIC, 3, 3)])[TOPIC].result(30)
    producer = Producer(own | {"acks": "all"})
    for number in range(COUNT):
        producer.produce(TOPIC, str(number).encode(), partition=number % 3)
    assert producer.flush(30) == 0
    return TOPIC


def test_librdkafka_asks_the_token_endpoint_by_itself(
    cluster: Supervisor, provider: IdentityProvider, authority: Authority, filled: str
) -> None:
    own = settings(cluster, provider)
    del own["oauth_cb"]
    own |= {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "admin",
        "sasl.oauthbearer.client.secret": "secret-of-admin",
        "sasl.oauthbearer.token.endpoint.url": provider.token_url,
        "https.ca.location": str(authority.file),
        "group.id": "readers",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(own)
    consumer.subscribe([filled])
    seen: list[int] = []
    end = time.monotonic() + 60
    while len(seen) < COUNT and time.monotonic() < end:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            seen.append(int(message.value() or b"-1"))
    consumer.close()
    assert sorted(seen) == list(range(COUNT))
    assert "admin" in provider.issued


@pytest.mark.long
def test_a_client_goes_on_when_its_token_has_expired(
    cluster: Supervisor, provider: IdentityProvider, filled: str
) -> None:
    """The connections of nodes do so, too: their tokens hold for as short a time."""
    lost: list[int] = []
    own = settings(cluster, provider) | {"acks": "all", "error_cb": lambda error: lost.append(error.code())}
    producer = Producer(own)
    asked = provider.issued.count("node")
    end = time.monotonic() + 1.4 * LIFETIME_S
    while time.monotonic() < end:
        producer.produce("again", b"x")
        assert producer.flush(15) == 0
    assert KafkaError._AUTHENTICATION not in lost
    assert provider.issued.count("node") > asked


def test_kafka_python(cluster: Supervisor, provider: IdentityProvider, filled: str) -> None:
    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return provider.token("admin")

    consumer = KafkaConsumer(
        filled,
        bootstrap_servers=cluster.plan.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Tokens(),
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    seen = sorted(int(next(consumer).value) for _ in range(COUNT))
    consumer.close()
    assert seen == list(range(COUNT))


def test_aiokafka(cluster: Supervisor, provider: IdentityProvider, filled: str) -> None:
    class Tokens(AsyncTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return provider.token("admin")

    async def write() -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.plan.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Tokens(),
        )
        await producer.start()
        try:
            return int((await producer.send_and_wait("by-aiokafka", b"x")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(asyncio.wait_for(write(), 60)) == 0


@pytest.fixture(scope="module")
def tools_with_tokens(java_command: list[str], provider: IdentityProvider) -> Iterator[JavaTools]:
    """Kafka's tools, which ask no address for tokens that the virtual machine is not told of."""
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.token_url}"
    tools = JavaTools([java_command[0], allowed, *java_command[1:]])
    yield tools
    tools.close()


def client_properties(
    path: Path, provider: IdentityProvider, authority: Authority, secret: str = "secret-of-admin"
) -> str:
    path.write_text(
        f"""security.protocol=SASL_PLAINTEXT
sasl.mechanism=OAUTHBEARER
sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler
sasl.oauthbearer.token.endpoint.url={provider.token_url}
sasl.oauthbearer.client.credentials.client.id=admin
sasl.oauthbearer.client.credentials.client.secret={secret}
sasl.jaas.config={MODULE} ssl.truststore.type="PEM" ssl.truststore.location="{authority.file}";
"""
    )
    return str(path)


@pytest.mark.java
def test_kafkas_tools(
    cluster: Supervisor,
    provider: IdentityProvider,
    authority: Authority,
    filled: str,
    tools_with_tokens: JavaTools,
    tmp_path: Path,
) -> None:
    config = client_properties(tmp_path / "client.properties", provider, authority)
    at = ("--bootstrap-server", cluster.plan.bootstrap, "--command-config", config)
    assert filled in tools_with_tokens.run("TopicCommand", *at, "--list")


def test_commands(
    cluster: Supervisor, provider: IdentityProvider, authority: Authority, filled: str, tmp_path: Path
) -> None:
    config = client_properties(tmp_path / "client.properties", provider, authority)
    at = ("-b", cluster.plan.bootstrap, "--command-config", config)
    listed = raftwerk("topics", "list", *at)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert filled in listed.stdout
    client_properties(tmp_path / "client.properties", provider, authority, "wrong")
    refused = raftwerk("topics", "list", *at)
    assert refused.returncode == 1
    assert f"the token endpoint {provider.token_url} answers 401: invalid_client wrong secret" in refused.stderr
    token = tmp_path / "token"
    token.write_text(provider.token("admin", aud="other"))
    (tmp_path / "client.properties").write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\nsasl.jaas.config={MODULE};\n"
        f"sasl.oauthbearer.token.endpoint.url=file://{token}\n"
    )
    refused = raftwerk("topics", "list", *at)
    assert 'refuses the login by OAUTHBEARER: {"status":"invalid_token"}; likewise ' in refused.stderr
    assert "the log of the server says why it refuses this token; correct sasl.oauthbearer.*" in refused.stderr
    token.write_text(provider.token("admin"))
    assert filled in raftwerk("topics", "list", *at).stdout


def test_the_name_in_the_token_is_who_may_do_something(
    cluster: Supervisor, provider: IdentityProvider, filled: str
) -> None:
    mallory = AdminClient(settings(cluster, provider, "mallory"))
    assert filled not in mallory.list_topics(timeout=20).topics


@pytest.mark.parametrize("claims", [{"aud": "other"}, {"iss": "https://other.example"}, {"exp": 1}])
def test_wrong_tokens_are_refused(cluster: Supervisor, provider: IdentityProvider, claims: dict[str, Any]) -> None:
    seen: list[int] = []
    client = AdminClient(
        settings(cluster, provider)
        | {
            "oauth_cb": lambda _: (provider.token("admin", **claims), time.time() + 60),
            "error_cb": lambda error: seen.append(error.code()),
        }
    )
    with pytest.raises(KafkaException):
        client.list_topics(timeout=3)
    client.poll(0)
    assert KafkaError._AUTHENTICATION in seen


def test_tokens_of_a_new_key_are_accepted_soon(cluster: Supervisor, provider: IdentityProvider, filled: str) -> None:
    provider.rotate("second")
    end = time.monotonic() + 60
    while True:
        try:
            assert filled in AdminClient(settings(cluster, provider)).list_topics(timeout=5).topics
            return
        except KafkaException:
            assert time.monotonic() < end, "the new key was not read"
