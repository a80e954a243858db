"""The rows of the table of configurations that are about security: TLS, SASL, and who may do what.

Those of LISTENER_CONFIGS may be set for one listener, as `listener.name.<name>.<key>` in lower case. JAAS_CONFIG is set
for one listener and mechanism, as `listener.name.<name>.<mechanism>.sasl.jaas.config`.
"""

from __future__ import annotations

from ...runtime.tls_contexts import CLIENT_AUTH, TLS_PROTOCOLS
from ...wire.config_def import BOOLEAN, INT, LIST, LONG, NOT_NEGATIVE, PASSWORD, POSITIVE, STRING, ConfigKey, one_of

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
JAAS_CONFIG = ConfigKey(
    "sasl.jaas.config",
    PASSWORD,
    None,
    "The users of a mechanism, and this node's own credentials. It is read with the name of a listener and a mechanism "
    "in front; without them it has no effect, as in Apache Kafka.",
    is_served=False,
)

_TLS = (
    ConfigKey("ssl.keystore.type", STRING, "JKS", "The format of the key store: PEM, PKCS12 or JKS, which is refused."),
    ConfigKey("ssl.keystore.location", STRING, None, "The file with this node's certificate and key."),
    ConfigKey("ssl.keystore.password", PASSWORD, None, "The password of a PKCS12 key store."),
    ConfigKey("ssl.keystore.key", PASSWORD, None, "The private key itself, in PEM (PKCS#8)."),
    ConfigKey("ssl.keystore.certificate.chain", PASSWORD, None, "The certificate and those above it, in PEM."),
    ConfigKey("ssl.key.password", PASSWORD, None, "The password of the private key."),
    ConfigKey("ssl.truststore.type", STRING, "JKS", "The format of the trust store: PEM, PKCS12 or JKS."),
    ConfigKey(
        "ssl.truststore.location", STRING, None, "The file with the certificates that are trusted; else the system's."
    ),
    ConfigKey("ssl.truststore.password", PASSWORD, None, "The password of a PKCS12 trust store."),
    ConfigKey("ssl.truststore.certificates", PASSWORD, None, "The trusted certificates themselves, in PEM."),
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
    JAAS_CONFIG,
    *_TLS,
    *_SASL,
)
LISTENER_CONFIGS = {key.name: key for key in (*_TLS, *_SASL)}
