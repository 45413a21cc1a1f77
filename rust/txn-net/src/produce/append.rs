//! A pass over the pending batches of a request, and the reasons to stop before its end.
//!
//! # Invariant
//! Batches are appended in the request's order: behind one that is not opened yet, none is tried.

use std::collections::VecDeque;
use std::sync::Arc;

use txn_log::{AppendError, Origin, PartitionLog};
use txn_protocol::batch::{BatchView, Codec};
use txn_protocol::codes;

use super::request::{
    ACKS_ALL, AppendPass, AppendResult, Opened, PartitionData, ProduceFailure, ProduceRequest,
    Refusals, Refused, RequestProducer,
};
use super::version::topic_key;
use super::write::{Attempt, Writing};
use crate::catalog::{Catalog, Topic};
use crate::turn::Turn;

/// The most bytes that the compressed batches of one request may come to, of those that the
/// opener reads.
pub const REQUEST_CONTENT_BYTES_MAX: usize = 1_000_000_000;

/// The most repacked bytes of a request that wait for their append, and the most that wait for their
/// transaction; one batch may come on top.
pub const REPACKED_BYTES_MAX: usize = 1 << 20;

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

impl ProduceRequest {
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
}

impl PartitionData {
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

/// The `hashCode` of a Java string, by which Python knows a transactional id too
/// (`txn.wire.hashing`).
pub(super) fn java_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0, |hash: i32, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    })
}
