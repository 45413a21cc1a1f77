//! The consumer: its machines put together.
//!
//! ```text
//!   Consumer ─ partitions  begins, fetched answers, what was handed out   fetching.rs, taking.rs
//!            ├ queries     offsets by time, committed offsets, commits    queries.rs
//!            ├ Group       the member of a group: KIP-848, or classic     group.rs, classic.rs
//!            ├ Leaders     ids and leaders of topics                      leaders.rs
//!            └ Nodes       up to four connections a node: a `Fetch`, a `JoinGroup`, take long
//! ```
//!
//! # Invariants
//! 1. A record is handed out once between two seeks, in the order of its partition, and only if its
//!    transaction is committed.
//! 2. Nothing that was asked for before a seek, an assignment or a revocation is handed out after it.
//! 3. At most `queued.max.messages.kbytes` and one answer are held.
//!
//! Sources: KIP-74 (bounds), KIP-98 (`read_committed`), KIP-447 (stable offsets), KIP-848 (groups).

mod assignors;
mod classic;
mod columns;
mod fetching;
mod group;
#[cfg(test)]
mod group_simulation;
mod leaders;
mod queries;
mod records;
mod taking;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use txn_protocol::codes;

use super::driver::Machine;
use super::nodes::{FETCHER, InFlight, JOINER, LANE, Nodes, SEEKER};
use super::settings::backoff;
use super::{Effect, Millis, NodeId, Request, Response};
use crate::connection::Address;
use crate::error::KafkaError;
use crate::messages::cluster::{BrokerAddress, CoordinatorOf, Metadata};
pub use crate::messages::consumer::{Commit, Membership, OffsetAnswer, Place, Subscription};
pub use assignors::Assignor;
pub use classic::ClassicSettings;
use classic::Step;
pub use columns::MessageColumns;
pub use fetching::Begin;
use fetching::Partition;
pub use group::Change;
use group::Group;
use leaders::Leaders;
use queries::Query;
pub use queries::{Answer, Ask};
pub use records::Message;

/// Reports that wait for the program at most.
const REPORTS_MAX: usize = 64;

/// Where a partition without an offset begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// At the first record.
    Earliest,
    /// At the end.
    Latest,
    /// Nowhere: the program is told.
    Error,
}

/// The settings of a consumer, by Kafka's names.
#[derive(Clone, Debug)]
pub struct ConsumerSettings {
    /// `group.id`.
    pub group: String,
    /// None: the group is one of KIP-848.
    pub classic: Option<ClassicSettings>,
    /// The member's own id, for its whole life. In classic groups the coordinator gives one.
    pub member_id: String,
    /// `group.instance.id`.
    pub instance_id: Option<String>,
    /// `group.remote.assignor`.
    pub assignor: Option<String>,
    /// `max.poll.interval.ms`.
    pub max_poll_interval_ms: Millis,
    /// `request.timeout.ms`.
    pub request_timeout_ms: Millis,
    /// `retry.backoff.ms`.
    pub retry_backoff_ms: Millis,
    /// `metadata.max.age.ms`.
    pub metadata_age_max_ms: Millis,
    /// `fetch.wait.max.ms`.
    pub fetch_wait_ms: i32,
    /// `fetch.min.bytes`.
    pub fetch_min_bytes: i32,
    /// `fetch.max.bytes`.
    pub fetch_max_bytes: i32,
    /// `max.partition.fetch.bytes`.
    pub partition_fetch_bytes: i32,
    /// `queued.max.messages.kbytes`, in bytes.
    pub queued_bytes_max: usize,
    /// `fetch.batch.bytes`: bytes to which the records of one compressed batch may come.
    pub content_bytes_max: usize,
    /// `enable.partition.eof`.
    pub reports_ends: bool,
    /// `auto.offset.reset`.
    pub reset: Reset,
    /// Time that a subscribed topic may be unknown before the program is told.
    pub unknown_topic_max_ms: Millis,
    /// `default.api.timeout.ms`: the time after which a commit is given up.
    pub api_timeout_ms: Millis,
}

/// Something that the program has to know.
#[derive(Clone, Debug)]
pub struct Report {
    /// The partition it is about.
    pub place: Option<Place>,
    /// The error.
    pub error: KafkaError,
    /// True if no place to begin at was found.
    pub is_without_begin: bool,
}

/// A partition of a `Fetch` in flight.
#[derive(Clone, Debug)]
pub(crate) struct FetchOf {
    place: Place,
    version: u64,
}

/// The purpose of a request in flight.
#[derive(Debug)]
enum Purpose {
    Metadata,
    Find,
    Heartbeat { is_leaving: bool },
    Classic(Step, u64),
    Query(u64, Vec<(Place, i64)>),
    Fetch(NodeId, Vec<FetchOf>),
}

/// The group's coordinator.
#[derive(Debug, Default)]
struct Coordinator {
    node: Option<NodeId>,
    is_asking: bool,
    ask_at: Millis,
    failures: u32,
}

impl Coordinator {
    fn forget(&mut self) {
        self.node = None;
    }

    fn retry(&mut self, now: Millis, retry_ms: Millis) {
        self.is_asking = false;
        self.failures += 1;
        self.ask_at = now + backoff(retry_ms, self.failures);
    }
}

/// A consumer without I/O; see the module.
#[derive(Debug)]
pub struct Consumer {
    settings: ConsumerSettings,
    nodes: Nodes<Purpose>,
    leaders: Leaders,
    partitions: BTreeMap<Place, Partition>,
    /// The partition of each answer that is not read to its end, by arrival.
    arrivals: VecDeque<Place>,
    queued_bytes: usize,
    versions: u64,
    /// Connections with a `Fetch` in flight.
    fetching: BTreeSet<NodeId>,
    turn: usize,
    queries: BTreeMap<u64, Query>,
    next_query: u64,
    coordinator: Coordinator,
    group: Group,
    reports: VecDeque<Report>,
    /// Partitions that the program has read to their end, and the offset there.
    ends: VecDeque<(Place, i64)>,
    is_polling: bool,
    polled_at: Millis,
    now: Millis,
    last_error: Option<KafkaError>,
    outbox: Vec<Effect>,
}

impl Consumer {
    /// A consumer that knows nothing but where to ask.
    #[must_use]
    pub fn new(bootstrap: &[Address], settings: ConsumerSettings) -> Self {
        Self {
            nodes: Nodes::new(bootstrap, settings.request_timeout_ms),
            group: Group::new(settings.classic.clone()),
            settings,
            leaders: Leaders::default(),
            partitions: BTreeMap::new(),
            arrivals: VecDeque::new(),
            queued_bytes: 0,
            versions: 0,
            fetching: BTreeSet::new(),
            turn: 0,
            queries: BTreeMap::new(),
            next_query: 0,
            coordinator: Coordinator::default(),
            reports: VecDeque::new(),
            ends: VecDeque::new(),
            is_polling: false,
            polled_at: 0,
            now: 0,
            last_error: None,
            outbox: Vec::new(),
        }
    }

    /// The program begins to poll, or ends. True if effects follow.
    pub fn note_poll(&mut self, is_polling: bool, now: Millis) -> bool {
        self.is_polling = is_polling;
        self.polled_at = now;
        self.rejoin(now)
    }

    /// The next thing that the program has to know.
    pub fn take_report(&mut self) -> Option<Report> {
        self.reports.pop_front()
    }

    /// True once a node was reached.
    #[must_use]
    pub fn has_connected(&self) -> bool {
        self.nodes.has_connected()
    }

    /// Addresses that cannot be reached, and why.
    #[must_use]
    pub fn connect_errors(&self) -> Vec<(Address, KafkaError)> {
        self.nodes.errors()
    }

    /// The error that keeps the consumer waiting, if there is one.
    #[must_use]
    pub fn last_error(&self) -> Option<&KafkaError> {
        self.last_error.as_ref()
    }

    fn report(&mut self, place: Option<&Place>, error: KafkaError) {
        self.report_as(place, error, false);
    }

    fn report_as(&mut self, place: Option<&Place>, error: KafkaError, is_without_begin: bool) {
        self.last_error = Some(error.clone());
        let is_known = |report: &Report| report.error.message == error.message;
        if self.reports.len() < REPORTS_MAX && !self.reports.iter().any(is_known) {
            self.reports.push_back(Report {
                place: place.cloned(),
                error,
                is_without_begin,
            });
        }
    }

    fn lost(&mut self, in_flight: InFlight<Purpose>, error: &KafkaError, now: Millis) {
        let retry_ms = self.settings.retry_backoff_ms;
        match in_flight.purpose {
            Purpose::Metadata => self.leaders.failed(now, retry_ms),
            Purpose::Find => self.coordinator.retry(now, retry_ms),
            Purpose::Heartbeat { is_leaving } => self.heartbeat_lost(is_leaving, error, now),
            Purpose::Classic(step, attempt) => self.step_lost(step, attempt, error, now),
            Purpose::Query(number, wanted) => self.query_lost(number, wanted, error, now),
            Purpose::Fetch(node, asked) => self.fetch_lost(node, &asked, now + retry_ms),
        }
        self.begin_answered(now);
    }

    fn learn(&mut self, metadata: &Metadata, now: Millis) {
        for broker in &metadata.brokers {
            self.learn_node(broker, now);
        }
        let retry_ms = self.settings.retry_backoff_ms;
        self.leaders.learn(&metadata.topics, now, retry_ms);
        if let Some(classic) = &mut self.group.classic {
            classic.compare(&self.leaders);
        }
        self.report_unknown(now);
    }

    fn learn_node(&mut self, broker: &BrokerAddress, now: Millis) {
        if !(0..LANE).contains(&broker.id) {
            return;
        }
        for lane in [0, JOINER, FETCHER, SEEKER] {
            let known = BrokerAddress {
                id: broker.id + lane,
                ..broker.clone()
            };
            if self.nodes.learn(&known, &mut self.outbox) {
                let name = self.nodes.name(known.id);
                let error = KafkaError::unreachable(&name, "has moved", &"it has another address");
                self.disconnected(known.id, &error, now);
            }
        }
    }

    /// Tells of subscribed topics that the cluster does not have, or does not show.
    fn report_unknown(&mut self, now: Millis) {
        let limit_ms = self.settings.unknown_topic_max_ms;
        let mut found = Vec::new();
        for name in self.group.topics() {
            let Some(topic) = self.leaders.topic_mut(name) else {
                continue;
            };
            let is_new = topic.unknown_since.is_some_and(|at| now < at + limit_ms);
            let passes = crate::error::is_retriable(topic.error_code);
            let is_missing = topic.error_code == codes::UNKNOWN_TOPIC_OR_PARTITION;
            let is_told = topic.error_code != 0 && (is_missing || !passes) && !is_new;
            if is_told && !topic.is_reported {
                topic.is_reported = true;
                found.push((name.clone(), topic.error_code));
            }
        }
        for (name, code) in found {
            let subject = format!("topic '{name}'");
            let error = KafkaError::answered(code, "the cluster", "Metadata", &subject, None);
            self.report(Some(&(name.as_str().into(), -1)), error);
        }
    }

    fn found(&mut self, result: Result<BrokerAddress, (i16, Option<String>)>, now: Millis) {
        match result {
            Ok(broker) => {
                self.learn_node(&broker, now);
                self.coordinator.node = Some(broker.id);
                self.coordinator.is_asking = false;
                self.coordinator.failures = 0;
            }
            Err((code, message)) => {
                self.coordinator.retry(now, self.settings.retry_backoff_ms);
                let group = format!("group '{}'", self.settings.group);
                let message = message.as_deref();
                let request = "FindCoordinator";
                let error = KafkaError::answered(code, "the cluster", request, &group, message);
                if error.is_retriable {
                    self.last_error = Some(error);
                } else {
                    self.coordinator.ask_at = now + 1_000;
                    self.report(None, error);
                }
            }
        }
    }

    fn ask_metadata(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        if !self.leaders.may_ask(now) {
            return;
        }
        let age_max_ms = self.settings.metadata_age_max_ms;
        let mut names: BTreeSet<std::sync::Arc<str>> = BTreeSet::new();
        let queries = self.queries.values().flat_map(Query::topics);
        for (name, _) in self.partitions.keys().chain(queries) {
            names.insert(name.clone());
        }
        if self.group.is_member() {
            names.extend(self.group.topics().iter().map(|name| name.as_str().into()));
            let led = self.group.classic.iter().flat_map(classic::Classic::topics);
            names.extend(led.map(|name| name.as_str().into()));
        }
        names.retain(|name| self.leaders.is_wanted(name, now, age_max_ms));
        let nameless = self.nameless();
        let request = if !names.is_empty() {
            Request::Metadata {
                topics: names.into_iter().collect(),
                makes_missing: false,
            }
        } else if !nameless.is_empty() {
            Request::TopicsById(nameless)
        } else {
            return;
        };
        if let Some(node) = self.nodes.any(now, effects) {
            self.leaders.is_asking = true;
            self.nodes
                .send(node, request, Purpose::Metadata, now, effects);
        }
    }

    fn find_coordinator(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        let is_needed =
            self.group.needs_coordinator() || self.queries.values().any(Query::needs_coordinator);
        let coordinator = &self.coordinator;
        let is_due = coordinator.node.is_none() && !coordinator.is_asking;
        if !is_needed || !is_due || now < coordinator.ask_at {
            return;
        }
        if let Some(node) = self.nodes.any(now, effects) {
            self.coordinator.is_asking = true;
            let request = Request::FindCoordinator {
                of: CoordinatorOf::Group,
                key: self.settings.group.clone(),
            };
            self.nodes.send(node, request, Purpose::Find, now, effects);
        }
    }
}

impl Machine for Consumer {
    fn connected(&mut self, node: NodeId, features: (i64, i16)) {
        self.nodes.connected(node, features);
    }

    fn disconnected(&mut self, node: NodeId, error: &KafkaError, now: Millis) {
        let lost = self.nodes.disconnected(node, error.clone(), now);
        self.leaders.mark_stale_at(node % LANE);
        if node < FETCHER && self.coordinator.node == Some(node % LANE) {
            self.coordinator.forget();
        }
        self.last_error = Some(error.clone());
        let error = KafkaError {
            is_retriable: true,
            ..error.clone()
        };
        for in_flight in lost {
            self.lost(in_flight, &error, now);
        }
    }

    fn answered(&mut self, id: u64, result: Result<Response, KafkaError>, now: Millis) {
        self.now = now;
        let Some(in_flight) = self.nodes.answered(id) else {
            return;
        };
        let node = in_flight.node;
        match (in_flight.purpose, result) {
            (Purpose::Metadata, Ok(Response::Metadata(metadata))) => self.learn(&metadata, now),
            (Purpose::Find, Ok(Response::Coordinator(found))) => self.found(found, now),
            (Purpose::Heartbeat { is_leaving }, Ok(Response::Heartbeat(answer))) => {
                self.heartbeat_answered(is_leaving, answer, node, now);
            }
            (Purpose::Classic(step, attempt), Ok(response)) => {
                self.step_answered(step, attempt, response, node, now);
            }
            (Purpose::Query(number, wanted), Ok(response)) => {
                self.query_answered(number, &wanted, response, node, now);
            }
            (Purpose::Fetch(of, asked), Ok(Response::Fetch(0, answers))) => {
                self.fetched(of, &asked, answers, now);
            }
            (purpose, result) => {
                let error = result.err().unwrap_or_else(|| {
                    KafkaError::malformed(&self.nodes.name(node), "a request", &"of another kind")
                });
                self.last_error = Some(error.clone());
                self.lost(InFlight::again(node, purpose), &error, now);
            }
        }
    }

    fn poll(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        self.now = now;
        effects.append(&mut self.outbox);
        for node in self.nodes.silent(now) {
            effects.push(Effect::Close { node });
            let waited_ms = u128::from(self.settings.request_timeout_ms);
            let error = KafkaError::silent(&self.nodes.name(node), "a request", waited_ms);
            self.disconnected(node, &error, now);
        }
        self.watch_polls(now);
        self.give_up_commits(now);
        self.reconcile();
        self.ask_begins();
        self.ask_metadata(now, effects);
        self.find_coordinator(now, effects);
        self.send_heartbeat(now, effects);
        self.send_queries(now, effects);
        self.send_fetches(now, effects);
    }

    fn deadline(&self, now: Millis) -> Option<Millis> {
        let nodes = self.nodes.deadline(now);
        let group = self.group.due();
        let queries = self.queries.values();
        let queries = queries.flat_map(|query| query.due().into_iter().chain(query.give_up_at()));
        let fetches = self.partitions.values().filter_map(Partition::due);
        let questions = [self.leaders.ask_at(), self.coordinator.ask_at];
        let at = [nodes, group, self.polls_due()].into_iter().flatten();
        let at = at.chain(queries).chain(fetches).chain(questions);
        at.filter(|&at| at > now).min()
    }
}
