//! The producer: its machines put together.
//!
//! The application calls `send`, `begin`, `end` and so on; the driver reports events and time. Both
//! then call `poll`, which adds the effects that follow, and `deadline`, when to call it again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use txn_protocol::codes;

use super::accumulator::{Batch, Record, Settled, may_be_stored};
use super::nodes::{InFlight, Nodes};
use super::request::{Offsets, Part};
use super::settings::Settings;
use super::topics::{Place as Found, Topics, Unplaced, no_topic};
use super::transaction::{NOBODY, Place, Sending, State, Step, Transaction};
use super::{DeliveryFailure, Effect, Millis, NodeId, Request, Response};
use crate::client::transaction_error;
use crate::cluster::{no_such_partition, subject};
use crate::connection::Address;
use crate::error::KafkaError;
use crate::messages::cluster::{BrokerAddress, CoordinatorOf, Metadata};
use crate::messages::produce::PartitionResponse;
use crate::messages::transactions::GroupMember;

/// The purpose of a request in flight.
#[derive(Debug)]
enum Purpose {
    Metadata,
    Find((CoordinatorOf, String)),
    Step(Step),
    /// Per batch: its partition and its number.
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
    /// Partitions that have batches.
    active: BTreeSet<Place>,
    batches: u64,
    /// Records and bytes that are neither stored nor given up.
    pending: u64,
    pending_bytes: usize,
    stored: u64,
    is_flushing: bool,
    failures: Vec<DeliveryFailure>,
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
            active: BTreeSet::new(),
            batches: 0,
            pending: 0,
            pending_bytes: 0,
            stored: 0,
            is_flushing: false,
            failures: Vec::new(),
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

    /// Adds a record. It is sent by a later `poll`.
    ///
    /// # Errors
    /// See `SendError`; the record is not taken.
    pub fn send(
        &mut self,
        topic: &str,
        partition: Option<i32>,
        record: &Record<'_>,
        now: Millis,
    ) -> Result<(), SendError> {
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
            Found::At(partition) => self.push((topic, partition), record, now),
            Found::Later => {
                let unplaced = Unplaced::new(record, partition, now);
                self.topics.all[topic].unplaced.push_back(unplaced);
            }
        }
        Ok(())
    }

    fn push(&mut self, place: Place, record: &Record<'_>, now: Millis) {
        let (bytes, codec) = (self.settings.batch_bytes, self.settings.codec);
        let partition = &mut self.topics.all[place.0].partitions[place.1];
        partition.push(record, bytes, codec, now, &mut self.batches);
        self.active.insert(place);
    }

    /// Sends what lingers, from now until nothing is pending.
    pub fn flush(&mut self) {
        self.is_flushing = self.pending > 0;
    }

    /// Number of records that are neither stored nor given up.
    #[must_use]
    pub fn pending(&self) -> u64 {
        self.pending
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

    /// Sends offsets with the open transaction. Done once `is_sending_offsets` is false.
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
        self.transaction.sending = Some(Sending {
            group: group.to_owned(),
            member,
            offsets,
        });
        Ok(())
    }

    /// True while offsets are on their way into the transaction.
    #[must_use]
    pub fn is_sending_offsets(&self) -> bool {
        self.transaction.sending.is_some()
    }

    /// Ends the open transaction: once every record is stored, or every one is given up. Done once
    /// the status is `Ready`; a commit that is not possible leaves it `Failed`.
    ///
    /// # Errors
    /// The status, if the transaction cannot end so.
    pub fn end(&mut self, commit: bool) -> Result<(), Status> {
        match (&self.transaction.state, commit) {
            (State::Open, true) => {
                self.transaction.state = State::Ending { commit: true };
                self.flush();
                Ok(())
            }
            (State::Open | State::Failed(_), false) => {
                self.transaction.abort();
                self.drop_waiting();
                Ok(())
            }
            _ => Err(self.status()),
        }
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
                    self.settle(place, number, Some(error.clone()), true, now);
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
            (Purpose::Step(step), Err(error)) if !error.is_retriable => {
                // The node does not offer the request.
                self.transaction.is_asking = false;
                let _ = step;
                self.transaction.fail_for_good(error);
            }
            (Purpose::Produce(batches), Err(error)) if !error.is_retriable => {
                for (place, number) in batches {
                    self.settle(place, number, Some(error.clone()), true, now);
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

    // ------------------------------------------------------------ inside

    fn linger(&self) -> Millis {
        if self.is_flushing {
            0
        } else {
            self.settings.linger_ms
        }
    }

    fn identify_idempotent(&mut self) {
        let state = &self.transaction.state;
        let generation = self.transaction.identity.map_or(0, |i| i.generation);
        let needs_one = match state {
            State::New => self.pending > 0,
            State::Ready => self.active.iter().any(|&(topic, partition)| {
                let needs = self.topics.all[topic].partitions[partition].needs_later_than();
                needs == Some(generation)
            }),
            _ => false,
        };
        if needs_one {
            self.transaction.state = State::Initializing;
        }
    }

    /// Nothing waits for an acknowledgement.
    fn is_drained(&self) -> bool {
        self.active.is_empty()
            && self
                .topics
                .all
                .iter()
                .all(|topic| topic.unplaced.is_empty())
    }

    fn step(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        if self.transaction.id.is_some() && self.transaction.is_writable() {
            for &place in &self.active {
                self.transaction.joins(place);
            }
        }
        if self.transaction.is_asking || now < self.transaction.ask_at {
            return;
        }
        let is_drained = self.is_drained();
        if self.transaction.ends_by_itself(is_drained) {
            self.note_gaps();
            self.transaction.ended(None);
        }
        let Some(step) = self.transaction.next(is_drained) else {
            return;
        };
        let node = match self.transaction.coordinator_of(&step) {
            None => self.nodes.any(now, effects),
            Some(key) => match self.transaction.coordinator(&key) {
                Some(node) => self.nodes.ready(node, now, effects).then_some(node),
                None => return self.find(key, now, effects),
            },
        };
        let Some(node) = node else { return };
        let request = self.request(&step);
        self.transaction.sent(&step);
        self.nodes
            .send(node, request, Purpose::Step(step), now, effects);
    }

    fn find(&mut self, key: (CoordinatorOf, String), now: Millis, effects: &mut Vec<Effect>) {
        let Some(node) = self.nodes.any(now, effects) else {
            return;
        };
        let request = Request::FindCoordinator {
            of: key.0,
            key: key.1.clone(),
        };
        self.transaction.is_asking = true;
        self.nodes
            .send(node, request, Purpose::Find(key), now, effects);
    }

    fn request(&self, step: &Step) -> Request {
        let transaction = &self.transaction;
        let transactional_id = transaction.id.clone().unwrap_or_default();
        let who = transaction.identity.map_or(NOBODY, |identity| identity.who);
        let is_v2 = transaction.is_v2;
        match step {
            Step::Init => Request::InitProducerId {
                transactional_id: transaction.id.clone(),
                timeout_ms: self.settings.transaction_timeout_ms,
                // Without a transactional id a new id is as good as a new epoch.
                current: if transaction.id.is_some() {
                    who
                } else {
                    NOBODY
                },
            },
            Step::AddPartitions(places) => {
                let named = |&(topic, partition): &Place| {
                    (Arc::clone(&self.topics.all[topic].name), partition as i32)
                };
                Request::AddPartitions {
                    transactional_id,
                    who,
                    partitions: places.iter().map(named).collect(),
                }
            }
            Step::AddOffsets(group) => Request::AddOffsets {
                transactional_id,
                who,
                group: group.clone(),
            },
            Step::CommitOffsets => {
                let sending = transaction.sending.clone().expect("the step is for it");
                Request::CommitOffsets {
                    is_v2,
                    transactional_id,
                    who,
                    group: sending.group,
                    member: sending.member,
                    offsets: sending.offsets,
                }
            }
            Step::End { commit } => Request::EndTxn {
                is_v2,
                transactional_id,
                who,
                commit: *commit,
            },
        }
    }

    fn found(
        &mut self,
        key: (CoordinatorOf, String),
        found: Result<BrokerAddress, (i16, Option<String>)>,
        node: NodeId,
        now: Millis,
    ) {
        match found {
            Ok(broker) => {
                self.transaction.learn_coordinator(key, broker.id);
                self.move_node(&broker, now);
            }
            Err((code, detail)) => {
                let name = self.nodes.name(node);
                let subject = subject(key.0, &key.1);
                let detail = detail.as_deref();
                let error = KafkaError::answered(code, &name, "FindCoordinator", &subject, detail);
                self.last_error = Some(error.clone());
                if error.is_retriable {
                    return self.transaction.retry(now, self.settings.retry_backoff_ms);
                }
                self.transaction.is_asking = false;
                if key.0 == CoordinatorOf::Group {
                    self.transaction.sending = None;
                    return self.transaction.fail(error);
                }
                self.transaction.fail_for_good(error);
            }
        }
    }

    fn move_node(&mut self, broker: &BrokerAddress, now: Millis) {
        if self.nodes.learn(broker, &mut self.outbox) {
            let cause = "it listens at another address now";
            let name = self.nodes.name(broker.id);
            let error = KafkaError::unreachable(&name, "was left", &cause);
            self.disconnected(broker.id, &error, now);
        }
    }

    fn stepped(&mut self, step: &Step, response: Response, node: NodeId, now: Millis) {
        let (code, subject) = match (step, &response) {
            (Step::Init, Response::Identity(code, _)) => (*code, String::new()),
            (Step::AddOffsets(group), Response::Code(code)) => {
                (*code, format!(" of group '{group}'"))
            }
            (Step::End { .. }, Response::End(code, _)) => (*code, String::new()),
            (Step::AddPartitions(_) | Step::CommitOffsets, Response::Partitions(answers)) => {
                // 55 only says that another partition of the request was refused.
                let refused = answers.iter().filter(|(.., code)| *code != 0);
                let first =
                    refused.min_by_key(|(.., code)| *code == codes::OPERATION_NOT_ATTEMPTED);
                first.map_or((0, String::new()), |(topic, partition, code)| {
                    (*code, format!(" of {topic}-{partition}"))
                })
            }
            _ => (
                codes::UNKNOWN_SERVER_ERROR,
                " (an answer of another kind)".to_owned(),
            ),
        };
        if code == 0 {
            return self.accepted(step, response);
        }
        let who = self
            .transaction
            .identity
            .map_or(NOBODY, |identity| identity.who);
        let id = self.transaction.id.as_deref().unwrap_or("(none)");
        let what = match step {
            Step::Init => "InitProducerId".to_owned(),
            Step::AddPartitions(_) => format!("AddPartitionsToTxn{subject}"),
            Step::AddOffsets(_) => format!("AddOffsetsToTxn{subject}"),
            Step::CommitOffsets => format!("TxnOffsetCommit{subject}"),
            Step::End { commit: true } => "EndTxn(commit)".to_owned(),
            Step::End { commit: false } => "EndTxn(abort)".to_owned(),
        };
        let error = transaction_error(code, &self.nodes.name(node), &what, id, who);
        self.last_error = Some(error.clone());
        let retry_ms = self.settings.retry_backoff_ms;
        self.transaction.refused(step, error, now, retry_ms);
    }

    fn accepted(&mut self, step: &Step, response: Response) {
        self.last_error = None;
        match (step, response) {
            (Step::Init, Response::Identity(_, who)) => self.transaction.identify(who),
            (Step::AddPartitions(places), _) => self.transaction.joined(places),
            (Step::AddOffsets(group), _) => self.transaction.joined_group(group),
            (Step::CommitOffsets, _) => self.transaction.committed_offsets(),
            (Step::End { .. }, Response::End(_, next)) => {
                self.note_gaps();
                self.transaction.ended(next);
            }
            _ => {}
        }
    }

    /// A partition whose sequences have a gap needs a new epoch.
    fn note_gaps(&mut self) {
        let generation = self
            .transaction
            .identity
            .map(|identity| identity.generation);
        let mut partitions = self.topics.all.iter().flat_map(|topic| &topic.partitions);
        self.transaction.needs_new_epoch |= partitions.any(|p| {
            p.needs_later_than()
                .is_some_and(|of| Some(of) == generation)
        });
    }

    fn ask_metadata(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        let topics = self.topics.wanted(now, self.settings.metadata_age_max_ms);
        if topics.is_empty() {
            return;
        }
        let Some(node) = self.nodes.any(now, effects) else {
            return;
        };
        let makes_missing = self.settings.makes_topics;
        let request = Request::Metadata {
            topics,
            makes_missing,
        };
        self.topics.is_asking = true;
        self.nodes
            .send(node, request, Purpose::Metadata, now, effects);
    }

    fn learn(&mut self, metadata: &Metadata, now: Millis) {
        for broker in &metadata.brokers {
            self.move_node(broker, now);
        }
        let retry_ms = self.settings.retry_backoff_ms;
        for (index, code) in self.topics.learn(&metadata.topics, now, retry_ms) {
            let subject = format!("topic '{}'", self.topics.all[index].name);
            let error = KafkaError::answered(code, "a node", "Metadata", &subject, None);
            self.give_up_topic(index, &error);
        }
        for index in 0..self.topics.all.len() {
            self.place_waiting(index, now);
        }
    }

    /// Puts the records that waited for a topic into its partitions.
    fn place_waiting(&mut self, index: usize, now: Millis) {
        let topic = &mut self.topics.all[index];
        let count = topic.count();
        if count == 0 || topic.unplaced.is_empty() {
            return;
        }
        for unplaced in std::mem::take(&mut topic.unplaced) {
            let topic = &mut self.topics.all[index];
            let found = unplaced.with(|record| topic.place(record, unplaced.partition));
            match found {
                Found::At(partition) => {
                    unplaced.with(|record| self.push((index, partition), record, unplaced.created));
                }
                Found::Later => {
                    let partition = unplaced.partition.unwrap_or(-1);
                    let error = no_such_partition(&topic.name, partition, count);
                    self.give_up_unplaced(index, &unplaced, &error);
                }
            }
        }
        let _ = now;
    }

    fn send_batches(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        let Some(identity) = self.transaction.identity else {
            return;
        };
        if !self.transaction.is_writable() {
            return;
        }
        loop {
            let mut by_node: BTreeMap<NodeId, Vec<Place>> = BTreeMap::new();
            for &place in &self.active {
                if !self.transaction.joins(place) {
                    continue;
                }
                let linger_ms = self.linger();
                let topic = &mut self.topics.all[place.0];
                let leader = topic.leader(place.1);
                let partition = &mut topic.partitions[place.1];
                partition.adopt(identity);
                if partition.ready_at(linger_ms).is_none_or(|at| at > now) {
                    continue;
                }
                let Some(leader) = leader else {
                    self.topics.mark_stale(place.0);
                    continue;
                };
                let is_ready = self.nodes.ready(leader, now, effects);
                if is_ready && self.nodes.produces(leader) < self.settings.in_flight_max {
                    by_node.entry(leader).or_default().push(place);
                }
            }
            let mut has_sent = false;
            for (node, places) in by_node {
                has_sent |= self.send_to(node, places, now, effects);
            }
            if !has_sent {
                return;
            }
        }
    }

    fn send_to(
        &mut self,
        node: NodeId,
        places: Vec<Place>,
        now: Millis,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Some(identity) = self.transaction.identity else {
            return false;
        };
        let is_transactional = self.transaction.id.is_some();
        let (mut parts, mut batches, mut bytes) = (Vec::new(), Vec::new(), 0);
        for place in places {
            let topic = &mut self.topics.all[place.0];
            let partition = &mut topic.partitions[place.1];
            let next_bytes = partition.next_bytes();
            if !batches.is_empty() && bytes + next_bytes > self.settings.request_bytes {
                continue;
            }
            let linger_ms = if self.is_flushing {
                0
            } else {
                self.settings.linger_ms
            };
            match partition.take(node, identity, is_transactional, now, linger_ms) {
                None => {}
                Some(Ok((number, batch))) => {
                    bytes += next_bytes;
                    parts.push(Part {
                        topic: Arc::clone(&topic.name),
                        partition: place.1 as i32,
                        batch,
                    });
                    batches.push((place, number));
                }
                Some(Err((batch, error))) => self.give_up(place, &batch, &error),
            }
        }
        if batches.is_empty() {
            return false;
        }
        let request = Request::Produce {
            is_v2: self.transaction.is_v2,
            transactional_id: self.transaction.id.clone(),
            timeout_ms: i32::try_from(self.settings.request_timeout_ms).unwrap_or(i32::MAX),
            parts,
        };
        self.transaction.has_started |= self.transaction.id.is_some();
        let purpose = Purpose::Produce(batches);
        self.nodes.send(node, request, purpose, now, effects);
        true
    }

    fn produced(
        &mut self,
        place: Place,
        number: u64,
        responses: &[PartitionResponse],
        node: NodeId,
        now: Millis,
    ) {
        let name = &self.topics.all[place.0].name;
        let of_batch = |r: &&PartitionResponse| r.partition == place.1 as i32 && *r.topic == **name;
        let node = self.nodes.name(node);
        let Some(response) = responses.iter().find(of_batch) else {
            let what = format!("it does not name {name}-{}", place.1);
            let error = KafkaError {
                is_retriable: true,
                ..KafkaError::malformed(&node, "Produce", &what)
            };
            return self.settle(place, number, Some(error), true, now);
        };
        let code = response.error_code;
        if matches!(code, codes::NONE | codes::DUPLICATE_SEQUENCE_NUMBER) {
            return self.settle(place, number, None, false, now);
        }
        let subject = format!("partition {name}-{}", place.1);
        let detail = response.message.as_deref();
        let error = KafkaError::answered(code, &node, "Produce", &subject, detail);
        if error.is_retriable {
            self.topics.mark_stale(place.0);
        }
        self.settle(place, number, Some(error), may_be_stored(code), now);
    }

    fn settle(
        &mut self,
        place: Place,
        number: u64,
        error: Option<KafkaError>,
        may_be_stored: bool,
        now: Millis,
    ) {
        let retry_ms = self.settings.retry_backoff_ms;
        let partition = &mut self.topics.all[place.0].partitions[place.1];
        match partition.settle(number, error, may_be_stored, now, retry_ms) {
            Settled::Stored(batch) => {
                self.stored += u64::from(batch.records);
                self.release(u64::from(batch.records), batch.bytes);
                self.last_error = None;
            }
            Settled::Again(error) => {
                if let Some(error) = error {
                    if !error.is_retriable {
                        self.transaction.fail(error.clone());
                    }
                    self.last_error = Some(error);
                }
                if matches!(self.transaction.state, State::Ending { commit: false }) {
                    self.drop_waiting();
                }
            }
            Settled::GivenUp(batch, error) => self.give_up(place, &batch, &error),
            Settled::Unknown => {}
        }
        self.forget_if_empty(place);
    }

    fn forget_if_empty(&mut self, place: Place) {
        if self.topics.all[place.0].partitions[place.1].is_empty() {
            self.active.remove(&place);
        }
    }

    fn release(&mut self, records: u64, bytes: usize) {
        self.pending -= records;
        self.pending_bytes -= bytes;
    }

    // ------------------------------------------------------------ giving up

    fn give_up(&mut self, place: Place, batch: &Batch, error: &KafkaError) {
        self.release(u64::from(batch.records), batch.bytes);
        self.failures.push(DeliveryFailure {
            topic: Arc::clone(&self.topics.all[place.0].name),
            partition: place.1 as i32,
            records: batch.records,
            record_bytes: batch.record_bytes_max,
            error: error.clone(),
        });
        let is_fatal = error.code == codes::PRODUCER_FENCED
            || error.code == codes::TRANSACTIONAL_ID_AUTHORIZATION_FAILED;
        if is_fatal && self.transaction.id.is_some() {
            self.transaction.fail_for_good(error.clone());
        } else {
            self.transaction.fail(error.clone());
        }
        self.forget_if_empty(place);
    }

    fn give_up_unplaced(&mut self, index: usize, unplaced: &Unplaced, error: &KafkaError) {
        self.release(1, unplaced.bytes);
        self.failures.push(DeliveryFailure {
            topic: Arc::clone(&self.topics.all[index].name),
            partition: unplaced.partition.unwrap_or(-1),
            records: 1,
            record_bytes: unplaced.record_bytes(),
            error: error.clone(),
        });
        self.transaction.fail(error.clone());
    }

    fn give_up_topic(&mut self, index: usize, error: &KafkaError) {
        for unplaced in std::mem::take(&mut self.topics.all[index].unplaced) {
            self.give_up_unplaced(index, &unplaced, error);
        }
    }

    /// Gives up what is older than `delivery.timeout.ms`, and records of topics that are not there.
    fn expire(&mut self, now: Millis) {
        let lives_ms = self.settings.delivery_timeout_ms;
        let Some(created_max) = now.checked_sub(lives_ms) else {
            return self.expire_topics(now, None);
        };
        for place in self.active.clone() {
            let partition = &mut self.topics.all[place.0].partitions[place.1];
            for batch in partition.expire(created_max) {
                let error = self.expiry();
                self.give_up(place, &batch, &error);
            }
        }
        self.expire_topics(now, Some(created_max));
    }

    fn expire_topics(&mut self, now: Millis, created_max: Option<Millis>) {
        for index in 0..self.topics.all.len() {
            let topic = &mut self.topics.all[index];
            let unknown_ms = topic.unknown_since.map_or(0, |since| now - since);
            if topic.count() == 0 && unknown_ms >= self.settings.unknown_topic_max_ms {
                topic.unknown_since = None;
                let error = no_topic(&topic.name);
                self.give_up_topic(index, &error);
            }
            let is_over = |u: &Unplaced| created_max.is_some_and(|max| u.created <= max);
            while self.topics.all[index].unplaced.front().is_some_and(is_over) {
                let error = self.expiry();
                let unplaced = self.topics.all[index].unplaced.pop_front();
                self.give_up_unplaced(index, &unplaced.expect("it is there"), &error);
            }
        }
    }

    fn expiry(&self) -> KafkaError {
        let cause = self.last_error.as_ref();
        let cause = cause.map_or_else(String::new, |error| format!(" ({})", error.message));
        let message = format!(
            "not stored within delivery.timeout.ms={}{cause}",
            self.settings.delivery_timeout_ms
        );
        KafkaError::refused(codes::REQUEST_TIMED_OUT, message)
    }

    fn give_up_all(&mut self, error: &KafkaError) {
        for place in self.active.clone() {
            let partition = &mut self.topics.all[place.0].partitions[place.1];
            for batch in partition.expire(Millis::MAX) {
                self.give_up(place, &batch, error);
            }
        }
        for index in 0..self.topics.all.len() {
            self.give_up_topic(index, error);
        }
    }

    /// Drops the records of an aborted transaction that are not in flight.
    fn drop_waiting(&mut self) {
        for place in self.active.clone() {
            let partition = &mut self.topics.all[place.0].partitions[place.1];
            for batch in partition.drop_waiting() {
                self.release(u64::from(batch.records), batch.bytes);
            }
            self.forget_if_empty(place);
        }
        for index in 0..self.topics.all.len() {
            for unplaced in std::mem::take(&mut self.topics.all[index].unplaced) {
                self.release(1, unplaced.bytes);
            }
        }
    }
}
