//! A Produce request, parsed, and what is known of each of its partitions.
//!
//! # Invariant
//! It owns no byte of the frame: each range is a position in the request's body. A partition's
//! result leaves `Pending` once, and the answer is written when none is pending.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use txn_log::content::AppendBudget;
use txn_log::record_rules::NAMED_RECORDS_MAX;
use txn_log::{AppendError, Appended, Inspected, RefusedRecord};
use txn_protocol::batch::BatchView;
use txn_protocol::codes;
use txn_protocol::{Malformed, Reader};

use super::version::{code_for, has_topic_ids, is_flexible};
use crate::delayed_produce::AppendedBatch;
use crate::metrics::Produced;
use crate::partition_limit::require_few;

/// The most bytes of content of compressed batches that a reactor opens for one request. Its other
/// connections wait meanwhile, some 3 ms with gzip.
const OPENED_HERE_MAX: usize = 1 << 20;

/// The room for topics and partitions that is kept from one request to the next.
const KEPT_ITEMS: usize = 1024;

/// `acks=all`.
pub const ACKS_ALL: i16 = -1;

/// A request, parsed; ranges are positions in its body.
///
/// It owns no byte of the frame, so that one value serves request after request without an
/// allocation.
#[derive(Default)]
pub struct ProduceRequest {
    pub(super) version: i16,
    pub(super) transactional_id: Option<Range<usize>>,
    pub(super) acks: i16,
    pub(super) timeout: Duration,
    pub(super) topics: Vec<TopicData>,
    pub(super) partitions: Vec<PartitionData>,
    pub(super) producer: RequestProducer,
    pub(super) authorized: Authorized,
    /// Bad records that its answer may still name.
    pub(super) names: usize,
    /// The place where `append` goes on, if its turn was over or batches were opened.
    pub(super) pass: Option<Box<AppendPass>>,
    /// Bytes of content that the opener found so far.
    pub(super) opened: usize,
    /// After parking, the partitions that the coordinator refused.
    pub(super) refused: Option<Box<Refusals>>,
}

pub(super) struct TopicData {
    /// Name or id, by the version.
    pub(super) key: Range<usize>,
    pub(super) partitions: usize,
    /// The code by which authorization refuses it, or `NONE`.
    pub(super) refusal: i16,
}

/// The progress of `authorize`.
#[derive(Default)]
pub(super) struct Authorized {
    pub(super) is_done: bool,
    /// Number of topics that have their verdict.
    pub(super) topics: usize,
    /// For each topic the place of the first of its name or id, from the first question on.
    pub(super) first_of: Vec<usize>,
}

/// A pass over the batches that are pending.
pub(super) struct AppendPass {
    /// The next topic, the place of its first partition, and that of its next.
    pub(super) topic: usize,
    pub(super) first: usize,
    pub(super) next: usize,
    /// The content that may still be opened here, and the bad records that may be named.
    pub(super) budget: AppendBudget,
    /// Partitions that have to join the transaction.
    pub(super) joining: Vec<(String, i32)>,
    /// Repacked bytes that are kept for them.
    pub(super) kept: usize,
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

pub(super) struct PartitionData {
    pub(super) index: i32,
    pub(super) records: Option<Range<usize>>,
    pub(super) content: Opened,
    pub(super) result: AppendResult,
    /// Records that were appended now; 0 for a duplicate.
    pub(super) appended_records: u32,
}

/// Knowledge of a batch's content.
pub(super) enum Opened {
    /// Nothing so far.
    Not,
    Read(Inspected),
    Unreadable(AppendError),
}

/// The producer of the request's transactional batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RequestProducer {
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
pub(super) enum AppendResult {
    /// The append was not tried yet, or is tried again once the partition joined the transaction.
    Pending,
    Stored {
        appended: Appended,
        /// Kept only if the answer may have to wait.
        batch: Option<AppendedBatch>,
    },
    Failed(ProduceFailure),
}

pub(super) struct ProduceFailure {
    pub(super) code: i16,
    pub(super) message: Option<String>,
    pub(super) records: Vec<RefusedRecord>,
    pub(super) log_start_offset: i64,
}

impl ProduceFailure {
    pub(super) fn new(code: i16, message: Option<String>) -> Self {
        Self {
            code,
            message,
            records: Vec::new(),
            log_start_offset: -1,
        }
    }
}

/// A partition that the coordinator refused: topic, partition, Kafka's error code.
pub type Refused = (String, i32, i16);

/// The partitions of a request that the coordinator refused.
#[derive(Default)]
pub(super) struct Refusals(HashMap<String, HashMap<i32, i16>>);

impl Refusals {
    pub(super) fn of(refused: &[Refused]) -> Self {
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

    pub(super) fn code(&self, topic: &str, index: i32) -> Option<i16> {
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
}

impl PartitionData {
    /// Fails it with a code that says it all.
    pub(super) fn refuse(&mut self, code: i16) {
        self.result = AppendResult::Failed(ProduceFailure::new(code, None));
    }
}

impl Opened {
    pub(super) fn repacked_bytes(&self) -> usize {
        match self {
            Self::Read(inspected) => inspected.repacked.as_ref().map_or(0, Vec::len),
            Self::Not | Self::Unreadable(_) => 0,
        }
    }
}

impl AppendResult {
    pub(super) fn take_batch(&mut self) -> Option<AppendedBatch> {
        match self {
            Self::Stored { batch, .. } => batch.take(),
            Self::Pending | Self::Failed(_) => None,
        }
    }
}
