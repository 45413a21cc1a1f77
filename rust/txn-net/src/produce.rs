//! Produce, versions 3 to 13: record batches from a frame into partitions.
//!
//! A request goes through three steps, each over the frame's own bytes:
//!
//! 1. [`ProduceRequest::parse`] reads the whole request before any byte of it is appended, so a
//!    frame that ends too soon changes nothing.
//! 2. [`ProduceRequest::append`] appends the pending batches, in the request's order. The log
//!    stamps offsets into the frame in place. A partition that has first to join the
//!    transaction stays pending; the reactor then parks the request and calls again. So do a
//!    compressed batch that is large inside, one that its topic's `compression.type` repacks, and
//!    all after it: the opener inspects them first. When its turn is over it stops between two
//!    batches, and the next call goes on there.
//! 3. [`ProduceRequest::encode`] writes the answer. If batches have to reach the disk first, or
//!    with `acks=all` the high watermark has to reach their end, it waits as a `DelayedProduce`, for
//!    at most the request's timeout.
//!
//! A partition's records are exactly one batch of format 2, as Kafka asks of these versions.
//!
//! # Deviations from Apache Kafka
//! - Bytes that follow the only batch of a partition are `INVALID_RECORD`; Kafka cuts them off.
//! - Compressed records that cannot be opened are `INVALID_RECORD` too, where Kafka fails with
//!   `UNKNOWN_SERVER_ERROR`, and `MESSAGE_TOO_LARGE` if they come to more than
//!   `CONTENT_BYTES_MAX` of the log, or those of a request to [`REQUEST_CONTENT_BYTES_MAX`].
//!
//! Sources: `ProduceRequest.json`, `ProduceResponse.json`; KIP-98 (transactions), KIP-467 (error
//! messages), KIP-516 (topic ids), KIP-890 (joining by Produce 12, `TRANSACTION_ABORTABLE`).

use std::collections::HashMap;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use txn_log::content::AppendBudget;
use txn_log::record_rules::NAMED_RECORDS_MAX;
use txn_log::{AppendError, Appended, Inspected, Isolation, Origin, PartitionLog, RefusedRecord};
use txn_protocol::apis;
use txn_protocol::batch::{BatchError, BatchView, Codec};
use txn_protocol::codes;
use txn_protocol::frame::{begin_response, set_length};
use txn_protocol::{Malformed, Put, Reader};

use crate::access::{Access, Action, Sender, first_of};
use crate::catalog::{Catalog, Topic, TopicKey};
use crate::delayed_produce::AppendedBatch;
use crate::metrics::Produced;
use crate::partition_limit::require_few;
use crate::turn::Turn;

/// The most bytes of content of compressed batches that a reactor opens for one request. Its other
/// connections wait meanwhile, some 3 ms with gzip.
const OPENED_HERE_MAX: usize = 1 << 20;

/// The most bytes that the compressed batches of one request may come to, of those that the
/// opener reads.
pub const REQUEST_CONTENT_BYTES_MAX: usize = 1_000_000_000;

/// The most repacked bytes of a request that wait for their append, and the most that wait for their
/// transaction; one batch may come on top.
pub const REPACKED_BYTES_MAX: usize = 1 << 20;

/// The room for topics and partitions that is kept from one request to the next.
const KEPT_ITEMS: usize = 1024;

/// `acks=all`.
pub const ACKS_ALL: i16 = -1;
/// The most bytes of a topic's name.
const TOPIC_NAME_MAX: usize = 249;

/// A request, parsed; ranges are positions in its body.
///
/// It owns no byte of the frame, so that one value serves request after request without an
/// allocation.
#[derive(Default)]
pub struct ProduceRequest {
    version: i16,
    transactional_id: Option<Range<usize>>,
    acks: i16,
    timeout: Duration,
    topics: Vec<TopicData>,
    partitions: Vec<PartitionData>,
    producer: RequestProducer,
    authorized: Authorized,
    /// Bad records that its answer may still name.
    names: usize,
    /// The place where `append` goes on, if its turn was over or batches were opened.
    pass: Option<Box<AppendPass>>,
    /// Bytes of content that the opener found so far.
    opened: usize,
    /// After parking, the partitions that the coordinator refused.
    refused: Option<Box<Refusals>>,
}

struct TopicData {
    /// Name or id, by the version.
    key: Range<usize>,
    partitions: usize,
    /// The code by which authorization refuses it, or `NONE`.
    refusal: i16,
}

/// The progress of `authorize`.
#[derive(Default)]
struct Authorized {
    is_done: bool,
    /// Number of topics that have their verdict.
    topics: usize,
    /// For each topic the place of the first of its name or id, from the first question on.
    first_of: Vec<usize>,
}

/// A pass over the batches that are pending.
struct AppendPass {
    /// The next topic, the place of its first partition, and that of its next.
    topic: usize,
    first: usize,
    next: usize,
    /// The content that may still be opened here, and the bad records that may be named.
    budget: AppendBudget,
    /// Partitions that have to join the transaction.
    joining: Vec<(String, i32)>,
    /// Repacked bytes that are kept for them.
    kept: usize,
}

impl Default for AppendPass {
    fn default() -> Self {
        Self {
            topic: 0,
            first: 0,
            next: 0,
            budget: AppendBudget {
                bytes: OPENED_HERE_MAX,
                names: NAMED_RECORDS_MAX,
            },
            joining: Vec::new(),
            kept: 0,
        }
    }
}

struct PartitionData {
    index: i32,
    records: Option<Range<usize>>,
    content: Opened,
    result: AppendResult,
    /// Records that were appended now; 0 for a duplicate.
    appended_records: u32,
}

/// Knowledge of a batch's content.
enum Opened {
    /// Nothing so far.
    Not,
    Read(Inspected),
    Unreadable(AppendError),
}

/// The producer of the request's transactional batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RequestProducer {
    /// No batch is transactional.
    #[default]
    None,
    One {
        producer_id: i64,
        producer_epoch: i16,
    },
    /// Batches of more than one: no producer sends that.
    Several,
}

/// The result of one partition's batch.
enum AppendResult {
    /// The append was not tried yet, or is tried again once the partition joined the transaction.
    Pending,
    Stored {
        appended: Appended,
        /// Kept only if the answer may have to wait.
        batch: Option<AppendedBatch>,
    },
    Failed(ProduceFailure),
}

/// The end of an attempt at a partition's batch.
enum Attempt {
    Ended(AppendResult),
    /// The partition of this topic has first to join the transaction.
    Join(String),
    /// The opener has first to inspect it for this log.
    Uninspected(Arc<PartitionLog>),
}

struct ProduceFailure {
    code: i16,
    message: Option<String>,
    records: Vec<RefusedRecord>,
    log_start_offset: i64,
}

impl ProduceFailure {
    fn new(code: i16, message: Option<String>) -> Self {
        Self {
            code,
            message,
            records: Vec::new(),
            log_start_offset: -1,
        }
    }
}

/// A parked request's question to the transaction coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// The request's transactional id.
    pub transactional_id: String,
    /// The producer id of its batches.
    pub producer_id: i64,
    /// The producer epoch of its batches.
    pub producer_epoch: i16,
    /// 2: the partitions shall join; 1: they had to be added beforehand.
    pub transaction_version: u8,
    /// Topic names and partition indexes.
    pub partitions: Vec<(String, i32)>,
}

/// The progress of `append`.
pub enum AppendProgress {
    /// Every partition has its result.
    Done,
    /// Some are still pending, until the coordinator answers.
    Parked(Join),
    /// Some are still pending, until these batches are opened.
    Unopened(VecDeque<Unopened>),
    /// Some are still pending, until it is called again.
    TurnOver,
}

/// A compressed batch of a request that is not opened yet: which partition of the request it is
/// for, and its log.
pub type Unopened = (usize, Arc<PartitionLog>);

/// A partition that the coordinator refused: topic, partition, Kafka's error code.
pub type Refused = (String, i32, i16);

/// The partitions of a request that the coordinator refused.
#[derive(Default)]
struct Refusals(HashMap<String, HashMap<i32, i16>>);

impl Refusals {
    fn of(refused: &[Refused]) -> Self {
        let mut of_topics: HashMap<String, HashMap<i32, i16>> = HashMap::new();
        for (topic, index, code) in refused {
            if let Some(of_topic) = of_topics.get_mut(topic) {
                of_topic.insert(*index, *code);
            } else {
                of_topics.insert(topic.clone(), HashMap::from([(*index, *code)]));
            }
        }
        Self(of_topics)
    }

    fn code(&self, topic: &str, index: i32) -> Option<i16> {
        self.0.get(topic)?.get(&index).copied()
    }
}

impl ProduceRequest {
    /// Reads a request's body in place of the request before.
    ///
    /// # Errors
    /// It is not a Produce request of that version. Nothing is known then of any part of it.
    pub fn parse(&mut self, body: &[u8], version: i16) -> Result<(), Malformed> {
        self.clear();
        self.version = version;
        let is_flexible = is_flexible(version);
        let mut reader = Reader::new(body);
        self.transactional_id = reader.nullable_string(is_flexible)?;
        let id = self.transactional_id.clone().unwrap_or_default();
        if std::str::from_utf8(&body[id.clone()]).is_err() {
            let reason = "the transactional id is not UTF-8";
            return Err(Malformed {
                at: id.start,
                reason,
            });
        }
        self.acks = reader.i16()?;
        let timeout_ms = reader.i32()?;
        self.timeout = Duration::from_millis(timeout_ms.max(0) as u64);
        for _ in 0..reader.array(is_flexible, 2)? {
            self.parse_topic(&mut reader, body)?;
        }
        reader.skip_tags(is_flexible)
    }

    fn clear(&mut self) {
        self.topics.clear();
        self.partitions.clear();
        // One enormous request does not make the reactor large for good.
        self.topics.shrink_to(KEPT_ITEMS);
        self.partitions.shrink_to(KEPT_ITEMS);
        self.producer = RequestProducer::None;
        self.authorized = Authorized::default();
        self.names = NAMED_RECORDS_MAX;
        self.pass = None;
        self.opened = 0;
        self.refused = None;
    }

    fn parse_topic(&mut self, reader: &mut Reader<'_>, body: &[u8]) -> Result<(), Malformed> {
        let is_flexible = is_flexible(self.version);
        let key = if has_topic_ids(self.version) {
            reader.uuid()?
        } else {
            reader.string(is_flexible)?
        };
        let partitions = reader.array(is_flexible, 5)?;
        let named = self.partitions.len() + partitions;
        require_few(reader, named, self.topics.len())?;
        for _ in 0..partitions {
            let index = reader.i32()?;
            let records = reader.nullable_bytes(is_flexible)?;
            reader.skip_tags(is_flexible)?;
            if let Some(range) = &records {
                self.note_producer(&body[range.clone()]);
            }
            self.partitions.push(PartitionData {
                index,
                records,
                content: Opened::Not,
                result: AppendResult::Pending,
                appended_records: 0,
            });
        }
        reader.skip_tags(is_flexible)?;
        self.topics.push(TopicData {
            key,
            partitions,
            refusal: codes::NONE,
        });
        Ok(())
    }

    fn note_producer(&mut self, records: &[u8]) {
        let Ok(batch) = BatchView::parse(records) else {
            return;
        };
        if !batch.is_transactional() {
            return;
        }
        let one = RequestProducer::One {
            producer_id: batch.producer_id(),
            producer_epoch: batch.producer_epoch(),
        };
        self.producer = match self.producer {
            RequestProducer::None => one,
            seen if seen == one => one,
            _ => RequestProducer::Several,
        };
    }

    /// True if the sender waits for an answer: not with `acks=0`.
    pub fn wants_answer(&self) -> bool {
        self.acks != 0
    }

    /// True if the sender waits until every in-sync replica has its batches.
    pub fn wants_replicas(&self) -> bool {
        self.acks == ACKS_ALL
    }

    /// True if the sender was promised a write that outlives the broker: with `acks=all`, and for
    /// every transactional request.
    pub fn wants_sync(&self) -> bool {
        self.acks == ACKS_ALL || (self.acks != 0 && self.transactional_id.is_some())
    }

    /// The most time the answer may wait once every batch is appended.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Fails every partition that waits for a coordinator that did not answer in time.
    ///
    /// Source: a leader of Kafka's whose verification of a transaction times out.
    pub fn fail_pending(&mut self) {
        let code = code_for(self.version, codes::NETWORK_EXCEPTION);
        let message = "The transaction coordinator did not answer in time; send the batch again.";
        for partition in &mut self.partitions {
            if matches!(partition.result, AppendResult::Pending) {
                partition.result =
                    AppendResult::Failed(ProduceFailure::new(code, Some(message.to_owned())));
            }
        }
    }

    /// True if there are batches of a transaction in it.
    pub fn is_transactional(&self) -> bool {
        !matches!(self.producer, RequestProducer::None)
    }

    /// The producer id of its transactional batches.
    pub fn producer_id(&self) -> Option<i64> {
        match self.producer {
            RequestProducer::One { producer_id, .. } => Some(producer_id),
            RequestProducer::None | RequestProducer::Several => None,
        }
    }

    /// The version of the request.
    pub fn version(&self) -> i16 {
        self.version
    }

    /// The error code of the first partition that refused its batch, and the partition in words.
    ///
    /// A sender chooses the name of a topic: as many bytes of it are shown as a topic's name has.
    pub fn first_failure(&self, body: &[u8]) -> Option<(i16, String)> {
        let mut partitions = self.partitions.iter();
        let mut first = None;
        let mut failures = 0;
        for topic in &self.topics {
            for partition in partitions.by_ref().take(topic.partitions) {
                if let AppendResult::Failed(failure) = &partition.result {
                    failures += 1;
                    first = first.or(Some((topic, partition.index, failure.code)));
                }
            }
        }
        let (topic, index, code) = first?;
        let mut reason = match topic_key(self.version, &body[topic.key.clone()]) {
            TopicKey::Name(name) => {
                let shown = &name[..name.len().min(TOPIC_NAME_MAX)];
                format!("{}-{index}", String::from_utf8_lossy(shown))
            }
            TopicKey::Id(_) => format!("partition {index} of a topic by its id"),
        };
        if failures > 1 {
            reason = format!("{reason} and {} others", failures - 1);
        }
        Some((code, reason))
    }

    /// Counts appended and refused batches; to be called when none is pending.
    pub fn count(&self, produced: &Produced) {
        for partition in &self.partitions {
            if partition.appended_records > 0 {
                let bytes = partition.records.as_ref().map_or(0, Range::len);
                produced.batches.add_alone(1);
                produced
                    .records
                    .add_alone(partition.appended_records.into());
                produced.bytes.add_alone(bytes as u64);
            } else if matches!(partition.result, AppendResult::Failed(_)) {
                produced.failures.add_alone(1);
            }
        }
    }

    /// Refuses the partitions that the sender may not write.
    ///
    /// A transactional request needs its transactional id too; one without an id is refused by
    /// `append`. An unknown topic id is nobody's to refuse, and stays unknown to this request.
    ///
    /// Returns false if the turn was over before each topic had its verdict; then it goes on when
    /// it is called again.
    pub fn authorize(
        &mut self,
        body: &[u8],
        catalog: &Catalog,
        access: &Access,
        sender: Sender<'_>,
        turn: &mut Turn,
    ) -> bool {
        if self.authorized.is_done {
            return true;
        }
        if self.is_transactional() && self.authorized.topics == 0 {
            let Some(id) = self.transactional_id.clone() else {
                return true;
            };
            if !access.allows(sender, Action::WriteTransactionalId, &body[id]) {
                for partition in &mut self.partitions {
                    partition.refuse(codes::TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
                }
                self.authorized.is_done = true;
                return true;
            }
        }
        while self.authorized.topics < self.topics.len() {
            let at = self.authorized.topics;
            self.authorized.topics += 1;
            let asked_first = self.authorized.first_of.get(at);
            if let Some(&first) = asked_first.filter(|&&first| first < at) {
                self.topics[at].refusal = self.topics[first].refusal;
                continue;
            }
            let found;
            let name = match topic_key(self.version, &body[self.topics[at].key.clone()]) {
                TopicKey::Name(name) => name,
                id @ TopicKey::Id(_) => {
                    found = catalog.find(id);
                    let Some(topic) = &found else {
                        self.topics[at].refusal = codes::UNKNOWN_TOPIC_ID;
                        continue;
                    };
                    topic.name.as_bytes()
                }
            };
            if access.remembers(sender, Action::WriteTopic, name) {
                continue;
            }
            if self.authorized.first_of.is_empty() {
                let topics = &self.topics;
                self.authorized.first_of =
                    first_of(topics.len(), |at| &body[topics[at].key.clone()]);
                self.authorized.topics = at; // it may have been named before
                continue;
            }
            if !access.ask(sender, Action::WriteTopic, name) {
                self.topics[at].refusal = codes::TOPIC_AUTHORIZATION_FAILED;
            }
            if turn.is_over() && self.authorized.topics < self.topics.len() {
                return false;
            }
        }
        self.authorized.is_done = true;
        let mut rest = self.partitions.as_mut_slice();
        for topic in &self.topics {
            let (partitions, later) = rest.split_at_mut(topic.partitions);
            rest = later;
            if topic.refusal != codes::NONE {
                for partition in partitions {
                    partition.refuse(topic.refusal);
                }
            }
        }
        true
    }

    fn origin(&self, body: &[u8]) -> Origin {
        let is_transactional = matches!(self.producer, RequestProducer::One { .. });
        Origin::Client {
            transaction_version: self.transaction_version(),
            transactional_id_hash: is_transactional.then(|| {
                let id = self.transactional_id.clone().unwrap_or_default();
                java_hash(std::str::from_utf8(&body[id]).expect("`parse` checks it"))
            }),
        }
    }

    fn transaction_version(&self) -> u8 {
        if self.version >= 12 { 2 } else { 1 }
    }

    /// Takes the coordinator's answer to its question. A partition that still has to join then is
    /// answered `INVALID_TXN_STATE`, so nothing is parked twice.
    pub fn continue_without(&mut self, refused: &[Refused]) {
        self.refused = Some(Box::new(Refusals::of(refused)));
    }

    /// Appends every batch that is pending, until the turn is over.
    ///
    /// # Args
    /// - `body`: the parsed bytes; stamped in place.
    /// - `may_sync`: the answer may have to wait for the disk.
    pub fn append(
        &mut self,
        body: &mut [u8],
        catalog: &Catalog,
        may_sync: bool,
        turn: &mut Turn,
    ) -> AppendProgress {
        if let Some((code, message)) = self.refusal() {
            for partition in &mut self.partitions {
                if matches!(partition.result, AppendResult::Pending) {
                    partition.result =
                        AppendResult::Failed(ProduceFailure::new(code, Some(message.to_owned())));
                }
            }
            return AppendProgress::Done;
        }
        let is_transactional = matches!(self.producer, RequestProducer::One { .. });
        let writing = Writing {
            version: self.version,
            origin: self.origin(body),
            refused: self.refused.as_deref(),
            may_park: self.refused.is_none() && is_transactional,
            is_transactional,
            may_sync,
            wants_replicas: self.wants_replicas(),
        };
        let mut pass = self
            .pass
            .take()
            .map_or_else(AppendPass::default, |pass| *pass);
        pass.budget.names = self.names;
        let mut unopened: VecDeque<Unopened> = VecDeque::new();
        let mut first_unopened = (0, 0, 0);
        let mut has_written = false;
        for (topic_at, topic) in self.topics.iter().enumerate().skip(pass.topic) {
            let end = pass.first + topic.partitions;
            let partitions = &mut self.partitions[pass.next..end];
            if partitions
                .iter()
                .any(|one| matches!(one.result, AppendResult::Pending))
            {
                let found = catalog.find(topic_key(self.version, &body[topic.key.clone()]));
                for (partition, at) in partitions.iter_mut().zip(pass.next..) {
                    if !matches!(partition.result, AppendResult::Pending) {
                        continue;
                    }
                    let topic = found.as_deref();
                    if !unopened.is_empty() {
                        // A batch waits for those before it: two may be for the same partition.
                        if let Some(log) = partition.to_open(topic, body) {
                            unopened.push_back((at, log));
                        }
                        continue;
                    }
                    if has_written && turn.is_over() {
                        (pass.topic, pass.next) = (topic_at, at);
                        self.names = pass.budget.names;
                        self.pass = Some(Box::new(pass));
                        return AppendProgress::TurnOver;
                    }
                    has_written = true;
                    match writing.write(topic, partition, body, &mut pass) {
                        Attempt::Ended(result) => partition.result = result,
                        Attempt::Join(topic) => pass.joining.push((topic, partition.index)),
                        Attempt::Uninspected(log) => {
                            first_unopened = (topic_at, pass.first, at);
                            unopened.push_back((at, log));
                        }
                    }
                }
            }
            (pass.first, pass.next) = (end, end);
        }
        self.names = pass.budget.names;
        if unopened.is_empty() {
            self.progress(body, pass.joining)
        } else {
            (pass.topic, pass.first, pass.next) = first_unopened;
            self.pass = Some(Box::new(pass));
            AppendProgress::Unopened(unopened)
        }
    }

    /// Opens a batch that `append` could not, and repacks it where it has to be, however long it
    /// takes; returns the number of repacked bytes.
    pub fn open(&mut self, body: &[u8], (at, log): &Unopened) -> usize {
        let origin = self.origin(body);
        let partition = &mut self.partitions[*at];
        let records = partition.records.clone().unwrap_or_default();
        let Ok(batch) = BatchView::parse(&body[records]) else {
            return 0; // `append` says so
        };
        partition.content = if self.opened >= REQUEST_CONTENT_BYTES_MAX {
            Opened::Unreadable(AppendError::Refused {
                code: codes::MESSAGE_TOO_LARGE,
                message: format!(
                    "The request's batches come to more than {REQUEST_CONTENT_BYTES_MAX} bytes \
                     after decompression; send fewer in a request."
                ),
            })
        } else {
            match log.inspect(origin, &batch, &mut self.opened, &mut self.names) {
                Ok(inspected) => Opened::Read(inspected),
                Err(error) => Opened::Unreadable(error),
            }
        };
        partition.content.repacked_bytes()
    }

    fn progress(&self, body: &[u8], partitions: Vec<(String, i32)>) -> AppendProgress {
        if partitions.is_empty() {
            return AppendProgress::Done;
        }
        let RequestProducer::One {
            producer_id,
            producer_epoch,
        } = self.producer
        else {
            unreachable!("only a request with one transactional producer may be parked")
        };
        let id = self
            .transactional_id
            .clone()
            .expect("`refusal` asks for a transactional id");
        AppendProgress::Parked(Join {
            transactional_id: String::from_utf8_lossy(&body[id]).into_owned(),
            producer_id,
            producer_epoch,
            transaction_version: self.transaction_version(),
            partitions,
        })
    }

    /// Why no partition of the request may be written.
    fn refusal(&self) -> Option<(i16, &'static str)> {
        match self.producer {
            RequestProducer::One { .. } | RequestProducer::Several
                if self.transactional_id.is_none() =>
            {
                Some((
                    codes::TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                    "The request has transactional batches and no transactional id.",
                ))
            }
            RequestProducer::Several => Some((
                codes::INVALID_PRODUCER_ID_MAPPING,
                "The request has transactional batches of more than one producer id and epoch.",
            )),
            _ if !matches!(self.acks, ACKS_ALL | 0 | 1) => Some((
                codes::INVALID_REQUIRED_ACKS,
                "The request's acks are neither 0, 1 nor -1.",
            )),
            _ => None,
        }
    }

    /// Writes the answer as a whole frame, and lists the batches it may have to wait for. These are
    /// the batches to be synced, and with `acks=all` those above the high watermark.
    ///
    /// # Args
    /// - `body`: the parsed bytes.
    /// - `throttle_ms`: the time that its client is muted for.
    /// - `out`: empty.
    pub fn encode(
        &mut self,
        body: &[u8],
        correlation_id: i32,
        throttle_ms: i32,
        out: &mut Vec<u8>,
    ) -> Vec<AppendedBatch> {
        let is_flexible = is_flexible(self.version);
        let mut batches = Vec::new();
        begin_response(out, correlation_id, is_flexible);
        out.put_length(self.topics.len(), is_flexible);
        let mut partitions = self.partitions.iter_mut();
        for topic in &self.topics {
            match topic_key(self.version, &body[topic.key.clone()]) {
                TopicKey::Name(name) => out.put_nullable_string(Some(name), is_flexible),
                TopicKey::Id(id) => out.put(id),
            }
            out.put_length(topic.partitions, is_flexible);
            for partition in partitions.by_ref().take(topic.partitions) {
                out.put_i32(partition.index);
                if let Some(batch) = partition.result.take_batch() {
                    let code_at = out.len();
                    batches.push(AppendedBatch { code_at, ..batch });
                }
                partition.result.encode(self.version, out);
            }
            out.put_no_tags(is_flexible);
        }
        out.put_i32(throttle_ms);
        out.put_no_tags(is_flexible);
        let length = out.len() - 4;
        set_length(out, length);
        batches
    }
}

impl PartitionData {
    /// Fails it with a code that says it all.
    fn refuse(&mut self, code: i16) {
        self.result = AppendResult::Failed(ProduceFailure::new(code, None));
    }

    /// The log that has to look into its batch before that can be appended, if it was not opened.
    fn to_open(&self, topic: Option<&Topic>, body: &[u8]) -> Option<Arc<PartitionLog>> {
        if !matches!(self.content, Opened::Not) {
            return None;
        }
        let batch = BatchView::parse(&body[self.records.clone()?]).ok()?;
        let log = topic?.log(self.index).ok()?;
        let is_plain = batch.codec() == Ok(Codec::None) && !log.repacks(&batch);
        (!is_plain).then(|| Arc::clone(log))
    }
}

impl Opened {
    fn repacked_bytes(&self) -> usize {
        match self {
            Self::Read(inspected) => inspected.repacked.as_ref().map_or(0, Vec::len),
            Self::Not | Self::Unreadable(_) => 0,
        }
    }
}

impl AppendResult {
    fn take_batch(&mut self) -> Option<AppendedBatch> {
        match self {
            Self::Stored { batch, .. } => batch.take(),
            Self::Pending | Self::Failed(_) => None,
        }
    }

    fn encode(&self, version: i16, out: &mut Vec<u8>) {
        let is_flexible = is_flexible(version);
        let (code, base_offset, log_append_time, log_start_offset, failure) = match self {
            Self::Stored { appended, .. } => (
                codes::NONE,
                appended.base_offset,
                appended.log_append_time,
                appended.log_start_offset,
                None,
            ),
            Self::Failed(failure) => (
                failure.code,
                -1,
                -1,
                failure.log_start_offset,
                Some(failure),
            ),
            Self::Pending => unreachable!("an answer is written when nothing is pending"),
        };
        out.put_i16(code);
        out.put_i64(base_offset);
        out.put_i64(log_append_time);
        if version >= 5 {
            out.put_i64(log_start_offset);
        }
        if version >= 8 {
            let records = failure.map_or(&[][..], |failure| &failure.records);
            out.put_length(records.len(), is_flexible);
            for record in records {
                out.put_i32(record.index);
                out.put_nullable_string(Some(record.message.as_bytes()), is_flexible);
                out.put_no_tags(is_flexible);
            }
            let message = failure.and_then(|failure| failure.message.as_deref());
            out.put_nullable_string(message.map(str::as_bytes), is_flexible);
        }
        // KIP-951's CurrentLeader is never there. One node answers NOT_LEADER_OR_FOLLOWER only for a
        // partition that is being deleted or stopped, and such a partition has no leader to name.
        out.put_no_tags(is_flexible);
    }
}

/// The part of an append that is the same for every partition of a request.
#[derive(Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "four facts that hold independently"
)]
struct Writing<'a> {
    version: i16,
    origin: Origin,
    /// The partitions that the coordinator refused, after parking.
    refused: Option<&'a Refusals>,
    may_park: bool,
    is_transactional: bool,
    may_sync: bool,
    wants_replicas: bool,
}

impl Writing<'_> {
    fn write(
        self,
        topic: Option<&Topic>,
        partition: &mut PartitionData,
        body: &mut [u8],
        pass: &mut AppendPass,
    ) -> Attempt {
        match self.try_write(topic, partition, body, pass) {
            Ok(attempt) => attempt,
            Err(failure) => Attempt::Ended(AppendResult::Failed(ProduceFailure {
                code: code_for(self.version, failure.code),
                ..failure
            })),
        }
    }

    fn try_write(
        self,
        topic: Option<&Topic>,
        partition: &mut PartitionData,
        body: &mut [u8],
        pass: &mut AppendPass,
    ) -> Result<Attempt, ProduceFailure> {
        let Some(topic) = topic else {
            let code = if has_topic_ids(self.version) {
                codes::UNKNOWN_TOPIC_ID
            } else {
                codes::UNKNOWN_TOPIC_OR_PARTITION
            };
            return Err(ProduceFailure::new(code, None));
        };
        let failed = |code| ProduceFailure::new(code, None);
        let handle = topic.partition(partition.index).map_err(failed)?;
        let log = topic.log(partition.index).map_err(failed)?;
        if topic.is_internal {
            let message = format!(
                "Topic {} is internal; clients cannot write to it.",
                topic.name
            );
            return Err(ProduceFailure::new(
                codes::INVALID_TOPIC_EXCEPTION,
                Some(message),
            ));
        }
        self.check_refused(&topic.name, partition.index)?;
        let Some(range) = partition.records.clone() else {
            let message = "The partition's records are null; send exactly one batch.".to_owned();
            return Err(ProduceFailure::new(codes::INVALID_RECORD, Some(message)));
        };
        let batch = &mut body[range];
        let offsets = check_batch(self.version, batch)?;
        let mut inspected = match std::mem::replace(&mut partition.content, Opened::Not) {
            Opened::Not => None,
            Opened::Read(inspected) => Some(inspected),
            Opened::Unreadable(error) => return Err(self.refused(log, error)),
        };
        let leadership = handle.lead().map_err(failed)?;
        let leader_epoch = leadership.leader_epoch;
        let appended = log.append_within(self.origin, batch, &mut inspected, &mut pass.budget);
        drop(leadership);
        if appended.is_ok() {
            partition.appended_records = offsets as u32;
        }
        let appended = match appended {
            Err(AppendError::Duplicate { base_offset }) => Ok(Appended {
                base_offset,
                log_append_time: -1,
                log_start_offset: log.state().log_start_offset,
            }),
            appended => appended,
        };
        let appended = match appended {
            Ok(appended) => appended,
            Err(AppendError::Uninspected) => return Ok(Attempt::Uninspected(Arc::clone(log))),
            Err(AppendError::Join) if self.may_park => {
                let content = inspected.map_or(Opened::Not, Opened::Read);
                pass.kept += content.repacked_bytes();
                if pass.kept <= REPACKED_BYTES_MAX {
                    partition.content = content; // else it is opened once more
                }
                return Ok(Attempt::Join(topic.name.clone()));
            }
            Err(error) => return Err(self.refused(log, error)),
        };
        let end = appended.base_offset + offsets;
        let is_behind = || self.wants_replicas && log.readable_end(Isolation::HighWatermark) < end;
        let batch = (self.may_sync || is_behind()).then(|| AppendedBatch {
            partition: Arc::clone(handle),
            log: Arc::clone(log),
            end,
            leader_epoch,
            code_at: 0,
        });
        Ok(Attempt::Ended(AppendResult::Stored { appended, batch }))
    }

    fn check_refused(self, topic: &str, index: i32) -> Result<(), ProduceFailure> {
        match self.refused.and_then(|refused| refused.code(topic, index)) {
            None => Ok(()),
            Some(code) => Err(ProduceFailure::new(code, refusal_message(code))),
        }
    }

    /// The answer to a batch that was not appended.
    fn refused(self, log: &PartitionLog, error: AppendError) -> ProduceFailure {
        let mut bad_records = Vec::new();
        let (code, message) = match error {
            AppendError::Duplicate { .. } => unreachable!("its answer is that of the first"),
            AppendError::Uninspected => unreachable!("it is inspected and tried again"),
            AppendError::Join => (
                codes::INVALID_TXN_STATE,
                refusal_message(codes::INVALID_TXN_STATE),
            ),
            AppendError::Refused { code, message } => (code, Some(message)),
            AppendError::InvalidRecords {
                code,
                message,
                records,
            } => {
                bad_records = records;
                (code, Some(message))
            }
            AppendError::Corrupt { error } => (codes::CORRUPT_MESSAGE, Some(error.to_string())),
            AppendError::Io(error) => (codes::KAFKA_STORAGE_ERROR, Some(error.to_string())),
            AppendError::Closed => (codes::NOT_LEADER_OR_FOLLOWER, None),
        };
        // Kafka names the log start only where the log's producer state or records refuse.
        let is_alone = match code {
            codes::MESSAGE_TOO_LARGE | codes::CORRUPT_MESSAGE => true,
            codes::INVALID_PRODUCER_EPOCH => self.is_transactional,
            _ => false,
        };
        ProduceFailure {
            code,
            message,
            records: bad_records,
            log_start_offset: if is_alone {
                -1
            } else {
                log.state().log_start_offset
            },
        }
    }
}

/// Checks records as Kafka does before it looks at any log; returns the number of offsets they
/// take.
fn check_batch(version: i16, records: &[u8]) -> Result<i64, ProduceFailure> {
    let invalid = |message: String| Err(ProduceFailure::new(codes::INVALID_RECORD, Some(message)));
    let batch = match BatchView::parse(records) {
        Ok(batch) => batch,
        Err(error @ BatchError::Length { .. }) => {
            return Err(ProduceFailure::new(
                codes::CORRUPT_MESSAGE,
                Some(error.to_string()),
            ));
        }
        Err(error) => return invalid(format!("{error}; send exactly one batch of format 2.")),
    };
    if batch.size() != records.len() {
        return invalid(format!(
            "The partition's records are {} bytes, its first batch {}; send exactly one batch.",
            records.len(),
            batch.size()
        ));
    }
    if version < 7 && batch.codec() == Ok(Codec::Zstd) {
        let message = format!("Produce version {version} knows no Zstandard; version 7 does.");
        return Err(ProduceFailure::new(
            codes::UNSUPPORTED_COMPRESSION_TYPE,
            Some(message),
        ));
    }
    Ok(i64::from(batch.last_offset_delta()) + 1)
}

fn refusal_message(code: i16) -> Option<String> {
    (code == codes::INVALID_TXN_STATE)
        .then(|| "The partition was not added to the transaction.".to_owned())
}

/// The code by which a client of that version is told.
///
/// Answers of a coordinator are translated as Kafka's brokers do. Clients of old versions do not
/// retry some of them rightly, and do not know others.
fn code_for(version: i16, code: i16) -> i16 {
    match code {
        codes::TRANSACTION_ABORTABLE if version < 11 => codes::INVALID_TXN_STATE,
        codes::PRODUCER_FENCED => codes::INVALID_PRODUCER_EPOCH,
        codes::CONCURRENT_TRANSACTIONS if version < 12 => codes::NOT_ENOUGH_REPLICAS,
        codes::NETWORK_EXCEPTION
        | codes::COORDINATOR_LOAD_IN_PROGRESS
        | codes::COORDINATOR_NOT_AVAILABLE
        | codes::NOT_COORDINATOR => codes::NOT_ENOUGH_REPLICAS,
        code => code,
    }
}

/// The `hashCode` of a Java string, by which Python knows a transactional id too
/// (`txn.wire.hashing`).
fn java_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0, |hash: i32, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    })
}

fn is_flexible(version: i16) -> bool {
    apis::is_flexible(apis::PRODUCE, version)
}

fn has_topic_ids(version: i16) -> bool {
    version >= 13
}

fn topic_key(version: i16, bytes: &[u8]) -> TopicKey<'_> {
    if has_topic_ids(version) {
        TopicKey::Id(bytes)
    } else {
        TopicKey::Name(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Ada;
    use proptest::prelude::*;

    const NAME: &[u8] = b"pay";
    const ID: [u8; 16] = [7; 16];

    fn long() -> Turn {
        Turn::of(Duration::from_secs(3600))
    }

    /// A request for partition 3 of one topic, and partition 4 with null records.
    fn request(
        version: i16,
        transactional_id: Option<&[u8]>,
        acks: i16,
        records: &[u8],
    ) -> Vec<u8> {
        let is_flexible = is_flexible(version);
        let mut out = Vec::new();
        out.put_nullable_string(transactional_id, is_flexible);
        out.put_i16(acks);
        out.put_i32(30_000);
        out.put_length(1, is_flexible);
        if has_topic_ids(version) {
            out.put(&ID);
        } else {
            out.put_nullable_string(Some(NAME), is_flexible);
        }
        out.put_length(2, is_flexible);
        out.put_i32(3);
        out.put_length(records.len(), is_flexible);
        out.put(records);
        out.put_no_tags(is_flexible);
        out.put_i32(4);
        if is_flexible {
            out.put_uvarint(0);
        } else {
            out.put_i32(-1);
        }
        out.put_no_tags(is_flexible);
        out.put_no_tags(is_flexible);
        out.put_no_tags(is_flexible);
        out
    }

    /// The header of a batch without records, as far as Produce looks at it.
    fn batch(attributes: i16, producer_id: i64) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_i64(0);
        out.put_i32(61 - 12);
        out.put_i32(-1);
        out.put(&[2]);
        out.put_i32(0); // crc
        out.put_i16(attributes);
        out.put_i32(0);
        out.put_i64(0);
        out.put_i64(0);
        out.put_i64(producer_id);
        out.put_i16(5);
        out.put_i32(0);
        out.put_i32(1);
        assert_eq!(out.len(), 61);
        out
    }

    const TRANSACTIONAL: i16 = 0x10;

    fn answer(version: i16, mut body: Vec<u8>) -> (ProduceRequest, Vec<u8>) {
        let mut request = ProduceRequest::default();
        request.parse(&body, version).unwrap();
        let progress = request.append(&mut body, &Catalog::default(), false, &mut long());
        assert!(matches!(progress, AppendProgress::Done));
        let mut out = Vec::new();
        request.encode(&body, 42, 0, &mut out);
        (request, out)
    }

    fn codes(request: &ProduceRequest) -> Vec<i16> {
        let code = |one: &PartitionData| match &one.result {
            AppendResult::Failed(failure) => failure.code,
            _ => 0,
        };
        request.partitions.iter().map(code).collect()
    }

    #[test]
    fn every_version_is_read_and_its_topic_is_sent_back() {
        for version in 3..=13 {
            let (request, out) = answer(version, request(version, None, 1, &batch(0, -1)));
            let unknown = if version >= 13 { 100 } else { 3 };
            assert_eq!(codes(&request), [unknown, unknown], "version {version}");
            let topic: &[u8] = if version >= 13 { &ID } else { NAME };
            assert!(out.windows(topic.len()).any(|window| window == topic));
            let length = i32::from_be_bytes(*out.first_chunk().unwrap());
            assert_eq!(length as usize, out.len() - 4);
            assert_eq!(out[4..8], 42_i32.to_be_bytes());
        }
    }

    #[test]
    fn a_request_cut_anywhere_is_malformed_and_what_follows_it_is_ignored() {
        for version in 3..=13 {
            let body = request(version, Some(b"t"), -1, &batch(0, -1));
            let mut parsed = ProduceRequest::default();
            for end in 0..body.len() {
                assert!(
                    parsed.parse(&body[..end], version).is_err(),
                    "version {version}: {end}"
                );
            }
            let longer = [&body[..], &[0]].concat();
            assert!(parsed.parse(&longer, version).is_ok());
            assert!(parsed.parse(&body, version).is_ok());
        }
    }

    #[test]
    fn transactional_batches_without_a_transactional_id_are_refused_as_a_whole() {
        let body = request(9, None, -1, &batch(TRANSACTIONAL, 7));
        let (request, _) = answer(9, body);
        assert_eq!(
            codes(&request),
            [codes::TRANSACTIONAL_ID_AUTHORIZATION_FAILED; 2]
        );
    }

    #[test]
    fn acks_that_do_not_exist_are_refused_as_a_whole() {
        let (request, _) = answer(9, request(9, None, 2, &batch(0, -1)));
        assert_eq!(codes(&request), [codes::INVALID_REQUIRED_ACKS; 2]);
    }

    #[test]
    fn only_acks_all_and_transactional_requests_wait_for_the_disk() {
        let wants_sync = |transactional_id, acks| {
            let mut parsed = ProduceRequest::default();
            parsed
                .parse(&request(9, transactional_id, acks, &batch(0, -1)), 9)
                .unwrap();
            parsed.wants_sync()
        };
        assert!(wants_sync(None, -1));
        assert!(wants_sync(Some(&b"t"[..]), 1));
        assert!(!wants_sync(None, 1));
        assert!(!wants_sync(Some(&b"t"[..]), 0));
    }

    #[test]
    fn records_are_exactly_one_whole_batch_of_format_2() {
        let code = |version, records: &[u8]| check_batch(version, records).map_err(|f| f.code);
        let one = batch(0, -1);
        assert_eq!(code(9, &one), Ok(1));
        assert_eq!(code(9, &[]), Err(codes::INVALID_RECORD));
        assert_eq!(code(9, &one[..60]), Err(codes::INVALID_RECORD));
        assert_eq!(
            code(9, &[&one[..], &one].concat()),
            Err(codes::INVALID_RECORD)
        );
        let mut old = one.clone();
        old[16] = 1;
        assert_eq!(code(9, &old), Err(codes::INVALID_RECORD));
        let mut short = one.clone();
        short[8..12].copy_from_slice(&3_i32.to_be_bytes());
        assert_eq!(code(9, &short), Err(codes::CORRUPT_MESSAGE));
        assert_eq!(
            code(6, &batch(4, -1)),
            Err(codes::UNSUPPORTED_COMPRESSION_TYPE)
        );
        assert_eq!(code(7, &batch(4, -1)), Ok(1));
    }

    /// A request of version 9 for partition 0 of each of these topics, without records.
    fn naming(topics: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_nullable_string(None, true);
        out.put_i16(1);
        out.put_i32(30_000);
        out.put_length(topics.len(), true);
        for name in topics {
            out.put_nullable_string(Some(name.as_bytes()), true);
            out.put_length(1, true);
            out.put_i32(0);
            out.put_uvarint(0);
            out.put_no_tags(true);
            out.put_no_tags(true);
        }
        out.put_no_tags(true);
        out
    }

    #[test]
    fn each_topic_is_asked_for_and_each_batch_tried_once_in_turns_of_any_length() {
        let mut body = naming(&["b", "a", "b", "c", "b", "a", "a1"]);
        for (time, turns) in [
            (Duration::ZERO, [4, 3]),
            (Duration::from_secs(3600), [1, 1]),
        ] {
            let (access, asked) = Access::of_letter('a');
            let ada = Ada::connected();
            let catalog = Catalog::default();
            let mut request = ProduceRequest::default();
            request.parse(&body, 9).unwrap();
            let mut taken = [1, 1];
            while !request.authorize(&body, &catalog, &access, ada.sender(), &mut Turn::of(time)) {
                taken[0] += 1;
            }
            assert!(request.authorize(&body, &catalog, &access, ada.sender(), &mut long()));
            while let AppendProgress::TurnOver =
                request.append(&mut body, &catalog, false, &mut Turn::of(time))
            {
                taken[1] += 1;
            }
            assert_eq!(taken, turns);
            assert_eq!(*asked.lock().unwrap(), ["b", "a", "c", "a1"]);
            assert_eq!(codes(&request), [29, 3, 29, 29, 29, 3, 3]);
        }
    }

    #[test]
    fn a_topic_id_that_was_unknown_when_it_was_authorized_stays_unknown() {
        let mut body = request(13, None, 1, &batch(0, -1));
        let (access, asked) = Access::of_letter('a');
        let ada = Ada::connected();
        let catalog = Catalog::default();
        let mut request = ProduceRequest::default();
        request.parse(&body, 13).unwrap();
        assert!(request.authorize(&body, &catalog, &access, ada.sender(), &mut long()));
        let log_of = Box::new(|_| panic!("nobody was asked for this topic"));
        catalog.add(Topic::new("pay".to_owned(), ID, 5, log_of, false));
        request.append(&mut body, &catalog, false, &mut long());
        assert_eq!(codes(&request), [codes::UNKNOWN_TOPIC_ID; 2]);
        assert!(asked.lock().unwrap().is_empty());
    }

    #[test]
    fn clients_are_told_codes_of_their_version() {
        assert_eq!(
            code_for(10, codes::TRANSACTION_ABORTABLE),
            codes::INVALID_TXN_STATE
        );
        assert_eq!(
            code_for(11, codes::TRANSACTION_ABORTABLE),
            codes::TRANSACTION_ABORTABLE
        );
        assert_eq!(
            code_for(11, codes::CONCURRENT_TRANSACTIONS),
            codes::NOT_ENOUGH_REPLICAS
        );
        assert_eq!(
            code_for(12, codes::CONCURRENT_TRANSACTIONS),
            codes::CONCURRENT_TRANSACTIONS
        );
        assert_eq!(
            code_for(13, codes::NOT_COORDINATOR),
            codes::NOT_ENOUGH_REPLICAS
        );
        assert_eq!(
            code_for(13, codes::PRODUCER_FENCED),
            codes::INVALID_PRODUCER_EPOCH
        );
    }

    #[test]
    fn a_hash_is_javas() {
        assert_eq!(java_hash(""), 0);
        assert_eq!(java_hash("payments-7"), 1_612_905_879);
        assert_eq!(java_hash("\u{1f600}"), 1_772_899);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic_or_keep_more_than_they_pay_for(
            body in prop::collection::vec(any::<u8>(), 0..300),
            version in 3_i16..=13,
        ) {
            let mut parsed = ProduceRequest::default();
            let _ = parsed.parse(&body, version);
            prop_assert!(parsed.partitions.capacity() <= body.len());
            prop_assert!(parsed.topics.capacity() <= body.len() + 4);
        }

        #[test]
        fn a_damaged_request_is_answered_or_malformed_and_never_a_panic(
            version in 3_i16..=13,
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut body = request(version, Some(b"t"), -1, &batch(TRANSACTIONAL, 7));
            for (index, byte) in damage {
                let at = index.index(body.len());
                body[at] = byte;
            }
            let mut parsed = ProduceRequest::default();
            if parsed.parse(&body, version).is_ok() {
                parsed.append(&mut body, &Catalog::default(), false, &mut long());
                parsed.encode(&body, 1, 0, &mut Vec::new());
            }
        }
    }
}
