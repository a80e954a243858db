"""The rows of the table of configurations that are about security: TLS, SASL, and who may do what.

Those of LISTENER_CONFIGS may be set for one listener, as `listener.name.<name>.<key>` in lower case. Those of
MECHANISM_CONFIGS may be set for one listener and mechanism, as `listener.name.<name>.<mechanism>.<key>`.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ...runtime.tls_contexts import CLIENT_AUTH, TLS_PROTOCOLS
from ...wire.config_def import (
    BOOLEAN,
    INT,
    LIST,
    LONG,
    NOT_NEGATIVE,
    PASSWORD,
    POSITIVE,
    STRING,
    ConfigKey,
    UpdateMode,
    one_of,
)

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
DEFAULT_PRINCIPAL_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
JAAS_CONFIG = ConfigKey(
    "sasl.jaas.config",
    PASSWORD,
    None,
    "The users of a mechanism, and this node's own credentials. It is read with the name of a listener and a mechanism "
    "in front; without them it has no effect, as in Apache Kafka.",
    is_served=False,
)

_CERTIFICATES = tuple(
    replace(key, update_mode=UpdateMode.PER_BROKER)
    for key in (
        ConfigKey(
            "ssl.keystore.type", STRING, "JKS", "The format of the key store: PEM, PKCS12 or JKS, which is refused."
        ),
        ConfigKey("ssl.keystore.location", STRING, None, "The file with this node's certificate and key."),
        ConfigKey("ssl.keystore.password", PASSWORD, None, "The password of a PKCS12 key store."),
        ConfigKey("ssl.keystore.key", PASSWORD, None, "The private key itself, in PEM (PKCS#8)."),
        ConfigKey("ssl.keystore.certificate.chain", PASSWORD, None, "The certificate and those above it, in PEM."),
        ConfigKey("ssl.key.password", PASSWORD, None, "The password of the private key."),
        ConfigKey("ssl.truststore.type", STRING, "JKS", "The format of the trust store: PEM, PKCS12 or JKS."),
        ConfigKey(
            "ssl.truststore.location",
            STRING,
            None,
            "The file with the certificates that are trusted; else the system's.",
        ),
        ConfigKey("ssl.truststore.password", PASSWORD, None, "The password of a PKCS12 trust store."),
        ConfigKey("ssl.truststore.certificates", PASSWORD, None, "The trusted certificates themselves, in PEM."),
    )
)
"""Of one listener they may change while the node runs (KIP-226)."""
_TLS = (
    *_CERTIFICATES,
    ConfigKey(
        "ssl.enabled.protocols",
        LIST,
        "TLSv1.2,TLSv1.3",
        "The versions of TLS.",
        one_of(*TLS_PROTOCOLS),
    ),
    ConfigKey("ssl.cipher.suites", LIST, "", "Cipher suites of TLS 1.2, by OpenSSL's or IANA's names; empty for all."),
    ConfigKey(
        "ssl.client.auth",
        STRING,
        "none",
        "Whether clients show a certificate.",
        one_of(*CLIENT_AUTH),
    ),
    ConfigKey(
        "ssl.endpoint.identification.algorithm",
        STRING,
        "https",
        "https: connections to other nodes check that the certificate is for the host. Empty: they do not.",
        one_of("https", ""),
    ),
    ConfigKey(
        "ssl.principal.mapping.rules",
        STRING,
        "DEFAULT",
        "Rules that make a user's name of the name in a certificate: RULE:pattern/replacement/[LU], or DEFAULT.",
    ),
)
_SASL = (
    ConfigKey("sasl.enabled.mechanisms", LIST, "GSSAPI", "The SASL mechanisms that are offered."),
    ConfigKey(
        "sasl.server.max.receive.size", INT, "524288", "The largest request before the login, in bytes.", POSITIVE
    ),
    ConfigKey(
        "connections.max.reauth.ms",
        LONG,
        "0",
        "How long a login holds before the client must log in again; 0 for ever.",
        NOT_NEGATIVE,
    ),
    ConfigKey(
        "connection.failed.authentication.delay.ms",
        INT,
        "100",
        "After how long a failed login is answered.",
        NOT_NEGATIVE,
    ),
)
_REAUTHENTICATION = next(key for key in _SASL if key.name == "connections.max.reauth.ms")
_HANDLERS = (
    ConfigKey(
        "sasl.server.callback.handler.class",
        STRING,
        None,
        "A Python class (package.module:Class) that knows the users of PLAIN or SCRAM, or verifies the tokens of "
        "OAUTHBEARER; or Kafka's own class. OAuthBearerUnsecuredValidatorCallbackHandler believes everybody. It is "
        "read with the name of a listener and a mechanism in front.",
        is_served=False,
    ),
    ConfigKey(
        "sasl.login.callback.handler.class",
        STRING,
        None,
        "What gets tokens for OAUTHBEARER in Apache Kafka. Here sasl.oauthbearer.token.endpoint.url says it.",
        is_served=False,
    ),
)
_PRINCIPAL_BUILDER = ConfigKey(
    "principal.builder.class",
    STRING,
    DEFAULT_PRINCIPAL_BUILDER,
    "Who peers of listeners with TLS or SASL are: Kafka's DefaultKafkaPrincipalBuilder, or a Python class "
    "(package.module:Class).",
)
_KERBEROS = (
    ConfigKey(
        "sasl.kerberos.service.name",
        STRING,
        None,
        "The first part of the principals of nodes in Kerberos, usually kafka, for this node's own logins by GSSAPI.",
    ),
    ConfigKey(
        "sasl.kerberos.principal.to.local.rules",
        LIST,
        "DEFAULT",
        "Rules that make a user's name of a principal of Kerberos, of which the first that fits counts, in Kafka's "
        "language: DEFAULT, or such as RULE:[2:$1]s/pattern/replacement/g/L.",
    ),
)
_OAUTHBEARER = (
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.url",
        STRING,
        None,
        "Where the public keys (JWKS) are by which OAUTHBEARER verifies tokens: http, https or file.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        LONG,
        "3600000",
        "How often these keys are read again. They are also read when a token names an unknown key.",
        POSITIVE,
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        LONG,
        "100",
        "How long to wait after a first failure to read them.",
        POSITIVE,
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        LONG,
        "10000",
        "The longest such wait.",
        POSITIVE,
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.audience",
        LIST,
        None,
        "Audiences (the claim aud) of which a token must have one. Without it, tokens with an audience are refused.",
    ),
    ConfigKey("sasl.oauthbearer.expected.issuer", STRING, None, "The issuer (the claim iss) that a token must have."),
    ConfigKey("sasl.oauthbearer.scope.claim.name", STRING, "scope", "The claim that has a token's scopes."),
    ConfigKey("sasl.oauthbearer.sub.claim.name", STRING, "sub", "The claim that has the name of the principal."),
    ConfigKey(
        "sasl.oauthbearer.clock.skew.seconds",
        INT,
        "30",
        "By how much the clocks of the identity provider and of this node may differ.",
        NOT_NEGATIVE,
    ),
    ConfigKey(
        "sasl.oauthbearer.token.endpoint.url",
        STRING,
        None,
        "Where this node gets a token for its own logins by OAUTHBEARER: http, https, or the file that has it.",
    ),
    ConfigKey(
        "sasl.oauthbearer.client.credentials.client.id",
        STRING,
        None,
        "This node's id at the token endpoint; else the option clientId of the login module.",
    ),
    ConfigKey(
        "sasl.oauthbearer.client.credentials.client.secret",
        PASSWORD,
        None,
        "This node's secret at the token endpoint; else the option clientSecret of the login module.",
    ),
    ConfigKey(
        "sasl.oauthbearer.scope",
        STRING,
        None,
        "The scope that is asked for at the token endpoint; else the option scope of the login module.",
    ),
    ConfigKey(
        "sasl.oauthbearer.header.urlencode",
        BOOLEAN,
        "false",
        "Whether id and secret are encoded as RFC 6749 says before they are sent to the token endpoint.",
    ),
)
_TOKENS = (
    ConfigKey(
        "delegation.token.secret.key",
        PASSWORD,
        None,
        "What the secrets of delegation tokens are made of, the same on all nodes. Without it there are no tokens.",
    ),
    ConfigKey(
        "delegation.token.max.lifetime.ms",
        LONG,
        "604800000",
        "How long a delegation token can be renewed, from its creation.",
        POSITIVE,
    ),
    ConfigKey(
        "delegation.token.expiry.time.ms",
        LONG,
        "86400000",
        "How long a delegation token holds from its creation or its last renewal.",
        POSITIVE,
    ),
    ConfigKey(
        "delegation.token.expiry.check.interval.ms",
        LONG,
        "3600000",
        "How often the controller removes expired delegation tokens. Nobody can log in by them before that, either.",
        POSITIVE,
    ),
)

SECURITY_CONFIGS: tuple[ConfigKey, ...] = (
    ConfigKey(
        "security.inter.broker.protocol",
        STRING,
        "PLAINTEXT",
        "The listener between brokers, where inter.broker.listener.name is not set.",
        one_of(*SECURITY_PROTOCOLS),
    ),
    ConfigKey("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", "The mechanism of logins at brokers."),
    ConfigKey("sasl.mechanism.controller.protocol", STRING, "GSSAPI", "The mechanism of logins at controllers."),
    ConfigKey(
        "authorizer.class.name",
        STRING,
        "",
        "Who decides who may do what: org.apache.kafka.metadata.authorizer.StandardAuthorizer, or a Python class "
        "(package.module:Class). Empty: everybody may do everything.",
    ),
    ConfigKey(
        "super.users",
        STRING,
        "",
        "Principals that may do everything, joined by semicolons, such as User:admin;User:broker.",
    ),
    ConfigKey(
        "allow.everyone.if.no.acl.found",
        BOOLEAN,
        "false",
        "Whether everybody may do everything to a resource for which there is no ACL.",
    ),
    ConfigKey(
        "config.providers",
        LIST,
        "",
        "Names of config providers, which give the values of ${name:path:key}. config.providers.<name>.class is "
        "Kafka's FileConfigProvider, DirectoryConfigProvider or EnvVarConfigProvider.",
    ),
    JAAS_CONFIG,
    *_TOKENS,
    *_TLS,
    *_SASL,
    *_HANDLERS,
    *_KERBEROS,
    *_OAUTHBEARER,
    _PRINCIPAL_BUILDER,
)
LISTENER_CONFIGS = {key.name: key for key in (*_TLS, *_SASL, *_KERBEROS, *_OAUTHBEARER, _PRINCIPAL_BUILDER)}
MECHANISM_CONFIGS = {key.name: key for key in (JAAS_CONFIG, _REAUTHENTICATION, *_HANDLERS, *_KERBEROS, *_OAUTHBEARER)}
CERTIFICATE_CONFIGS = {key.name: key for key in _CERTIFICATES}
_OF_LISTENER = re.compile(r"listener\.name\.[^.]+\.(.+)")


def certificate_config(name: str) -> ConfigKey | None:
    """The row of a setting of one listener's certificates, such as `listener.name.internal.ssl.keystore.location`."""
    matched = _OF_LISTENER.fullmatch(name)
    key = CERTIFICATE_CONFIGS.get(matched[1]) if matched is not None else None
    return None if key is None else replace(key, name=name)


def listener_config(name: str) -> ConfigKey | None:
    """The row of a setting of one listener, or of one listener and mechanism."""
    matched = _OF_LISTENER.fullmatch(name)
    if matched is None:
        return None
    key = LISTENER_CONFIGS.get(matched[1]) or MECHANISM_CONFIGS.get(matched[1].partition(".")[2])
    return None if key is None else replace(key, name=name)
