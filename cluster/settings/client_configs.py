"""The settings of Apache Kafka's clients, so that misspelt lines in a file of client properties are noticed.

They are those of AdminClientConfig, ProducerConfig and ConsumerConfig of Kafka 4.2: one file often serves all three.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...controller.configs.security_configs import JAAS_CONFIG, LISTENER_CONFIGS, SECURITY_PROTOCOLS
from ...wire.config_def import BOOLEAN, DOUBLE, INT, LONG, SHORT, STRING, ConfigKey, ConfigType, one_of
from .setting_names import nearest_name

_NAMES: Mapping[ConfigType, str] = {
    BOOLEAN: """
        allow.auto.create.topics check.crcs enable.auto.commit enable.idempotence enable.metrics.push
        exclude.internal.topics partitioner.adaptive.partitioning.enable partitioner.ignore.keys
        sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.header.urlencode
        transaction.two.phase.commit.enable""",
    SHORT: "sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds",
    INT: """
        auto.commit.interval.ms batch.size compression.gzip.level compression.lz4.level compression.zstd.level
        default.api.timeout.ms delivery.timeout.ms fetch.max.bytes fetch.max.wait.ms fetch.min.bytes
        heartbeat.interval.ms max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms
        max.poll.records max.request.size metrics.num.samples receive.buffer.bytes request.timeout.ms retries
        sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.oauthbearer.assertion.claim.exp.seconds
        sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.clock.skew.seconds send.buffer.bytes
        session.timeout.ms transaction.timeout.ms""",
    LONG: """
        buffer.memory connections.max.idle.ms linger.ms max.block.ms metadata.max.age.ms metadata.max.idle.ms
        metadata.recovery.rebootstrap.trigger.ms metrics.sample.window.ms partitioner.availability.timeout.ms
        reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms
        sasl.kerberos.min.time.before.relogin sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
        sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.ms socket.connection.setup.timeout.max.ms
        socket.connection.setup.timeout.ms""",
    DOUBLE: """
        sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.window.factor
        sasl.login.refresh.window.jitter""",
    STRING: """
        acks auto.offset.reset bootstrap.controllers bootstrap.servers client.dns.lookup client.id client.rack
        compression.type config.providers group.id group.instance.id group.protocol group.remote.assignor
        interceptor.classes isolation.level key.deserializer key.serializer metadata.recovery.strategy
        metric.reporters metrics.recording.level partition.assignment.strategy partitioner.class
        sasl.client.callback.handler.class sasl.kerberos.kinit.cmd sasl.kerberos.service.name
        sasl.login.callback.handler.class sasl.login.class sasl.mechanism sasl.oauthbearer.assertion.algorithm
        sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.iss
        sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
        sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
        sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
        sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.expected.audience
        sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.retriever.class
        sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name
        sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url security.providers
        share.acknowledgement.mode share.acquire.mode ssl.engine.factory.class ssl.keymanager.algorithm ssl.protocol
        ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm transactional.id
        value.deserializer value.serializer""",
}
_OF_LISTENERS_ONLY = ("ssl.client.auth", "ssl.principal.mapping.rules")
_SECURITY = (
    ConfigKey(
        "security.protocol",
        STRING,
        "PLAINTEXT",
        "Whether the connection is encrypted, and whether the client logs in.",
        one_of(*SECURITY_PROTOCOLS),
    ),
    JAAS_CONFIG,
    *(key for name, key in LISTENER_CONFIGS.items() if name.startswith("ssl.") and name not in _OF_LISTENERS_ONLY),
)
_OF_LOGINS = (
    "sasl.mechanism",
    "sasl.kerberos.service.name",
    "sasl.login.callback.handler.class",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.header.urlencode",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url",
)
CLIENT_CONFIGS: Mapping[str, ConfigKey] = {
    name: ConfigKey(name, config_type, None, "", is_served=name in _OF_LOGINS)
    for config_type, names in _NAMES.items()
    for name in names.split()
} | {key.name: key for key in _SECURITY}
"""The settings of clients by name. Those with a documentation, and those of logins, say how commands log in."""

_OF_LIBRDKAFKA: Mapping[str, str] = {
    "metadata.broker.list": "write bootstrap.servers",
    "sasl.mechanisms": "write sasl.mechanism",
    "sasl.username": "sasl.jaas.config holds the user name",
    "sasl.password": "sasl.jaas.config holds the password",
    "ssl.ca.location": "write ssl.truststore.location, and ssl.truststore.type=PEM",
    "ssl.ca.pem": "write ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.location is a file with certificate and key, with ssl.keystore.type=PEM",
    "ssl.key.location": "ssl.keystore.location is a file with certificate and key, with ssl.keystore.type=PEM",
    "enable.ssl.certificate.verification": "certificates are always verified",
}


def suspicious_lines(properties: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each line of client properties that does nothing and was probably meant to do something."""
    for name in properties:
        if name in _OF_LIBRDKAFKA:
            yield f"{name} is a setting of librdkafka and has no effect here: {_OF_LIBRDKAFKA[name]}"
        elif name not in CLIENT_CONFIGS:
            near = nearest_name(name.replace("_", ".").lower(), CLIENT_CONFIGS)
            meant = f"; did you mean {near}?" if near is not None else ""
            yield f"{name} is not a setting of Kafka's clients and has no effect{meant}"
        elif name.startswith(("sasl.", "security.", "ssl.")) and not _is_used(name):
            yield f"{name} has no effect on the commands of Raftwerk"
    unused = [name for name in properties if name.startswith(("sasl.", "ssl.")) and name in CLIENT_CONFIGS]
    if "security.protocol" not in properties and unused:
        what = f"security.protocol is not set, so it is PLAINTEXT, and {', '.join(unused)}"
        yield f"{what} {'has' if len(unused) == 1 else 'have'} no effect"


def _is_used(name: str) -> bool:
    key = CLIENT_CONFIGS[name]
    return key is JAAS_CONFIG or bool(key.doc) or key.is_served
