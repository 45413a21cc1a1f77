"""The table of metrics: name, type, labels, meaning, and the metric of Kafka behind it.

A metric that Kafka has is named after Kafka's MBean: domain, type and name in lower case, joined by
`_`. `…PerSec` becomes `…_total`, `…TimeMs` becomes `…time_seconds`. Attributes such as
`connection-count` keep their words. Other metrics begin with `txn_`, metrics of the process with
`process_`. Tests keep `docs/metrics.md`, this table and the served text equal.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

HELD_BACK_MAX: Final = 20
"""Only the partitions with the largest lag of the last stable offset are named."""

OLDEST_MAX: Final = 20
"""Only the oldest open transactions are named."""


class Metric(NamedTuple):
    """One family: its type, its labels, and its meaning."""

    kind: str
    labels: tuple[str, ...]
    about: str
    kafka: str = ""
    """Kafka's MBean and attribute, if it has one."""


_REQUEST: Final = ("request",)
_PROCESSOR: Final = ("listener", "networkProcessor")
_MECHANISM: Final = ("listener", "mechanism")
_PARTITION: Final = ("topic", "partition")
_GROUP_PARTITION: Final = ("group", *_PARTITION)
_REQUEST_METRICS: Final = "kafka.network:type=RequestMetrics,request=*,name="
_TOPIC_METRICS: Final = "kafka.server:type=BrokerTopicMetrics,name="
_SOCKETS: Final = "kafka.server:type=socket-server-metrics,listener=*,networkProcessor=*:"

_GROUPS_NAMED: Final = "At most metrics.group.partitions.max offsets: first of groups with members."

METRICS: Final[Mapping[str, Metric]] = {
    "kafka_network_requestmetrics_requests_total": Metric(
        "counter", _REQUEST, "Requests received.", f"{_REQUEST_METRICS}RequestsPerSec"
    ),
    "kafka_network_requestmetrics_requestqueuetime_seconds": Metric(
        "histogram",
        _REQUEST,
        "From received to dequeued, by a reactor or the control loop.",
        f"{_REQUEST_METRICS}RequestQueueTimeMs",
    ),
    "kafka_network_requestmetrics_localtime_seconds": Metric(
        "histogram",
        _REQUEST,
        "From dequeued to decided. Produce: the append with the coordinator's decision; Fetch: the "
        "first reading; others: Python's answer with all its waiting.",
        f"{_REQUEST_METRICS}LocalTimeMs",
    ),
    "kafka_network_requestmetrics_remotetime_seconds": Metric(
        "histogram",
        _REQUEST,
        "From decided to durable: in the purgatory, for the disk (Produce) or for bytes (Fetch).",
        f"{_REQUEST_METRICS}RemoteTimeMs",
    ),
    "kafka_network_requestmetrics_responsesendtime_seconds": Metric(
        "histogram",
        _REQUEST,
        "From durable to sent: the kernel has the last byte of the answer.",
        f"{_REQUEST_METRICS}ResponseSendTimeMs",
    ),
    "kafka_network_requestmetrics_totaltime_seconds": Metric(
        "histogram", _REQUEST, "From received to sent.", f"{_REQUEST_METRICS}TotalTimeMs"
    ),
    "kafka_network_requestchannel_requestqueuesize": Metric(
        "gauge",
        (),
        "Requests that wait for the control loop.",
        "kafka.network:type=RequestChannel,name=RequestQueueSize",
    ),
    "kafka_server_delayedoperationpurgatory_purgatorysize": Metric(
        "gauge",
        ("delayedOperation",),
        "Requests that wait: Fetch for bytes, Produce for the disk or the high watermark, Join (a "
        "Produce too) for the coordinator.",
        "kafka.server:type=DelayedOperationPurgatory,delayedOperation=*,name=PurgatorySize",
    ),
    "kafka_server_fetchsessioncache_numincrementalfetchsessions": Metric(
        "gauge",
        (),
        "Fetch sessions.",
        "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions",
    ),
    "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached": Metric(
        "gauge",
        (),
        "Partitions in fetch sessions.",
        "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchPartitionsCached",
    ),
    "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total": Metric(
        "counter",
        (),
        "Fetch sessions that went for others.",
        "kafka.server:type=FetchSessionCache,name=IncrementalFetchSessionEvictionsPerSec",
    ),
    "kafka_server_socket_server_metrics_connection_count": Metric(
        "gauge", _PROCESSOR, "Connections of a reactor.", f"{_SOCKETS}connection-count"
    ),
    "kafka_server_socket_server_metrics_connection_creation_total": Metric(
        "counter",
        _PROCESSOR,
        "Connections that a reactor took.",
        f"{_SOCKETS}connection-creation-total",
    ),
    "kafka_server_socket_server_metrics_incoming_byte_total": Metric(
        "counter", _PROCESSOR, "Bytes of requests received.", f"{_SOCKETS}incoming-byte-total"
    ),
    "kafka_server_socket_server_metrics_outgoing_byte_total": Metric(
        "counter", _PROCESSOR, "Bytes of answers sent.", f"{_SOCKETS}outgoing-byte-total"
    ),
    "txn_network_reactors": Metric("gauge", (), "Threads that serve connections."),
    "txn_network_refused_connections_total": Metric(
        "counter",
        ("listener", "reason"),
        "Connections closed as they came: one more than `max.connections.per.ip`, than the "
        "address's quota of `connection_creation_rate` allows, or than there are descriptors.",
    ),
    "txn_network_closed_connections_total": Metric(
        "counter",
        ("listener", "reason"),
        "Connections that the broker closed for want of progress, or for `max.connections`.",
    ),
    "txn_network_accept_blocked_seconds_total": Metric(
        "counter",
        ("listener",),
        "Time in which connections waited for `max.connections`, `max.connection.creation.rate` or "
        "a descriptor.",
    ),
    "txn_tls_handshakes_total": Metric("counter", ("listener",), "TLS handshakes that ended well."),
    "txn_tls_failed_handshakes_total": Metric(
        "counter", ("listener", "reason"), "TLS handshakes that failed."
    ),
    "txn_tls_certificate_expiry_seconds": Metric(
        "gauge",
        ("listener",),
        "Seconds until the listener's certificate expires; negative once it has.",
    ),
    "kafka_server_socket_server_metrics_successful_authentication_total": Metric(
        "counter",
        _MECHANISM,
        "Clients that authenticated.",
        f"{_SOCKETS}successful-authentication-total",
    ),
    "kafka_server_socket_server_metrics_failed_authentication_total": Metric(
        "counter",
        _MECHANISM,
        "Clients that failed to authenticate.",
        f"{_SOCKETS}failed-authentication-total",
    ),
    "kafka_server_socket_server_metrics_successful_reauthentication_total": Metric(
        "counter",
        _MECHANISM,
        "Clients that prolonged their session.",
        f"{_SOCKETS}successful-reauthentication-total",
    ),
    "kafka_server_socket_server_metrics_failed_reauthentication_total": Metric(
        "counter",
        _MECHANISM,
        "Clients that failed to prolong their session.",
        f"{_SOCKETS}failed-reauthentication-total",
    ),
    "kafka_server_socket_server_metrics_expired_connections_killed_count_total": Metric(
        "counter",
        (),
        "Connections closed for a request after their session.",
        f"{_SOCKETS}expired-connections-killed-count",
    ),
    "txn_network_unauthenticated_connections_total": Metric(
        "counter", (), "Connections closed for a request before authentication."
    ),
    "txn_quota_throttled_requests_total": Metric(
        "counter",
        ("quota",),
        "Requests throttled, by the kind of the quota: Produce, Fetch, Request (time of a thread) "
        "or ControllerMutation.",
    ),
    "txn_quota_throttle_seconds_total": Metric(
        "counter", ("quota",), "Time that the clients of these requests were muted for."
    ),
    "txn_quota_rates": Metric(
        "gauge", (), "Rates of clients that are kept, since quotas bound them in the window."
    ),
    "txn_access_refusals_total": Metric(
        "counter",
        ("operation", "resource"),
        "Operations refused by access control lists, by every broker in this process.",
    ),
    "kafka_server_brokertopicmetrics_messagesin_total": Metric(
        "counter", (), "Records appended by Produce.", f"{_TOPIC_METRICS}MessagesInPerSec"
    ),
    "kafka_server_brokertopicmetrics_bytesin_total": Metric(
        "counter", (), "Bytes of batches appended by Produce.", f"{_TOPIC_METRICS}BytesInPerSec"
    ),
    "kafka_server_brokertopicmetrics_bytesout_total": Metric(
        "counter", (), "Bytes of batches that Fetch answered.", f"{_TOPIC_METRICS}BytesOutPerSec"
    ),
    "kafka_server_brokertopicmetrics_failedproducerequests_total": Metric(
        "counter",
        (),
        "Partitions of Produce requests whose batch was refused.",
        f"{_TOPIC_METRICS}FailedProduceRequestsPerSec",
    ),
    "txn_log_appended_batches_total": Metric("counter", (), "Batches appended by Produce."),
    "kafka_log_logflushstats_logflushrateandtime_seconds": Metric(
        "histogram",
        (),
        "Each fdatasync of a file of a log, by every broker in this process.",
        "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
    ),
    "txn_log_syncs_in_progress": Metric(
        "gauge", (), "Calls of fdatasync under way, by every broker in this process."
    ),
    "kafka_server_replicamanager_partitioncount": Metric(
        "gauge", (), "Partitions.", "kafka.server:type=ReplicaManager,name=PartitionCount"
    ),
    "kafka_server_replicamanager_offlinereplicacount": Metric(
        "gauge",
        (),
        "Partitions whose log cannot be opened, or is damaged.",
        "kafka.server:type=ReplicaManager,name=OfflineReplicaCount",
    ),
    "txn_partitions_open": Metric("gauge", (), "Partitions with an open log."),
    "txn_partitions_held_back": Metric(
        "gauge", (), "Partitions with records beyond the last stable offset."
    ),
    "kafka_cluster_partition_laststableoffsetlag": Metric(
        "gauge",
        _PARTITION,
        "Offsets from the last stable one to the high watermark; of the "
        f"{HELD_BACK_MAX} partitions that are held back most.",
        "kafka.cluster:type=Partition,topic=*,partition=*,name=LastStableOffsetLag",
    ),
    "kafka_log_log_logendoffset": Metric(
        "gauge",
        _PARTITION,
        "The log end of the same partitions.",
        "kafka.log:type=Log,topic=*,partition=*,name=LogEndOffset",
    ),
    "txn_transactional_ids": Metric("gauge", (), "Transactional ids that the coordinator knows."),
    "txn_transactions_open": Metric("gauge", ("state",), "Transactions that are not complete."),
    "txn_transactions_oldest_age_seconds": Metric(
        "gauge", (), "Age of the oldest transaction that is not complete; 0 if there is none."
    ),
    "txn_transaction_age_seconds": Metric(
        "gauge",
        ("transactional_id",),
        f"Age of the {OLDEST_MAX} oldest transactions that are not complete.",
    ),
    "kafka_coordinator_group_groupmetadatamanager_numgroups": Metric(
        "gauge",
        ("state",),
        "Groups.",
        "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups…",
    ),
    "txn_group_lag_records": Metric(
        "gauge",
        _GROUP_PARTITION,
        "Committed records from a group's offset to the last stable offset, without markers and "
        f"aborted records. {_GROUPS_NAMED}",
    ),
    "txn_group_is_drained": Metric(
        "gauge",
        ("group",),
        f"1 if a group has read every committed record of its topics. {_GROUPS_NAMED}",
    ),
    "txn_group_lag_uncounted": Metric(
        "gauge", (), "Committed offsets whose lag is not known yet: a long log is being counted."
    ),
    "txn_group_lag_left_out_groups": Metric(
        "gauge", (), "Groups with offsets that are beyond metrics.group.partitions.max."
    ),
    "txn_coordinator_partitions": Metric(
        "gauge",
        ("topic", "state"),
        "Partitions of a coordinator: active, or failed if one cannot be read.",
    ),
    "process_cpu_seconds_total": Metric("counter", (), "CPU time, user and system."),
    "process_resident_memory_bytes": Metric("gauge", (), "Resident memory."),
    "process_virtual_memory_bytes": Metric("gauge", (), "Virtual memory."),
    "process_start_time_seconds": Metric("gauge", (), "Start, in seconds since the epoch."),
    "process_open_fds": Metric("gauge", (), "Open file descriptors."),
    "process_max_fds": Metric("gauge", (), "The limit of open file descriptors."),
}
"""Name → metric."""
