"""Configurations of Apache Kafka that this node accepts and does not act on.

A server.properties that was written for Kafka, 2.0 or later, loads. The node says once, when it starts, which of its
lines do nothing.
"""

from __future__ import annotations

import re

_NAMES = """
auto.include.jmx.reporter broker.id broker.id.generation.enable client.quota.callback.class
control.plane.listener.name controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
controller.quorum.append.linger.ms controller.quota.window.num controller.quota.window.size.seconds
controller.socket.timeout.ms cordoned.log.dirs delegation.token.master.key
delete.records.purgatory.purge.interval.requests early.start.listeners
eligible.leader.replicas.enable fetch.purgatory.purge.interval.requests group.consumer.regex.refresh.interval.ms
group.coordinator.append.linger.ms group.coordinator.rebalance.protocols group.coordinator.threads
group.share.assignors group.share.delivery.count.limit group.share.enable group.share.heartbeat.interval.ms
group.share.initialize.retry.interval.ms group.share.max.heartbeat.interval.ms group.share.max.record.lock.duration.ms
group.share.max.session.timeout.ms group.share.max.share.sessions group.share.max.size
group.share.min.heartbeat.interval.ms group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms
group.share.partition.max.record.locks group.share.persister.class.name group.share.record.lock.duration.ms
group.share.session.timeout.ms group.streams.heartbeat.interval.ms group.streams.initial.rebalance.delay.ms
group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms group.streams.max.size
group.streams.max.standby.replicas group.streams.min.heartbeat.interval.ms group.streams.min.session.timeout.ms
group.streams.num.standby.replicas group.streams.session.timeout.ms inter.broker.protocol.version
internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes internal.metadata.max.batch.size.in.bytes
internal.metadata.max.fetch.size.in.bytes kafka.metrics.polling.interval.secs kafka.metrics.reporters
leader.imbalance.per.broker.percentage log.flush.scheduler.interval.ms log.flush.start.offset.checkpoint.interval.ms
log.initial.task.delay.ms log.message.downconversion.enable log.message.format.version
log.message.timestamp.difference.max.ms max.request.partition.size.limit metadata.log.segment.bytes
metadata.log.segment.ms metadata.max.idle.interval.ms metrics.num.samples metrics.recording.level
metrics.sample.window.ms num.replica.alter.log.dirs.threads offsets.commit.required.acks offsets.load.buffer.size
offsets.topic.compression.codec password.encoder.cipher.algorithm password.encoder.iterations
password.encoder.key.length password.encoder.keyfactory.algorithm password.encoder.old.secret password.encoder.secret
producer.id.expiration.check.interval.ms producer.purgatory.purge.interval.requests
queued.max.requests remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
remote.log.manager.task.interval.ms remote.log.manager.task.retry.backoff.max.ms
remote.log.manager.task.retry.backoff.ms remote.log.manager.task.retry.jitter remote.log.manager.thread.pool.size
remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name
remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix
remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks remote.log.storage.manager.class.name
remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix remote.log.storage.system.enable
replica.selector.class replica.socket.receive.buffer.bytes request.timeout.ms reserved.broker.max.id
sasl.client.callback.handler.class sasl.login.class
sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
sasl.oauthbearer.assertion.template.file sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
security.providers server.max.startup.time.ms share.coordinator.append.linger.ms
share.coordinator.cold.partition.snapshot.interval.ms share.coordinator.load.buffer.size
share.coordinator.snapshot.update.records.per.snapshot share.coordinator.state.topic.compression.codec
share.coordinator.state.topic.min.isr share.coordinator.state.topic.num.partitions
share.coordinator.state.topic.prune.interval.ms share.coordinator.state.topic.replication.factor
share.coordinator.state.topic.segment.bytes share.coordinator.threads share.coordinator.write.timeout.ms
share.fetch.purgatory.purge.interval.requests socket.connection.setup.timeout.max.ms
socket.connection.setup.timeout.ms socket.listen.backlog.size
ssl.allow.dn.changes ssl.allow.san.changes ssl.engine.factory.class ssl.keymanager.algorithm ssl.protocol ssl.provider
ssl.secure.random.implementation ssl.trustmanager.algorithm telemetry.max.bytes transaction.state.log.load.buffer.size
unclean.leader.election.interval.ms unstable.api.versions.enable unstable.feature.versions.enable
"""
_UNSERVED = frozenset(_NAMES.split())
_FAMILIES = re.compile(r"(config\.providers|listener\.name|rlmm\.config|rsm\.config|zookeeper)\..+")
"""Their names go on with a name that the user has given, or are of a Kafka that had many of them."""


def is_unserved(name: str) -> bool:
    """Whether Kafka has a configuration of this name, and this node none."""
    return name in _UNSERVED or _FAMILIES.fullmatch(name) is not None
