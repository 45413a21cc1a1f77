//! The batches of one partition, from the first record to the acknowledgement.
//!
//! ```text
//!   queue:  [ sequenced: in flight, or to be sent again ][ closed: full ][ open: takes records ]
//!             oldest first                                                            newest last
//! ```
//!
//! A batch gets its sequence when it is first sent, so one that is given up before leaves no gap.
//! A batch that is given up later may leave one: the partition is then *gapped*. It asks for a new
//! identity, and takes it once no batch of the old one is left.

use std::collections::VecDeque;
use std::sync::Arc;

use txn_log::builder::BatchBuilder;
use txn_protocol::batch::{Codec, Header, checksum};
use txn_protocol::codes;

use super::settings::pause_after;
use super::{Millis, NodeId};
use crate::error::{self, KafkaError};
use crate::messages::transactions::ProducerIdAndEpoch;

/// Batches of a producer that a node remembers per partition.
const REMEMBERED: u64 = 5;
/// More than a record's lengths, deltas and attributes ever take.
pub(crate) const RECORD_OVERHEAD_BYTES: usize = 40;

/// A producer id and epoch; later ones have higher generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) who: ProducerIdAndEpoch,
    pub(crate) generation: u64,
}

/// One record to be added.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Key, or null.
    pub key: Option<&'a [u8]>,
    /// Value; null is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Headers.
    pub headers: &'a [(&'a [u8], Option<&'a [u8]>)],
    /// Milliseconds since 1970.
    pub timestamp_ms: i64,
    /// Number by which its delivery is reported; None: only a failure is.
    pub delivery: Option<u64>,
}

/// A record of a batch whose delivery is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracked {
    /// Its number, `Record::delivery`.
    pub number: u64,
    /// Its index in the batch.
    pub index: u32,
    /// Milliseconds since 1970, as it was sent.
    pub timestamp_ms: i64,
}

impl Record<'_> {
    /// Upper bound of its bytes in a batch.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let header = |(key, value): &(&[u8], Option<&[u8]>)| 10 + key.len() + length(*value);
        RECORD_OVERHEAD_BYTES
            + length(self.key)
            + length(self.value)
            + self.headers.iter().map(header).sum::<usize>()
    }
}

fn length(field: Option<&[u8]>) -> usize {
    field.map_or(0, <[u8]>::len)
}

#[derive(Debug)]
pub(super) enum Content {
    Open(BatchBuilder),
    Sealed(Arc<Vec<u8>>),
}

/// Records that are sent together.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Number that no other batch of the producer has.
    pub(crate) number: u64,
    pub(super) content: Content,
    pub(crate) records: u32,
    /// Bytes before compression, which count against `buffer.memory`.
    pub(crate) bytes: usize,
    pub(crate) record_bytes_max: usize,
    pub(crate) tracked: Vec<Tracked>,
    pub(crate) created: Millis,
    /// Its sequence, and its place among the batches sent under one identity.
    pub(super) sequence: Option<(i32, u64)>,
    pub(super) is_in_flight: bool,
    /// True if a node may have stored it without our knowing.
    pub(super) may_be_stored: bool,
    pub(super) is_closed: bool,
}

impl Batch {
    pub(crate) fn was_sent(&self) -> bool {
        self.sequence.is_some()
    }
}

/// A batch to be sent: its number and its bytes.
pub(crate) type Sealed = (u64, Arc<Vec<u8>>);

/// The result of a batch's answer, or of its absence.
#[derive(Debug)]
pub(crate) enum Settled {
    Stored(Batch),
    /// It is sent again; why, if the cause is not a batch before it.
    Again(Option<KafkaError>),
    GivenUp(Batch, KafkaError),
    /// It was settled before.
    Unknown,
}

/// A partition's batches; see the module.
#[derive(Debug, Default)]
pub(crate) struct Partition {
    pub(super) queue: VecDeque<Batch>,
    generation: u64,
    who: ProducerIdAndEpoch,
    next_sequence: i32,
    pub(super) next_place: u64,
    is_gapped: bool,
    /// Where its batches in flight are.
    node: Option<NodeId>,
    pub(super) in_flight: usize,
    failures: u32,
    retry_at: Millis,
}

impl Partition {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// True if it can send nothing new before there is an identity later than this generation.
    pub(crate) fn needs_later_than(&self) -> Option<u64> {
        self.is_gapped.then_some(self.generation)
    }

    /// When the oldest batch was begun.
    pub(crate) fn oldest(&self) -> Option<Millis> {
        self.queue.front().map(|batch| batch.created)
    }

    /// Adds a record, in a new batch numbered by `number` if need be. True if a batch became full.
    pub(crate) fn push(
        &mut self,
        record: &Record<'_>,
        batch_bytes: usize,
        codec: Codec,
        now: Millis,
        number: &mut u64,
    ) -> bool {
        let bytes = record.bytes();
        let mut is_full = false;
        if let Some(last) = self.queue.back_mut()
            && let Content::Open(builder) = &last.content
            && builder.size() + bytes > batch_bytes
        {
            last.is_closed = true;
            is_full = true;
        }
        if self.queue.back().is_none_or(|last| last.is_closed) {
            *number += 1;
            self.queue.push_back(Batch {
                number: *number,
                content: Content::Open(BatchBuilder::new(codec)),
                records: 0,
                bytes: 0,
                record_bytes_max: 0,
                tracked: Vec::new(),
                created: now,
                sequence: None,
                is_in_flight: false,
                may_be_stored: false,
                is_closed: false,
            });
        }
        let last = self.queue.back_mut().expect("one was put there");
        if let Content::Open(builder) = &mut last.content {
            builder.push(
                record.timestamp_ms,
                record.key,
                record.value,
                record.headers,
            );
        }
        if let Some(number) = record.delivery {
            last.tracked.push(Tracked {
                number,
                index: last.records,
                timestamp_ms: record.timestamp_ms,
            });
        }
        last.records += 1;
        last.bytes += bytes;
        let of_record = length(record.key) + length(record.value);
        last.record_bytes_max = last.record_bytes_max.max(of_record);
        is_full
    }

    /// The earliest time at which `take` may give a batch; None: an answer has to come first.
    pub(crate) fn ready_at(&self, linger_ms: Millis) -> Option<Millis> {
        let index = self.next()?;
        let batch = &self.queue[index];
        let lingers = !batch.is_closed && batch.sequence.is_none();
        let at = if lingers {
            batch.created + linger_ms
        } else {
            0
        };
        Some(at.max(self.retry_at))
    }

    /// The batch to send next, if none has to be awaited before.
    fn next(&self) -> Option<usize> {
        // Under an identity that is used up, only batches that have its sequences are sent (again).
        let is_of_old = self.is_gapped && self.has_sequenced();
        let index = self
            .queue
            .iter()
            .position(|batch| !batch.is_in_flight && (batch.was_sent() || !is_of_old))?;
        let after = self.queue.iter().skip(index + 1);
        // Batches behind a failed one are being refused, or are stored twice over: see invariant 1.
        if after.into_iter().any(|batch| batch.is_in_flight) {
            return None;
        }
        let batch = &self.queue[index];
        let oldest = self.queue.front().and_then(|first| first.sequence);
        let place = batch.sequence.map_or(self.next_place, |(_, place)| place);
        let is_remembered = oldest.is_none_or(|(_, oldest)| place < oldest + REMEMBERED);
        (is_remembered && (batch.sequence.is_some() || !self.is_gapped)).then_some(index)
    }

    /// Takes over an identity if no batch of an older one is left.
    pub(crate) fn adopt(&mut self, identity: Identity) {
        if self.generation == identity.generation || self.has_sequenced() {
            return; // batches of an older one are sent under that
        }
        self.generation = identity.generation;
        self.who = identity.who;
        (self.next_sequence, self.next_place, self.is_gapped) = (0, 0, false);
    }

    fn has_sequenced(&self) -> bool {
        self.queue.iter().any(Batch::was_sent)
    }

    /// Size of the batch that `take` would give.
    pub(crate) fn next_bytes(&self) -> usize {
        self.next().map_or(0, |index| self.queue[index].bytes)
    }

    /// Takes the next batch for a request to `node`.
    ///
    /// # Errors
    /// The batch is given up if its records cannot be compressed.
    pub(crate) fn take(
        &mut self,
        node: NodeId,
        identity: Identity,
        is_transactional: bool,
        now: Millis,
        linger_ms: Millis,
    ) -> Option<Result<Sealed, (Batch, KafkaError)>> {
        if self.in_flight > 0 && self.node != Some(node) {
            return None;
        }
        if self.ready_at(linger_ms)? > now {
            return None;
        }
        let index = self.next()?;
        let is_new = self.queue[index].sequence.is_none();
        if is_new && self.generation != identity.generation {
            return None; // a new batch waits for the last one of the old identity
        }
        let (who, sequence, place) = (self.who, self.next_sequence, self.next_place);
        let batch = &mut self.queue[index];
        if is_new {
            let sealed = match &mut batch.content {
                Content::Open(builder) => {
                    (builder.producer_id, builder.producer_epoch) = who;
                    builder.base_sequence = sequence;
                    builder.is_transactional = is_transactional;
                    builder.seal().map(Arc::new)
                }
                Content::Sealed(bytes) => Ok(stamped(bytes, who, sequence)),
            };
            match sealed {
                Ok(bytes) => batch.content = Content::Sealed(bytes),
                Err(error) => {
                    let message = format!("the records could not be compressed: {error}");
                    let batch = self.queue.remove(index).expect("it is there");
                    let error = KafkaError::refused(codes::UNKNOWN_SERVER_ERROR, message);
                    return Some(Err((batch, error)));
                }
            }
            batch.sequence = Some((sequence, place));
            batch.is_closed = true;
            self.next_sequence = sequence_after(sequence, batch.records);
            self.next_place += 1;
        }
        let batch = &mut self.queue[index];
        batch.is_in_flight = true;
        let Content::Sealed(bytes) = &batch.content else {
            unreachable!("a batch with a sequence is sealed");
        };
        self.in_flight += 1;
        self.node = Some(node);
        Some(Ok((batch.number, Arc::clone(bytes))))
    }

    /// Settles a batch by its answer; `error` has the code, None is success.
    ///
    /// `may_be_stored`: the request may have been carried out all the same.
    pub(crate) fn settle(
        &mut self,
        number: u64,
        error: Option<KafkaError>,
        may_be_stored: bool,
        now: Millis,
        retry_backoff_ms: Millis,
    ) -> Settled {
        let Some(index) = self.queue.iter().position(|batch| batch.number == number) else {
            return Settled::Unknown; // given up before; `give_up` has counted it
        };
        let batch = &mut self.queue[index];
        batch.is_in_flight = false;
        self.in_flight -= 1;
        let Some(error) = error else {
            self.failures = 0;
            return Settled::Stored(self.queue.remove(index).expect("it is there"));
        };
        batch.may_be_stored |= may_be_stored;
        let is_gap = error.code == codes::OUT_OF_ORDER_SEQUENCE_NUMBER;
        if is_gap && self.is_gapped && !batch.may_be_stored {
            // Certainly not stored: it begins anew under the next identity.
            batch.sequence = None;
            return Settled::Again(None);
        }
        if is_gap && index > 0 && !self.is_gapped {
            return Settled::Again(None); // the echo of a batch before it that failed
        }
        let is_forgotten = error.code == codes::UNKNOWN_PRODUCER_ID && !batch.may_be_stored;
        if is_forgotten {
            batch.sequence = None;
            self.is_gapped = true;
            return Settled::Again(Some(error));
        }
        if error.is_retriable {
            self.failures += 1;
            self.retry_at = now + pause_after(error.code, retry_backoff_ms, self.failures);
            return Settled::Again(Some(error));
        }
        Settled::GivenUp(self.remove(index), error)
    }

    /// Removes a batch that is not known to be stored.
    fn remove(&mut self, index: usize) -> Batch {
        let batch = self.queue.remove(index).expect("the caller found it");
        if batch.is_in_flight {
            self.in_flight -= 1;
        }
        let Some((sequence, place)) = batch.sequence else {
            return batch;
        };
        let is_last = place + 1 == self.next_place;
        if is_last && !batch.may_be_stored && !batch.is_in_flight && !self.is_gapped {
            // Nobody has seen its sequence: the next batch may have it.
            (self.next_sequence, self.next_place) = (sequence, place);
        } else {
            self.is_gapped = true;
        }
        batch
    }

    /// Gives up the batches that were begun before `created_max`.
    pub(crate) fn expire(&mut self, created_max: Millis) -> Vec<Batch> {
        let mut expired = Vec::new();
        while self.queue.front().is_some_and(|b| b.created <= created_max) {
            expired.push(self.remove(0));
        }
        expired
    }

    /// Drops every batch that is not in flight.
    pub(crate) fn drop_waiting(&mut self) -> Vec<Batch> {
        let mut dropped = Vec::new();
        // From the back: the newest sequence can be taken back only if it is the last.
        for index in (0..self.queue.len()).rev() {
            if !self.queue[index].is_in_flight {
                dropped.push(self.remove(index));
            }
        }
        dropped
    }
}

/// A sealed batch with another identity and sequence.
fn stamped(bytes: &Arc<Vec<u8>>, who: ProducerIdAndEpoch, sequence: i32) -> Arc<Vec<u8>> {
    let mut bytes = bytes.as_ref().clone();
    let mut header = Header::parse(&bytes).expect("we made it");
    (header.producer_id, header.producer_epoch) = who;
    header.base_sequence = sequence;
    header.write(&mut bytes);
    header.crc = checksum(&bytes);
    header.write(&mut bytes);
    Arc::new(bytes)
}

/// The sequence after a batch of `records`: after 2³¹ − 1 comes 0.
pub(super) fn sequence_after(base: i32, records: u32) -> i32 {
    ((i64::from(base) + i64::from(records)) & i64::from(i32::MAX)) as i32
}

/// True if a node that answered so may have stored the batch.
pub(crate) fn may_be_stored(code: i16) -> bool {
    let after_append = [
        codes::REQUEST_TIMED_OUT,
        codes::NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ];
    debug_assert!(after_append.iter().all(|&code| error::is_retriable(code)));
    after_append.contains(&code) || code == codes::UNKNOWN_SERVER_ERROR
}
