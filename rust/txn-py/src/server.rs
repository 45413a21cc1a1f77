//! `txn._core.Server`: sockets, Produce and Fetch, as Python sees them.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use txn_net::{
    Action, Ask, Attachment, BindError, ClientQuota, ConnectionLimits, CreationRates, Decide,
    Fault, ListenerLimits, ListenerOptions, LogOf, NodeEndpoint, Options, Presence, QuotaClient,
    QuotaKind, RequestToken, SecurityProtocol, Settler, Topic, TopicId, Window,
};
use txn_protocol::codes;

use crate::durability::PyDurability;
use crate::log::PyPartitionLog;
use crate::tls::TlsContext;

/// (client host, API key, version, fault, error code, reason).
type FatalTuple = (
    String,
    Option<i16>,
    Option<i16>,
    &'static str,
    Option<i16>,
    Option<String>,
);

/// The most time a Produce waits for the coordinator: the default of Kafka's `request.timeout.ms`,
/// which bounds its leaders' question to a coordinator.
const COORDINATOR_TIMEOUT: Duration = Duration::from_secs(30);

/// The most time that a TLS handshake takes. Kafka has no such limit but that of idle connections.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The most time that a client of a SASL listener has to authenticate. Kafka has no such limit.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(60);

/// The time that a slow request has while others wait for its memory, and as much more as its bytes
/// take at the least pace. Kafka has no such limit.
const MEMORY_PATIENCE: Duration = Duration::from_secs(10);

/// The time in which a client has to take some of its answer while others wait for its memory.
const ANSWER_PATIENCE: Duration = Duration::from_secs(2);

/// The time of one connection's requests before others have their turn: that of a step of the
/// control loop. A thread of Kafka's stays with one request.
const TURN: Duration = Duration::from_millis(2);

/// Listening sockets, their reactor threads' work, Produce and Fetch.
#[pyclass(frozen, module = "txn._core")]
pub struct Server(txn_net::Server);

/// Shows whether the client of a connection is there; Python keeps it beside the connection.
#[pyclass(frozen, module = "txn._core")]
struct ClientPresence(Presence);

#[pymethods]
impl ClientPresence {
    fn has_left(&self) -> bool {
        self.0.has_ended()
    }
}

/// `(token, api_key, api_version, correlation_id, client_id, body, client_host, listener,
/// principal, connection, attachment)`. A new connection brings its `ClientPresence` in place of
/// the attachment that Python has not made.
type ClientRequest<'py> = (
    u64,
    i16,
    i16,
    i32,
    Option<String>,
    Bound<'py, PyBytes>,
    String,
    usize,
    Option<String>,
    u64,
    Option<Py<PyAny>>,
);

/// `(kind, user, client id, limit)`: a part is `None` where there is none, and `(None,)` for the
/// default.
type QuotaTuple = (
    String,
    Option<(Option<String>,)>,
    Option<(Option<String>,)>,
    f64,
);

/// `(name, host, port, TLS)` of a listener.
type ListenerTuple<'py> = (String, String, u16, Option<Bound<'py, TlsContext>>);

/// `(token, transactional_id, producer_id, producer_epoch, transaction_version, partitions)`.
type ParkedProduceTuple = (u64, String, i64, i16, u8, Vec<(String, i32)>);

#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (listeners, durability, *, reactors, max_request_bytes, max_queued_bytes, max_connections, max_idle_ms, sync_acks_all, max_fetch_sessions=1_000, max_sasl_bytes=524_288, sasl_listeners=Vec::new()))]
    #[expect(
        clippy::too_many_arguments,
        reason = "one per keyword of the Python signature"
    )]
    fn new(
        py: Python<'_>,
        listeners: Vec<ListenerTuple<'_>>,
        durability: &Bound<'_, PyDurability>,
        reactors: usize,
        max_request_bytes: usize,
        max_queued_bytes: i64,
        max_connections: usize,
        max_idle_ms: i64,
        sync_acks_all: bool,
        max_fetch_sessions: usize,
        max_sasl_bytes: usize,
        sasl_listeners: Vec<String>,
    ) -> PyResult<Self> {
        let options = Options {
            reactors,
            max_request_bytes,
            max_sasl_bytes,
            max_queued_bytes: usize::try_from(max_queued_bytes)
                .ok()
                .filter(|&limit| limit > 0),
            max_connections,
            max_idle: u64::try_from(max_idle_ms).ok().map(Duration::from_millis),
            max_fetch_sessions,
            turn: TURN,
            sync_acks_all,
            coordinator_timeout: COORDINATOR_TIMEOUT,
            handshake_timeout: HANDSHAKE_TIMEOUT,
            login_timeout: LOGIN_TIMEOUT,
            memory_patience: MEMORY_PATIENCE,
            answer_patience: ANSWER_PATIENCE,
        };
        let sasl_listeners: HashSet<_> = sasl_listeners.into_iter().collect();
        let listeners: Vec<_> = listeners
            .into_iter()
            .map(|(name, host, port, tls)| ListenerOptions {
                is_sasl: sasl_listeners.contains(&name),
                name,
                host,
                port,
                security: tls.map_or(SecurityProtocol::Plaintext, |tls| {
                    SecurityProtocol::Tls(Arc::clone(&tls.get().0))
                }),
            })
            .collect();
        let durability = Arc::clone(&durability.get().service);
        py.detach(|| txn_net::Server::bind(&listeners, options, durability))
            .map(Self)
            .map_err(|BindError { listener, error }| match listener {
                Some(name) => {
                    let code = error.raw_os_error().unwrap_or(0);
                    PyOSError::new_err((code, error.to_string(), name))
                }
                None if error.kind() == std::io::ErrorKind::InvalidInput => {
                    PyValueError::new_err(error.to_string())
                }
                None => PyOSError::new_err(error.to_string()),
            })
    }

    #[getter]
    fn addresses(&self) -> Vec<(String, u16)> {
        let listeners = self.0.listeners().iter();
        let addresses = listeners.map(|one| (one.address.ip().to_string(), one.address.port()));
        addresses.collect()
    }

    #[getter]
    fn wakeup_fd(&self) -> i32 {
        self.0.wakeup_fd().as_raw_fd()
    }

    fn run_reactor(&self, py: Python<'_>, index: usize) -> PyResult<()> {
        Ok(py.detach(|| self.0.run_reactor(index))?)
    }

    #[pyo3(signature = (name, topic_id, partition_count, log_of, *, is_internal))]
    fn add_topic(
        &self,
        py: Python<'_>,
        name: String,
        topic_id: &[u8],
        partition_count: usize,
        log_of: Py<PyAny>,
        is_internal: bool,
    ) -> PyResult<()> {
        let id = TopicId::try_from(topic_id).map_err(|_| {
            PyValueError::new_err(format!("a topic id has 16 bytes, not {}", topic_id.len()))
        })?;
        let topic = Topic::new(name, id, partition_count, asking(log_of), is_internal);
        py.detach(|| self.0.add_topic(topic));
        Ok(())
    }

    fn remove_topic(&self, py: Python<'_>, name: &str) {
        py.detach(|| self.0.remove_topic(name));
    }

    fn sync_before_ack(&self, producer_id: i64, is_forced: bool) {
        self.0.sync_before_ack(producer_id, is_forced);
    }

    fn authorize_by(&self, ask: Py<PyAny>) {
        self.0.authorize_by(authorizing(ask));
    }

    fn forget_verdicts(&self) {
        self.0.forget_verdicts();
    }

    fn advertise(&self, node_id: i32, addresses: Vec<(String, u16)>) {
        let endpoint = |(host, port)| NodeEndpoint {
            id: node_id,
            host,
            port,
        };
        self.0
            .advertise(addresses.into_iter().map(endpoint).collect());
    }

    #[pyo3(signature = (*, max_connections, max_per_ip, overrides, creation_rate, listeners))]
    fn limit_connections(
        &self,
        max_connections: usize,
        max_per_ip: usize,
        overrides: HashMap<String, usize>,
        creation_rate: u32,
        listeners: Vec<(usize, u32, bool)>,
    ) -> PyResult<()> {
        let listeners = listeners.into_iter().map(|limits| ListenerLimits {
            max_connections: limits.0,
            creation_rate: limits.1,
            is_protected: limits.2,
        });
        self.0.limit_connections(ConnectionLimits {
            max_connections,
            max_per_ip,
            overrides: by_address(overrides)?,
            creation_rate,
            listeners: listeners.collect(),
        });
        Ok(())
    }

    fn limit_creation_rates(
        &self,
        default: Option<f64>,
        of_addresses: HashMap<String, f64>,
    ) -> PyResult<()> {
        let of_addresses = by_address(of_addresses)?;
        self.0.limit_creation_rates(CreationRates {
            default,
            of_addresses,
        });
        Ok(())
    }

    #[pyo3(signature = (quotas, *, samples, length_s))]
    fn publish_quotas(&self, quotas: Vec<QuotaTuple>, samples: u32, length_s: u64) -> PyResult<()> {
        let sample = Duration::from_secs(length_s);
        if samples == 0 || sample.is_zero() {
            return Err(PyValueError::new_err("a rate has a sample of some time"));
        }
        let quotas = quotas
            .into_iter()
            .map(client_quota)
            .collect::<PyResult<_>>()?;
        self.0.publish_quotas(quotas, Window { samples, sample });
        Ok(())
    }

    fn throttle_ms(&self, principal: &str, host: &str, client_id: &str, spent_s: f64) -> u64 {
        let client = QuotaClient {
            principal,
            host,
            client_id: client_id.as_bytes(),
        };
        let spent = Duration::try_from_secs_f64(spent_s).unwrap_or_default();
        self.0.throttle_of(client, spent).as_millis() as u64
    }

    fn mute(&self, token: u64, duration_ms: u64) {
        let duration = Duration::from_millis(duration_ms);
        self.0.mute(RequestToken::from_number(token), duration);
    }

    fn take<'py>(&self, py: Python<'py>) -> Vec<ClientRequest<'py>> {
        python_requests(py, self.0.take())
    }

    fn take_joins(&self) -> Vec<ParkedProduceTuple> {
        python_joins(self.0.take_joins())
    }

    fn let_reactors_decide(&self, api_keys: Vec<i16>, decide: Py<PyAny>) {
        self.0.let_reactors_decide(api_keys, deciding(decide));
    }

    fn let_reactors_settle(&self, durability: &Bound<'_, PyDurability>, settle: Py<PyAny>) {
        let ended = Arc::clone(&durability.get().ended);
        let bell = self.0.let_reactors_settle(Settler {
            settle: settling(settle),
            leave: Box::new(move || ended.signal()),
        });
        let _ = durability.get().ended.bell.set(bell); // only the first call counts
    }

    fn take_control_lock(&self, py: Python<'_>) {
        py.detach(|| self.0.take_control_lock());
    }

    fn release_control_lock(&self) {
        self.0.release_control_lock();
    }

    fn has_room(&self) -> bool {
        self.0.has_room()
    }

    fn take_room(&self) -> bool {
        self.0.take_room()
    }

    fn take_failures(&self) -> Vec<String> {
        self.0.take_failures()
    }

    fn take_failed_handshakes(&self) -> Vec<(usize, String, String)> {
        let failed = self.0.take_failed_handshakes().into_iter();
        let tuples = failed.map(|one| (one.listener, one.client_host.as_ref().into(), one.reason));
        tuples.collect()
    }

    fn take_refused(&self) -> Vec<(usize, String, &'static str)> {
        let refused = self.0.take_refused().into_iter();
        let tuples = refused.map(|one| (one.listener, one.client_host, one.reason));
        tuples.collect()
    }

    fn take_fatal_requests(&self) -> Vec<FatalTuple> {
        let fatal = self.0.take_fatal_requests().into_iter();
        let tuples = fatal.map(|one| {
            let (event, code, reason) = match one.fault {
                Fault::Malformed(reason) => ("malformed", None, Some(reason)),
                Fault::Unsupported => ("unsupported", None, None),
                Fault::Unauthenticated { has_expired: false } => ("unauthenticated", None, None),
                Fault::Unauthenticated { has_expired: true } => ("expired", None, None),
                Fault::Unacknowledged { code, reason } => {
                    ("unacknowledged", Some(code), Some(reason))
                }
            };
            let host = one.client_host.as_ref().into();
            (host, one.api_key, one.api_version, event, code, reason)
        });
        tuples.collect()
    }

    fn reply(&self, token: u64, flexible_header: bool, body: &[u8]) {
        self.0
            .reply(RequestToken::from_number(token), flexible_header, body);
    }

    fn refuse(&self, token: u64, flexible_header: bool, body: &[u8]) {
        self.0
            .refuse(RequestToken::from_number(token), flexible_header, body);
    }

    fn reply_raw(&self, token: u64, answer: &[u8]) {
        self.0.reply_raw(RequestToken::from_number(token), answer);
    }

    fn attach(&self, token: u64, attachment: Py<PyAny>) {
        let attachment = Attachment(Arc::new(attachment));
        self.0.attach(RequestToken::from_number(token), attachment);
    }

    #[pyo3(signature = (token, *, is_raw))]
    fn require_authentication(&self, token: u64, is_raw: bool) {
        self.0
            .require_authentication(RequestToken::from_number(token), is_raw);
    }

    fn authenticated(&self, token: u64, principal: &str, lifetime_ms: Option<u64>) {
        let lifetime = lifetime_ms.map(Duration::from_millis);
        self.0
            .authenticated(RequestToken::from_number(token), principal, lifetime);
    }

    fn resume(&self, token: u64, refused: Vec<(String, i32, i16)>) {
        self.0.resume(RequestToken::from_number(token), refused);
    }

    fn disconnect(&self, token: u64) {
        self.0.disconnect(RequestToken::from_number(token));
    }

    fn metrics(&self, py: Python<'_>) -> ServerMetrics {
        py.detach(|| self.0.metrics()).into()
    }

    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.0.stop());
    }
}

/// Bucket counts, and the sum in seconds.
pub type HistogramTuple = (Vec<u64>, f64);

/// `(listener, handshakes, failures by reason, expires_at)`.
type TlsTuple = (usize, u64, Vec<(&'static str, u64)>, i64);

/// `(listener, refused by reason, closed by reason, seconds in which it accepted nothing)`.
type ListenerMetricsTuple = (
    usize,
    Vec<(&'static str, u64)>,
    Vec<(&'static str, u64)>,
    f64,
);

/// Values by address. An IPv4 address may be written as one of IPv6.
fn by_address<V>(values: HashMap<String, V>) -> PyResult<HashMap<IpAddr, V>> {
    let parsed = values.into_iter().map(|(text, value)| {
        let address: IpAddr = text
            .parse()
            .map_err(|_| PyValueError::new_err(format!("{text:?} is no IP address")))?;
        Ok((address.to_canonical(), value))
    });
    parsed.collect()
}

/// The same as Python's `ServerMetrics`.
#[derive(IntoPyObject)]
struct ServerMetrics {
    /// `(api_key, received, queue, local, remote, send, total)`.
    apis: Vec<(
        i16,
        u64,
        HistogramTuple,
        HistogramTuple,
        HistogramTuple,
        HistogramTuple,
        HistogramTuple,
    )>,
    reactors: usize,
    /// `(listener, reactor, connections, accepted, bytes_received, bytes_sent)`.
    sockets: Vec<(usize, usize, usize, u64, u64, u64)>,
    listeners: Vec<ListenerMetricsTuple>,
    tls: Vec<TlsTuple>,
    produced_batches: u64,
    produced_records: u64,
    produced_bytes: u64,
    failed_produces: u64,
    fetched_bytes: u64,
    queued_requests: usize,
    delayed_fetches: usize,
    delayed_produces: usize,
    delayed_joins: usize,
    unauthenticated_connections: u64,
    expired_connections: u64,
    /// `(kind, requests, seconds)`.
    throttled: Vec<(&'static str, u64, f64)>,
    quota_counts: usize,
    /// `(sessions, partitions, evictions)`.
    fetch_sessions: (usize, usize, u64),
}

impl From<txn_net::Snapshot> for ServerMetrics {
    fn from(counted: txn_net::Snapshot) -> Self {
        let apis = counted.apis.into_iter().map(|api| {
            let stages = [api.queue, api.local, api.remote, api.send, api.total];
            let [queue, local, remote, send, total] = stages.map(histogram_tuple);
            (api.api_key, api.received, queue, local, remote, send, total)
        });
        let sockets = counted.sockets.into_iter().map(|one| {
            let bytes = (one.bytes_received, one.bytes_sent);
            let connections = (one.connections, one.accepted);
            let place = (one.listener, one.reactor);
            (
                place.0,
                place.1,
                connections.0,
                connections.1,
                bytes.0,
                bytes.1,
            )
        });
        let listeners = counted.listeners.into_iter();
        let listeners = listeners.map(|one| (one.listener, one.refused, one.closed, one.blocked_s));
        let tls = counted.tls.into_iter();
        let tls = tls.map(|one| (one.listener, one.handshakes, one.failures, one.expires_at));
        let sessions = counted.fetch_sessions;
        let throttled = counted.throttled.into_iter();
        let throttled = throttled.map(|one| (kind_name(one.kind), one.requests, one.seconds));
        Self {
            apis: apis.collect(),
            reactors: counted.reactors,
            sockets: sockets.collect(),
            listeners: listeners.collect(),
            tls: tls.collect(),
            produced_batches: counted.produced_batches,
            produced_records: counted.produced_records,
            produced_bytes: counted.produced_bytes,
            failed_produces: counted.failed_produces,
            fetched_bytes: counted.fetched_bytes,
            queued_requests: counted.queued_requests,
            delayed_fetches: counted.delayed_fetches,
            delayed_produces: counted.delayed_produces,
            delayed_joins: counted.delayed_joins,
            unauthenticated_connections: counted.unauthenticated_connections,
            expired_connections: counted.expired_connections,
            throttled: throttled.collect(),
            quota_counts: counted.quota_counts,
            fetch_sessions: (sessions.sessions, sessions.partitions, sessions.evictions),
        }
    }
}

pub fn histogram_tuple(times: txn_log::histogram::Times) -> HistogramTuple {
    (times.buckets, times.sum_s)
}

fn python_requests(
    py: Python<'_>,
    requests: Vec<txn_net::ControlRequest>,
) -> Vec<ClientRequest<'_>> {
    let tuples = requests.into_iter().map(|request| {
        let is_new = request.attachment.is_none();
        let attachment = match &request.attachment {
            Some(attachment) => python_object(py, attachment),
            None => presence_object(py, request.presence),
        };
        (
            request.token.number(),
            request.api_key,
            request.api_version,
            request.correlation_id,
            request.client_id,
            PyBytes::new(py, &request.body),
            request.client_host.as_ref().to_owned(),
            request.listener,
            is_new.then(|| request.principal.as_ref().to_owned()),
            request.connection,
            attachment,
        )
    });
    tuples.collect()
}

/// The names of the kinds of quotas.
fn kind_name(kind: QuotaKind) -> &'static str {
    match kind {
        QuotaKind::Produce => "Produce",
        QuotaKind::Fetch => "Fetch",
        QuotaKind::Request => "Request",
    }
}

fn client_quota((kind, user, client_id, limit): QuotaTuple) -> PyResult<ClientQuota> {
    let named = QuotaKind::ALL
        .into_iter()
        .find(|&one| kind_name(one) == kind);
    let kind = named.ok_or_else(|| PyValueError::new_err(format!("no kind of quota: {kind}")))?;
    let part = |part: Option<(Option<String>,)>| part.map(|(name,)| name.map(Into::into));
    Ok(ClientQuota {
        kind,
        user: part(user),
        client_id: part(client_id),
        limit,
    })
}

/// The object that Python attached to a connection.
fn python_object(py: Python<'_>, attachment: &Attachment) -> Option<Py<PyAny>> {
    let object = attachment.0.downcast_ref::<Py<PyAny>>();
    object.map(|object| object.clone_ref(py))
}

fn presence_object(py: Python<'_>, presence: Presence) -> Option<Py<PyAny>> {
    let object = Py::new(py, ClientPresence(presence));
    object.ok().map(Py::into_any) // there is memory for it
}

fn python_joins(parked: Vec<txn_net::ParkedProduce>) -> Vec<ParkedProduceTuple> {
    let tuples = parked.into_iter().map(|parked| {
        let join = parked.join;
        (
            parked.token.number(),
            join.transactional_id,
            join.producer_id,
            join.producer_epoch,
            join.transaction_version,
            join.partitions,
        )
    });
    tuples.collect()
}

/// Lets Python decide for reactors. An exception is reported as unraisable.
fn deciding(decide: Py<PyAny>) -> Decide {
    Box::new(move |requests, joins| {
        Python::try_attach(|py| {
            let decide = decide.bind(py);
            let told = decide.call1((python_requests(py, requests), python_joins(joins)));
            match told.and_then(|told| told.extract()) {
                Ok(will_answer) => will_answer,
                Err(error) => {
                    error.write_unraisable(py, Some(decide));
                    false
                }
            }
        })
        .unwrap_or(false) // the interpreter is going away
    })
}

/// Lets reactors continue waits that have ended. An exception is reported as unraisable.
fn settling(settle: Py<PyAny>) -> Box<dyn Fn() + Send + Sync> {
    Box::new(move || {
        // Nothing is done if the interpreter is going away.
        Python::try_attach(|py| {
            let settle = settle.bind(py);
            if let Err(error) = settle.call0() {
                error.write_unraisable(py, Some(settle));
            }
        });
    })
}

/// Python's answer for a partition: its log, or an error code.
#[derive(FromPyObject)]
enum Given<'py> {
    Log(PyRef<'py, PyPartitionLog>),
    Code(i16),
}

/// Lets reactors ask Python for a log. An exception is reported as unraisable.
fn asking(log_of: Py<PyAny>) -> LogOf {
    Box::new(move |index| {
        Python::try_attach(|py| {
            let asked = log_of.bind(py);
            let given = asked.call1((index,)).and_then(|given| given.extract());
            match given {
                Ok(Given::Log(log)) => Ok(Arc::clone(&log.log)),
                Ok(Given::Code(code)) => Err(code),
                Err(error) => {
                    error.write_unraisable(py, Some(asked));
                    Err(codes::KAFKA_STORAGE_ERROR)
                }
            }
        })
        .unwrap_or(Err(codes::KAFKA_STORAGE_ERROR)) // the interpreter is going away
    })
}

/// Lets reactors ask Python whether a sender may do something. An exception is reported as
/// unraisable, and refuses.
fn authorizing(ask: Py<PyAny>) -> Ask {
    Box::new(move |principal, host, action, name| {
        let operation = match action {
            Action::ReadTopic => "read",
            Action::WriteTopic => "write",
            Action::WriteTransactionalId => "write_by_id",
        };
        Python::try_attach(|py| {
            let asked = ask.bind(py);
            let told = asked.call1((principal, host, operation, name));
            match told.and_then(|told| told.extract()) {
                Ok(is_allowed) => is_allowed,
                Err(error) => {
                    error.write_unraisable(py, Some(asked));
                    false
                }
            }
        })
        .unwrap_or(false) // the interpreter is going away
    })
}

/// Adds this file's classes and functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ClientPresence>()?;
    module.add_class::<Server>()
}
