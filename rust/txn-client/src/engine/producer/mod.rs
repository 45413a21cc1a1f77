//! The producer: its machines put together.
//!
//! The application calls `send`, `begin`, `end` and so on; the driver reports events and time. Both
//! then call `poll`, which adds the effects that follow, and `deadline`, when to call it again.

mod awaited;
mod batches;
mod giving_up;
mod marker_pause;
mod reports;
mod steps;
mod two_phase;

use std::collections::{BTreeSet, VecDeque};

use super::accumulator::Record;
use super::driver::Machine;
use super::nodes::{InFlight, Nodes};
use super::request::Offsets;
use super::settings::Settings;
use super::topics::{Place as Found, Topics, Unplaced};
use super::transaction::{Place, State, Step, Transaction};
use super::{DeliveryFailure, Effect, Millis, NodeId, Report, Response};
use crate::connection::Address;
use crate::error::KafkaError;
use crate::messages::cluster::CoordinatorOf;
use crate::messages::transactions::GroupMember;
pub use awaited::Awaited;
use marker_pause::MarkerPause;

/// The purpose of a request in flight.
#[derive(Debug)]
enum Purpose {
    Metadata,
    Find((CoordinatorOf, String)),
    Step(Step),
    /// It has the partition and the number of each batch.
    Produce(Vec<(Place, u64)>),
}

/// Why a record was not taken.
#[derive(Clone, Debug)]
pub enum SendError {
    /// `buffer.memory` is used up; wait for acknowledgements.
    Full,
    /// The record has more bytes than `max.request.size`.
    TooLarge {
        /// Its bytes.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// No transaction is open.
    NotOpen,
    /// The client is closed.
    Closed,
    /// The transaction can only be aborted.
    Failed(KafkaError),
    /// The producer is finished.
    Fatal(KafkaError),
}

/// The state of a producer, as its user sees it.
#[derive(Clone, Debug)]
pub enum Status {
    /// It has no identity yet.
    New,
    /// It takes an identity, or ends a transaction.
    Working,
    /// No transaction is open.
    Ready,
    /// A transaction is open.
    Open,
    /// A transaction is prepared: it can only end.
    Prepared,
    /// The open transaction can only be aborted.
    Failed(KafkaError),
    /// The producer is finished.
    Fatal(KafkaError),
}

/// A producer without I/O; see the module.
#[derive(Debug)]
pub struct Producer {
    settings: Settings,
    nodes: Nodes<Purpose>,
    topics: Topics,
    transaction: Transaction,
    markers: MarkerPause,
    /// Partitions that have batches.
    active: BTreeSet<Place>,
    batches: u64,
    /// Records and bytes that are neither stored nor given up.
    pending: u64,
    pending_bytes: usize,
    stored: u64,
    is_flushing: bool,
    failures: Vec<DeliveryFailure>,
    reports: VecDeque<Report>,
    /// Number of the first of them.
    first_report: u64,
    last_error: Option<KafkaError>,
    /// Effects of events, until the next `poll`.
    outbox: Vec<Effect>,
}

impl Producer {
    /// A producer that knows nothing but where to ask.
    #[must_use]
    pub fn new(bootstrap: &[Address], settings: Settings) -> Self {
        Self {
            nodes: Nodes::new(bootstrap, settings.request_timeout_ms),
            topics: Topics::default(),
            transaction: Transaction::new(settings.transactional_id.clone()),
            settings,
            markers: MarkerPause::new(),
            active: BTreeSet::new(),
            batches: 0,
            pending: 0,
            pending_bytes: 0,
            stored: 0,
            is_flushing: false,
            failures: Vec::new(),
            reports: VecDeque::new(),
            first_report: 0,
            last_error: None,
            outbox: Vec::new(),
        }
    }

    // ------------------------------------------------------------ the application

    /// Takes an identity: every older producer of the transactional id is fenced. Done once the
    /// status is `Ready`.
    pub fn init(&mut self) {
        if matches!(self.transaction.state, State::New) {
            self.transaction.state = State::Initializing;
        }
    }

    /// The state.
    #[must_use]
    pub fn status(&self) -> Status {
        match &self.transaction.state {
            State::New => Status::New,
            State::Initializing | State::Ending { .. } => Status::Working,
            State::Ready => Status::Ready,
            State::Open => Status::Open,
            State::Prepared => Status::Prepared,
            State::Failed(error) => Status::Failed(error.clone()),
            State::Fatal(error) => Status::Fatal(error.clone()),
        }
    }

    /// Begins a transaction, if none is open.
    ///
    /// # Errors
    /// The status, if it is not `Ready`.
    pub fn begin(&mut self) -> Result<(), Status> {
        match self.transaction.state {
            State::Ready if self.transaction.id.is_some() => {
                self.transaction.begin(self.nodes.is_v2());
                Ok(())
            }
            _ => Err(self.status()),
        }
    }

    /// Adds a record. It is sent by a later `poll`; true if that should be now, before `linger.ms`.
    ///
    /// # Errors
    /// See `SendError`; the record is not taken.
    pub fn send(
        &mut self,
        topic: &str,
        partition: Option<i32>,
        record: &Record<'_>,
        now: Millis,
    ) -> Result<bool, SendError> {
        match &self.transaction.state {
            State::Fatal(error) => return Err(SendError::Fatal(error.clone())),
            State::Failed(error) => return Err(SendError::Failed(error.clone())),
            State::Open => {}
            _ if self.transaction.id.is_some() => return Err(SendError::NotOpen),
            _ => {}
        }
        let (bytes, limit) = (record.bytes(), self.settings.request_bytes);
        if bytes > limit {
            return Err(SendError::TooLarge { bytes, limit });
        }
        if self.pending > 0 && self.pending_bytes + bytes > self.settings.buffer_bytes {
            return Err(SendError::Full);
        }
        self.pending += 1;
        self.pending_bytes += bytes;
        let topic = self.topics.index(topic);
        match self.topics.all[topic].place(record, partition) {
            Found::At(partition) => Ok(self.push((topic, partition), record, now)),
            Found::Later => {
                let unplaced = Unplaced::new(record, partition, now);
                self.topics.all[topic].unplaced.push_back(unplaced);
                Ok(true)
            }
        }
    }

    /// Adds a record to its partition; true if that has filled a batch.
    fn push(&mut self, place: Place, record: &Record<'_>, now: Millis) -> bool {
        let bytes = self.settings.batch_bytes.min(self.settings.request_bytes);
        let codec = self.settings.codec;
        let partition = &mut self.topics.all[place.0].partitions[place.1];
        let is_full = partition.push(record, bytes, codec, now, &mut self.batches);
        self.active.insert(place);
        is_full
    }

    /// Sends lingering records at once, until nothing is pending.
    pub fn flush(&mut self) {
        self.is_flushing = self.pending > 0;
    }

    /// Number of records that are neither stored nor given up.
    #[must_use]
    pub fn pending(&self) -> u64 {
        self.pending
    }

    /// True if a good part of `buffer.memory` is free: after `Full` it is worth trying again.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.pending_bytes <= self.settings.buffer_bytes / 4 * 3
    }

    /// Number of records stored so far.
    #[must_use]
    pub fn stored(&self) -> u64 {
        self.stored
    }

    /// The records given up since the last call.
    pub fn take_failures(&mut self) -> Vec<DeliveryFailure> {
        std::mem::take(&mut self.failures)
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

    /// The error that keeps the producer waiting, if there is one.
    #[must_use]
    pub fn last_error(&self) -> Option<&KafkaError> {
        self.last_error.as_ref()
    }

    /// Sends offsets with the open transaction. Done once `is_sending_offsets` is false. They take
    /// the place of offsets that are still on their way.
    ///
    /// # Errors
    /// The status, if no transaction is open.
    pub fn send_offsets(
        &mut self,
        group: &str,
        member: GroupMember,
        offsets: Offsets,
    ) -> Result<(), Status> {
        if !matches!(self.transaction.state, State::Open) {
            return Err(self.status());
        }
        self.transaction.send_offsets(group, member, offsets);
        Ok(())
    }

    /// True while offsets are on their way into the transaction.
    #[must_use]
    pub fn is_sending_offsets(&self) -> bool {
        self.transaction.sending.is_some()
    }

    /// Ends the open transaction: once every record is stored, or every one is given up. Done once
    /// the status is `Ready`; a commit that is not possible leaves it `Failed`. Asking again for the
    /// same end changes nothing, also after it: a caller may have been interrupted.
    ///
    /// # Errors
    /// The status, if the transaction cannot end so.
    pub fn end(&mut self, commit: bool) -> Result<(), Status> {
        if self.transaction.asked == Some(commit)
            && matches!(self.status(), Status::Working | Status::Ready)
        {
            return Ok(());
        }
        let result = self.ask_end(commit);
        if result.is_ok() {
            self.transaction.asked = Some(commit);
        }
        result
    }

    fn ask_end(&mut self, commit: bool) -> Result<(), Status> {
        match (&self.transaction.state, commit) {
            (State::Open | State::Prepared, true) => {
                self.transaction.state = State::Ending { commit: true };
                self.flush();
                Ok(())
            }
            (State::Open | State::Prepared | State::Failed(_), false) => {
                self.transaction.abort();
                self.drop_waiting();
                Ok(())
            }
            _ => Err(self.status()),
        }
    }

    /// The end of the last transaction that the coordinator has accepted: commit, or abort. A new
    /// epoch may still be refused afterwards.
    #[must_use]
    pub fn ended_as(&self) -> Option<bool> {
        self.transaction.ended_as
    }

    // ------------------------------------------------------------ the driver

    /// A connection is ready; `features` are the node's (epoch, level of `transaction.version`).
    pub fn connected(&mut self, node: NodeId, features: (i64, i16)) {
        self.nodes.connected(node, features);
    }

    /// A connection could not be made, or is lost with all requests in flight on it.
    pub fn disconnected(&mut self, node: NodeId, error: &KafkaError, now: Millis) {
        let lost = self.nodes.disconnected(node, error.clone(), now);
        self.topics.mark_stale_at(node);
        self.transaction.forget_coordinators_at(node);
        self.last_error = Some(error.clone());
        for in_flight in lost {
            self.lost(in_flight, error, now);
        }
    }

    fn lost(&mut self, in_flight: InFlight<Purpose>, error: &KafkaError, now: Millis) {
        let retry_ms = self.settings.retry_backoff_ms;
        match in_flight.purpose {
            Purpose::Metadata => self.topics.failed(now, retry_ms),
            Purpose::Find(_) => self.transaction.retry(now, retry_ms),
            Purpose::Step(step) => {
                self.transaction.lost(&step, now, retry_ms);
                if self.transaction.is_replaced(&step) {
                    // The older offsets may still arrive, after the later ones.
                    self.transaction.fail(error.clone());
                }
                if step == Step::Init && !error.is_retriable {
                    self.transaction.fail_for_good(error.clone());
                }
            }
            Purpose::Produce(batches) => {
                // The request may have been carried out, unless it was refused before it was sent.
                let error = KafkaError {
                    is_retriable: true,
                    ..error.clone()
                };
                for (place, number) in batches {
                    self.settle(place, number, Err(error.clone()), true, now);
                }
            }
        }
    }

    /// An answer has come, or one that makes no sense (an error).
    pub fn answered(&mut self, id: u64, result: Result<Response, KafkaError>, now: Millis) {
        let Some(in_flight) = self.nodes.answered(id) else {
            return;
        };
        let node = in_flight.node;
        if matches!(in_flight.purpose, Purpose::Produce(_)) {
            self.markers.answered(now);
        }
        match (in_flight.purpose, result) {
            (Purpose::Metadata, Ok(Response::Metadata(metadata))) => self.learn(&metadata, now),
            (Purpose::Find(key), Ok(Response::Coordinator(found))) => {
                self.found(key, found, node, now);
            }
            (Purpose::Step(step), Ok(response)) => self.stepped(&step, response, node, now),
            (Purpose::Produce(batches), Ok(Response::Produce(responses))) => {
                for (place, number) in batches {
                    self.produced(place, number, &responses, node, now);
                }
            }
            (Purpose::Step(_), Err(error)) if !error.is_retriable => {
                // The node does not offer the request.
                self.transaction.is_asking = false;
                self.last_error = Some(error.clone());
                self.transaction.fail_for_good(error);
            }
            (Purpose::Produce(batches), Err(error)) if !error.is_retriable => {
                for (place, number) in batches {
                    self.settle(place, number, Err(error.clone()), true, now);
                }
            }
            (purpose, result) => {
                let error = result.err().unwrap_or_else(|| {
                    KafkaError::malformed(&self.nodes.name(node), "a request", &"of another kind")
                });
                self.last_error = Some(error.clone());
                let lost = InFlight::again(node, purpose);
                self.lost(lost, &error, now);
            }
        }
    }

    /// Adds the effects that are due.
    pub fn poll(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        effects.append(&mut self.outbox);
        for node in self.nodes.silent(now) {
            effects.push(Effect::Close { node });
            let waited_ms = u128::from(self.settings.request_timeout_ms);
            let error = KafkaError::silent(&self.nodes.name(node), "a request", waited_ms);
            self.disconnected(node, &error, now);
        }
        self.expire(now);
        if self.transaction.id.is_none() {
            self.identify_idempotent();
        }
        self.step(now, effects);
        if let State::Fatal(error) = &self.transaction.state {
            let error = error.clone();
            self.give_up_all(&error);
        }
        self.ask_metadata(now, effects);
        self.send_batches(now, effects);
        self.is_flushing &= self.pending > 0;
    }

    /// When `poll` is to be called next, if nothing happens before.
    #[must_use]
    pub fn deadline(&self, now: Millis) -> Option<Millis> {
        let lives_ms = self.settings.delivery_timeout_ms;
        let mut due = self.nodes.deadline(now);
        let mut add = |at: Millis| due = Some(due.map_or(at, |due: Millis| due.min(at)));
        if self.topics.ask_at > now {
            add(self.topics.ask_at);
        }
        if self.transaction.ask_at > now {
            add(self.transaction.ask_at);
        }
        if !self.active.is_empty() && self.waits_for_markers(now) {
            add(self.markers.until());
        }
        for &(topic, partition) in &self.active {
            let partition = &self.topics.all[topic].partitions[partition];
            add(partition.oldest().unwrap_or(now) + lives_ms);
            if let Some(at) = partition.ready_at(self.linger()).filter(|&at| at > now) {
                add(at);
            }
        }
        for topic in &self.topics.all {
            if let Some(first) = topic.unplaced.front() {
                add(first.created + lives_ms);
                let until = |since: Millis| since + self.settings.unknown_topic_max_ms;
                topic
                    .unknown_since
                    .map(until)
                    .into_iter()
                    .for_each(&mut add);
            }
        }
        due.map(|at| at.max(now))
    }
}

impl Machine for Producer {
    fn connected(&mut self, node: NodeId, features: (i64, i16)) {
        Self::connected(self, node, features);
    }

    fn disconnected(&mut self, node: NodeId, error: &KafkaError, now: Millis) {
        Self::disconnected(self, node, error, now);
    }

    fn answered(&mut self, id: u64, result: Result<Response, KafkaError>, now: Millis) {
        Self::answered(self, id, result, now);
    }

    fn poll(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        Self::poll(self, now, effects);
    }

    fn deadline(&self, now: Millis) -> Option<Millis> {
        Self::deadline(self, now)
    }

    fn reached(&self) -> Option<u64> {
        Some(Self::reached(self))
    }
}
