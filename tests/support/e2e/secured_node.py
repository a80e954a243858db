"""A node with a listener for each way in: TLS, certificates of clients, PLAIN, SCRAM and tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from support.e2e.clusters import START_TIMEOUT_S
from support.e2e.secured_clients import Login
from support.security.certificates import Authority
from support.security.identity_provider import AUDIENCE, ISSUER, IdentityProvider

from raftwerk.cluster.local.layout import ClusterPlan, ClusterShape, find_free_base_port, plan_cluster
from raftwerk.cluster.local.supervisor import Supervisor

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
WAYS = ("TLS", "certificate", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
LISTENERS = {"TLS": "SSL", "CERTIFICATE": "SSL", "LOGIN": "SASL_SSL"}


@dataclass(frozen=True)
class SecuredNode:
    """The node, which authorizes alice only, and how she logs in each of `WAYS`."""

    authority: Authority
    provider: IdentityProvider
    logins: Mapping[str, Login]
    bootstrap: str
    """The address of its own listener, where all are super users."""

    @classmethod
    @contextmanager
    def start(cls, directory: Path) -> Iterator[SecuredNode]:
        """Serve until the end of the block."""
        authority = Authority(directory / "authority")
        with IdentityProvider(lifetime_s=600).serving(authority.issue("provider", "localhost")) as provider:
            planned = _plan(directory / "cluster", authority, provider)
            with Supervisor(planned) as supervisor:
                supervisor.start(START_TIMEOUT_S)
                own = planned.bootstrap.partition(",")[0]
                _add_user(own, "alice", "wonder")
                yield cls(authority, provider, _logins(planned, authority, provider), own)

    def add_user(self, name: str, password: str) -> Login:
        """Give a user without rights a password, and return how to log in with it."""
        _add_user(self.bootstrap, name, password)
        return replace(self.logins["SCRAM-SHA-512"], user=name, password=password)


def _add_user(bootstrap: str, name: str, password: str) -> None:
    users: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, 4096), password.encode())
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.alter_user_scram_credentials(users)[name].result(20)


def _plan(directory: Path, authority: Authority, provider: IdentityProvider) -> ClusterPlan:
    """One node with a listener for each security protocol, beside that of its own."""
    node = authority.issue("node", "localhost", "127.0.0.1")
    trusted = f'ssl.truststore.type="PEM" ssl.truststore.location="{authority.file}"'
    settings = {
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(node),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
        "listener.name.certificate.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": r"RULE:^.*CN=([^,]+).*$/$1/,DEFAULT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.login.plain.sasl.jaas.config": f'{PLAIN} user_alice="wonder";',
        "listener.name.login.oauthbearer.sasl.jaas.config": f"{OAUTHBEARER} {trusted};",
        "sasl.oauthbearer.jwks.endpoint.url": provider.keys_url,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice;User:ANONYMOUS",
    }
    base = find_free_base_port(ClusterShape(1 + len(LISTENERS)))
    planned = plan_cluster(str(directory), ClusterShape(brokers=1, port=base, overrides=settings))
    (node_plan,) = planned.nodes
    ports = {name: base + number for number, name in enumerate(LISTENERS, start=1)}
    own = "".join(f",{name}://127.0.0.1:{port}" for name, port in ports.items())
    protocols = ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items())
    properties = dict(node_plan.properties)
    properties["listeners"] += own
    properties["advertised.listeners"] += own
    properties["listener.security.protocol.map"] = f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{protocols}"
    return replace(planned, nodes=(replace(node_plan, properties=properties),))


def _logins(planned: ClusterPlan, authority: Authority, provider: IdentityProvider) -> Mapping[str, Login]:
    advertised = planned.nodes[0].properties["advertised.listeners"].split(",")
    address = dict(one.split("://") for one in advertised)
    by_name = Login(address["LOGIN"], authority.file, user="alice", password="wonder")
    by_token = replace(
        by_name,
        mechanism="OAUTHBEARER",
        password="secret-of-alice",
        token=lambda: provider.token("alice"),
        token_url=provider.token_url,
    )
    return {
        "TLS": Login(address["TLS"], authority.file),
        "certificate": Login(address["CERTIFICATE"], authority.file, authority.issue("alice", "alice.example")),
        **{way: replace(by_name, mechanism=way) for way in WAYS[2:-1]},
        "OAUTHBEARER": by_token,
    }
