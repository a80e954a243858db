"""Configurations that Apache Kafka takes while brokers run, and that have no effect here.

They are kept and described as by Apache Kafka, since tools and clients' test suites set them. Settings of TLS, of SASL
mechanisms and of JAAS are not among them: these have an effect, at the start of a node only (`security_configs.py`).
"""

from __future__ import annotations

from ...wire.config_def import (
    ANYTHING,
    DOUBLE,
    INT,
    LIST,
    LONG,
    NOT_NEGATIVE,
    POSITIVE,
    SHORT,
    STRING,
    ConfigKey,
    ConfigType,
    UpdateMode,
    Validator,
)


def _without_effect(
    name: str,
    config_type: ConfigType,
    default: str,
    meaning: str,
    valid: Validator = ANYTHING,
    mode: UpdateMode = UpdateMode.CLUSTER_WIDE,
) -> ConfigKey:
    doc = f"{meaning} It has no effect here."
    return ConfigKey(name, config_type, default, doc, valid, update_mode=mode, is_served=False)


CONFIGS_WITHOUT_EFFECT: tuple[ConfigKey, ...] = (
    _without_effect("background.threads", INT, "10", "Threads for work in the background.", POSITIVE),
    _without_effect("log.cleaner.threads", INT, "1", "Threads for compaction.", NOT_NEGATIVE),
    _without_effect(
        "log.cleaner.io.buffer.size",
        INT,
        "524288",
        "Memory in bytes for reading and writing during compaction.",
        NOT_NEGATIVE,
    ),
    _without_effect(
        "log.cleaner.io.buffer.load.factor", DOUBLE, "0.9", "How full log.cleaner.dedupe.buffer.size may become."
    ),
    _without_effect(
        "metric.reporters",
        LIST,
        "org.apache.kafka.common.metrics.JmxReporter",
        "Java classes that are told of metrics.",
    ),
    _without_effect("num.io.threads", INT, "8", "Threads that process requests.", POSITIVE),
    _without_effect("num.network.threads", INT, "3", "Threads that read requests and send responses.", POSITIVE),
    _without_effect(
        "num.recovery.threads.per.data.dir", INT, "2", "Threads for each log directory during recovery.", POSITIVE
    ),
    _without_effect("num.replica.fetchers", INT, "1", "Threads that fetch from one source broker.", POSITIVE),
    _without_effect("remote.fetch.max.wait.ms", INT, "500", "How long a fetch waits for remote storage.", POSITIVE),
    _without_effect(
        "remote.list.offsets.request.timeout.ms",
        LONG,
        "30000",
        "How long ListOffsets waits for remote storage.",
        POSITIVE,
    ),
    _without_effect(
        "remote.log.index.file.cache.total.size.bytes",
        LONG,
        "1073741824",
        "Size of the cache of indexes of remote segments.",
        POSITIVE,
    ),
    _without_effect(
        "remote.log.manager.copier.thread.pool.size",
        INT,
        "10",
        "Threads that copy segments to remote storage.",
        POSITIVE,
    ),
    _without_effect(
        "remote.log.manager.copy.max.bytes.per.second",
        LONG,
        "9223372036854775807",
        "Bytes per second that may be copied to remote storage.",
        POSITIVE,
    ),
    _without_effect(
        "remote.log.manager.expiration.thread.pool.size",
        INT,
        "10",
        "Threads that delete expired remote segments.",
        POSITIVE,
    ),
    _without_effect(
        "remote.log.manager.fetch.max.bytes.per.second",
        LONG,
        "9223372036854775807",
        "Bytes per second that may be read from remote storage.",
        POSITIVE,
    ),
    _without_effect(
        "remote.log.manager.follower.thread.pool.size",
        INT,
        "2",
        "Threads by which followers learn what is in remote storage.",
        POSITIVE,
    ),
    _without_effect("remote.log.reader.threads", INT, "10", "Threads that read from remote storage.", POSITIVE),
    _without_effect("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", "Path of kinit.", mode=UpdateMode.PER_BROKER),
    _without_effect(
        "sasl.kerberos.min.time.before.relogin",
        LONG,
        "60000",
        "The shortest time between two Kerberos logins, in milliseconds.",
        mode=UpdateMode.PER_BROKER,
    ),
    _without_effect(
        "sasl.kerberos.ticket.renew.jitter",
        DOUBLE,
        "0.05",
        "Random part of the time at which a Kerberos ticket is renewed.",
        mode=UpdateMode.PER_BROKER,
    ),
    _without_effect(
        "sasl.kerberos.ticket.renew.window.factor",
        DOUBLE,
        "0.8",
        "The part of its life after which a Kerberos ticket is renewed.",
        mode=UpdateMode.PER_BROKER,
    ),
    _without_effect(
        "sasl.login.refresh.buffer.seconds",
        SHORT,
        "300",
        "How long before its end a credential is refreshed at the latest.",
        mode=UpdateMode.PER_BROKER,
    ),
    _without_effect(
        "sasl.login.refresh.min.period.seconds",
        SHORT,
        "60",
        "The shortest time between two refreshes of a credential.",
        mode=UpdateMode.PER_BROKER,
    ),
    _without_effect(
        "sasl.login.refresh.window.factor",
        DOUBLE,
        "0.8",
        "The part of its life after which a credential is refreshed.",
        mode=UpdateMode.PER_BROKER,
    ),
    _without_effect(
        "sasl.login.refresh.window.jitter",
        DOUBLE,
        "0.05",
        "Random part of the time at which a credential is refreshed.",
        mode=UpdateMode.PER_BROKER,
    ),
)
"""Names, types, defaults and ranges are those of Apache Kafka 4.2."""
