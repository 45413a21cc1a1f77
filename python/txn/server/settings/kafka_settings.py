"""Kafka's broker settings that txn lacks: those of no use here, and those that stop a start.

A file of Kafka's may hold any broker setting of Apache Kafka 4.2 and 4.4. `BROKER_PROPERTIES` takes
some of them, and `config_file` reads the node's place. The rest stands here. `NOT_USED` is passed
over and told once. `DEMANDS` keep somebody out, or something safe, and cannot be honoured. Such a
setting has to be empty, or to have one of the named values.

`tests/interop/test_kafka_settings.py` holds the names against a real Kafka's.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

_GROUPS: Final[Mapping[str, str]] = {
    "threads, buffers and memory of Kafka's own": """
        background.threads
        delete.records.purgatory.purge.interval.requests
        fetch.max.bytes
        fetch.purgatory.purge.interval.requests
        group.coordinator.append.linger.ms
        group.coordinator.background.threads
        group.coordinator.cached.buffer.max.bytes
        group.coordinator.threads
        num.io.threads
        num.replica.alter.log.dirs.threads
        offsets.commit.timeout.ms
        offsets.load.buffer.size
        offsets.topic.compression.codec
        producer.purgatory.purge.interval.requests
        queued.max.requests
        request.timeout.ms
        socket.connection.setup.timeout.max.ms
        socket.connection.setup.timeout.ms
        socket.listen.backlog.size
        socket.receive.buffer.bytes
        socket.send.buffer.bytes
        transaction.state.log.load.buffer.size
    """,
    "controllers and the metadata log": """
        broker.heartbeat.interval.ms
        broker.session.timeout.ms
        controller.performance.always.log.threshold.ms
        controller.performance.sample.period.ms
        controller.quorum.append.linger.ms
        controller.quorum.auto.join.enable
        controller.quorum.election.backoff.max.ms
        controller.quorum.election.timeout.ms
        controller.quorum.fetch.max.bytes
        controller.quorum.fetch.snapshot.max.bytes
        controller.quorum.fetch.timeout.ms
        controller.quorum.request.timeout.ms
        controller.quorum.retry.backoff.ms
        controller.socket.timeout.ms
        initial.broker.registration.timeout.ms
        internal.metadata.delete.delay.millis
        internal.metadata.log.segment.bytes
        internal.metadata.max.batch.size.in.bytes
        internal.metadata.max.fetch.size.in.bytes
        metadata.log.max.record.bytes.between.snapshots
        metadata.log.max.snapshot.interval.ms
        metadata.log.segment.bytes
        metadata.log.segment.ms
        metadata.max.idle.interval.ms
        metadata.max.retention.bytes
        metadata.max.retention.ms
        sasl.mechanism.controller.protocol
        server.max.startup.time.ms
        unstable.api.versions.enable
        unstable.feature.versions.enable
    """,
    "replicas on other nodes": """
        alter.log.dirs.replication.quota.window.num
        alter.log.dirs.replication.quota.window.size.seconds
        auto.leader.rebalance.enable
        broker.rack
        controlled.shutdown.enable
        follower.fetch.last.tiered.offset.enable
        leader.imbalance.check.interval.seconds
        log.dir.failure.timeout.ms
        num.replica.fetchers
        replica.fetch.backoff.ms
        replica.fetch.max.bytes
        replica.fetch.min.bytes
        replica.fetch.response.max.bytes
        replica.fetch.wait.max.ms
        replica.lag.time.max.ms
        replica.selector.class
        replica.socket.receive.buffer.bytes
        replica.socket.timeout.ms
        replication.quota.window.num
        replication.quota.window.size.seconds
        unclean.leader.election.interval.ms
    """,
    "connections that a node of Kafka opens to others, log-ins by Kerberos, certificates that "
    "AlterConfigs changes": """
        sasl.kerberos.kinit.cmd
        sasl.kerberos.min.time.before.relogin
        sasl.kerberos.principal.to.local.rules
        sasl.kerberos.service.name
        sasl.kerberos.ticket.renew.jitter
        sasl.kerberos.ticket.renew.window.factor
        sasl.client.callback.handler.class
        sasl.login.callback.handler.class
        sasl.login.class
        sasl.login.connect.timeout.ms
        sasl.login.read.timeout.ms
        sasl.login.refresh.buffer.seconds
        sasl.login.refresh.min.period.seconds
        sasl.login.refresh.window.factor
        sasl.login.refresh.window.jitter
        sasl.login.retry.backoff.max.ms
        sasl.login.retry.backoff.ms
        sasl.oauthbearer.assertion.algorithm
        sasl.oauthbearer.assertion.claim.aud
        sasl.oauthbearer.assertion.claim.exp.seconds
        sasl.oauthbearer.assertion.claim.iss
        sasl.oauthbearer.assertion.claim.jti.include
        sasl.oauthbearer.assertion.claim.nbf.seconds
        sasl.oauthbearer.assertion.claim.sub
        sasl.oauthbearer.assertion.file
        sasl.oauthbearer.assertion.private.key.file
        sasl.oauthbearer.assertion.private.key.passphrase
        sasl.oauthbearer.assertion.template.file
        sasl.oauthbearer.client.credentials.client.id
        sasl.oauthbearer.client.credentials.client.secret
        sasl.oauthbearer.jwt.retriever.class
        sasl.oauthbearer.scope
        sasl.oauthbearer.token.endpoint.url
        security.inter.broker.protocol
        ssl.endpoint.identification.algorithm
    """,
    "groups of the newer protocols, share groups and streams groups": """
        errors.deadletterqueue.auto.create.topics.enable
        errors.deadletterqueue.topic.name.prefix
        group.consumer.assignor.offload.enable
        group.coordinator.rebalance.protocols
        group.share.assignment.interval.ms
        group.share.assignor.offload.enable
        group.share.assignors
        group.share.delivery.count.limit
        group.share.dlq.manager.class.name
        group.share.enable
        group.share.heartbeat.interval.ms
        group.share.initialize.retry.interval.ms
        group.share.max.assignment.interval.ms
        group.share.max.delivery.count.limit
        group.share.max.heartbeat.interval.ms
        group.share.max.partition.max.record.locks
        group.share.max.record.lock.duration.ms
        group.share.max.session.timeout.ms
        group.share.max.share.sessions
        group.share.max.size
        group.share.min.assignment.interval.ms
        group.share.min.delivery.count.limit
        group.share.min.heartbeat.interval.ms
        group.share.min.partition.max.record.locks
        group.share.min.record.lock.duration.ms
        group.share.min.session.timeout.ms
        group.share.partition.max.record.locks
        group.share.persister.class.name
        group.share.record.lock.duration.ms
        group.share.session.timeout.ms
        group.streams.acceptable.recovery.lag
        group.streams.assignment.interval.ms
        group.streams.assignor.offload.enable
        group.streams.assignors
        group.streams.heartbeat.interval.ms
        group.streams.initial.rebalance.delay.ms
        group.streams.max.assignment.interval.ms
        group.streams.max.heartbeat.interval.ms
        group.streams.max.session.timeout.ms
        group.streams.max.size
        group.streams.max.standby.replicas
        group.streams.max.warmup.replicas
        group.streams.min.assignment.interval.ms
        group.streams.min.heartbeat.interval.ms
        group.streams.min.session.timeout.ms
        group.streams.min.task.offset.interval.ms
        group.streams.num.standby.replicas
        group.streams.num.warmup.replicas
        group.streams.rack.aware.assignment.tags
        group.streams.session.timeout.ms
        group.streams.task.offset.interval.ms
        group.streams.topology.description.plugin.class
        share.coordinator.append.linger.ms
        share.coordinator.cached.buffer.max.bytes
        share.coordinator.cold.partition.snapshot.interval.ms
        share.coordinator.load.buffer.size
        share.coordinator.snapshot.update.records.per.snapshot
        share.coordinator.state.topic.compression.codec
        share.coordinator.state.topic.min.isr
        share.coordinator.state.topic.num.partitions
        share.coordinator.state.topic.prune.interval.ms
        share.coordinator.state.topic.replication.factor
        share.coordinator.state.topic.segment.bytes
        share.coordinator.threads
        share.coordinator.write.timeout.ms
        share.fetch.purgatory.purge.interval.requests
    """,
    "tiered storage": """
        remote.fetch.max.wait.ms
        remote.list.offsets.request.timeout.ms
        remote.log.index.file.cache.total.size.bytes
        remote.log.index.file.cache.ttl.ms
        remote.log.manager.copier.thread.pool.size
        remote.log.manager.copy.max.bytes.per.second
        remote.log.manager.copy.quota.window.num
        remote.log.manager.copy.quota.window.size.seconds
        remote.log.manager.expiration.thread.pool.size
        remote.log.manager.fetch.max.bytes.per.second
        remote.log.manager.fetch.quota.window.num
        remote.log.manager.fetch.quota.window.size.seconds
        remote.log.manager.follower.thread.pool.size
        remote.log.manager.task.interval.ms
        remote.log.manager.task.retry.backoff.max.ms
        remote.log.manager.task.retry.backoff.ms
        remote.log.manager.task.retry.jitter
        remote.log.manager.thread.pool.size
        remote.log.metadata.custom.metadata.max.bytes
        remote.log.metadata.manager.class.name
        remote.log.metadata.manager.class.path
        remote.log.metadata.manager.impl.prefix
        remote.log.metadata.manager.listener.name
        remote.log.reader.max.pending.tasks
        remote.log.reader.threads
        remote.log.storage.manager.class.name
        remote.log.storage.manager.class.path
        remote.log.storage.manager.impl.prefix
    """,
    "metrics of the Java virtual machine": """
        kafka.metrics.polling.interval.secs
        kafka.metrics.reporters
        metric.reporters
        metrics.num.samples
        metrics.recording.level
        metrics.sample.window.ms
        telemetry.max.bytes
    """,
    "lifetimes of delegation tokens": """
        delegation.token.expiry.check.interval.ms
        delegation.token.expiry.time.ms
        delegation.token.max.lifetime.ms
    """,
    "transactions: always verified here": """
        add.partitions.to.txn.retry.backoff.max.ms
        add.partitions.to.txn.retry.backoff.ms
        transaction.partition.verification.enable
    """,
}

FORMER: Final = frozenset(
    """
    auto.include.jmx.reporter
    broker.id.generation.enable
    control.plane.listener.name
    controlled.shutdown.max.retries
    controlled.shutdown.retry.backoff.ms
    eligible.leader.replicas.enable
    group.coordinator.new.enable
    inter.broker.protocol.version
    leader.imbalance.per.broker.percentage
    log.message.downconversion.enable
    log.message.format.version
    log.message.timestamp.difference.max.ms
    offsets.commit.required.acks
    reserved.broker.max.id
    sasl.oauthbearer.header.urlencode
    zookeeper.clientCnxnSocket
    zookeeper.connect
    zookeeper.connection.timeout.ms
    zookeeper.max.in.flight.requests
    zookeeper.metadata.migration.enable
    zookeeper.metadata.migration.min.batch.size
    zookeeper.session.timeout.ms
    zookeeper.set.acl
    zookeeper.ssl.cipher.suites
    zookeeper.ssl.client.enable
    zookeeper.ssl.crl.enable
    zookeeper.ssl.enabled.protocols
    zookeeper.ssl.endpoint.identification.algorithm
    zookeeper.ssl.keystore.location
    zookeeper.ssl.keystore.password
    zookeeper.ssl.keystore.type
    zookeeper.ssl.ocsp.enable
    zookeeper.ssl.protocol
    zookeeper.ssl.truststore.location
    zookeeper.ssl.truststore.password
    zookeeper.ssl.truststore.type
    zookeeper.sync.time.ms
    """.split()
)
"""Settings of ZooKeeper, and others, that earlier versions of Kafka had."""

NOT_USED: Final = FORMER.union(*(names.split() for names in _GROUPS.values()))
"""Settings of Apache Kafka that mean nothing to this broker."""


class Demand(NamedTuple):
    """The values of a setting that can be passed over, and the reason to refuse any other.

    An empty value is one of them. `reason` follows the name of the setting.
    """

    reason: str
    accepted: tuple[str, ...] = ()


_NO_CLASSES: Final = "names a class of Java, and none runs in this broker"
_NOT_CHOSEN: Final = "cannot be chosen: TLS here is rustls, with its own list"
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"

DEMANDS: Final[Mapping[str, Demand]] = {
    "alter.config.policy.class.name": Demand(_NO_CLASSES),
    "client.quota.callback.class": Demand(_NO_CLASSES),
    "cordoned.log.dirs": Demand(
        "keeps new partitions out of a directory, and this broker has one directory alone"
    ),
    "create.topic.policy.class.name": Demand(_NO_CLASSES),
    "delegation.token.master.key": Demand("asks for delegation tokens, which are not there"),
    "delegation.token.secret.key": Demand("asks for delegation tokens, which are not there"),
    "delete.topic.enable": Demand(
        "cannot be false: a client with the right to delete a topic may do so. An access control "
        "list takes that right",
        ("true",),
    ),
    "password.encoder.cipher.algorithm": Demand("has nothing to encrypt: take it out"),
    "password.encoder.iterations": Demand("has nothing to encrypt: take it out"),
    "password.encoder.key.length": Demand("has nothing to encrypt: take it out"),
    "password.encoder.keyfactory.algorithm": Demand("has nothing to encrypt: take it out"),
    "password.encoder.old.secret": Demand("has nothing to encrypt: take it out"),
    "password.encoder.secret": Demand("has nothing to encrypt: take it out"),
    "principal.builder.class": Demand(
        _NO_CLASSES,
        ("org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",),
    ),
    "remote.log.storage.system.enable": Demand(
        "cannot be true: there is no tiered storage", ("false",)
    ),
    "sasl.jaas.config": Demand(
        "stands alone: it is written listener.name.NAME.MECHANISM.sasl.jaas.config, in small "
        "letters"
    ),
    "sasl.oauthbearer.jwt.validator.class": Demand(
        _NO_CLASSES, (f"{_OAUTH}.DefaultJwtValidator", f"{_OAUTH}.BrokerJwtValidator")
    ),
    "sasl.server.callback.handler.class": Demand(_NO_CLASSES),
    "security.providers": Demand(_NO_CLASSES),
    "ssl.engine.factory.class": Demand(_NO_CLASSES),
    "ssl.keymanager.algorithm": Demand(_NOT_CHOSEN, ("SunX509", "PKIX", "NewSunX509")),
    "ssl.protocol": Demand(
        "is TLS: ssl.enabled.protocols has its versions", ("TLSv1.3", "TLSv1.2", "TLS")
    ),
    "ssl.provider": Demand(_NO_CLASSES),
    "ssl.secure.random.implementation": Demand(_NOT_CHOSEN),
    "ssl.trustmanager.algorithm": Demand(_NOT_CHOSEN, ("PKIX", "SunX509")),
}
"""Settings whose values have to be looked at."""

TOKEN_VALIDATORS: Final = (
    f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
    f"{_OAUTH}.secured.OAuthBearerValidatorCallbackHandler",
)
"""Values of `sasl.server.callback.handler.class` of OAUTHBEARER: the check of tokens by the keys of
their issuer, which is the one here."""
