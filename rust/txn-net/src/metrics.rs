//! Counts and times of requests at the choke points.
//!
//! ```text
//!  received ──queue──► dequeued ──local──► decided ──remote──► durable ──send──► sent
//!  the frame is        a reactor, or       Python has          the disk, or      the kernel has
//!  whole               Python, takes it    answered, the log   the purgatory,    the answer's
//!                                          has the batches     lets it go        last byte
//! ```
//!
//! Each time is noted when its second point is reached, so the count of `local` is the number of
//! requests decided, and so on. A request without an answer (`acks=0`) is never sent.
//!
//! Every reactor notes the requests of its own connections, and no other thread writes its
//! counters. Another thread hands its times over with the request (`Dequeued`) or the answer. So a
//! request costs no locked instruction here, and two or three readings of the clock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use txn_log::histogram::{Counter, Histogram, Times};

use crate::connection_quotas::Refusal;
use crate::fetch::SessionSnapshot;
use crate::quotas::ThrottledSnapshot;

/// Kafka's API keys are below this; a client may send any.
const API_KEYS: usize = 128;
/// Stands for every key that Kafka does not have.
const UNKNOWN_API: i16 = -1;

/// When the control loop took a request; empty until then.
pub type Dequeued = Arc<OnceLock<Instant>>;

/// The points that a request has passed.
pub struct Marks {
    api_key: i16,
    received: Instant,
    dequeued: Instant,
    /// Set by the control loop if that has the request.
    taken: Option<Dequeued>,
    decided: Option<Instant>,
    durable: Option<Instant>,
}

impl Marks {
    /// Begins with a request that a reactor takes at `dequeued`.
    pub fn new(api_key: i16, received: Instant, dequeued: Instant) -> Self {
        Self {
            api_key,
            received,
            dequeued,
            taken: None,
            decided: None,
            durable: None,
        }
    }

    /// Marks the request as queued for the control loop, which reports when it dequeues it.
    pub fn enqueue(&mut self) -> Dequeued {
        Arc::clone(self.taken.insert(Dequeued::default()))
    }

    /// It is decided; its answer may have to wait. Only the first call counts.
    pub fn decide(&mut self, now: Instant) {
        self.decided.get_or_insert(now);
    }

    /// Its answer may be sent. Only the first call counts.
    pub fn note_ready(&mut self, now: Instant) {
        self.decide(now);
        self.durable.get_or_insert(now);
    }
}

/// Counters of one API.
#[derive(Default)]
struct ApiMetrics {
    received: Counter,
    queue: Histogram,
    local: Histogram,
    remote: Histogram,
    send: Histogram,
    total: Histogram,
}

/// Counters of one reactor; its own thread alone writes.
pub struct ReactorMetrics {
    /// By API key, the unknown ones last; made when the first request of an API comes.
    apis: [OnceLock<Box<ApiMetrics>>; API_KEYS + 1],
    /// One for each listener.
    pub sockets: Box<[SocketMetrics]>,
    pub produced: Produced,
    /// Bytes of batches in answers to Fetch.
    pub fetched_bytes: Counter,
    pub delayed_fetches: Gauge,
    pub delayed_produces: Gauge,
    pub delayed_joins: Gauge,
}

/// Counters of a reactor's connections of one listener.
#[derive(Default)]
pub struct SocketMetrics {
    pub connections: Gauge,
    /// Connections that it began to serve; one that another reactor served before does not count.
    pub accepted: Counter,
    pub bytes_received: Counter,
    pub bytes_sent: Counter,
}

/// The reason for which a server closes a connection that is silent or slow, or one too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// It had no request for `connections.max.idle.ms`.
    Idle,
    /// Its request comes too slowly.
    SlowRequest,
    /// Its client takes an answer too slowly.
    SlowReader,
    /// Its client takes too long to authenticate.
    SlowLogin,
    /// `max.connections` is exceeded.
    Surplus,
}

impl CloseReason {
    /// The names that metrics have, in the order of the reasons.
    const NAMES: [&'static str; 5] = [
        "idle",
        "slow_request",
        "slow_reader",
        "slow_login",
        "max_connections",
    ];
}

/// Counters of one listener, written by every reactor.
#[derive(Default)]
pub struct ListenerMetrics {
    refused: [Counter; Refusal::NAMES.len()],
    closed: [Counter; CloseReason::NAMES.len()],
    blocked_ns: Counter,
}

impl ListenerMetrics {
    /// A connection was closed as it came.
    pub fn note_refused(&self, refusal: Refusal) {
        self.refused[refusal.row()].add(1);
    }

    /// A connection was closed by the server.
    pub fn note_closed(&self, reason: CloseReason) {
        self.closed[reason as usize].add(1);
    }

    /// The listener has accepted nothing for so long, for its limits or want of descriptors.
    pub fn note_blocked(&self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.blocked_ns.add(ns);
    }

    fn snapshot(&self, listener: usize) -> ListenerSnapshot {
        let counts = |names: &[&'static str], counters: &[Counter]| {
            let pairs = names.iter().zip(counters);
            pairs.map(|(&name, count)| (name, count.get())).collect()
        };
        ListenerSnapshot {
            listener,
            refused: counts(&Refusal::NAMES, &self.refused),
            closed: counts(&CloseReason::NAMES, &self.closed),
            blocked_s: Duration::from_nanos(self.blocked_ns.get()).as_secs_f64(),
        }
    }
}

/// A number that its reactor alone changes.
#[derive(Default)]
pub struct Gauge(AtomicUsize);

impl Gauge {
    pub fn rise(&self) {
        self.0.store(self.get() + 1, Ordering::Relaxed);
    }

    pub fn fall(&self) {
        self.0.store(self.get() - 1, Ordering::Relaxed);
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of Produce.
#[derive(Default)]
pub struct Produced {
    pub batches: Counter,
    pub records: Counter,
    pub bytes: Counter,
    /// Partitions of a request whose batch was refused.
    pub failures: Counter,
}

impl ReactorMetrics {
    /// Zeros, for the connections of so many listeners.
    pub fn new(listeners: usize) -> Self {
        Self {
            apis: [const { OnceLock::new() }; API_KEYS + 1],
            sockets: (0..listeners).map(|_| SocketMetrics::default()).collect(),
            produced: Produced::default(),
            fetched_bytes: Counter::default(),
            delayed_fetches: Gauge::default(),
            delayed_produces: Gauge::default(),
            delayed_joins: Gauge::default(),
        }
    }

    /// A request's frame is whole.
    pub fn received(&self, api_key: i16, listener: usize, bytes: usize) {
        self.api(api_key).received.add_alone(1);
        let sockets = &self.sockets[listener];
        sockets.bytes_received.add_alone(bytes as u64);
    }

    /// Its answer is ready to be sent, or it has none.
    pub fn answered(&self, marks: &Marks) {
        let api = self.api(marks.api_key);
        let taken = marks.taken.as_ref().and_then(|taken| taken.get());
        let dequeued = *taken.unwrap_or(&marks.dequeued);
        let decided = marks.decided.unwrap_or(dequeued);
        let durable = marks.durable.unwrap_or(decided);
        api.queue
            .record_alone(dequeued.saturating_duration_since(marks.received));
        api.local
            .record_alone(decided.saturating_duration_since(dequeued));
        api.remote
            .record_alone(durable.saturating_duration_since(decided));
    }

    /// The kernel has its answer.
    pub fn sent(&self, marks: &Marks, now: Instant) {
        let api = self.api(marks.api_key);
        let durable = marks.durable.unwrap_or(now);
        api.send
            .record_alone(now.saturating_duration_since(durable));
        api.total
            .record_alone(now.saturating_duration_since(marks.received));
    }

    fn api(&self, api_key: i16) -> &ApiMetrics {
        let row = usize::try_from(api_key).unwrap_or(API_KEYS).min(API_KEYS);
        self.apis[row].get_or_init(Box::default)
    }
}

/// The requests of one API, of all reactors.
#[derive(Clone, Debug)]
pub struct ApiSnapshot {
    /// Which; -1 for those that Kafka does not have.
    pub api_key: i16,
    /// Number of requests received.
    pub received: u64,
    /// Time from received to dequeued.
    pub queue: Times,
    /// Time from dequeued to decided.
    pub local: Times,
    /// Time from decided to durable.
    pub remote: Times,
    /// Time from durable to sent.
    pub send: Times,
    /// Time from received to sent.
    pub total: Times,
}

/// Counters of one reactor's connections of one listener.
#[derive(Clone, Copy, Debug)]
pub struct SocketSnapshot {
    /// Index of the listener.
    pub listener: usize,
    /// Index of the reactor.
    pub reactor: usize,
    /// Connections that it serves.
    pub connections: usize,
    /// Connections that it began to serve.
    pub accepted: u64,
    /// Bytes of requests.
    pub bytes_received: u64,
    /// Bytes of answers.
    pub bytes_sent: u64,
}

/// Connections that a listener refused, or closed by itself.
#[derive(Clone, Debug)]
pub struct ListenerSnapshot {
    /// Index of the listener.
    pub listener: usize,
    /// Number closed as they came, by reason.
    pub refused: Vec<(&'static str, u64)>,
    /// Number closed later, by reason.
    pub closed: Vec<(&'static str, u64)>,
    /// Seconds in which it accepted nothing.
    pub blocked_s: f64,
}

/// Handshakes of a listener with TLS.
#[derive(Clone, Debug)]
pub struct TlsSnapshot {
    /// Index of the listener.
    pub listener: usize,
    /// Number that ended well.
    pub handshakes: u64,
    /// Number that failed, by reason.
    pub failures: Vec<(&'static str, u64)>,
    /// When the certificate expires, in seconds since the epoch.
    pub expires_at: i64,
}

/// Counters and queue lengths of a server.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// By API key, those that were ever asked for.
    pub apis: Vec<ApiSnapshot>,
    /// Number of reactors.
    pub reactors: usize,
    /// By reactor and listener, reactor 0 first.
    pub sockets: Vec<SocketSnapshot>,
    /// Refused and closed connections, by listener.
    pub listeners: Vec<ListenerSnapshot>,
    /// Handshakes, by listener.
    pub tls: Vec<TlsSnapshot>,
    /// Batches that Produce has appended.
    pub produced_batches: u64,
    /// Records in them.
    pub produced_records: u64,
    /// Bytes of them.
    pub produced_bytes: u64,
    /// Partitions of Produce requests whose batch was refused.
    pub failed_produces: u64,
    /// Bytes of batches that Fetch has answered with.
    pub fetched_bytes: u64,
    /// Requests and parked Produce requests that wait for the control loop.
    pub queued_requests: usize,
    /// Fetches that wait for bytes.
    pub delayed_fetches: usize,
    /// Produce requests whose answer waits for the disk or for the high watermark.
    pub delayed_produces: usize,
    /// Produce requests that wait for the coordinator.
    pub delayed_joins: usize,
    /// Connections closed for a request before authentication.
    pub unauthenticated_connections: u64,
    /// Connections closed for a request after their session.
    pub expired_connections: u64,
    /// Throttled requests, by the kind of the quota.
    pub throttled: Vec<ThrottledSnapshot>,
    /// Counts of clients that quotas bind.
    pub quota_counts: usize,
    /// The fetch sessions.
    pub fetch_sessions: SessionSnapshot,
}

impl Snapshot {
    /// Adds the counters of listeners.
    pub fn add_listeners(&mut self, listeners: &[ListenerMetrics]) {
        let snapshots = listeners.iter().enumerate();
        self.listeners
            .extend(snapshots.map(|(listener, one)| one.snapshot(listener)));
    }

    /// Adds the counters of reactors. Cost: some 10 µs for each API that was ever asked for.
    pub fn add_reactors(&mut self, reactors: &[ReactorMetrics]) {
        for row in 0..=API_KEYS {
            let counted = reactors.iter().filter_map(|one| one.apis[row].get());
            let mut api: Option<ApiSnapshot> = None;
            for one in counted {
                api.get_or_insert_with(|| ApiSnapshot::of_key(row)).add(one);
            }
            self.apis.extend(api);
        }
        self.reactors += reactors.len();
        for (reactor, one) in reactors.iter().enumerate() {
            for (listener, sockets) in one.sockets.iter().enumerate() {
                self.sockets.push(SocketSnapshot {
                    listener,
                    reactor,
                    connections: sockets.connections.get(),
                    accepted: sockets.accepted.get(),
                    bytes_received: sockets.bytes_received.get(),
                    bytes_sent: sockets.bytes_sent.get(),
                });
            }
            self.produced_batches += one.produced.batches.get();
            self.produced_records += one.produced.records.get();
            self.produced_bytes += one.produced.bytes.get();
            self.failed_produces += one.produced.failures.get();
            self.fetched_bytes += one.fetched_bytes.get();
            self.delayed_fetches += one.delayed_fetches.get();
            self.delayed_produces += one.delayed_produces.get();
            self.delayed_joins += one.delayed_joins.get();
        }
    }
}

impl ApiSnapshot {
    fn of_key(row: usize) -> Self {
        Self {
            api_key: if row < API_KEYS {
                row as i16
            } else {
                UNKNOWN_API
            },
            received: 0,
            queue: Times::default(),
            local: Times::default(),
            remote: Times::default(),
            send: Times::default(),
            total: Times::default(),
        }
    }

    fn add(&mut self, one: &ApiMetrics) {
        self.received += one.received.get();
        self.queue.add(&one.queue.times());
        self.local.add(&one.local.times());
        self.remote.add(&one.remote.times());
        self.send.add(&one.send.times());
        self.total.add(&one.total.times());
    }
}

#[cfg(test)]
mod tests;
