"""A scrape: the values of the metrics in `table.py`.

A scrape runs on a thread of its own and waits for no lock. It reads counters of the
reactors, lengths, and copies that one step of the interpreter makes. So it never stops the control
loop.

Cardinality is bounded by Kafka's APIs and by states. `HELD_BACK_MAX` bounds partitions,
`OLDEST_MAX` transactional ids, and `metrics.group.partitions.max` groups.
"""

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

from txn import _core
from txn.broker.audit import audit
from txn.broker.node import Node
from txn.coordinator.transaction.states import AT_REST, TxnState
from txn.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from txn.server.metrics.group_lag import GroupLags
from txn.server.metrics.table import HELD_BACK_MAX, METRICS, OLDEST_MAX
from txn.server.security.logins import FAILED, SUCCEEDED, Logins
from txn.wire.api_keys import ApiKey

TRANSACTIONAL_ID_MAX: Final = 255
"""The most characters of a transactional id that is named; a client's may have 32,767."""

UNKNOWN_API: Final = "Unknown"
"""The name of all API keys that Kafka does not have."""

KNOWN_KEYS: Final = frozenset(ApiKey)


Labels = tuple[str, ...]
Values = Iterable[tuple[Labels, Any]]
"""Label values → a number, or `_core.Times` of a histogram."""

OPEN_STATES: Final = tuple(set(TxnState) - AT_REST - {TxnState.DEAD})


def api_name(api_key: int) -> str:
    """Kafka's name of an API, `InitProducerId`."""
    if api_key not in KNOWN_KEYS:
        return UNKNOWN_API
    return "".join(map(str.capitalize, ApiKey(api_key).name.split("_")))


class Scrape:
    """Reads the values of every metric but those of the process."""

    def __init__(
        self, server: _core.Server, node: Node, listeners: Sequence[str], logins: Logins | None
    ) -> None:
        """`listeners`: their names, in the order of the server."""
        self._server = server
        self._logins = logins
        self._node = node
        self._listeners = listeners
        self._lags = GroupLags(node, node.settings["metrics.group.partitions.max"])

    def read(self) -> Iterator[tuple[str, Values]]:
        """The values of each metric, by its name."""
        yield from self._requests(self._server.metrics())
        yield from self._partitions()
        yield from self._coordinators()
        yield from self._group_lags()

    def _requests(self, counted: "_core.ServerMetrics") -> Iterator[tuple[str, Values]]:
        apis = [((api_name(api[0]),), *api[1:]) for api in counted["apis"]]
        request = "kafka_network_requestmetrics"
        yield f"{request}_requests_total", [(api[0], api[1]) for api in apis]
        stages = ("requestqueue", "local", "remote", "responsesend", "total")
        for place, stage in enumerate(stages, 2):
            yield f"{request}_{stage}time_seconds", _column(apis, place)
        yield "kafka_network_requestchannel_requestqueuesize", _one(counted["queued_requests"])
        yield (
            "kafka_server_delayedoperationpurgatory_purgatorysize",
            [
                (("Fetch",), counted["delayed_fetches"]),
                (("Produce",), counted["delayed_produces"]),
                (("Join",), counted["delayed_joins"]),
            ],
        )
        sessions = "kafka_server_fetchsessioncache"
        count, partitions, evictions = counted["fetch_sessions"]
        yield f"{sessions}_numincrementalfetchsessions", _one(count)
        yield f"{sessions}_numincrementalfetchpartitionscached", _one(partitions)
        yield f"{sessions}_incrementalfetchsessionevictions_total", _one(evictions)
        names = self._listeners
        sockets = [((names[one[0]], str(one[1])), *one[2:]) for one in counted["sockets"]]
        attributes = (
            "connection_count",
            "connection_creation_total",
            "incoming_byte_total",
            "outgoing_byte_total",
        )
        for place, name in enumerate(attributes, 1):
            yield f"kafka_server_socket_server_metrics_{name}", _column(sockets, place)
        yield "txn_network_reactors", _one(counted["reactors"])
        tls = [((names[one[0]],), *one[1:]) for one in counted["tls"]]
        yield "txn_tls_handshakes_total", _column(tls, 1)
        yield (
            "txn_tls_failed_handshakes_total",
            [((*one[0], reason), count) for one in tls for reason, count in one[2]],
        )
        now = time.time()
        yield "txn_tls_certificate_expiry_seconds", [(one[0], one[3] - now) for one in tls]
        refused: list[tuple[Labels, int]] = []
        closed: list[tuple[Labels, int]] = []
        blocked: list[tuple[Labels, float]] = []
        for listener, of_refused, of_closed, blocked_s in counted["listeners"]:
            name = names[listener]
            refused += [((name, reason), count) for reason, count in of_refused]
            closed += [((name, reason), count) for reason, count in of_closed]
            blocked.append(((name,), blocked_s))
        yield "txn_network_refused_connections_total", refused
        yield "txn_network_closed_connections_total", closed
        yield "txn_network_accept_blocked_seconds_total", blocked
        yield from self._authentications(counted)
        yield from self._throttles(counted)
        topics = "kafka_server_brokertopicmetrics"
        yield f"{topics}_messagesin_total", _one(counted["produced_records"])
        yield f"{topics}_bytesin_total", _one(counted["produced_bytes"])
        yield f"{topics}_bytesout_total", _one(counted["fetched_bytes"])
        yield f"{topics}_failedproducerequests_total", _one(counted["failed_produces"])
        yield "txn_log_appended_batches_total", _one(counted["produced_batches"])
        times, in_progress = _core.sync_metrics()
        yield "kafka_log_logflushstats_logflushrateandtime_seconds", _one(times)
        yield "txn_log_syncs_in_progress", _one(in_progress)

    def _authentications(self, counted: "_core.ServerMetrics") -> Iterator[tuple[str, Values]]:
        # One step, while the control loop goes on.
        counts = {} if self._logins is None else self._logins.counts.copy()
        sockets = "kafka_server_socket_server_metrics"
        for is_again, kind in ((False, "authentication"), (True, "reauthentication")):
            for result in (SUCCEEDED, FAILED):
                values = [
                    ((listener, mechanism), count)
                    for (listener, mechanism, again, ended), count in counts.items()
                    if (again, ended) == (is_again, result)
                ]
                yield f"{sockets}_{result}_{kind}_total", values
        expired = counted["expired_connections"]
        yield f"{sockets}_expired_connections_killed_count_total", _one(expired)
        unauthenticated = counted["unauthenticated_connections"]
        yield "txn_network_unauthenticated_connections_total", _one(unauthenticated)
        yield (
            "txn_access_refusals_total",
            [
                ((_camel(operation.name), _camel(kind.name)), count)
                for (operation, kind), count in audit.refusals().items()
            ],
        )

    def _throttles(self, counted: "_core.ServerMetrics") -> Iterator[tuple[str, Values]]:
        quotas = self._node.quotas
        mutations = ("ControllerMutation", quotas.throttled_requests, quotas.throttled_ms / 1000)
        throttled = [((kind,), *values) for kind, *values in (*counted["throttled"], mutations)]
        yield "txn_quota_throttled_requests_total", _column(throttled, 1)
        yield "txn_quota_throttle_seconds_total", _column(throttled, 2)
        yield "txn_quota_rates", _one(counted["quota_counts"])

    def _partitions(self) -> Iterator[tuple[str, Values]]:
        topics = list(self._node.partitions.items())  # one step, while the control loop goes on
        opened = [
            ((topic, str(index)), store)
            for topic, partitions in topics
            for index, store in partitions.opened_by_index()
        ]
        lags = [
            (store.high_watermark - stable, place, store.log_end_offset)
            for place, store in opened
            for stable in (store.last_stable_offset,)  # first: none passes the high watermark then
        ]
        held_back = [lag for lag in lags if lag[0] > 0]
        named = heapq.nlargest(HELD_BACK_MAX, held_back)
        replicas = "kafka_server_replicamanager"
        count = sum(len(partitions) for _, partitions in topics)
        failed = sum(partitions.failure_count for _, partitions in topics)
        yield f"{replicas}_partitioncount", _one(count)
        yield f"{replicas}_offlinereplicacount", _one(failed)
        yield "txn_partitions_open", _one(len(opened))
        yield "txn_partitions_held_back", _one(len(held_back))
        yield (
            "kafka_cluster_partition_laststableoffsetlag",
            [(place, lag) for lag, place, _ in named],
        )
        yield "kafka_log_log_logendoffset", [(place, end) for _, place, end in named]

    def _coordinators(self) -> Iterator[tuple[str, Values]]:
        transactions, groups = self._node.transactions, self._node.groups
        store = transactions.transactions
        decoded = store.decoded()
        states = Counter(txn.state for _, txn in decoded)
        open_ids = [(txn.start_ms, name) for name, txn in decoded if txn.state in OPEN_STATES]
        oldest = heapq.nsmallest(OLDEST_MAX, open_ids)
        now_ms = time.time() * 1000
        ages = [(name, max(now_ms - start_ms, 0) / 1000) for start_ms, name in oldest]
        yield "txn_transactional_ids", _one(len(store))
        yield "txn_transactions_oldest_age_seconds", _one(ages[0][1] if ages else 0)
        yield (
            "txn_transaction_age_seconds",
            [((name,), age) for name, age in ages if len(name) <= TRANSACTIONAL_ID_MAX],
        )
        yield (
            "txn_transactions_open",
            [((_camel(state.name),), states[state]) for state in OPEN_STATES],
        )
        group_states = Counter(group.state.value for group in groups.groups())
        yield (
            "kafka_coordinator_group_groupmetadatamanager_numgroups",
            [((state,), count) for state, count in group_states.items()],
        )
        yield (
            "txn_coordinator_partitions",
            [
                ((topic, state), count)
                for topic, failed in (
                    (TRANSACTIONS_TOPIC, transactions.failed_count),
                    (OFFSETS_TOPIC, groups.failed_count),
                )
                for state, count in (("active", self._count(topic) - failed), ("failed", failed))
            ],
        )

    def _group_lags(self) -> Iterator[tuple[str, Values]]:
        lags = self._lags.read()
        yield (
            "txn_group_lag_records",
            [
                ((lag.group_id, topic, str(index)), records)
                for lag in lags.groups
                for (topic, index), records in lag.records.items()
                if records is not None
            ],
        )
        yield (
            "txn_group_is_drained",
            [((lag.group_id,), int(lag.is_drained)) for lag in lags.groups],
        )
        yield "txn_group_lag_uncounted", _one(lags.uncounted)
        yield "txn_group_lag_left_out_groups", _one(lags.left_out)

    def _count(self, topic: str) -> int:
        return len(self._node.partitions.get(topic, ()))


def _one(value: object) -> Values:
    return [((), value)]


def _column(rows: Iterable[tuple[Any, ...]], place: int) -> Values:
    return [(row[0], row[place]) for row in rows]


def _camel(name: str) -> str:
    return "".join(map(str.capitalize, name.split("_")))


class _Collector:
    """Makes families of `prometheus_client` of a scrape."""

    def __init__(self, scrape: Scrape) -> None:
        self._scrape = scrape
        self._bounds = [*map(str, _core.bucket_bounds_s()), "+Inf"]

    def collect(self) -> Iterator[Any]:
        from prometheus_client import core

        makers = {
            "counter": core.CounterMetricFamily,
            "gauge": core.GaugeMetricFamily,
            "histogram": core.HistogramMetricFamily,
        }
        for name, values in self._scrape.read():
            metric = METRICS[name]
            family = makers[metric.kind](name, metric.about, labels=metric.labels)
            for labels, value in values:
                if metric.kind == "histogram":
                    buckets, sum_s = value
                    pairs = list(zip(self._bounds, accumulate(buckets), strict=True))
                    family.add_metric(labels, pairs, sum_s)
                else:
                    family.add_metric(labels, value)
            yield family


def exposition(scrape: Scrape) -> Callable[[], bytes]:
    """A call that gives every metric in Prometheus' text form; loads `prometheus_client`."""
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_Collector(scrape))

    def make() -> bytes:
        text: bytes = generate_latest(registry)
        return text

    return make
